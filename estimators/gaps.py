"""Tables of blocks that some of the objects lack."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from xarray import DataArray

from ..models.kernels.features import labels_after
from ..models.kernels.labels import (
    NUMBERED,
    check_distinct,
    check_ids,
    counts_rows,
    listed,
)
from ..validation import argument_error, check_unmasked

__all__ = ["Gaps"]


@dataclass(frozen=True)
class Gaps:
    """Objects, and the blocks that each of them has.

    Attributes
    ----------
    labels : ndarray (n,)
        Ids, or the numbers of objects without ids.
    numbered : bool
        Whether the labels are numbers by position.
    rows : dict of str to ndarray of int
        Positions of the objects that have a block, among all objects.
    tables : dict of str to DataFrame or array
        Features of these objects.
    """

    labels: NDArray
    numbered: bool
    rows: dict[str, NDArray[np.intp]]
    tables: dict[str, Any]

    @classmethod
    def of(cls, tables: Mapping[str, Any], owner: str) -> Self:
        """Find the objects of each block: those of its rows that are not NaN as a whole.

        Frames of different objects go by their ids; the order is that of the first frame, then that
        of the objects that further frames add. Other tables have a row for every object.

        Raises
        ------
        ValueError
            For frames of different objects without distinct ids, arrays of different lengths,
            objects that have no block, and rows of which only some values are missing.
        """
        frames = {block: _frame(table, f'X["{block}"]', owner) for block, table in tables.items()}
        ids = _ids(frames, owner)
        rows, known = {}, {}
        for block, frame in frames.items():
            gaps = frame.isna().to_numpy()
            has = ~gaps.all(axis=1)
            if (partly := gaps[has].any(axis=1)).any():
                got = f"single missing values of {listed(frame.index[has][partly])}"
                required = "complete or wholly NaN in each row; impute single values first"
                raise argument_error(f'X["{block}"]', owner, required, got)
            known[block] = tables[block][has]
            same = len(frame) == len(ids) and frame.index.equals(ids)
            rows[block] = np.flatnonzero(has) if same else ids.get_indexer(frame.index[has])
        lacking = np.setdiff1d(np.arange(len(ids)), np.concatenate(list(rows.values())))
        if len(lacking):
            got = f"no value for {listed(ids[lacking])}"
            raise argument_error("X", owner, "such that each object has at least one block", got)
        return cls(ids.to_numpy(), counts_rows(ids), rows, known)

    def as_new(self, training: "Gaps") -> tuple[str, NDArray, dict[str, str] | None]:
        """Return the coordinate "obs" of new objects.

        It has their ids, if they are distinct and none is of a training object; otherwise numbers
        after those of the training objects.
        """
        ids = pd.Index(self.labels)
        if self.numbered or not ids.is_unique or ids.isin(training.labels).any():
            return "obs", labels_after(training.labels, len(ids)), NUMBERED
        return "obs", self.labels, None

    def stack(
        self, kernels: Mapping[str, DataArray], training: "Gaps", obs: Any, names: NDArray
    ) -> DataArray:
        """Kernels (kernel, obs, basis) of all objects, with NaN for those that lack a block.

        Parameters
        ----------
        kernels : dict of str to DataArray
            Kernels of each block, between the objects and the training objects that have it.
        training : Gaps
        obs : ndarray or coordinate
            Labels of the objects.
        names : ndarray of str
            Names of all kernels.
        """
        values = np.full((len(names), len(self.labels), len(training.labels)), np.nan)
        stack = DataArray(
            values,
            dims=("kernel", "obs", "basis"),
            coords={"kernel": names, "obs": obs, "basis": training.labels},
            name="kernels",
            attrs={name: told for each in kernels.values() for name, told in each.attrs.items()},
        )
        place = dict(zip(names, values, strict=True))
        for block, own in kernels.items():
            for matrix in own:
                at = np.ix_(self.rows[block], training.rows[block])
                place[str(matrix["kernel"].item())][at] = matrix
        return stack


def _frame(table: Any, argument: str, owner: str) -> pd.DataFrame:
    if not isinstance(table, pd.DataFrame):
        check_unmasked(table, argument, owner)
        if np.ndim(table) != 2:
            got = f"{np.ndim(table)} dimensions"
            raise argument_error(argument, owner, "of shape (objects, features)", got)
        table = pd.DataFrame(np.asarray(table))
    check_ids(table.index, argument, owner)
    return table


def _ids(frames: Mapping[str, pd.DataFrame], owner: str) -> pd.Index:
    """Ids of the objects of all frames."""
    indexes = {block: frame.index for block, frame in frames.items()}
    first = next(iter(indexes.values()))
    if all(index.equals(first) for index in indexes.values()):
        return first
    for block, index in indexes.items():
        if len(index) and counts_rows(index):
            got = f"{len(index)} rows without ids, and tables of other objects"
            required = "of frames labelled by ids, or of tables with a row for every object"
            raise argument_error(f'X["{block}"]', owner, required, got)
        check_distinct(index, f'X["{block}"]', owner)
    return reduce(
        lambda known, ids: known.append(ids.difference(known, sort=False)), indexes.values()
    )
