"""Normalisations of kernels, with constants from the training objects only.

With k(x, x') the kernel, N training objects and K their Gram matrix:

========== ========================================= ======================
name       result                                    property
========== ========================================= ======================
"trace"    k(x, x') N / tr K                          training trace N
"unit"     k(x, x') / sqrt(k(x, x) k(x', x'))         self-similarity 1
========== ========================================= ======================

A unit self-similarity has the trace N, so that "trace" before or after "unit" changes nothing.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...validation import argument_error

NORMALIZATIONS = ("trace", "unit")


def scale_to_trace(trace: float, n_train: int, name: str) -> float:
    """Factor that brings a kernel of this trace to the trace N; raise unless it is positive."""
    if not trace > 0:
        rule = "of positive trace for the 'trace' normalisation"
        raise argument_error("X", name, rule, f"a trace of {trace:.4g}")
    return n_train / trace


def normalize(
    values: Any, own: NDArray | None, train: NDArray, steps: Sequence[str], name: str
) -> Any:
    """Similarities (n, N) after the steps.

    `own` (n,) and `train` (N,) are the self-similarities; `own` is None if they are not known.
    """
    if "unit" not in steps:
        scale = scale_to_trace(float(train.sum()), len(train), name) if "trace" in steps else 1.0
        return scale * values if steps else values
    if own is None:
        raise argument_error(
            "X",
            name,
            "normalised beforehand, k(x, x') / sqrt(k(x, x) k(x', x')), for new objects of a "
            "precomputed kernel with the 'unit' normalisation",
            "similarities without the new objects' own",
        )
    for diagonal in (own, train):
        if not np.all(diagonal > 0):
            rule = "of positive self-similarities for the 'unit' normalisation"
            raise argument_error("X", name, rule, f"{diagonal.min():.4g} for an object")
    return values / (own[:, None] ** 0.5 * train**0.5)
