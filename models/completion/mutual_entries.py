"""Entries of `MutualKernelCompletion`: entries on request, and entries monitored in chains."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...validation import argument_error
from .incomplete import IncompleteKernel

__all__ = ["monitored_entries", "monitored_pairs", "positions"]

#: Largest number of monitored entries, and of monitored pairs.
MONITORED = 30


def monitored_entries(kernels: Sequence[IncompleteKernel]) -> list[npt.NDArray[np.intp]]:
    """Choose the monitored missing entries, positions (entry, 2) for each kernel."""
    n = len(kernels[0].order)
    ends = np.cumsum([len(kernel.hidden) * n for kernel in kernels])
    chosen: set[tuple[int, int, int]] = set()
    for cell in _some(int(ends[-1]), 2 * MONITORED):
        k = int(np.searchsorted(ends, cell, side="right"))
        row, column = divmod(int(cell - ends[k]) + len(kernels[k].hidden) * n, n)
        one, other = sorted((int(kernels[k].hidden[row]), column))
        # Entries between two missing objects are drawn in both orders.
        if len(chosen) < MONITORED:
            chosen.add((k, one, other))
    picked = [[pair for i, *pair in sorted(chosen) if i == k] for k in range(len(kernels))]
    return [np.array(pairs, dtype=np.intp).reshape(-1, 2) for pairs in picked]


def monitored_pairs(kernels: Sequence[IncompleteKernel]) -> npt.NDArray[np.intp]:
    """Choose the monitored pairs (pair, 2) of objects that no kernel has both of. O(K l^2)."""
    n = len(kernels[0].order)
    unseen = np.tri(n, k=-1, dtype=bool).T
    for kernel in kernels:
        unseen[np.ix_(kernel.visible, kernel.visible)] = False
    pairs = np.argwhere(unseen)
    return pairs[_some(len(pairs), MONITORED)]


def positions(
    pairs: Any, objects: pd.Index, argument: str, owner: str
) -> tuple[list[int], list[int]]:
    """Return rows and columns of pairs of object labels, or raise."""
    first, *_, last = objects.tolist()
    requirement = f"pairs of objects, such as {[(first, last)]}"
    try:
        ends = [(one, other) for one, other in pairs]
        rows, columns = (objects.get_indexer(list(end)) for end in zip(*ends, strict=True))
    except (TypeError, ValueError):
        raise argument_error(argument, owner, requirement, f"{pairs!r:.60}") from None
    unknown = (rows < 0) | (columns < 0)
    if unknown.any():
        pair = ends[int(unknown.argmax())]
        raise argument_error(argument, owner, requirement, f"{pair!r} with an unknown object")
    return rows.tolist(), columns.tolist()


def _some(n: int, number: int) -> npt.NDArray[np.int64]:
    """Draw up to `number` of the integers below n, with a fixed seed."""
    return np.random.default_rng(0).choice(n, min(n, number), replace=False)
