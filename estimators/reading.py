"""Input of the estimators, read as one table of objects by features for each block."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from functools import singledispatch
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy.sparse import issparse

from ..models.kernels.labels import as_frame, check_distinct, ids_along, listed
from ..validation import argument_error, check_count, check_one_table

__all__ = ["Tables", "check_measured", "check_names", "ids_of", "in_blocks", "labelled", "select"]

#: Tables by the name of their block; a single table without blocks has the name None.
type Tables = dict[str | None, Any]


def in_blocks(X: Any, owner: str) -> Tables | None:
    """Tables of input that names its blocks itself; None for one table of features.

    Parameters
    ----------
    X : dict of tables, DataFrame with columns (block, feature), or DataArray (kernel, obs, basis)
        Anything else is one table.
    owner : str
        The estimator, for messages.

    Raises
    ------
    ValueError
        For sparse tables, columns of more than two levels, and columns that repeat.
    """
    tables: dict[Any, Any] = {}
    # Some of SciPy's sparse matrices are mappings.
    if isinstance(X, Mapping) and not issparse(X):
        tables = dict(X)
        if not tables:
            raise argument_error("X", owner, "of blocks with distinct names", "none")
    elif isinstance(X, pd.DataFrame) and X.columns.nlevels > 1:
        if X.columns.nlevels > 2:
            got = f"{X.columns.nlevels} levels"
            raise argument_error("X", owner, "a frame with columns of levels (block, feature)", got)
        check_distinct(X.columns, "X", owner, "of columns (block, feature) with distinct names")
        tables = {block: X[block] for block in X.columns.get_level_values(0).unique()}
    elif isinstance(X, xr.DataArray) and X.ndim == 3:
        if set(X.dims) != {"kernel", "obs", "basis"}:
            raise argument_error("X", owner, "of dims ('obs', 'basis', 'kernel')", f"dims {X.dims}")
        stack = X.transpose("kernel", "obs", "basis")
        names = X["kernel"].values if "kernel" in X.coords else map("K{}".format, range(len(stack)))
        tables = dict(zip(names, stack.drop_vars("kernel", errors="ignore"), strict=True))
    if not tables:
        return None
    for block, table in tables.items():
        check_one_table(table, f'X["{block}"]', owner)
        if issparse(table):
            raise argument_error(f'X["{block}"]', owner, "dense", "a sparse matrix")
    check_names(tables, "X", owner)
    return {str(block): as_frame(table) for block, table in tables.items()}


def ids_of(X: Any) -> pd.Index | None:
    """Ids of the objects of an estimator's input, in the order of its rows, or None.

    The ids of a dict are those of its first table with ids, whether a kernel uses it or not.
    """
    if isinstance(X, Mapping):
        return next((ids for table in X.values() if (ids := ids_of(table)) is not None), None)
    if isinstance(X, xr.DataArray) and X.ndim != 2:
        return None if isinstance(ids := ids_along(X, "obs"), range) else ids
    frame = as_frame(X)
    return frame.index if isinstance(frame, pd.DataFrame) else None


def check_names(blocks: Any, argument: str, owner: str) -> None:
    """Raise if two blocks have one name; names are strings."""
    twice = [name for name, times in Counter(map(str, blocks)).items() if times > 1]
    if twice:
        got = f"{twice[0]!r} twice"
        raise argument_error(argument, owner, "of blocks with distinct names", got)


def check_measured(tables: Tables, owner: str) -> None:
    """Raise if objects have no value in one of the tables; the message names them."""
    for block, table in tables.items():
        if not isinstance(table, pd.DataFrame) or not table.shape[1]:
            continue
        absent = table.index[table.isna().all(axis=1)]
        if len(absent):
            raise argument_error(
                "X" if block is None else f'X["{block}"]',
                owner,
                "measured for every object. To complete missing blocks, use "
                'KernelBlocks(missing="nan") and KernelCompleter; for thousands of objects, impute '
                "missing values",
                f"no value for {listed(absent)}",
            )


def labelled(values: np.ndarray, like: Any) -> Any:
    """Values as a frame with the labels of a frame `like`, or as they are for other input."""
    if not isinstance(like, pd.DataFrame):
        return values
    return pd.DataFrame(values, index=like.index, columns=like.columns)


@singledispatch
def select(columns: Any, X: Any, block: str, owner: str) -> Any:
    """Columns of a block.

    Parameters
    ----------
    columns : slice, sequence of int, sequence of names, or str
        Positions, names of columns, or the beginning that the names have in common.
    X : ndarray or DataFrame
    block, owner : str
        Names of the block and of the estimator, for messages.

    Raises
    ------
    ValueError
        For a block without columns, columns that `X` lacks or that are given twice, and names for
        an array.
    """
    raise argument_error(
        f'blocks["{block}"]',
        owner,
        "a slice, a list of columns, or a prefix of column names",
        repr(columns),
    )


@select.register
def _(columns: slice, X: Any, block: str, owner: str) -> Any:
    try:
        positions = np.arange(X.shape[1])[columns]
    except TypeError:
        got = repr(columns)
        raise argument_error(f'blocks["{block}"]', owner, "a slice of positions", got) from None
    return _taken(X, positions, block, owner)


@select.register
def _(columns: str, X: Any, block: str, owner: str) -> Any:
    names = _names(X, block, owner)
    positions = [i for i, name in enumerate(names) if str(name).startswith(columns)]
    return _taken(X, positions, block, owner, f"no column that begins with {columns!r}")


@select.register(Sequence)
@select.register(np.ndarray)
@select.register(pd.Index)
def _(columns: Any, X: Any, block: str, owner: str) -> Any:
    argument = f'blocks["{block}"]'
    check_distinct(columns, argument, owner, "a list of distinct columns")
    listed_columns = list(columns)
    if any(isinstance(column, bool | np.bool_) for column in listed_columns):
        raise argument_error(argument, owner, "a list of names or positions", "booleans")
    if all(isinstance(column, int | np.integer) for column in listed_columns):
        unknown = [
            i
            for i in listed_columns
            if not 0 <= check_count(i, argument, owner, least=0) < X.shape[1]
        ]
        positions = listed_columns
    else:
        place = {name: i for i, name in enumerate(_names(X, block, owner))}
        unknown = [name for name in listed_columns if name not in place]
        positions = [place.get(name, 0) for name in listed_columns]
    if unknown:
        requirement = f"a list of the {X.shape[1]} columns of X"
        raise argument_error(argument, owner, requirement, f"the unknown {listed(unknown)}")
    return _taken(X, positions, block, owner)


def _names(X: Any, block: str, owner: str) -> list[Hashable]:
    if not isinstance(X, pd.DataFrame):
        requirement = "a slice or a list of positions, because X is an array without names"
        raise argument_error(f'blocks["{block}"]', owner, requirement, "names")
    check_distinct(X.columns, "X", owner, "a frame with distinct names of columns")
    return list(X.columns)


def _taken(X: Any, positions: Any, block: str, owner: str, got: str = "none") -> Any:
    if not len(positions):
        raise argument_error(f'blocks["{block}"]', owner, "of at least one column of X", got)
    if not isinstance(X, pd.DataFrame):
        return X[:, positions]
    return X.iloc[:, positions]
