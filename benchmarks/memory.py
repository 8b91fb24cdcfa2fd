"""Peak memory of fits that complete a kernel of 351 and of 2,000 objects.

Each fit runs in its own process, whose peak memory is also read before the fit, with libraries,
data and model loaded.
"""

import multiprocessing
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.metrics.pairwise import rbf_kernel

from kernelzoo.inference import EM, VB, Engine, Exact, Gibbs, fit
from kernelzoo.models import DiagonalWishartCompletion, WishartCompletion

__all__ = ["run"]

SIZES = (351, 2000)
TRAIN = 0.6
CHAIN = {"draws": 20, "tune": 5, "chains": 1, "cores": 1}
EXACT = {"draws": 20}
FITS: dict[str, tuple[type, dict[str, Any], Engine, dict[str, Any]]] = {
    "basic, Gibbs": (WishartCompletion, {}, Gibbs(), CHAIN),
    "basic, Exact": (WishartCompletion, {}, Exact(), EXACT),
    "basic, VB": (WishartCompletion, {}, VB(), EXACT),
    "basic, EM": (WishartCompletion, {}, EM(), {}),
    "simplified, TW1": (DiagonalWishartCompletion, {}, Gibbs(), CHAIN),
    "simplified, TW2": (DiagonalWishartCompletion, {"diagonal_W22_1": True}, Gibbs(), CHAIN),
    "simplified, Exact": (DiagonalWishartCompletion, {}, Exact(), EXACT),
    "simplified, VB": (DiagonalWishartCompletion, {}, VB(), EXACT),
}


def megabytes() -> float:
    """Peak resident memory of this process so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def measure(name: str, n: int) -> tuple[float, float, float]:
    """Measure megabytes before and at the peak of a fit, and its seconds."""
    rng = np.random.default_rng(1)
    n1 = int(TRAIN * n)
    X = rng.normal(size=(n, 10))
    A = rbf_kernel(X, gamma=0.1)
    A.flat[:: n + 1] += 1e-6
    y = X[:n1, 0] > 0
    K11 = (A[:n1, :n1] + (y[:, None] == y)) / 2
    declare, declaration, engine, options = FITS[name]
    model = declare(A, K11, **declaration)
    before, start = megabytes(), time.perf_counter()
    fit(model, engine, random_seed=1, progressbar=False, log_likelihood=False, **options)
    return before, megabytes(), time.perf_counter() - start


def run(console: Console) -> None:
    """Print the table of peaks, with the size of one matrix over all objects."""
    spawn = multiprocessing.get_context("spawn")
    for n in SIZES:
        table = Table(title=f"n = {n}: one matrix has {8e-6 * n**2:.1f} MB")
        for column in ("fit", "MB before", "MB at the peak", "matrices more", "seconds"):
            table.add_column(column, justify="left" if column == "fit" else "right")
        for name in FITS:
            with ProcessPoolExecutor(1, mp_context=spawn) as pool:
                before, peak, seconds = pool.submit(measure, name, n).result()
            more = (peak - before) / (8e-6 * n**2)
            table.add_row(name, f"{before:.0f}", f"{peak:.0f}", f"{more:.1f}", f"{seconds:.1f}")
        console.print(table)
