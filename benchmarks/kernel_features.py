"""What features cost in place of kernels, by their number: error, scores, calibration, weights.

Scanned digits (usps), 2,000 of them for training and 2,000 for testing, with one Gaussian kernel of
median width for the upper half of the picture and one for the lower half. The error of the kernels
is relative, in the Frobenius norm, among the training objects, and their mean. Features converge to
all 2,000 landmarks, whose inner products are the kernels. The kernels themselves are another model:
their columns are the basis functions, with weights of equal variance. Columns at landmarks converge
to that.
"""

import time
import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from kernelzoo.datasets import load
from kernelzoo.inference import VB, ApproximationWarning, fit, predict
from kernelzoo.inference.engine import track
from kernelzoo.inference.scores import held_out
from kernelzoo.models import MultinomialProbit
from kernelzoo.models.kernels import Kernels, gaussian

__all__ = ["run"]

DATA, TRAIN, TEST = "usps", 2_000, 2_000
NUMBERS: tuple[int, ...] = (50, 100, 200, 400, 800)
HALVES = ("upper", "lower")
KERNELS: Kernels = gaussian("median").on("upper") | gaussian("median").on("lower")
ENGINE = VB(tolerance=1e-4, remaining=np.inf)
DRAWS = 100
FEATURES: dict[str, Callable[[int], Kernels]] = {
    "nystroem, uniform": lambda m: KERNELS.nystroem(m),
    "nystroem, leverage": lambda m: KERNELS.nystroem(m, by="leverage"),
    "nystroem, kmeans": lambda m: KERNELS.nystroem(m, by="kmeans"),
    "random, orthogonal": lambda m: KERNELS.random_features(m),
    "random": lambda m: KERNELS.random_features(m, orthogonal=False),
}
BASES: dict[str, Callable[[int], Kernels]] = {
    "columns, uniform": lambda m: KERNELS.landmarks(m),
    "columns, kmeans": lambda m: KERNELS.landmarks(m, by="kmeans"),
}

COLUMNS = (
    "features",
    "number",
    "error of kernels",
    "log score",
    "Brier score",
    "accuracy",
    "confidence - accuracy",
    "weight of upper half",
    "k-hat",
    "processor, s",
)

type Blocks = dict[str, NDArray]


def objects() -> tuple[Blocks, Blocks, NDArray, NDArray]:
    """Draw training and test objects, by halves of the picture, and their labels."""
    data = load(DATA)
    X, labels = np.asarray(data.X), np.asarray(data.y)
    chosen = np.random.default_rng(0).permutation(len(X))[: TRAIN + TEST]
    labels = labels[chosen]
    halves = dict(zip(HALVES, np.array_split(X[chosen], 2, axis=1), strict=True))
    train = {name: half[:TRAIN] for name, half in halves.items()}
    test = {name: half[TRAIN:] for name, half in halves.items()}
    return train, test, labels[:TRAIN], labels[TRAIN:]


def measure(kernels: Kernels, exact: NDArray | None) -> dict[str, str]:
    """Measure a fit: the cells of its row, by their columns.

    Parameters
    ----------
    kernels : Kernels
        Features, columns of kernels, or the kernels themselves.
    exact : ndarray of shape (K, n, n), or None
        Kernels of the training objects, which features approximate.
    """
    X, X_new, labels, labels_new = objects()
    start = time.process_time()
    stack = kernels(X)
    with warnings.catch_warnings():
        # k-hat is a column.
        warnings.simplefilter("ignore", ApproximationWarning)
        model = MultinomialProbit(stack, labels)
        result = fit(model, ENGINE, draws=DRAWS, random_seed=1, progressbar=False)
    predicted = predict(model, result, kernels(X_new, X), progressbar=False)
    seconds = time.process_time() - start
    found = held_out(predicted, labels_new)
    confidence = float(predicted["probability"].max("class").mean())
    weight = result["posterior"]["beta"].isel(kernel=0)
    error = ""
    if exact is not None:
        error = f"{np.mean([_error(*pair) for pair in zip(stack.values, exact, strict=True)]):.3g}"
    cells = (
        error,
        f"{found['log_score']:.3f}",
        f"{found['brier']:.3f}",
        f"{100 * found['accuracy']:.1f} %",
        f"{100 * (confidence - found['accuracy']):+.1f} %",
        f"{float(weight.mean()):.3f} ± {float(weight.std()):.3f}",
        f"{result.attrs['pareto_k']:.1f}",
        f"{seconds:.1f}",
    )
    return dict(zip(COLUMNS[2:], cells, strict=True))


def _error(phi: NDArray, exact: NDArray) -> float:
    return float(np.linalg.norm(phi @ phi.T - exact) / np.linalg.norm(exact))


def run(console: Console) -> None:
    """Print the table."""
    exact = KERNELS(objects()[0]).values
    rows: list[tuple[str, int, Kernels, NDArray | None]] = [
        *((name, m, make(m), exact) for name, make in FEATURES.items() for m in NUMBERS),
        ("all landmarks", TRAIN, KERNELS.nystroem(TRAIN), exact),
        *((name, m, make(m), None) for name, make in BASES.items() for m in NUMBERS),
        ("kernels themselves", TRAIN, KERNELS, None),
    ]
    table = Table(title=f"{DATA}: {TRAIN:,} training and {TEST:,} test objects, VB")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "features" else "right")
    with track(len(rows), "Features", visible=console.is_terminal) as bar:
        for name, number, kernels, approximated in rows:
            table.add_row(name, str(number), *measure(kernels, approximated).values())
            bar.advance()
    console.print(table)
