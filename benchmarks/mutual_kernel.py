"""Mutual completion of six kernels, half of their rows missing: times, memory, iterations.

An iteration of EM and a sweep of Gibbs are compared with plain NumPy versions. The two alternate in
one process, so that ratios are stable when the machine's speed drifts. Run it with one BLAS thread.
"""

import time
import tracemalloc
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pymc as pm
from rich.console import Console
from rich.table import Table

from kernelzoo.inference import EM, Engine, Gibbs, Run, fit
from kernelzoo.inference.mutual_completion import (
    MutualObjective,
    minimize,
    mutual_kernel_completion_steps,
)
from kernelzoo.models import CompletionProblem, MutualKernelCompletion

__all__ = ["run"]

type Array = npt.NDArray[np.float64]

SIZES = (200, 500, 1000)
N_KERNELS = 6
TURNS = 7
# For iterations to the minimum: number of objects, and largest number of iterations.
SMALL, MOST = 50, 200_000


def declare(n: int, lam: float = 0.1) -> MutualKernelCompletion:
    """Model of related kernels, each of which lacks half of the objects."""
    rng = np.random.default_rng(1)
    shared = rng.normal(size=(n, 10))
    views = [shared @ rng.normal(size=(10, 2 * n)) for _ in range(N_KERNELS)]
    kernels = np.stack([x @ x.T for x in (x + 2 * rng.normal(size=x.shape) for x in views)])
    order = rng.random((n, N_KERNELS))
    order[np.arange(n), rng.integers(N_KERNELS, size=n)] = (
        0  # each object is in at least one kernel
    )
    visible = np.argsort(np.argsort(order, axis=0), axis=0) < n // 2
    return MutualKernelCompletion(kernels, visible, lam=lam)


def plain_iteration(problem: CompletionProblem, M: Array) -> Array:
    """One iteration of Algorithm 1, without its objective."""
    total = problem.lam * np.eye(len(M))
    for kernel in problem.kernels:
        v, h, Q = kernel.visible, kernel.hidden, np.empty_like(M)
        Mvh = M[np.ix_(v, h)]
        B = np.linalg.solve(M[np.ix_(v, v)], Mvh)
        Q[np.ix_(v, v)] = kernel.values
        Q[np.ix_(v, h)] = kernel.values @ B
        Q[np.ix_(h, v)] = Q[np.ix_(v, h)].T
        Q[np.ix_(h, h)] = M[np.ix_(h, h)] - Mvh.T @ B + B.T @ kernel.values @ B
        total += Q
    return total / (problem.lam + len(problem.kernels))


def bartlett(df: float, n: int, rng: np.random.Generator) -> Array:
    """Lower triangular A of AA' ~ Wishart(df, I)."""
    A = np.tril(rng.standard_normal((n, n)), -1)
    return A + np.diag(np.sqrt(rng.chisquare(df - np.arange(n))))


def plain_sweep(
    problem: CompletionProblem, roots: list[Array], M: Array, rng: np.random.Generator
) -> Array:
    """One sweep of the sampler, from M to M; `roots` are Cholesky factors of the visible blocks."""
    assert problem.nu is not None
    n, strength = len(M), problem.strength(problem.nu)
    total = strength * np.eye(n)
    for kernel, root, nu in zip(problem.kernels, roots, problem.nu, strict=True):
        v, h, Q = kernel.visible, kernel.hidden, np.empty_like(M)
        Mvh = M[np.ix_(v, h)]
        B = np.linalg.solve(M[np.ix_(v, v)], Mvh)
        R = np.linalg.cholesky((M[np.ix_(h, h)] - Mvh.T @ B) / nu)
        Qvh = kernel.values @ B + root @ rng.standard_normal(Mvh.shape) @ R.T
        S, explained = R @ bartlett(nu - len(v), len(h), rng), np.linalg.solve(root, Qvh)
        Q[np.ix_(v, v)] = kernel.values
        Q[np.ix_(v, h)], Q[np.ix_(h, v)] = Qvh, Qvh.T
        Q[np.ix_(h, h)] = S @ S.T + explained.T @ explained
        total += nu * Q
    A = bartlett(strength + n + 1 + problem.nu.sum(), n, rng)
    half = np.linalg.solve(A, np.linalg.cholesky(total).T)
    return half.T @ half


