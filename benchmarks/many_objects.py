"""Time and peak memory of `MultinomialProbit` on 10,000 objects and 500 Nystroem features.

Each fit runs in its own process, whose peak memory is also read before the model is made, with
libraries and data loaded. On a busy machine, processor seconds are more reliable than elapsed
seconds. Run it with one BLAS thread.
"""

import multiprocessing
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from kernelzoo.inference import VB, ApproximationWarning, Engine, Gibbs, fit, predict
from kernelzoo.models import MultinomialProbit
from kernelzoo.models.kernels import Kernels, gaussian

from .memory import megabytes

__all__ = ["run"]

OBJECTS, NEW, LANDMARKS, FEATURES = 10_000, 1000, 500, 8
KERNELS: tuple[Kernels, ...] = (gaussian(0.05), gaussian(0.05) | gaussian(0.2))
VB_DRAWS = {"draws": 100}
SWEEPS = {"draws": 20, "tune": 5, "chains": 1, "cores": 1}
#: Engines, arguments of `fit`, and numbers of classes.
FITS: dict[str, tuple[Engine, dict[str, Any], tuple[int, ...]]] = {
    "VB, tolerance 1e-4": (VB(tolerance=1e-4, remaining=np.inf), VB_DRAWS, (3, 10)),
    "VB, 50 iterations, one start": (VB(max_iterations=50, starts=1), VB_DRAWS, (3, 10)),
    "Gibbs, 25 sweeps": (Gibbs(), SWEEPS, (3, 10)),
}


def objects(n_classes: int) -> tuple[NDArray, NDArray]:
    """Simulate overlapping normal classes: features and labels, training objects first."""
    rng = np.random.default_rng(0)
    labels = np.arange(OBJECTS + NEW) % n_classes
    centres = 1.2 * rng.normal(size=(n_classes, FEATURES))
    return rng.normal(size=(len(labels), FEATURES)) + centres[labels], labels


def measure(name: str, n_kernels: int, n_classes: int) -> dict[str, float]:
    """Measure one fit: elapsed and processor seconds, megabytes, and accuracy."""
    X, labels = objects(n_classes)
    kernels = KERNELS[n_kernels - 1].nystroem(LANDMARKS)
    before = megabytes()
    model = MultinomialProbit(kernels(X[:OBJECTS]), labels[:OBJECTS])
    engine, options, _ = FITS[name]
    clock, processor = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        # Only time, memory and predictions are measured.
        warnings.simplefilter("ignore", ApproximationWarning)
        result = fit(
            model, engine, random_seed=1, progressbar=False, log_likelihood=False, **options
        )
    out = {"s": time.perf_counter() - clock, "processor, s": time.process_time() - processor}
    iterations = np.nan
    if "trajectory" in result.children:
        iterations = float(result["trajectory"]["elbo"].count())
    predicted = predict(model, result, kernels(X[OBJECTS:], X[:OBJECTS]))["label"].to_numpy()
    return out | {
        "iterations, all starts": iterations,
        "MB before": before,
        "MB at the peak": megabytes(),
        "new objects right, %": 100.0 * float(np.mean(predicted == labels[OBJECTS:])),
    }


def run(console: Console) -> None:
    """Print the table."""
    spawn = multiprocessing.get_context("spawn")
    table = Table(title=f"{OBJECTS:,} objects, {LANDMARKS} Nystroem features a kernel")
    for name, (_, _, numbers_of_classes) in FITS.items():
        for n_kernels in range(1, len(KERNELS) + 1):
            for n_classes in numbers_of_classes:
                with ProcessPoolExecutor(1, mp_context=spawn) as pool:
                    row = pool.submit(measure, name, n_kernels, n_classes).result()
                if not table.columns:
                    for column in ("fit", "kernels", "classes", *row):
                        table.add_column(column, justify="left" if column == "fit" else "right")
                numbers = ("" if np.isnan(x) else f"{x:.4g}" for x in row.values())
                table.add_row(name, str(n_kernels), str(n_classes), *numbers)
    console.print(table)
