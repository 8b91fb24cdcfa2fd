"""Milliseconds of a VB iteration on composite kernels, and effective weights a second by sampler.

Both are for `CompositeKernelRegression` and `CompositeKernelClassification` on three kernels. The
BLAS calls that an iteration needs are timed between the iterations, in the same process, so that a
ratio holds while the machine's speed drifts. Run it with one BLAS thread.
"""

import time
from collections.abc import Callable
from typing import Any

import arviz as az
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.linalg import blas, lapack

from ..datasets import load
from ..inference import NUTS, Engine, Gibbs, fit
from ..inference.vb.composite_kernel import fit_composite_kernel
from ..models import (
    CompositeKernelClassification,
    CompositeKernelRegression,
    gaussian,
    linear,
    polynomial,
)
from .speed import Stopwatch

__all__ = ["run"]

type Model = CompositeKernelRegression | CompositeKernelClassification

SIZES = (246, 500, 1000)
ITERATIONS = {246: 60, 500: 30, 1000: 12}


def problems(n: int) -> dict[str, Model]:
    """Both models on `n` made-up objects of 34 features, three kernels of trace n."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 34))
    response = np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.3 * rng.normal(size=n)
    K = (gaussian() | linear() | polynomial(2)).normalize("trace")(X)
    return {
        "regression": CompositeKernelRegression(K, response),
        "classification": CompositeKernelClassification(K, response > 0),
    }


def iteration_times(model: Model, iterations: int) -> NDArray:
    """Milliseconds of VB's iterations."""
    run = Stopwatch(random_seed=1, progressbar=False)
    fit_composite_kernel(model, run, max_iterations=iterations, tolerance=1e-300, starts=1)
    return 1e3 * np.diff(run.ends[:iterations])


def regression_calls(design: NDArray) -> Callable[[], None]:
    """Cholesky factorisation and inverse of the precision of alpha."""
    rows = design[0]
    precision = np.asfortranarray(rows.T @ rows + np.eye(rows.shape[1]))

    def call() -> None:
        factor, _ = lapack.dpotrf(precision, lower=1)
        lapack.dpotri(factor, lower=1, overwrite_c=1)

    return call


def classification_calls(design: NDArray) -> Callable[[], None]:
    """Product of the weighted rows, its factor, the factor's inverse, and that times the rows."""
    n_functions = design.shape[2]
    given = np.ascontiguousarray(design.transpose(1, 0, 2)).reshape(-1, n_functions)
    rows = given.copy()

    def call() -> None:
        rows[:] = given
        gram = blas.dsyrk(1.0, rows.T, lower=True)
        gram.flat[:: n_functions + 1] += 1
        factor, _ = lapack.dpotrf(gram, lower=1, clean=0, overwrite_a=1)
        inverse, _ = lapack.dtrtri(factor, lower=1, overwrite_c=1)
        blas.dtrmm(1.0, inverse, rows.T, lower=1, overwrite_b=1)

    return call


CALLS: dict[str, Callable[[NDArray], Callable[[], None]]] = {
    "regression": regression_calls,
    "classification": classification_calls,
}


def _milliseconds(call: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times))


def weights_per_second(model: Model, engine: Engine, draws: int) -> tuple[float, float]:
    """Least effective number of draws of a weight, and the same a second of the whole fit."""
    result = fit(
        model,
        engine,
        draws=draws,
        tune=500,
        chains=2,
        cores=1,
        random_seed=1,
        progressbar=False,
        log_likelihood=False,
    )
    effective = float(az.ess(result["posterior"].to_dataset()[["beta"]])["beta"].min())
    return effective, effective / result.attrs["seconds"]


def run(console: Console) -> None:
    """Print both tables."""
    table = Table(title="VB, three kernels: medians, ms")
    for column in ("model", "N", "iteration", "BLAS calls", "ratio"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for n in SIZES:
        for name, model in problems(n).items():
            iteration = float(np.median(iteration_times(model, ITERATIONS[n])))
            calls = _milliseconds(CALLS[name](model.design), 20)
            numbers = (iteration, calls, iteration / calls)
            table.add_row(name, str(n), *(f"{x:.3g}" for x in numbers))
    console.print(table)

    table = Table(title="60 ionosphere objects, three kernels, one core: the least of the weights")
    for column in ("model", "sampler", "draws", "effective", "effective a second"):
        table.add_column(column, justify="left" if column in ("model", "sampler") else "right")
    data = load("ionosphere").split(test_size=1 - 60 / 351, seed=1, standardize=False)
    K = (gaussian(0.5) | linear() | polynomial(2)).normalize("trace")(data.X_train)
    sign = np.where(np.asarray(data.y_train) == "g", 1.0, -1.0)
    models: dict[str, Model] = {
        "regression": CompositeKernelRegression(K, sign),
        "regression, collapsed": CompositeKernelRegression(K, sign, collapsed=True),
        "classification": CompositeKernelClassification(K, data.y_train),
    }
    samplers = [
        ("regression", "Gibbs", Gibbs(), 4000),
        ("regression", "Gibbs, not collapsed", Gibbs(collapsed=False), 4000),
        ("regression", "NUTS", NUTS(), 500),
        ("regression, collapsed", "NUTS", NUTS(), 500),
        ("classification", "Gibbs", Gibbs(), 4000),
        ("classification", "Gibbs, not collapsed", Gibbs(collapsed=False), 4000),
        ("classification", "NUTS", NUTS(), 500),
    ]
    for name, title, engine, draws in samplers:
        effective, rate = weights_per_second(models[name], engine, draws)
        table.add_row(name, title, f"{2 * draws:,}", f"{effective:.0f}", f"{rate:.2f}")
    console.print(table)
