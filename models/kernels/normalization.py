"""Normalisations of kernels, with constants from the training objects only.

Each step sees the training similarities after the steps before it.
With k(x, x') the kernel, N training objects and K their Gram matrix:

========== ==================================================== ===========================
name       result                                               property
========== ==================================================== ===========================
"trace"    k(x, x') N / tr K                                     training trace N
"unit"     k(x, x') / sqrt(k(x, x) k(x', x'))                    self-similarity 1
"center"   k(x, x') - mean_j k(x, x_j) - mean_j k(x_j, x')       rows and columns of K sum to 0
           + mean_ij K_ij
========== ==================================================== ===========================
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...validation import argument_error


@dataclass(frozen=True)
class Similarities:
    """Similarities (n, N) and self-similarities (n,); None if not known."""

    values: Any
    diagonal: Any


def check_trace(trace: float, name: str) -> float:
    """Return the trace of a kernel, or raise unless it is positive."""
    if not trace > 0:
        rule = "of positive trace for the 'trace' normalisation"
        raise argument_error("X", name, rule, f"a trace of {trace:.4g}")
    return trace


def _scale_to_trace(new: Similarities, train: Similarities, name: str) -> Similarities:
    scale = len(train.diagonal) / check_trace(float(train.diagonal.sum()), name)
    return Similarities(
        None if new.values is None else new.values * scale,
        None if new.diagonal is None else new.diagonal * scale,
    )


def _scale_to_unit(new: Similarities, train: Similarities, name: str) -> Similarities:
    if new.diagonal is None:
        raise argument_error(
            "X",
            name,
            "normalised beforehand, k(x, x') / sqrt(k(x, x) k(x', x')), for new objects of a "
            "precomputed kernel with the 'unit' normalisation",
            "similarities without the new objects' own",
        )
    for diagonal in (new.diagonal, train.diagonal):
        if not np.all(diagonal > 0):
            rule = "of positive self-similarities for the 'unit' normalisation"
            raise argument_error("X", name, rule, f"{diagonal.min():.4g} for an object")
    rows, columns = new.diagonal**0.5, train.diagonal**0.5
    values = None if new.values is None else new.values / (rows[:, None] * columns)
    return Similarities(values, np.ones(len(new.diagonal)))


def _center(new: Similarities, train: Similarities, name: str) -> Similarities:
    # Row means replace the equal column means of the symmetric training matrix, and both are added
    # before they are subtracted: this keeps a symmetric matrix exactly symmetric.
    rows, columns = new.values.mean(axis=1), train.values.mean(axis=1)
    grand = columns.mean()
    return Similarities(
        new.values - (rows[:, None] + columns) + grand,
        None if new.diagonal is None else new.diagonal - 2 * rows + grand,
    )


NORMALIZATIONS: dict[str, Callable[[Similarities, Similarities, str], Similarities]] = {
    "trace": _scale_to_trace,
    "unit": _scale_to_unit,
    "center": _center,
}


def needs_training_gram(steps: Sequence[str]) -> bool:
    """Whether these steps need the training Gram matrix, not only its diagonal."""
    return "center" in steps


def normalize(new: Similarities, train: Similarities, steps: Sequence[str], name: str) -> Any:
    """Similarities (n, N) after the steps; `train` itself as `new` for the training objects."""
    for step in steps:
        function = NORMALIZATIONS[step]
        normalized = function(new, train, name)
        train = normalized if new is train else function(train, train, name)
        new = normalized
    return new.values
