"""VB of the classifiers in batches of objects, and their complete ascent, on the same features.

Two blocks with 200 random features each: the classes depend on the first, nonlinearly; of the
second, on three columns. All fits have one start. Each size runs in a process of its own, whose
first fit imports and compiles.
"""

import itertools
import multiprocessing
import time
import warnings
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from kernelzoo.inference import VB, ApproximationWarning, fit, predict
from kernelzoo.inference.scores import held_out
from kernelzoo.models import CompositeKernelClassification, MultinomialProbit
from kernelzoo.models.kernels import gaussian

__all__ = ["run"]

OBJECTS = (10_000, 40_000, 100_000)
MODELS = {
    "MultinomialProbit": (MultinomialProbit, 5),
    "CompositeKernel": (CompositeKernelClassification, 2),
}
NEW, COLUMNS, FEATURES = 4000, 10, 200
BATCH, PASSES = 500, (1, 2, 3, 4, 10)
#: Title of the column and its format.
COLUMNS_SHOWN = {
    "fit, s": ".1f",
    "log score": ".4f",
    "right, %": ".1f",
    "weight of the first": ".3f",
}


def objects(n: int, n_classes: int) -> tuple[dict[str, NDArray], NDArray]:
    """Simulate two blocks and labels, new objects last."""
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, n + NEW, COLUMNS))
    centres = rng.normal(size=(n_classes, 3, COLUMNS))
    bumps = [np.exp(-((first[:, None] - near) ** 2).sum(-1) / 12).sum(1) for near in centres]
    signal = 6 * np.stack(bumps, axis=1) + 0.3 * second[:, :n_classes]
    signal = (signal - signal.mean(0)) / signal.std(0) + 0.3 * rng.gumbel(size=signal.shape)
    return {"first": first, "second": second}, signal.argmax(axis=1)


def fits(name_of_model: str, n: int) -> dict[str, tuple[float, ...]]:
    """Seconds, held-out scores and the mean weight of the first block of every fit."""
    model_type, n_classes = MODELS[name_of_model]
    blocks, labels = objects(n, n_classes)
    train, new = ({name: X[part] for name, X in blocks.items()} for part in (np.s_[:n], np.s_[n:]))
    halves = (
        gaussian(1 / (2 * COLUMNS)).random_features(FEATURES, seed=seed).on(name)
        for seed, name in enumerate(blocks)
    )
    kernels = next(halves) | next(halves)
    model = model_type(kernels(train), labels[:n])
    later = kernels(new, train)
    engines = {"": VB(max_iterations=2, starts=1)}
    engines |= {
        f"passes: {number}": VB(batch=BATCH, max_iterations=number, starts=1) for number in PASSES
    }
    engines["complete"] = VB(starts=1)
    found: dict[str, tuple[float, ...]] = {}
    for name, engine in engines.items():
        clock = time.perf_counter()
        with warnings.catch_warnings():
            # Passes are meant to be few.
            warnings.simplefilter("ignore", ApproximationWarning)
            warnings.filterwarnings("ignore", "VB did not converge")
            result = fit(
                model,
                engine,
                draws=20,
                random_seed=1,
                progressbar=False,
                log_likelihood=False,
            )
        seconds = time.perf_counter() - clock
        predicted = held_out(predict(model, result, later), labels[n:])
        weight = float(result["posterior"].dataset["beta"].mean(("chain", "draw"))[0])
        found[name] = (seconds, predicted["log_score"], 100 * predicted["accuracy"], weight)
    del found[""]
    return found


def run(console: Console) -> None:
    """Print the table."""
    table = Table(title=f"Two blocks of {FEATURES} random features, batches of {BATCH}")
    table.add_column("model")
    table.add_column("objects", justify="right")
    table.add_column("fit")
    for column in COLUMNS_SHOWN:
        table.add_column(column, justify="right")
    for model, n in itertools.product(MODELS, OBJECTS):
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            rows = pool.submit(fits, model, n).result()
        for name, row in rows.items():
            cells = (
                format(cell, shown) for cell, shown in zip(row, COLUMNS_SHOWN.values(), strict=True)
            )
            table.add_row(model, f"{n:,}", name, *cells)
    console.print(table)
