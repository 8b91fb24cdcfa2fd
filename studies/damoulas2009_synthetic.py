"""Section 4.1 of Damoulas and Girolami (2009): two simulated sets by Gibbs and variational Bayes.

The first set has three classes in the plane, divided by known regressors of (1, x1, x2). Figures 4
and 5 and eq 13 show the posterior of one decision boundary, its slope and intercept, by Gibbs
sampling and by variational Bayes (VB). The comparison is how much smaller VB's covariance is, and
whether the true boundary lies in the region of probability 0.95 of the normal with the posterior
mean and covariance.

The second set is Neal's, with the features (1, x1, x2, x1^2, x1 x2, x2^2). The study gives errors,
the agreement of the decision regions of Figures 6 and 7, and Table 1, the times of 100,000 sweeps
and of 100 VB iterations.

Both models have tau = upsilon = 1. VB is the algorithm of Table 2 (see `damoulas2009`) with the
stated number of iterations. With a single kernel this is exact mean field.
"""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from scipy.stats import chi2

from kernelzoo.datasets import neal_three_class
from kernelzoo.inference import predict
from kernelzoo.inference.engine import with_group
from kernelzoo.models.kernels import as_stack

from .damoulas2009 import PRIOR, error, fitted
from .study import RECIPES as ALL
from .study import Study, Task, described

type Recipes = Mapping[str, Mapping[str, Any]]

#: Regressors (class, feature) of the first set.
REGRESSORS = np.array([[0.5, -1.0, 2.0], [-0.5, 2.0, -1.0], [-1.0, 2.0, 2.0]])
MOMENTS = ("variance of the slope", "covariance", "variance of the intercept")
TRUE = "true boundary within 95 %"
VARIANCES = "variance of the slope, Gibbs in VB's"
#: Recipes by the name in the rows.
RECIPES = {
    name: {"prior": PRIOR, **recipe} for name, recipe in ALL["damoulas2009_synthetic"].items()
}
SWEEPS = 100_000
ITERATIONS = 100
SECONDS = {"Gibbs": f"seconds of {SWEEPS:,} sweeps", "VB": f"seconds of {ITERATIONS} iterations"}
RATIO = "ratio"
LEAST = "least error of any rule on new objects"


def divided_plane(n: int, seed: int) -> tuple[NDArray, NDArray]:
    """Draw (1, x1, x2), uniform on the square of side 2, and the classes by largest regression."""
    X = np.random.default_rng(seed).uniform(-1, 1, size=(n, 2))
    features = np.column_stack([np.ones(n), X])
    return features, (features @ REGRESSORS.T).argmax(axis=1)


def boundary(W: NDArray) -> NDArray:
    """Slope and intercept (..., 2) of the first two classes' boundary, from W (..., class, 3)."""
    constant, first, second = np.moveaxis(W[..., 0, :] - W[..., 1, :], -1, 0)
    return np.stack([-first / second, -constant / second], axis=-1)


def boundaries(column: str, seed: int, *, n: int, recipes: Recipes) -> dict[str, float]:
    """Compare the posteriors of a boundary, from `n` points, by their covariances (eq 13)."""
    features, labels = divided_plane(n, seed)
    values: dict[str, float] = {}
    for name, recipe in recipes.items():
        _, result = fitted(as_stack({"plane": features}), labels, seed, recipe)
        W = result["posterior"]["W"].stack(sample=("chain", "draw"))
        draws = boundary(W.transpose("sample", "class", "basis").to_numpy())
        covariance = np.cov(draws.T)
        gap = boundary(REGRESSORS) - draws.mean(axis=0)
        inside = gap @ np.linalg.solve(covariance, gap) <= chi2.ppf(0.95, 2)
        moments = 1000.0 * np.array([*covariance[0], covariance[1, 1]])
        values |= dict(zip(_rows(name), (*moments, 100.0 * inside), strict=True))
    by_gibbs, by_vb = (values[_rows(name)[0]] for name in ("Gibbs", "VB"))
    return values | {VARIANCES: by_gibbs / by_vb}


def _rows(name: str) -> tuple[str, ...]:
    return tuple(f"{name}: {what}" for what in (*MOMENTS, TRUE))


def quadratic(X: Any) -> NDArray:
    """Expand the first two inputs: (1, x1, x2, x1^2, x1 x2, x2^2)."""
    x, y = np.asarray(X, dtype=float)[:, :2].T
    return np.column_stack([np.ones(len(x)), x, y, x**2, x * y, y**2])


