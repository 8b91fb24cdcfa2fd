"""Tables 1 and 2 and Figure 3 of Girolami and Rogers (2005).

The tables: variational Bayes with type-II maximum likelihood on four data sets with two classes,
with a Gaussian, a linear and a polynomial kernel, each alone and all three combined. It starts from
equal weights and from each kernel alone; the printed weights tell which start the paper used.

The figure: a kernel is split into its eigenvectors' rank-one kernels, which a classifier reweights.

Type-II maximum likelihood (section 4.2): from some iteration on, each one first makes the priors of
precisions and concentrations those of highest expected log density under their factors. Their
shapes have no maximum: they grow without bound, so the number of iterations is part of the recipe.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import digamma

from kernelzoo import MAP, fit, predict
from kernelzoo.datasets import Split, twonorm
from kernelzoo.inference import Run
from kernelzoo.inference.composite_kernel.vb import Data, sample, update
from kernelzoo.inference.composite_kernel.vb import start as first_state
from kernelzoo.inference.composite_kernel.vb_likelihoods import Bernoulli
from kernelzoo.inference.engine import lean_tree
from kernelzoo.inference.mutual_completion import kernel_alignment
from kernelzoo.inference.variational.factors import Gamma
from kernelzoo.models import CompositeKernelClassification
from kernelzoo.models.combinations import DirichletWeights
from kernelzoo.models.kernels import Kernels, gaussian, linear, polynomial

from .data import absence, objects
from .study import RECIPES, Study, Task, described

#: The paper's K_1, K_2, K_3.
KERNELS = ("Gaussian", "linear", "polynomial")
COMBINED = "all three"
EQUAL = "from equal weights"
HIGHEST = "highest bound"
STARTS = (EQUAL, *(f"from the {kernel} alone" for kernel in KERNELS))
#: Kernels and number of starts of each row of Table 1.
CLASSIFIERS: dict[str, tuple[tuple[str, ...], int]] = {
    **{kernel: ((kernel,), 1) for kernel in KERNELS},
    f"{COMBINED}, {EQUAL}": (KERNELS, 1),
    f"{COMBINED}, {HIGHEST}": (KERNELS, len(STARTS)),
}
RECIPE = RECIPES["girolami2005"]
DATA: dict[str, dict[str, Any]] = RECIPE["data"]
SEED = 2005
# Largest shape: beyond, log a - digamma(a) has lost its digits.
LARGEST_SHAPE = 1e8


class TypeTwo(NamedTuple):
    """Draws of the highest bound; by start, the bound with the fitted priors, and mean weights."""

    result: Any
    bounds: NDArray
    weights: NDArray


def fit_type_two(
    model: CompositeKernelClassification,
    beginnings: Sequence[NDArray],
    *,
    type_two_from: int,
    max_iterations: int,
    draws: int,
    seed: int,
) -> TypeTwo:
    """Iterate the factors of section 4.1 from each start, and from `type_two_from` on the priors.

    `beginnings` are the weights at each start; `draws` are those from the best approximation.
    """
    rule = model.combination
    assert isinstance(model.varsigma, float)
    priors = {"phi": Gamma(model.sigma, model.varsigma)}
    if isinstance(rule, DirichletWeights):
        priors["varphi"] = Gamma(rule.tau, rule.nu)
    likelihood = Bernoulli.of(model.design, model.label_codes)
    declared = Data(likelihood, priors, rule if isinstance(rule, DirichletWeights) else None)
    ends = []
    for weights in beginnings:
        data = declared
        state = first_state(declared, len(model.coords["function"]), weights)
        for iteration in range(max_iterations):
            if iteration >= type_two_from:
                factors = {"phi": state.phi, "varphi": state.weights.rho}
                fitted = {name: most_likely(factors[name]) for name in priors if factors[name]}
                data = replace(data, priors=fitted)
            state = update(data, state)
        ends.append((data, state))
    bounds = np.array([state.objective for _, state in ends])
    run = Run(random_seed=seed, progressbar=False, draws=draws)
    drawn, _ = sample(*ends[int(bounds.argmax())], run.draws, run.rng(1))
    weights = np.array([state.weights.mean for _, state in ends])
    return TypeTwo(lean_tree(model, run, drawn, {}), bounds, weights)


def most_likely(factor: Any) -> Gamma:
    """Maximise sum_m E[log Gamma(x_m | shape, rate)] (section 4.2) for a factor of the x_m."""
    average = float(np.mean(factor.mean))
    gap = float(np.log(average) - np.mean(factor.mean_log))
    if gap <= 0.5 / LARGEST_SHAPE:
        return Gamma(LARGEST_SHAPE, LARGEST_SHAPE / average)
    # log a - digamma(a) is between 1 / (2 a) and 1 / a.
    shape = brentq(lambda a: np.log(a) - digamma(a) - gap, 0.5 / gap, 1 / gap, rtol=1e-14)
    return Gamma(shape, shape / average)


def divide(
    column: str, seed: int, *, standardize: bool, test_size: float, n: int | None = None
) -> Split:
    """Divide a data set at random, stratified by class; standardise it by the training part.

    With `n` objects of 2-norm: the same sample for every seed.
    """
    data = objects(column, standardize=False) if n is None else twonorm(n, seed=SEED)
    return data.split(test_size, seed=seed, standardize=standardize)


def specification(width: float) -> Kernels:
    """Kernels of the paper's three forms, the Gaussian of a width, at the training trace N."""
    first, second, third = KERNELS
    members = gaussian(0.5 / width**2).named(first) | linear().named(second)
    return (members | polynomial(2).named(third)).normalize("trace")


