"""Composite kernels: milliseconds of a VB iteration, and effective draws of weights by sampler.

The models are `CompositeKernelRegression` and `CompositeKernelClassification`. The BLAS calls that
an iteration needs are timed right after the iterations, in the same process. Run it with one BLAS
thread.
"""

import time
import warnings
from collections.abc import Callable
from typing import Any

import arviz as az
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.linalg import blas, lapack

from kernelzoo.datasets import load
from kernelzoo.inference import NUTS, VB, Engine, Gibbs, fit
from kernelzoo.inference.composite_kernel import fit_composite_kernel
from kernelzoo.models import CompositeKernelClassification, CompositeKernelRegression
from kernelzoo.models.kernels import Kernels, gaussian, linear, polynomial

from .speed import Stopwatch

__all__ = ["run"]

type Model = CompositeKernelRegression | CompositeKernelClassification

#: Number of timed iterations by number of objects; medians are shown.
ITERATIONS = {246: 60, 500: 30, 1000: 12, 2000: 5}
#: Numbers of objects for the points of Q(beta).
POINTS = (60, 120, 246, 500)

THREE = (gaussian() | linear() | polynomial(2)).normalize("trace")
FIVE = (THREE | gaussian(0.2) | gaussian(0.005)).normalize("trace")


def problems(n: int, kernels: Kernels = THREE) -> dict[str, Model]:
    """Both models on `n` simulated objects with 34 features and kernels of trace n."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 34))
    response = np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.3 * rng.normal(size=n)
    K = kernels(X)
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
    """Product of weighted rows, its Cholesky factor, the factor's inverse times the rows."""
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


def effective_points(model: Model, weights: str) -> float:
    """Effective number of points for the moments of Q(beta), at the end of VB."""
    with warnings.catch_warnings():
        # The table shows that the paper's samples do not suffice.
        warnings.simplefilter("ignore")
        result = fit(
            model,
            VB(weights=weights, starts=1, max_iterations=200),
            draws=10,
            random_seed=1,
            progressbar=False,
            log_likelihood=False,
        )
    return float(result["variational"]["beta_ess"])


def weights_per_second(
    model: Model, engine: Engine, draws: int, tune: int = 500
) -> tuple[float, float]:
    """Smallest effective number of draws of a weight, in total and a second of the fit."""
    result = fit(
        model,
        engine,
        draws=draws,
        tune=tune,
        chains=2,
        cores=1,
        random_seed=1,
        progressbar=False,
        log_likelihood=False,
    )
    effective = float(az.ess(result["posterior"].to_dataset()[["beta"]])["beta"].min())
    return effective, effective / result.attrs["seconds"]


def iterations_table() -> Table:
    """Table of VB's iteration times by N, with the necessary BLAS calls."""
    table = Table(title="VB, three kernels: medians, ms")
    for column in ("model", "N", "iteration", "BLAS calls", "ratio"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for n, iterations in ITERATIONS.items():
        for name, model in problems(n).items():
            iteration = float(np.median(iteration_times(model, iterations)))
            calls = _milliseconds(CALLS[name](model.design), iterations)
            numbers = (iteration, calls, iteration / calls)
            table.add_row(name, str(n), *(f"{x:.3g}" for x in numbers))
    return table


def points_table() -> Table:
    """Table of effective points of Q(beta) by N."""
    table = Table(title="VB: effective points of Q(beta)")
    columns = ("3 kernels: grid", "3: 1,000 of the prior", "5 kernels: mixture", "5: of the prior")
    for column in ("model", "N", *columns):
        table.add_column(column, justify="left" if column == "model" else "right")
    for n in POINTS:
        three, five = problems(n), problems(n, FIVE)
        for name in three:
            numbers = [
                effective_points(models[name], weights)
                for models in (three, five)
                for weights in ("quadrature", "importance")
            ]
            table.add_row(name, str(n), *(f"{x:,.0f}" for x in numbers))
    return table


def samplers_table(n: int, gibbs_draws: int, nuts_draws: int) -> Table:
    """Table of effective draws of weights a second, by sampler, on `n` objects."""
    table = Table(
        title=f"{n} ionosphere objects, three kernels, one core: the least of the weights"
    )
    for column in ("model", "sampler", "draws", "effective", "effective a second"):
        table.add_column(column, justify="left" if column in ("model", "sampler") else "right")
    data = load("ionosphere").split(test_size=1 - n / 351, seed=1, standardize=False)
    K = (gaussian(0.5) | linear() | polynomial(2)).normalize("trace")(data.X_train)
    sign = np.where(np.asarray(data.y_train) == "g", 1.0, -1.0)
    models: dict[str, Model] = {
        "regression": CompositeKernelRegression(K, sign),
        "regression, collapsed": CompositeKernelRegression(K, sign, collapsed=True),
        "classification": CompositeKernelClassification(K, data.y_train),
    }
    samplers = [
        ("regression", "Gibbs", Gibbs(), gibbs_draws),
        ("regression", "Gibbs, not collapsed", Gibbs(collapsed=False), gibbs_draws),
        ("regression", "NUTS", NUTS(), nuts_draws),
        ("regression, collapsed", "NUTS", NUTS(), nuts_draws),
        ("classification", "Gibbs", Gibbs(), gibbs_draws),
        ("classification", "Gibbs, not collapsed", Gibbs(collapsed=False), gibbs_draws),
        ("classification", "NUTS", NUTS(), nuts_draws),
    ]
    for name, title, engine, draws in samplers:
        effective, rate = weights_per_second(models[name], engine, draws)
        table.add_row(name, title, f"{2 * draws:,}", f"{effective:.0f}", f"{rate:.2f}")
    return table


def run(console: Console) -> None:
    """Print the tables."""
    console.print(iterations_table())
    console.print(points_table())
    console.print(samplers_table(60, gibbs_draws=4000, nuts_draws=500))
    console.print(samplers_table(189, gibbs_draws=2000, nuts_draws=300))