def regions(
    column: str,
    seed: int,
    *,
    n: int,
    n_test: int,
    noise: float,
    side: int,
    kept: int,
    recipes: Recipes,
) -> dict[str, float]:
    """Compare errors and regions (the share of a grid with the class of the first recipe).

    Classes are predicted from `kept` draws, on a grid of `side` by `side` points.
    """
    train, test = (neal_three_class(m, s, noise) for m, s in ((n, seed), (n_test, seed + 1)))
    axis = np.linspace(0, 1, side)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    kernels = as_stack({"quadratic": quadratic(train.X)})
    values: list[float] = []
    reference = None
    for recipe in recipes.values():
        model, result = fitted(kernels, np.asarray(train.y), seed, recipe)
        posterior = result["posterior"].to_dataset()
        spaced = np.linspace(0, posterior.sizes["draw"] - 1, kept).astype(int)
        with_group(result, "posterior", posterior.isel(draw=spaced))
        on_train, on_test, on_grid = (
            predict(model, result, {"quadratic": quadratic(X)})["label"].to_numpy()
            for X in (train.X, test.X, grid)
        )
        reference = on_grid if reference is None else reference
        values += [error(on_train, np.asarray(train.y)), error(on_test, np.asarray(test.y))]
        values.append(100.0 - error(on_grid, reference))
    return dict(zip(_region_rows(list(recipes)), values, strict=True))


def _region_rows(names: list[str]) -> tuple[str, ...]:
    whats = ("error on training objects", "error on new objects", f"region as of {names[0]}")
    return tuple(f"{name}: {what}" for name in names for what in whats)


def least_error(column: str, seed: int, *, n: int, noise: float, side: int) -> dict[str, float]:
    """Error of Bayes' rule, per cent: classes of `n` objects by square, blurred by the noise."""
    data = neal_three_class(n, seed, noise=0.0)
    x, y = np.asarray(data.X)[:, :2].T
    bins = (np.arange(4), *[np.linspace(-0.5, 1.5, 2 * side + 1)] * 2)
    counts, _ = np.histogramdd((np.asarray(data.y), x, y), bins)
    blurred = gaussian_filter(counts, (0, noise * side, noise * side), mode="constant")
    return {LEAST: 100.0 * float(1 - blurred.max(axis=0).sum() / blurred.sum())}


def durations(column: str, seed: int, *, n: int, rounds: int, sweeps: int) -> dict[str, float]:
    """Time Gibbs sweeps, without compilation, and VB iterations alternately on Neal's data."""
    data = neal_three_class(n, seed)
    labels = np.asarray(data.y)
    kernels = as_stack({"quadratic": quadratic(data.X)})
    sampling = {"tune": 10, "draws": sweeps, "chains": 1, "cores": 1}
    one_draw = RECIPES["VB"] | {"sampling": {"draws": 1}}
    times = []
    for _ in range(rounds):
        _, result = fitted(kernels, labels, seed, RECIPES["Gibbs"] | {"sampling": sampling})
        sweep = float(result["posterior"].attrs["sampling_time"]) / (sweeps + 10)
        start = time.perf_counter()
        fitted(kernels, labels, seed, one_draw)
        times.append((SWEEPS * sweep, time.perf_counter() - start))
    gibbs, vb = np.median(times, axis=0).tolist()
    return {SECONDS["Gibbs"]: gibbs, SECONDS["VB"]: vb, RATIO: gibbs / vb}


def study() -> Study:
    """Section 4.1: eq 13 with Figures 4 and 5, Figures 6 and 7, Table 1."""
    both = {name: RECIPES[name] for name in ("Gibbs", "VB")}
    rows = (*(row for name in both for row in _rows(name)), VARIANCES)
    tasks = [Task("plane", rows, boundaries, {"n": 90, "recipes": both})]
    grid = {"n": 400, "n_test": 1000, "side": 30, "kept": 200, "recipes": RECIPES}
    for column, noise in {"Neal": 0.1, "Neal, without noise": 0.0}.items():
        settings = grid | {"noise": noise}
        tasks.append(Task(column, _region_rows(list(RECIPES)), regions, settings))
    tasks.append(Task("Neal", (LEAST,), least_error, {"n": 1_000_000, "noise": 0.1, "side": 200}))
    clock = {"n": 400, "rounds": 3, "sweeps": 1000}
    tasks.append(Task("Neal, time", (*SECONDS.values(), RATIO), durations, clock))
    return described("damoulas2009-synthetic", tasks)
