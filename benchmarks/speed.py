"""Milliseconds of a VB iteration and a Gibbs sweep, compared with the necessary factorisations.

The BLAS calls are timed between the engines' iterations, in the same process, so that ratios are
stable when the machine's speed drifts. Run it with one BLAS thread.

`run_paper` ("bench paper") is Table 1 of Damoulas and Girolami (2009): 100,000 Gibbs sweeps,
extrapolated from 2,000, and 100 VB iterations, for N = 400 objects, C = 3 classes and D = 6 basis
functions.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.linalg import lapack

from kernelzoo.custom_steps import AlbertChib
from kernelzoo.inference import Run
from kernelzoo.inference.multinomial_probit import fit_multinomial_probit
from kernelzoo.models import MultinomialProbit
from kernelzoo.models.kernels import kernel_stack
from studies.damoulas2009_printed import ascend
from studies.damoulas2009_published import TIMES

__all__ = ["run", "run_paper"]

REPEATS = 5


def gram_problem(n: int, n_classes: int, n_kernels: int) -> MultinomialProbit:
    """Gaussian kernels of several widths on overlapping classes."""
    rng = np.random.default_rng(0)
    labels = np.arange(n) % n_classes
    X = rng.normal(size=(n, 8)) + 2.5 * rng.normal(size=(n_classes, 8))[labels]
    distances = ((X[:, None] - X[None]) ** 2).sum(-1)
    widths = np.geomspace(0.02, 1.0, n_kernels)
    return MultinomialProbit({f"width {w:.2g}": np.exp(-w * distances) for w in widths}, labels)


def basis_problem(n: int) -> MultinomialProbit:
    """Second-order polynomial features of two inputs, three classes: six basis functions."""
    rng = np.random.default_rng(0)
    x, y = rng.uniform(size=(2, n))
    labels = np.where(np.hypot(x - 0.4, y - 0.5) < 0.35, 0, np.where(0.8 * x + 1.8 * y < 0.6, 1, 2))
    features = np.stack([np.ones(n), x, y, x**2, x * y, y**2], axis=1)
    return MultinomialProbit(kernel_stack({"polynomial": features}), labels)


def factorisations(size: int, n_classes: int, *, inverse: bool) -> float:
    """Milliseconds of one Cholesky factorisation a class, with the inverse for VB."""
    matrix = np.eye(size, order="F") + 0.5
    copies = [matrix.copy(order="F") for _ in range(n_classes)]
    start = time.perf_counter()
    for copy in copies:
        factor, _ = lapack.dpotrf(copy, lower=1, overwrite_a=1, clean=0)
        if inverse:
            lapack.dpotri(factor, lower=1, overwrite_c=1)
    return 1e3 * (time.perf_counter() - start)


class Stopwatch(Run):
    """A run that records in `ends` when each iteration ends."""

    ends: list[float]

    @contextmanager
    def track(self, total: int | None, description: str, **_: Any) -> Iterator[Any]:
        """Stand in for the progress bar, which engines advance once an iteration."""
        ends: list[float] = []
        object.__setattr__(self, "ends", ends)
        yield SimpleNamespace(
            advance=lambda *args, **columns: ends.append(time.perf_counter()),
            skip=lambda steps: None,
        )


def vb_iteration(model: MultinomialProbit, iterations: int = 100) -> float:
    """Median milliseconds of a VB iteration in a fit."""
    run = Stopwatch(random_seed=1, progressbar=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it is stopped on purpose
        fit_multinomial_probit(model, run, max_iterations=iterations, tolerance=1e-12, starts=1)
    return 1e3 * float(np.median(np.diff(run.ends[:iterations])))


def gibbs_sweep(model: MultinomialProbit, sweeps: int = 400) -> float:
    """Milliseconds a draw inside `pm.sample`, recording included."""
    with model:
        trace = pm.sample(
            sweeps,
            tune=100,
            chains=1,
            cores=1,
            step=[AlbertChib()],
            random_seed=1,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
        )
    return 1e3 * float(trace["posterior"].attrs["sampling_time"]) / (sweeps + 100)


def sweep_seconds(model: MultinomialProbit, sweeps: int = 2000) -> float:
    """Processor seconds of a sweep of the paper's sampler, without recording."""
    step = AlbertChib(model=model, rng=1)
    step.setup_chain(np.random.default_rng(1), tune=0, draws=sweeps)
    point = model.initial_point()
    point, _ = step.step(point)
    start = time.process_time()
    for _ in range(sweeps):
        point, _ = step.step(point)
    return (time.process_time() - start) / sweeps


def vb_seconds(model: MultinomialProbit, iterations: int = 100) -> float:
    """Processor seconds of iterations of the printed algorithm."""
    run = Run(random_seed=1, progressbar=False)
    start = time.process_time()
    ascend(model, run, {"max_iterations": iterations, "tolerance": 1e-300})
    return time.process_time() - start


def run_paper(console: Console) -> None:
    """Print Table 1 of the paper with our times."""
    model = basis_problem(400)
    pairs = [(100_000 * sweep_seconds(model), vb_seconds(model)) for _ in range(REPEATS)]
    gibbs, vb = np.median(pairs, axis=0)
    table = Table(title=f"N=400, C=3, D=6: seconds of the processor, medians of {REPEATS} runs")
    for column in ("", "100,000 Gibbs sweeps", "100 VB iterations", "ratio"):
        table.add_column(column, justify="right" if column else "left")
    ratio = np.median([gibbs / vb for gibbs, vb in pairs])
    table.add_row("here", f"{gibbs:.1f}", f"{vb:.3f}", f"{ratio:.0f}")
    gibbs, vb = TIMES["Gibbs"], TIMES["VB"]
    table.add_row("paper, in Matlab", f"{gibbs:.1f}", f"{vb:.1f}", f"{gibbs / vb:.0f}")
    console.print(table)


def _paired(work: Callable[[], float], floor: Callable[[], float]) -> NDArray:
    """Medians of the work's time, of its floor, and of their paired ratio."""
    pairs = np.array([(work(), np.median([floor() for _ in range(20)])) for _ in range(REPEATS)])
    return np.array([*np.median(pairs, axis=0), np.median(pairs[:, 0] / pairs[:, 1])])


def run(console: Console) -> None:
    """Print the table of timings."""
    table = Table(title=f"medians of {REPEATS} runs, ms")
    for column in ("problem", "work", "ms", "factorisations, ms", "ratio"):
        table.add_column(column, justify="left" if column in ("problem", "work") else "right")
    problems = {
        "N=200, C=10, S=4, Gram": gram_problem(200, 10, 4),
        "N=400, C=3, M=6, basis": basis_problem(400),
    }
    for title, model in problems.items():
        size, n_classes = model.design.shape[2], model.n_classes
        for name, work, inverse in (
            ("VB iteration", partial(vb_iteration, model), True),
            ("Gibbs sweep", partial(gibbs_sweep, model), False),
        ):
            floor = partial(factorisations, size, n_classes, inverse=inverse)
            table.add_row(title, name, *(f"{x:.3g}" for x in _paired(work, floor)))
    console.print(table)