def _fitted(
    kernels: xr.DataArray, labels: NDArray, seed: int, starts: int, recipe: Mapping[str, Any]
) -> tuple[CompositeKernelClassification, TypeTwo]:
    rule = DirichletWeights(**recipe["concentrations"])
    model = CompositeKernelClassification(kernels, labels, combination=rule, **recipe["precisions"])
    n = len(model.coords["kernel"])
    beginnings = [np.full(n, 1 / n), *np.eye(n)][:starts]
    settings = {name: recipe["algorithm"][name] for name in ("type_two_from", "max_iterations")}
    return model, fit_type_two(model, beginnings, draws=recipe["draws"], seed=seed, **settings)


def accuracies(
    column: str, seed: int, *, data: Mapping[str, Any], width: float, recipe: Mapping[str, Any]
) -> dict[str, float]:
    """Test accuracy by the name in ``CLASSIFIERS``, per cent."""
    split = divide(column, seed, **data)
    all_three = specification(width)
    trained = all_three(split.X_train)
    new = all_three(split.X_test, split.X_train)
    values = {}
    for name, (kernels, starts) in CLASSIFIERS.items():
        chosen = {"kernel": list(kernels)}
        model, fitted = _fitted(trained.sel(chosen), split.y_train, seed, starts, recipe)
        labels = predict(model, fitted.result, new.sel(chosen))["label"].to_numpy()
        values[name] = 100.0 * float(np.mean(labels == split.y_test))
    return values


def optima(
    column: str, seed: int, *, data: Mapping[str, Any], width: float, recipe: Mapping[str, Any]
) -> dict[str, float]:
    """Find the final weights of each start, per cent, and how far its bound is below the highest.

    Arguments are those of `accuracies`. The start ``HIGHEST`` is that of the highest bound.
    """
    split = divide(column, seed, **data)
    kernels = specification(width)(split.X_train)
    _, fitted = _fitted(kernels, split.y_train, seed, len(STARTS), recipe)
    best = fitted.bounds.argmax()
    ends = dict(zip((HIGHEST, *STARTS), [fitted.weights[best], *fitted.weights], strict=True))
    values = {
        row: 100.0 * float(weight)
        for start, weights in ends.items()
        for row, weight in zip(_rows(start), weights, strict=True)
    }
    below = fitted.bounds[best] - fitted.bounds
    return values | {f"{s}: bound": gap for s, gap in zip(STARTS, below.tolist(), strict=True)}


