"""What features cost in place of a kernel: its error and held-out log score, by their number.

Karhunen-Loeve coefficients of handwritten digits (mfeat), 1,000 of them for training and 1,000 for
testing, with one Gaussian kernel of median width. The error of the kernel is relative, in the
Frobenius norm, among the training objects. Features converge to all 1,000 landmarks, whose inner
products are the kernel. The kernel itself is another model: its columns are the basis functions,
with weights of equal variance.
"""

import time
import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from ..datasets import load
from ..inference import VB, ApproximationWarning, fit, predict
from ..inference.engine import track
from ..inference.scores import held_out
from ..models import MultinomialProbit
from ..models.kernels import Kernels, gaussian

__all__ = ["run"]

DATA, VIEW, TRAIN, TEST = "mfeat", "kar", 1_000, 1_000
NUMBERS: tuple[int, ...] = (24, 50, 100, 200)
KERNEL: Kernels = gaussian("median")
ENGINE = VB(tolerance=1e-4, remaining=np.inf)
DRAWS = 100
FEATURES: dict[str, Callable[[int], Kernels]] = {
    "nystroem, uniform": lambda m: KERNEL.nystroem(m),
    "nystroem, leverage": lambda m: KERNEL.nystroem(m, by="leverage"),
    "nystroem, kmeans": lambda m: KERNEL.nystroem(m, by="kmeans"),
    "random, orthogonal": lambda m: KERNEL.random_features(m),
    "random": lambda m: KERNEL.random_features(m, orthogonal=False),
}


def objects() -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Draw training and test objects, z-scored on the training part, and their labels."""
    data = load(DATA)
    X, labels = np.asarray(data.views[VIEW]), np.asarray(data.y)
    chosen = np.random.default_rng(0).permutation(len(X))[: TRAIN + TEST]
    X, labels = X[chosen], labels[chosen]
    X = (X - X[:TRAIN].mean(axis=0)) / X[:TRAIN].std(axis=0)
    return X[:TRAIN], X[TRAIN:], labels[:TRAIN], labels[TRAIN:]


def measure(kernels: Kernels, exact: NDArray) -> tuple[float, float, float, float]:
    """Measure the error of the kernel (NaN for the kernel itself) and a fit.

    Returns
    -------
    tuple
        Relative error, log score, accuracy and processor seconds of kernels, fit and predictions.
    """
    X, X_new, labels, labels_new = objects()
    start = time.process_time()
    stack = kernels(X)
    with warnings.catch_warnings():
        # Only predictions are compared.
        warnings.simplefilter("ignore", ApproximationWarning)
        model = MultinomialProbit(stack, labels)
        result = fit(
            model, ENGINE, draws=DRAWS, random_seed=1, progressbar=False, log_likelihood=False
        )
    predicted = predict(model, result, kernels(X_new, X), progressbar=False)
    seconds = time.process_time() - start
    found = held_out(predicted, labels_new)
    phi = stack.values[0]
    error = np.nan
    if not np.array_equal(stack["obs"].values, stack["basis"].values):
        error = float(np.linalg.norm(phi @ phi.T - exact) / np.linalg.norm(exact))
    return error, float(found["log_score"]), float(found["accuracy"]), seconds


def run(console: Console) -> None:
    """Print the table."""
    exact = KERNEL(objects()[0]).values[0]
    rows = [(name, m, make(m)) for name, make in FEATURES.items() for m in NUMBERS]
    rows += [("all landmarks", TRAIN, KERNEL.nystroem(TRAIN)), ("kernel itself", TRAIN, KERNEL)]
    table = Table(title=f"{DATA} ({VIEW}): {TRAIN:,} training and {TEST:,} test objects, VB")
    for column in (
        "features",
        "number",
        "error of kernel",
        "log score",
        "accuracy",
        "processor, s",
    ):
        table.add_column(column, justify="left" if column == "features" else "right")
    with track(len(rows), "Features", visible=console.is_terminal) as bar:
        for name, number, kernels in rows:
            error, score, accuracy, seconds = measure(kernels, exact)
            shown = "" if np.isnan(error) else f"{error:.3g}"
            cells = (f"{score:.3f}", f"{100 * accuracy:.1f} %", f"{seconds:.1f}")
            table.add_row(name, str(number), shown, *cells)
            bar.advance()
    console.print(table)
