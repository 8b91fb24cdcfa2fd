"""Groups of objects that are left out together."""

import numpy as np
from numpy.typing import NDArray

#: The group (N,) of each object: numbers 0, 1, ..., each of which occurs.
type Groups = NDArray[np.intp]


def rows_by_size(groups: Groups) -> list[NDArray[np.intp]]:
    """Rows (group, size) of the members of every group, an array for each size of groups."""
    order = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups)
    starts = np.cumsum(sizes) - sizes
    return [order[starts[sizes == size, None] + np.arange(size)] for size in np.unique(sizes)]
