"""VB of `MultinomialProbit` on kernels in Dask's blocks: on a cluster, and out of memory.

The first table has a fit on 200,000 objects: in one thread of a process, and on local clusters of
one worker and of two, one thread each, whose blocks are in the workers' memory. All make the same
iterations. Run it on two idle cores.

The second fits a million objects whose kernels, on disk in single precision, take more memory than
a worker may use. Memory is the largest resident set of the processes.
"""

import os
import tempfile
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from xarray import DataArray

from kernelzoo.inference import VB, ApproximationWarning, fit, predict
from kernelzoo.models import MultinomialProbit
from kernelzoo.models.kernels import gaussian

from .apart import in_own_process
from .memory import megabytes

__all__ = ["run"]

OBJECTS, LANDMARKS, ITERATIONS, BLOCK = 200_000, 100, 40, 25_000
MANY, MANY_LANDMARKS, MANY_BLOCK, LIMIT = 1_000_000, 300, 20_000, "1GB"
NEW, CLASSES, DIMENSIONS = 2000, 10, 8
WORKERS = (1, 2)
OPTIONS: dict[str, Any] = {"threads_per_worker": 1, "dashboard_address": None}


def objects(n: int) -> tuple[NDArray, NDArray]:
    """Simulate overlapping normal classes: features and labels, new objects last."""
    rng = np.random.default_rng(0)
    labels = np.arange(n + NEW) % CLASSES
    centres = 1.2 * rng.normal(size=(CLASSES, DIMENSIONS))
    return rng.normal(size=(len(labels), DIMENSIONS)) + centres[labels], labels


def _fit(model: MultinomialProbit, **settings: Any) -> Any:
    with warnings.catch_warnings():
        # Only time, memory and predictions are measured.
        warnings.simplefilter("ignore", ApproximationWarning)
        warnings.filterwarnings("ignore", "VB did not converge")
        options: dict[str, Any] = {"random_seed": 1, "progressbar": False, "log_likelihood": False}
        return fit(model, VB(starts=1, **settings), draws=1, **options)


def in_memory() -> tuple[float, float, NDArray]:
    """Seconds of a fit in one thread, the bound, and the means of the regressors."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    X, labels = objects(OBJECTS)
    kernels = (gaussian(0.05) | gaussian(0.2)).landmarks(LANDMARKS)
    model = MultinomialProbit(kernels(X[:OBJECTS]), labels[:OBJECTS])
    return _timed(model)


def _timed(model: MultinomialProbit) -> tuple[float, float, NDArray]:
    _fit(model, max_iterations=1)  # compiles
    clock = time.perf_counter()
    found = _fit(model, max_iterations=ITERATIONS, tolerance=1e-12)
    seconds = time.perf_counter() - clock
    bound = found["trajectory"]["elbo"].to_numpy()[0, -1]
    return seconds, float(bound), found["variational"]["W_mean"].to_numpy()


def on_workers(n_workers: int) -> tuple[float, float, NDArray]:
    """Seconds of a fit on a local cluster, the bound, and the means of the regressors."""
    from distributed import Client, LocalCluster, wait

    X, labels = objects(OBJECTS)
    kernels = (gaussian(0.05) | gaussian(0.2)).landmarks(LANDMARKS)
    with LocalCluster(n_workers=n_workers, **OPTIONS) as cluster, Client(cluster):
        stack = kernels.in_blocks(X[:OBJECTS], size=BLOCK).to_dask().persist()
        wait(stack)
        return _timed(MultinomialProbit(stack, labels[:OBJECTS]))


def out_of_memory(folder: str) -> Mapping[str, float]:
    """Fit many objects whose kernels are on disk, on two workers of limited memory."""
    from distributed import Client, LocalCluster

    X, labels = objects(MANY)
    kernels = (gaussian(0.05) | gaussian(0.2)).landmarks(MANY_LANDMARKS)
    new, train = X[MANY:], X[:MANY]
    in_blocks = kernels.in_blocks(train, size=MANY_BLOCK)
    clock = time.perf_counter()
    with LocalCluster(n_workers=2, memory_limit=LIMIT, **OPTIONS) as cluster, Client(cluster) as to:
        stack = in_blocks.to_dask("float32")
        stored = _written(stack, Path(folder) / "kernels.zarr")
        writing = time.perf_counter() - clock
        clock = time.perf_counter()
        model = MultinomialProbit(stored, labels[:MANY])
        found = _fit(model, tolerance=1e-4, remaining=np.inf)
        seconds = time.perf_counter() - clock
        workers = max(to.run(megabytes).values())
    probability = predict(model, found, kernels(new, train))["probability"].to_numpy()
    iterations = float(found["trajectory"]["elbo"].count())
    return {
        "kernels, GB": stack.nbytes / 1e9,
        "computed and written, s": writing,
        "fit, s": seconds,
        "iterations": iterations,
        "s an iteration": seconds / iterations,
        "MB at a worker's peak": workers,
        "MB at this process' peak": megabytes(),
        "right, %": 100 * float(np.mean(probability.argmax(axis=1) == labels[MANY:])),
    }


def _written(stack: DataArray, path: Path) -> DataArray:
    """Write the blocks of a stack to a zarr array; the stack of the blocks on disk."""
    import dask.array as da

    stack.data.to_zarr(str(path))
    return stack.copy(data=da.from_zarr(str(path)))


def run(console: Console) -> None:
    """Print both tables."""
    alone = in_own_process(in_memory)
    rows = {"in memory, one thread": (1, alone)}
    for n in WORKERS:
        rows[f"Dask, {n} worker{'s' * (n > 1)}"] = n, in_own_process(on_workers, n)
    table = Table(title=f"{OBJECTS:,} objects, {2 * LANDMARKS} columns, {ITERATIONS} iterations")
    for column in ("", "seconds", "efficiency", "relative error of the bound", "of the regressors"):
        table.add_column(column, justify="right" if column else "left")
    for name, (n, (seconds, bound, W)) in rows.items():
        table.add_row(
            name,
            f"{seconds:.1f}",
            f"{alone[0] / (n * seconds):.2f}",
            f"{abs(bound / alone[1] - 1):.1g}",
            f"{np.abs(W - alone[2]).max() / np.abs(alone[2]).max():.1g}",
        )
    console.print(table)
    with tempfile.TemporaryDirectory() as folder:
        row = in_own_process(out_of_memory, folder)
    title = f"{MANY:,} objects on disk, 2 workers of at most {LIMIT}"
    large = Table(*row, title=title)
    large.add_row(*(f"{value:.4g}" for value in row.values()))
    console.print(large)
