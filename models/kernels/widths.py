"""Rules for the widths of kernels from the features of the training objects.

"median" is the median heuristic (Garreau, Jitkrittum and Kanagawa, 2017, Large sample analysis of
the median heuristic, arXiv:1707.07269); "scale" is ``SVC(gamma="scale")`` of scikit-learn.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

from ...validation import argument_error
from .rows import BLOCK, Rows, blocks_of

# Of more training objects, this many are drawn; they have half a million pairs.
MOST_OBJECTS = 1_000


def variance_of_entries(X: Rows, owner: str) -> float:
    """Gamma by the rule "scale": 1 / (D Var(X)), the variance of all N x D entries."""
    variance = float(X.var())
    if not variance > 0:
        raise argument_error("X", owner, "of training objects that differ", "one value throughout")
    _check_overflow(variance, X, owner)
    return 1 / (X.shape[1] * variance)


def median_of_squared_distances(X: Rows, owner: str) -> float:
    """Gamma of a Gaussian kernel: 1 / (2 median_{i<j} ||x_i - x_j||^2)."""
    return 1 / (2 * _median_distance(X, "sqeuclidean", owner))


def half_at_median(X: Rows, owner: str) -> float:
    """Gamma with which an inverse multiquadric is 1/2 at the median squared distance m: 3 / m."""
    return 3 / _median_distance(X, "sqeuclidean", owner)


def median_of_distances(X: Rows, owner: str) -> float:
    """Gamma of a Laplace kernel: 1 / median_{i<j} ||x_i - x_j||_1."""
    return 1 / _median_distance(X, "cityblock", owner)


def _median_distance(X: Rows, metric: str, owner: str) -> float:
    """Median over pairs of training objects; O(min(N, 1000)^2 D)."""
    drawn = _sample(X) if len(X) > MOST_OBJECTS else np.asarray(X)
    median = float(np.median(pdist(drawn, metric))) if len(X) > 1 else 0.0
    if not median > 0:
        rule = (
            "of training objects most of whose pairs differ, since the width is their median "
            "distance (or give the width as a number)"
        )
        raise argument_error("X", owner, rule, f"{len(X)} objects with a median distance of 0")
    _check_overflow(median, X, owner)
    return median


def _check_overflow(size: float, X: Rows, owner: str) -> None:
    if not np.isfinite(size):
        got = f"entries up to {float(abs(X).max()):.3g} in size"
        rule = "small enough that squares do not overflow: standardise the features"
        raise argument_error("X", owner, rule, got)


def _sample(X: Rows) -> NDArray:
    """Draw objects with a fixed seed, the same for any order of the rows."""
    chosen = np.random.default_rng(0).choice(len(X), MOST_OBJECTS, replace=False)
    return np.asarray(X[np.argsort(_ranks(X), kind="stable")[chosen]])


def _ranks(X: Rows) -> NDArray[np.intp]:
    """Ranks of the rows (N,) in the order of their bytes; equal rows have equal ranks.

    Columns are read in groups until all rows differ, because a Dask array may not fit into memory.
    """
    ranks = np.zeros(len(X), dtype=np.intp)
    width = max(1, BLOCK // len(X))
    for start in range(0, X.shape[1], width):
        parts = [
            # Adding 0.0 turns -0.0 into 0.0, so that equal rows have equal bytes.
            np.ascontiguousarray(block[:, start : start + width], dtype=float) + 0.0
            for block in blocks_of(X, X.shape[1])
        ]
        columns = np.concatenate(parts)
        size = columns.itemsize * columns.shape[1]
        order = np.argsort(columns.view(np.dtype((np.void, size))).ravel())
        order = order[np.argsort(ranks[order], kind="stable")]
        differ = (columns[order[1:]] != columns[order[:-1]]).any(axis=1)
        differ |= ranks[order[1:]] != ranks[order[:-1]]
        ranks[order] = np.concatenate([[0], np.cumsum(differ)])
        if differ.all():
            break
    return ranks