class Turns:
    """Callback that runs a plain version after each of our turns, and times both."""

    def __init__(self, plain: Callable[[], object]):
        self._plain = plain
        self.pairs: list[tuple[float, float]] = []
        self._start = time.perf_counter()

    def __call__(self, *args: object, **columns: object) -> None:
        """End our turn."""
        middle = time.perf_counter()
        self._plain()
        end = time.perf_counter()
        self.pairs.append((middle - self._start, end - middle))
        self._start = time.perf_counter()

    def medians(self) -> tuple[float, float, float]:
        """Median milliseconds of both versions, and their ratio, after a warm-up turn."""
        times = 1e3 * np.array(self.pairs[1:])
        ratios = times[:, 0] / times[:, 1]
        return (
            float(np.median(times[:, 0])),
            float(np.median(times[:, 1])),
            float(np.median(ratios)),
        )


def em_turns(model: MutualKernelCompletion) -> Turns:
    """Run accelerated EM iterations, each followed by a plain one."""
    problem = model.problem
    objective = MutualObjective.of(problem)
    M = objective.start(means=True)
    turns = Turns(lambda: plain_iteration(problem, M))
    minimize(objective, M, TURNS + 2, 1e-12, 5, turns)
    return turns


def gibbs_turns(model: MutualKernelCompletion) -> Turns:
    """Run sweeps inside `pm.sample`, recording included, each followed by a plain one."""
    problem, rng = model.problem, np.random.default_rng(1)
    roots = [np.linalg.cholesky(kernel.values) for kernel in problem.kernels]
    M = MutualObjective.of(problem).start(means=True)
    turns = Turns(lambda: plain_sweep(problem, roots, M, rng))
    with model:
        pm.sample(
            TURNS + 1,
            tune=0,
            chains=1,
            cores=1,
            step=mutual_kernel_completion_steps(model, Run(progressbar=False)),
            var_names=["log_det_M"],
            callback=turns,
            random_seed=1,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
        )
    return turns


def peak(model: MutualKernelCompletion, engine: Engine) -> float:
    """Peak megabytes that Python and NumPy allocate in a short fit, without the model's.

    Allocations of compilers and libraries are not included.
    """
    short = {"draws": 5, "tune": 2, "chains": 1, "cores": 1}
    chain: dict[str, Any] = short if isinstance(engine, Gibbs) else {}
    tracemalloc.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # stopped on purpose
        fit(model, engine, random_seed=1, progressbar=False, log_likelihood=False, **chain)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most / 1e6


def iterations(lam: float, memory: int) -> tuple[int, bool]:
    """Count the evaluations of J up to the minimum; return also whether it was reached."""
    objective = MutualObjective.of(declare(SMALL, lam).problem)
    found = minimize(objective, objective.start(means=True), MOST, 1e-3, memory)
    return found.evaluations, found.gradient <= 1e-3


def run(console: Console) -> None:
    """Print the tables."""
    table = Table(title=f"{N_KERNELS} kernels, half missing; medians of {TURNS} turns")
    for column in ("objects", "what", "ms", "plain NumPy, ms", "ratio", "peak, MB", "matrices"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for n in SIZES:
        model = declare(n)
        for engine, name, turns in (
            (EM(iterations=5), "EM iteration", em_turns),
            (Gibbs(), "Gibbs sweep", gibbs_turns),
        ):
            times = (f"{x:.3g}" for x in turns(model).medians())
            more = peak(model, engine)
            table.add_row(str(n), name, *times, f"{more:.0f}", f"{more / (8e-6 * n**2):.0f}")
    console.print(table)
    table = Table(title=f"E-steps to the minimum, {SMALL} objects, tolerance 1e-3")
    for column in ("lambda", "accelerated", "plain"):
        table.add_column(column, justify="right")
    for lam in (0.1, 0.001):
        counts = (iterations(lam, memory) for memory in (5, 0))
        table.add_row(f"{lam:g}", *(f"{'' if done else '> '}{count:,}" for count, done in counts))
    console.print(table)
