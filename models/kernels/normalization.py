"""Normalisations of kernels, with constants from the training objects only.

A normalisation takes two ``Similarities``: those to be normalised (the rows may be new objects) and
those among the training objects, from which it computes its constants.  A sequence of steps applies
each step to both, so that each step sees the training similarities after the steps before it.

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
from typing import override

import numpy as np
from numpy.typing import NDArray

from ...validation import argument_error
from .base import BaseKernel
from .rows import Rows, blocks_of, evenly_spaced


@dataclass(frozen=True)
class Similarities:
    """Similarities of n objects (rows) to the N training objects, and self-similarities.

    Parameters
    ----------
    values : ndarray of shape (n, N) or None
        k(x_i, x_j).  None for a training Gram matrix that no step needs; only centring does.
    diagonal : ndarray of shape (n,) or None
        k(x_i, x_i).  None for precomputed similarities of new objects.
    """

    values: NDArray | None
    diagonal: NDArray | None


def _scale_to_trace(new: Similarities, train: Similarities, name: str) -> Similarities:
    assert train.diagonal is not None
    trace = train.diagonal.sum()
    if not trace > 0:
        raise argument_error(
            "X", name, "of positive trace for the 'trace' normalisation", f"a trace of {trace:.4g}"
        )
    scale = train.diagonal.size / trace
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
    assert train.diagonal is not None
    for part in (new.diagonal, train.diagonal):
        if not np.all(part > 0):
            worst = int(np.argmin(part))
            raise argument_error(
                "X",
                name,
                "of positive self-similarities for the 'unit' normalisation",
                f"{part[worst]:.4g} for the object in row {worst}",
            )
    rows, columns = np.sqrt(new.diagonal), np.sqrt(train.diagonal)
    return Similarities(
        None if new.values is None else new.values / np.multiply.outer(rows, columns),
        np.ones_like(new.diagonal),
    )


def _center(new: Similarities, train: Similarities, name: str) -> Similarities:
    assert new.values is not None
    assert train.values is not None
    # Row means replace the equal column means of the symmetric training matrix, and both are added
    # before they are subtracted: this keeps a symmetric matrix exactly symmetric.
    rows, columns = new.values.mean(axis=1), train.values.mean(axis=1)
    grand = columns.mean()
    return Similarities(
        new.values - np.add.outer(rows, columns) + grand,
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


def normalize(new: Similarities, train: Similarities, steps: Sequence[str], name: str) -> NDArray:
    """Apply normalisations in the order given.

    Parameters
    ----------
    new : Similarities
        Similarities to normalise; `train` itself for the training stack.
    train : Similarities
        Those of the training objects; `values` may be None unless `needs_training_gram(steps)`.
    steps : sequence of {"trace", "unit", "center"}
    name : str
        Name of the kernel, for messages.

    Returns
    -------
    ndarray of shape (n, N)

    Notes
    -----
    Costs O(n N) per step, and O(N^2) more if the training Gram matrix is needed.
    """
    for step in steps:
        function = NORMALIZATIONS[step]
        normalized = function(new, train, name)
        train = normalized if new is train else function(train, train, name)
        new = normalized
    assert new.values is not None
    return new.values


@dataclass(frozen=True, eq=False)
class Around(BaseKernel):
    """`scale` times another kernel of the features minus `centre` (D,)."""

    base: BaseKernel
    centre: NDArray
    scale: float

    @override
    def pairwise(self, X: NDArray, Y: NDArray | None) -> NDArray:
        moved = None if Y is None else Y - self.centre
        return self.scale * self.base.pairwise(X - self.centre, moved)

    @override
    def diagonal(self, X: NDArray) -> NDArray:
        return self.scale * self.base.diagonal(X - self.centre)

    @override
    def describe(self, space: str | None) -> str:
        return self.base.describe(space)


def around(base: BaseKernel, X: Rows, steps: Sequence[str]) -> tuple[BaseKernel, Sequence[str]]:
    """Kernel of features shifted to around zero where centring cancels the shift, and steps left.

    Products of features far from zero lose as many digits as their squares are larger. A trace
    before the centring is that of the unshifted kernel.

    Parameters
    ----------
    base : BaseKernel
    X : Rows (N, D)
        Training objects.
    steps : sequence of {"trace", "unit", "center"}
    """
    first = next((i for i, step in enumerate(steps) if step != "trace"), len(steps))
    if steps[first : first + 1] != ("center",) or not base.is_affine(X.shape[1]):
        return base, steps
    scale = 1.0
    if first:
        trace = sum(base.diagonal(x).sum() for _, x in blocks_of(X, 1))
        if not trace > 0:
            return base, steps  # the step refuses it
        scale = len(X) / trace
    centre = np.median(np.asarray(X[evenly_spaced(len(X), 1000)]), axis=0)
    return Around(base, centre, scale), steps[first:]
