"""A million objects: iterations of VB by the number of objects, and predictions in blocks.

The first table has the seconds of an iteration of VB on two kernels of 50 Nystroem features; of the
regression, whose sums are formed once, those of a whole fit. The slope is that of their logarithm
against that of the number of objects. The second has predictions that go to disk a block at a time:
memory is the largest resident set of the process, before and after. Each number comes from a
process of its own.
"""

import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from kernelzoo.inference import VB, ApproximationWarning, fit, predict
from kernelzoo.models import (
    CompositeKernelClassification,
    CompositeKernelRegression,
    MultinomialProbit,
)
from kernelzoo.models.kernels import gaussian

from .apart import in_own_process
from .memory import megabytes

__all__ = ["run"]

OBJECTS = (10_000, 100_000, 1_000_000)
TRAIN, NEW = 10_000, 1_000_000
CLASSES, DIMENSIONS, FEATURES, DRAWS = 10, 8, 50, 20
SHORT, LONG = 3, 23
#: Models by name, and what they are told of each object's class.
MODELS: dict[str, tuple[Callable[..., Any], Callable[[NDArray], NDArray]]] = {
    "MultinomialProbit": (MultinomialProbit, lambda labels: labels),
    "CompositeKernelClassification": (CompositeKernelClassification, lambda labels: labels % 2),
    "CompositeKernelRegression, a fit": (CompositeKernelRegression, lambda labels: labels / 10),
}


def objects(n: int) -> tuple[NDArray, NDArray]:
    """Simulate overlapping normal classes: features and labels."""
    rng = np.random.default_rng(0)
    labels = np.arange(n) % CLASSES
    centres = 1.2 * rng.normal(size=(CLASSES, DIMENSIONS))
    return rng.normal(size=(n, DIMENSIONS)) + centres[labels], labels


def _fit(model: Any, draws: int = 1, **settings: Any) -> Any:
    with warnings.catch_warnings():
        # Only time and memory are measured.
        warnings.simplefilter("ignore", ApproximationWarning)
        warnings.filterwarnings("ignore", "VB did not converge")
        engine = VB(tolerance=1e-12, starts=1, **settings)
        options: dict[str, Any] = {"random_seed": 1, "progressbar": False, "log_likelihood": False}
        return fit(model, engine, draws=draws, **options)


def seconds(name: str, n: int) -> float:
    """Seconds of an iteration, or of a fit that forms its sums once."""
    X, labels = objects(n)
    declare, response = MODELS[name]
    stack = (gaussian(0.05) | gaussian(0.2)).nystroem(FEATURES)(X)
    model = declare(stack, response(labels))
    _fit(model, max_iterations=SHORT)  # compiles
    taken = []
    for iterations in (SHORT, LONG):
        clock = time.perf_counter()
        _fit(model, max_iterations=iterations)
        taken.append(time.perf_counter() - clock)
    whole, more = taken[1], taken[1] - taken[0]
    # The clock's noise can hide a few iterations on few objects.
    return whole if "fit" in name or more <= 0 else more / (LONG - SHORT)


def predictions(folder: str) -> Mapping[str, float]:
    """Seconds and megabytes of predictions of very many objects."""
    X, labels = objects(TRAIN + NEW)
    kernels = (gaussian(0.05) | gaussian(0.2)).nystroem(FEATURES)
    model = MultinomialProbit(kernels(X[:TRAIN]), labels[:TRAIN])
    result = _fit(model, draws=DRAWS, max_iterations=LONG)
    before, clock = megabytes(), time.perf_counter()
    blocks = kernels.in_blocks(X[TRAIN:], X[:TRAIN])
    path = Path(folder) / "predictions.zarr"
    found = predict(model, result, blocks, store=path, progressbar=False)
    taken = time.perf_counter() - clock
    peak = megabytes()
    right = np.mean(found["label"].to_numpy() == labels[TRAIN:])
    return {
        "seconds": taken,
        "MB before": before,
        "MB at the peak": peak,
        "objects a block": blocks.size,
        "right, %": 100 * float(right),
    }


def run(console: Console) -> None:
    """Print both tables."""
    table = Table("model", title=f"VB, seconds of an iteration, two kernels of {FEATURES} features")
    for n in OBJECTS:
        table.add_column(f"{n:,} objects", justify="right")
    table.add_column("slope", justify="right")
    for name in MODELS:
        taken = [in_own_process(seconds, name, n) for n in OBJECTS]
        slope = np.polyfit(np.log(OBJECTS), np.log(taken), 1)[0]
        table.add_row(name, *(f"{value:.3g}" for value in taken), f"{slope:.2f}")
    console.print(table)
    with tempfile.TemporaryDirectory() as folder:
        row = in_own_process(predictions, folder)
    title = f"Predictions of {NEW:,} objects from {DRAWS} draws, to disk"
    large = Table(*row, title=title)
    large.add_row(*(f"{value:.4g}" for value in row.values()))
    console.print(large)
