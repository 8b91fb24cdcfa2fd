"""Mutual completion of six kernels by features, beside whole matrices and the imputation of means.

Six noisy linear views of the same factors, with 200 random features of a Gaussian kernel each; an
object lacks a view with probability 0.3. Errors are root mean squares over missing entries of the
kernels, for pairs of objects. Log scores are those of VB of `MultinomialProbit` on the completed
features, for held-out objects. Whole matrices have no features, and no log score here. Each row is
a process of its own.
"""

import multiprocessing
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from ..inference import VB, ApproximationWarning, fit, predict
from ..inference.completion import complete_features, complete_kernels
from ..inference.scores import held_out
from ..models import MultinomialProbit
from ..models.kernels import gaussian, kernel_stack
from .memory import megabytes

__all__ = ["run"]

VIEWS, FACTORS, COLUMNS, FEATURES, MISSING = 6, 8, 12, 200, 0.3
#: Objects, and numbers of components; None stands for whole matrices, 0 for the mean.
RUNS: tuple[tuple[int, int | None], ...] = (
    *((1000, R) for R in (0, None, 5, 10, 20, 50, 200)),
    *((10_000, R) for R in (0, 5, 10, 20, 50)),
)
PAIRS = 50_000


def problem(n: int) -> tuple[list[NDArray], NDArray, NDArray]:
    """Features (n, M) of every view, which are visible (n, view), and labels."""
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(n, FACTORS))
    labels = (np.sin(2 * factors[:, 0]) + factors[:, 1] * factors[:, 2] > 0).astype(int)
    features = []
    for view in range(VIEWS):
        X = factors @ rng.normal(size=(FACTORS, COLUMNS)) / 3 + 0.5 * rng.normal(size=(n, COLUMNS))
        stack = gaussian("median").random_features(FEATURES, seed=view)(X)
        features.append(stack.to_numpy()[0])
    visible = rng.random((n, VIEWS)) > MISSING
    visible[np.arange(n), rng.integers(VIEWS, size=n)] = True
    return features, visible, labels


def row(n: int, n_components: int | None) -> dict[str, float]:
    """Error, log score, seconds, iterations and megabytes of one completion."""
    features, visible, labels = problem(n)
    found: dict[str, float] = {}
    clock = time.perf_counter()
    if n_components is None:
        done = complete_kernels(
            {f"view {k}": F @ F.T for k, F in enumerate(features)},
            visible,
            engine="em",
            normalize=(),
            progressbar=False,
            model={"collapsed": True},
        )
        found["seconds"] = time.perf_counter() - clock
        kernels = done.mean.to_numpy()
        return found | {
            "error": error(features, visible, lambda k, i, j: kernels[k, i, j]),
            "MB at the peak": megabytes(),
        }
    stack = np.stack(features)
    if n_components == 0:
        for F, seen in zip(stack, visible.T, strict=True):
            F[~seen] = F[seen].mean(axis=0)
    else:
        stack[~visible.T] = np.nan
        given = {f"view {k}": F for k, F in enumerate(stack)}
        completed = complete_features(
            given, n_components=n_components, random_seed=1, progressbar=False
        )
        stack = completed["features"].to_numpy()
        found["iterations"] = completed.sizes["iteration"]
    found["seconds"] = time.perf_counter() - clock

    def products(k: int, i: NDArray, j: NDArray) -> NDArray:
        return np.einsum("nm,nm->n", stack[k, i], stack[k, j])

    return found | {
        "error": error(features, visible, products),
        "MB at the peak": megabytes(),
        "log score": log_score(stack, labels),
    }


def error(
    features: list[NDArray], visible: NDArray, entries: Callable[[int, NDArray, NDArray], NDArray]
) -> float:
    """Root mean square error of missing entries (kernel, row, column), averaged over kernels."""
    pairs = np.random.default_rng(1).integers(len(visible), size=(PAIRS, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    errors = []
    for k, (F, seen) in enumerate(zip(features, visible.T, strict=True)):
        i, j = pairs[~seen[pairs].all(axis=1)].T
        true = np.einsum("nm,nm->n", F[i], F[j])
        errors.append(np.sqrt(np.mean((entries(k, i, j) - true) ** 2)))
    return float(np.mean(errors))


def log_score(stack: NDArray, labels: NDArray) -> float:
    """Held-out log score of a probit, trained on seven objects of ten."""
    trained = 7 * len(labels) // 10
    model = MultinomialProbit(kernel_stack(stack[:, :trained]), labels[:trained])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ApproximationWarning)
        result = fit(
            model,
            VB(tolerance=1e-4, remaining=np.inf, starts=1),
            draws=100,
            random_seed=1,
            progressbar=False,
            log_likelihood=False,
        )
    predicted = predict(model, result, stack[:, trained:], progressbar=False)
    return held_out(predicted, labels[trained:])["log_score"]


def run(console: Console) -> None:
    """Print the table."""
    columns = {"error": ".4f", "log score": ".3f", "iterations": ".0f", "seconds": ".1f"}
    columns["MB at the peak"] = ".0f"
    table = Table(title=f"{VIEWS} kernels of {FEATURES} features, {MISSING:.0%} missing")
    table.add_column("objects", justify="right")
    table.add_column("completed by")
    for column in columns:
        table.add_column(column, justify="right")
    names: dict[int | None, str] = {None: "whole matrices, EM", 0: "means"}
    for n, n_components in RUNS:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            found = pool.submit(row, n, n_components).result()
        cells = (format(found[c], shown) if c in found else "" for c, shown in columns.items())
        name = names.get(n_components, f"features, {n_components} components")
        table.add_row(f"{n:,}", name, *cells)
    console.print(table)
