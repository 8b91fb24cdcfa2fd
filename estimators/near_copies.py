"""A warning of rows that are nearly copies of others, as samples of one person are."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

from ..user_warnings import warn_user

#: Objects whose neighbours are looked at, drawn with a fixed seed.
MOST_OBJECTS = 200
#: Least number of directions, (sum of variances)^2 / sum of squared ones, in which features vary:
#: along fewer, rows are near each other by chance.
LEAST_DIRECTIONS = 3.0
#: Neighbours of an object, and the distance to the nearest one, relative to that to the last one,
#: below which an object is nearly a copy. The median of the objects is .38 to .68 in seven tables
#: of data sets, and .05 to .18 with 2 to 8 samples of a person that differ by a tenth of what
#: persons do. Of 21 data sets none is warned of; of their tables alone, one (lipids of 40 mice).
NEIGHBOURS = 9
NEAR = 0.25
#: Distance, relative to that of the last neighbour, of rows that are equal but for rounding.
ROUNDING = 1e-6
#: Share of objects that must be nearly copies.
MOST = 0.5
#: Share of objects that must have the target of their neighbour, how many times as many as any two
#: objects have one target, and share of such pairs above which targets are classes or ranks.
MANY = 0.25
TIMES_CHANCE = 5
MOST_BY_CHANCE = 0.09


def warn_of_near_copies(tables: Sequence[NDArray], targets: NDArray | None) -> None:
    """Warn if most objects are nearly copies, or many are nearest to one of the same target.

    `tables` (N, D) have features, `targets` (N, P) are numbers. O(N D) for each of at most 200
    objects.
    """
    X = _varying(np.hstack(tables))
    if len(X) < 2 * NEIGHBOURS or _directions(X) < LEAST_DIRECTIONS:
        return
    some = np.random.default_rng(0).permutation(len(X))[:MOST_OBJECTS]
    # Twice as many, as copies are among them.
    search = NearestNeighbors(n_neighbors=2 * NEIGHBOURS, algorithm="brute").fit(X)
    distances, rows = search.kneighbors(X[some])
    is_other = rows != some[:, None]
    places = np.arange(len(some))
    # Copies are one object to every choice by left-out scores.
    first = (distances > ROUNDING * distances[:, [-1]]).argmax(axis=1)
    last = np.minimum(first + NEIGHBOURS - 1, distances.shape[1] - 1)
    near = distances[places, first] < NEAR * distances[places, last]
    if np.mean(near) > MOST:
        what = "Most rows of X are nearly copies of other rows"
    elif targets is not None and _have_equal(targets, some, rows[places, is_other.argmax(axis=1)]):
        what = "Many rows of X are nearest to a row with the same y"
    else:
        return
    warn_user(
        f"{what}. If these are samples of one person or one batch, left-out scores and "
        "uncertainties are far too good for new ones: name the groups, fit(X, y, groups=groups)."
    )


def _varying(X: NDArray) -> NDArray:
    """Features with more than two values, standardised."""
    spread = X.std(axis=0)
    ends = (X.min(axis=0) == X) | (X.max(axis=0) == X)
    kept = (spread > 0) & ~ends.all(axis=0)
    return (X[:, kept] - X[:, kept].mean(axis=0)) / spread[kept]


def _directions(X: NDArray) -> float:
    """Count the directions in which standardised features vary."""
    some = X if X.shape[1] <= len(X) else X.T
    covariance = some.T @ some
    return float(np.trace(covariance) ** 2 / np.square(covariance).sum()) if X.shape[1] else 0.0


def _have_equal(targets: NDArray, some: NDArray, nearest: NDArray) -> bool:
    """Whether many objects have the target of the nearest one, though few pairs do."""
    counts = np.unique(targets, axis=0, return_counts=True)[1]
    by_chance = float(np.square(counts / len(targets)).sum())
    equal = float(np.mean((targets[some] == targets[nearest]).all(axis=1)))
    return by_chance < MOST_BY_CHANCE and equal > max(MANY, TIMES_CHANCE * by_chance)