def _rows(start: str) -> tuple[str, ...]:
    return tuple(f"{start}: {kernel}" for kernel in KERNELS)


def clusters(
    rng: np.random.Generator, *, size: int, gap: float, spread: float
) -> tuple[NDArray, NDArray]:
    """Simulate two classes of two clusters each, on the two sides of the second axis."""
    X = np.repeat([[-gap, -1.0], [-gap, 1.0], [gap, -1.0], [gap, 1.0]], size, axis=0)
    return X + spread * rng.standard_normal(X.shape), np.repeat([0, 1], 2 * size)


def eigenvector_kernels(gram: NDArray) -> tuple[NDArray, NDArray]:
    """Split a kernel into the rank-one kernels u_n u_n' of its eigenvectors (section 6.1)."""
    eigenvalues, vectors = np.linalg.eigh(gram)
    eigenvalues = eigenvalues[::-1]
    vectors = vectors.T[::-1]
    rank = int((eigenvalues > len(eigenvalues) * np.finfo(float).eps * eigenvalues[0]).sum())
    kernels = vectors[:rank, :, None] * vectors[:rank, None, :]
    return kernels, eigenvalues[:rank] / eigenvalues[:rank].sum()


def realignment(
    column: str,
    seed: int,
    *,
    points: Mapping[str, Any],
    width: float,
    precisions: Mapping[str, Any],
) -> dict[str, float]:
    """Reweight the eigenvectors of a kernel, and align it with the labels before and after.

    Eigenvalues and weights each add up to 100 per cent. `points` are settings of `clusters`.
    """
    X, y = clusters(np.random.default_rng(seed), **points)
    gram = gaussian(0.5 / width**2)(X).to_numpy()[0]
    kernels, shares = eigenvector_kernels(gram)
    model = CompositeKernelClassification(
        dict(enumerate(kernels)), y, combination=DirichletWeights(varphi=1.0), **precisions
    )
    result = fit(model, MAP(), random_seed=seed, progressbar=False, log_likelihood=False)
    weights = result["point"]["beta"].to_numpy()
    labels = np.outer(2.0 * y - 1, 2.0 * y - 1)
    return {
        "alignment before": 100.0 * kernel_alignment(gram, labels),
        "alignment after": 100.0 * kernel_alignment(np.tensordot(weights, kernels, axes=1), labels),
        "largest eigenvalue": 100.0 * float(shares.max()),
        "largest weight": 100.0 * float(weights.max()),
    }


def table_1() -> Study:
    """Table 1: accuracy with each kernel alone and with all three."""
    return _of_all_data("girolami2005-table1", tuple(CLASSIFIERS), accuracies, 1000)


def table_2() -> Study:
    """Table 2: the kernels' weights, from equal weights and from other starts."""
    by_start = (row for start in STARTS for row in (*_rows(start), f"{start}: bound"))
    return _of_all_data("girolami2005-table2", (*_rows(HIGHEST), *by_start), optima, 100)


def _of_all_data(
    name: str, rows: tuple[str, ...], function: Callable[..., dict[str, float]], draws: int
) -> Study:
    recipe = {name: RECIPE[name] for name in ("precisions", "concentrations", "algorithm")}
    tasks = []
    for column, row in DATA.items():
        data = {"test_size": 0.3} | row
        settings = {"width": data.pop("width"), "data": data, "recipe": recipe | {"draws": draws}}
        skip = None if "n" in data else absence(column)
        tasks.append(Task(column, rows, function, settings, skip))
    return described(name, tasks)


def figure_3() -> Study:
    """Figure 3: alignment of a kernel with the labels, its eigenvectors reweighted by MAP."""
    rows = ("alignment before", "alignment after", "largest eigenvalue", "largest weight")
    settings = RECIPE["figure_3"] | {"precisions": RECIPE["precisions"]}
    task = Task("two classes of two clusters", rows, realignment, settings)
    return described("girolami2005-figure3", [task])
