"""Coverage of intervals of the composite-kernel regression: VB against Gibbs.

The paper (Girolami and Rogers, 2005) introduces its regression without an example. Here are two
tests. "known truth": kernel weights, regression weights and noise are drawn from the model's prior,
so that central intervals of an exact posterior cover the kernels' weights at their level, on
average over many problems. Intervals of new targets, mean +- 1.645 standard deviations, do so only
if the predictive distribution, a mixture over the posterior, is nearly normal. "Friedman":
Friedman's first function of ten inputs, of which five matter.
"""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.datasets import make_friedman1

from kernelzoo import ApproximationWarning, fit, predict
from kernelzoo.models import CompositeKernelRegression
from kernelzoo.models.combinations import DirichletWeights

from .girolami2005 import specification
from .study import QUIET, RECIPES, Study, Task, described

RECIPE = RECIPES["girolami2005_coverage"]
SETTINGS = {
    column: RECIPE["common"] | own | {"engines": RECIPE["engines"]}
    for column, own in RECIPE["data"].items()
}


class Problem(NamedTuple):
    """Training and test part; `beta` (kernel,) are the true weights if known."""

    model: CompositeKernelRegression
    kernels_new: xr.DataArray
    targets_new: NDArray
    beta: NDArray | None


def known_truth(rng: np.random.Generator, settings: Mapping[str, Any]) -> Problem:
    """Simulate three inputs, and targets from the declaration's prior."""
    n = settings["n_train"]
    X = rng.normal(size=(n + settings["n_test"], 3))
    kernels = specification(settings["width"])
    K = kernels(X[:n])
    K_new = kernels(X[n:], X[:n])
    options = {name: settings[name] for name in ("sigma", "varsigma")}
    options["combination"] = DirichletWeights(settings["tau"], settings["nu"])
    prior = CompositeKernelRegression(K, np.zeros(n), **options)
    names = ["beta", "alpha", "gamma", "t"]
    beta, alpha, gamma, targets = pm.draw([prior[name] for name in names], random_seed=rng)
    response = np.tensordot(beta, prior.functions(K_new.to_numpy()), axes=1) @ alpha
    noise = rng.normal(size=settings["n_test"]) / np.sqrt(gamma)
    return Problem(CompositeKernelRegression(K, targets, **options), K_new, response + noise, beta)


def friedman(rng: np.random.Generator, settings: Mapping[str, Any]) -> Problem:
    """Simulate ten standardised uniform inputs; targets are standardised by the training part."""
    n = settings["n_train"]
    X, y = make_friedman1(
        n + settings["n_test"], noise=settings["noise"], random_state=int(rng.integers(2**31))
    )
    X = (X - 0.5) * np.sqrt(12)
    y = (y - y[:n].mean()) / y[:n].std()
    kernels = specification(settings["width"] * np.sqrt(X.shape[1] / 3))
    model = CompositeKernelRegression(kernels(X[:n]), y[:n])
    return Problem(model, kernels(X[n:], X[:n]), y[n:], None)


PROBLEMS = {"known truth": known_truth, "Friedman": friedman}


def coverage(column: str, seed: int, **settings: Any) -> dict[str, float]:
    """Run every engine on one draw of a problem; settings are a column's in ``SETTINGS``.

    In per cent: new targets in normal intervals, the root mean squared error in standard deviations
    of the targets, and, if the truth is known, weights in central intervals of their draws.
    """
    problem = PROBLEMS[column](np.random.default_rng(seed), settings)
    level = settings["level"] / 100
    reach = norm.isf((1 - level) / 2)
    scale = problem.targets_new.std()
    values = {}
    for name, options in settings["engines"].items():
        with warnings.catch_warnings():
            # The table shows the errors of VB.
            warnings.simplefilter("ignore", ApproximationWarning)
            result = fit(problem.model, random_seed=seed, **QUIET, **options)
        predictions = predict(problem.model, result, problem.kernels_new)
        error = predictions["mean"].to_numpy() - problem.targets_new
        covered = np.abs(error) <= reach * predictions["target_sd"].to_numpy()
        values[f"{name}: new targets"] = 100 * float(covered.mean())
        values[f"{name}: error"] = 100 * float(np.sqrt(np.mean(error**2)) / scale)
        if problem.beta is not None:
            draws = result["posterior"]["beta"]
            ends = [(1 - level) / 2, (1 + level) / 2]
            low, high = draws.quantile(ends, ("chain", "draw")).transpose("quantile", ...).values
            inside = (low <= problem.beta) & (problem.beta <= high)
            values[f"{name}: weights"] = 100 * float(inside.mean())
    return values


def coverage_study() -> Study:
    """Coverage of 90 % intervals, and errors, over 50 problems of each kind."""
    kinds = {"known truth": ("new targets", "error", "weights")}
    tasks = []
    for column, settings in SETTINGS.items():
        own = kinds.get(column, ("new targets", "error"))
        rows = tuple(f"{name}: {kind}" for name in settings["engines"] for kind in own)
        tasks.append(Task(column, rows, coverage, settings))
    return described("girolami2005-coverage", tasks)
