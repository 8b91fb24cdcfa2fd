"""Thirty splits in one process, in two processes, and on a Dask cluster of two workers.

The first time on a cluster includes each worker's imports and compilation; one process, and the
second time, find compiled code. Run it with one BLAS thread on two idle cores.
"""

import time
from typing import Any

from rich.console import Console
from rich.table import Table

from kernelzoo.datasets import load
from kernelzoo.inference import fit, predict, replicate
from kernelzoo.models import MultinomialProbit
from kernelzoo.models.kernels import gaussian, linear

__all__ = ["run"]

SPLITS, WORKERS = 30, 2
QUIET: dict[str, Any] = {"progressbar": False}


def accuracy(seed: int) -> float:
    """Accuracy of a Gibbs sampler's predictions on held-out objects of a split."""
    split = load("wine").split(seed=seed)
    kernels = gaussian("median") | linear()
    model = MultinomialProbit(kernels(split.X_train), split.y_train)
    sampled = fit(model, "gibbs", draws=100, tune=100, chains=2, cores=1, random_seed=seed, **QUIET)
    predicted = predict(model, sampled, kernels(split.X_test, split.X_train))["label"]
    return float((predicted.to_numpy() == split.y_test).mean())


def timed(**options: Any) -> tuple[float, list[float]]:
    """Elapsed seconds of all splits, and their accuracies."""
    start = time.perf_counter()
    found = replicate(accuracy, range(SPLITS), **QUIET, **options)
    return time.perf_counter() - start, found


def run(console: Console) -> None:
    """Print the table."""
    from distributed import Client, LocalCluster

    accuracy(SPLITS)
    runs = {"one process": timed(), f"{WORKERS} processes": timed(jobs=WORKERS)}
    options = {"n_workers": WORKERS, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster):
        runs[f"Dask, {WORKERS} workers, first time"] = timed()
        runs[f"Dask, {WORKERS} workers, second time"] = timed()
    alone, found = runs["one process"]
    table = Table("", "seconds", "times as fast", "efficiency", "same results")
    table.title = f"{SPLITS} splits of wine, Gibbs"
    for name, (seconds, results) in runs.items():
        workers = 1 if name == "one process" else WORKERS
        ratio = alone / seconds
        same = "yes" if results == found else "no"
        table.add_row(name, f"{seconds:.1f}", f"{ratio:.2f}", f"{ratio / workers:.2f}", same)
    console.print(table)
