"""Alignment by label: labelled input is brought into the order of the kernels' object ids.

A Series, a DataFrame or a DataArray has labels; an array has none and is aligned by position.
Tables of other libraries, such as Polars and PyArrow, have names of columns but no ids of rows.
The numbers 0 to n - 1 in order are not ids, because pandas and kernel stacks use them as default
labels. The rules for labels, targets, kernels and features are:

- Both sides have ids: the ids must be the same and determine the order. An error names unknown,
  missing and repeated ids. If the ids are already in the same order they may repeat, as in a
  bootstrap sample. Rows of features that differ under one id are an error.
- One side has no ids: alignment by position, as in scikit-learn. An example is a Series that kept
  its index while ``.values`` or a scaler removed that of the features. Ids may repeat. Among
  kernels of one stack, and among feature spaces of the same objects, only arrays have no ids: a
  DataFrame with default labels beside one with ids is an error.
- One side has default labels and the other the same numbers in another order: an error, because
  alignment by position and by label are both possible.
- New and training objects both have default labels: they are different objects, and the numbers of
  the new objects continue those of the training objects.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from ...validation import argument_error, check_real, check_storable, check_unmasked

#: Number of labels listed in a message before "and ... more".
NAMED = 5
#: Attributes of a coordinate with default labels, which number the objects.
NUMBERED = {"labels": "numbers, by position"}


def counts_rows(labels: Any) -> bool:
    """Whether labels are the default labels 0 to n - 1 in order, which identify no objects."""
    return all(type(label) is int and label == row for row, label in enumerate(_plain(labels)))


def check_complete(labels: Any, argument: str, owner: str) -> None:
    """Raise if a label is missing."""
    absent = [row for row, label in enumerate(_plain(labels)) if pd.isna(label) is True]
    if absent:
        got = f"{len(absent)} missing, the first at position {absent[0]}"
        raise argument_error(argument, owner, "labelled without gaps", got)


def check_ids(labels: Any, argument: str, owner: str) -> None:
    """Raise if an id is missing or has several levels, or netCDF does not take it."""
    check_complete(labels, argument, owner)
    plain = _plain(labels)
    if several := [label for label in plain if isinstance(label, tuple)]:
        rule = "labelled by ids of one level: join the levels of a MultiIndex"
        raise argument_error(argument, owner, rule, listed(several))
    check_storable(plain, argument, owner)


def check_distinct(
    labels: Any, argument: str, owner: str, rule: str = "labelled by distinct ids"
) -> None:
    """Raise if a label is missing or repeated; the message lists repeated labels."""
    check_complete(labels, argument, owner)
    repeated = [label for label, times in Counter(_plain(labels)).items() if times > 1]
    if repeated:
        raise argument_error(argument, owner, rule, f"{listed(repeated)} more than once")


def check_repeated(
    labels: Any, values: Any, argument: str, owner: str, *, tolerance: float = 0.0
) -> None:
    """Raise if rows with the same id differ by more than `tolerance`: no bootstrap sample."""
    ids = pd.Index(_plain(labels), tupleize_cols=False)
    again = np.flatnonzero(ids.duplicated())
    if not len(again):
        return
    codes = pd.factorize(ids, use_na_sentinel=False)[0]
    first = np.unique(codes, return_index=True)[1][codes[again]]
    values = np.asarray(values)
    same = np.asarray(values[again] == values[first])
    if tolerance:
        same |= np.abs(values[again] - values[first]) <= tolerance
    differ = ids[again[~same.reshape(len(again), -1).all(axis=1)]]
    if len(differ):
        rule = "labelled by distinct ids, or equal wherever an id repeats"
        got = f"different rows for {listed(dict.fromkeys(differ))}"
        raise argument_error(argument, owner, rule, got)


def order_of(
    given: Any,
    wanted: Any,
    argument: str,
    owner: str,
    rule: str,
    *,
    by_position: bool = True,
    hint: str = "give an array to align by position, or sort it to align by label",
) -> list[int] | None:
    """Positions of the wanted labels among the given ones, or None if they need no new order.

    Default labels (0 to n - 1) mean alignment by position, with lengths that the caller checks,
    only if `by_position`. `rule` completes "must be ..." of a ValueError; `hint` says what to do
    about numbers in another order, which may be labels or positions.
    """
    own = _plain(given)
    others = _plain(wanted)
    if own == others:
        return None
    place = {label: row for row, label in enumerate(own)}
    expected = set(others)
    missing = [label for label in others if label not in place]
    unknown = [label for label in own if label not in expected]
    counted = counts_rows(own) or counts_rows(others)
    if counted and len(own) == len(others) and not (missing or unknown):
        rule = "in the same order, or labelled by names that cannot be mistaken for positions"
        got = f"the numbers 0 to {len(own) - 1}, on one side in another order ({hint})"
        raise argument_error(argument, owner, rule, got)
    if counted and by_position:
        return None
    check_distinct(own, argument, owner)
    unique = "an array, aligned by position, because the labels to align it with are repeated"
    check_distinct(others, argument, owner, unique)
    if missing or unknown:
        parts = [f"the unknown {listed(unknown)}"] if unknown else []
        parts += [f"none for {listed(missing)}"] if missing else []
        raise argument_error(argument, owner, rule, "; ".join(parts))
    return [place[label] for label in others]


def square_order(rows: Any, columns: Any, argument: str, owner: str) -> list[int] | None:
    """Positions that bring columns into the order of the rows; None if they share no label, too."""
    given = _plain(rows)
    others = _plain(columns)
    # Copies of objects, as a bootstrap draws them, against each object once are no Gram matrix.
    copies = len(set(given)) < len(set(others)) == len(others)
    if len(columns) != len(rows) or copies or set(others).isdisjoint(given):
        return None
    return order_of(columns, rows, argument, owner, "labelled alike in rows and columns")


def aligned(values: Any, ids: Any, argument: str, owner: str) -> Any:
    """Return values, one per object, in the order of the objects' ids if they have labels."""
    values = as_frame(values)
    labels = labels_of(values)
    rule = "labelled by the ids of the objects"
    order = None if labels is None else order_of(labels, ids, argument, owner, rule)
    if order is None:
        return values
    return values.to_numpy()[order] if isinstance(values, xr.DataArray) else values.iloc[order]


def labels_of(values: Any) -> list[Hashable] | None:
    """Labels of the rows of values, or None."""
    if isinstance(values, pd.Series | pd.DataFrame):
        return _plain(values.index)
    if isinstance(values, xr.DataArray) and values.ndim and values.dims[0] in values.indexes:
        return _plain(values.indexes[values.dims[0]])
    return None


def ids_along(values: xr.DataArray, dim: Hashable) -> Any:
    """Labels along a dim, or 0 to n - 1 if it has none or default labels."""
    if dim not in values.indexes or values[dim].attrs.items() >= NUMBERED.items():
        return range(values.sizes[dim])
    return values.indexes[dim]


def as_frame(table: Any) -> Any:
    """Convert a table of any library to a DataFrame of pandas; return anything else unchanged.

    What has no labels of rows becomes an array, or a frame with default labels if it names columns.
    """
    if isinstance(table, xr.DataArray):
        if table.ndim != 2:
            return table
        objects_first = table.transpose("obs", ..., missing_dims="ignore")
        if not table.coords:
            return objects_first.to_numpy()
        frame = objects_first.to_pandas()
        frame.attrs.update(table.attrs)
        return frame
    if isinstance(table, np.ndarray | pd.DataFrame | pd.Series):
        return table
    if hasattr(table, "to_df"):  # AnnData
        return table.to_df()
    read: Any = nw.from_native(table, pass_through=True, allow_series=True)
    if isinstance(read, nw.LazyFrame):
        read = read.collect()
    if read is table and hasattr(table, "__arrow_c_stream__"):
        # Such as a RecordBatch of PyArrow, which NumPy would read without its names.
        read = nw.from_arrow(table, backend="pyarrow")
    if not isinstance(read, nw.DataFrame | nw.Series):
        return table
    if nw.maybe_get_index(read) is not None:
        return read.to_pandas()
    if isinstance(read, nw.Series):
        return read.to_numpy()
    return pd.DataFrame({column.name: column.to_numpy() for column in read.iter_columns()})


def with_ids_of_columns(gram: Any) -> Any:
    """Return a Gram matrix with labels of rows or of columns alone with these labels on both."""
    if not isinstance(gram, pd.DataFrame) or len(gram) != gram.shape[1]:
        return gram
    alone = gram.index.is_unique and set(gram.index).isdisjoint(gram.columns)
    if alone and made_up(gram.columns):
        return gram.set_axis(gram.index, axis=1)
    named = not counts_rows(gram.columns) and made_up(gram.index)
    return gram.set_axis(gram.columns, axis=0) if named else gram


def labelled_gram(kernel: Any, argument: str, owner: str) -> tuple[Any, Any]:
    """Return a Gram matrix with columns in the order of its rows, and the ids of the rows."""
    matrix = as_frame(kernel)
    if not isinstance(matrix, pd.DataFrame):
        return matrix, range(*np.shape(matrix)[:1] or (0,))
    matrix = aligned_frame(matrix, None, None, argument, owner)
    check_repeated(matrix.index, matrix, argument, owner)
    return matrix, _plain(matrix.index)


def made_up(index: pd.Index) -> bool:
    """Whether an index is the default index of pandas, which identifies no objects."""
    return isinstance(index, pd.RangeIndex) and counts_rows(index)


def kernel_names(values: Any, argument: str, owner: str) -> tuple[str, ...] | None:
    """Names that numbers, one per kernel in a DataArray, Series or mapping, are labelled with."""
    labels: Any = list(values) if isinstance(values, Mapping) else None
    if isinstance(values, xr.DataArray) and values.dims == ("kernel",):
        labels = values.indexes.get("kernel")
    elif isinstance(values, pd.Series) and not made_up(values.index):
        labels = values.index
    if labels is None:
        return None
    check_complete(labels, argument, owner)
    names = tuple(map(str, _plain(labels)))
    check_distinct(names, argument, owner, "labelled by the names of different kernels")
    return names


def in_order(values: Any, names: Iterable[Any], argument: str, owner: str, requirement: str) -> Any:
    """Return numbers labelled with exactly the kernels' `names` in their order; others as is."""
    own = kernel_names(values, argument, owner)
    wanted = list(map(str, names))
    if own is None:
        return values
    if sorted(own) != sorted(wanted):
        raise argument_error(argument, owner, requirement, f"the names {list(own)}")
    numbers = list(values.values()) if isinstance(values, Mapping) else values.to_numpy().tolist()
    by_name = dict(zip(own, numbers, strict=True))
    return [by_name[name] for name in wanted]


def numbers_by_kernel(
    values: Any,
    names: Iterable[Any],
    argument: str,
    owner: str,
    requirement: str,
    holds: Callable[[NDArray[np.float64]], Any],
    default: float,
) -> NDArray[np.float64]:
    """Return finite numbers (kernel,) for which `holds` is true everywhere, or raise.

    One number is that of all kernels; None is the default. Others are aligned by kernel names.
    """
    names = list(names)
    if values is None:
        return np.full(len(names), float(default))
    requirement = f"{requirement}, one number or one per kernel ({', '.join(map(str, names))})"
    check_unmasked(values, argument, owner)
    ordered = in_order(values, names, argument, owner, requirement)
    try:
        numbers = check_real(ordered, argument, owner)
    except ValueError:
        numbers = np.array(np.nan)
    fits = numbers.shape in ((), (len(names),)) and np.isfinite(numbers).all()
    if not (fits and np.all(holds(numbers))):
        raise argument_error(argument, owner, requirement, repr(values))
    return np.broadcast_to(numbers, len(names)).copy()


def aligned_frame(
    frame: pd.DataFrame, first: pd.DataFrame | None, basis: Any, argument: str, owner: str
) -> pd.DataFrame:
    """Bring a matrix of similarities into the order of the first one of the same objects.

    Columns get the order of `basis`, labels of training objects, or, if the rows are these objects
    themselves (None), that of the rows.
    """
    of_first = (argument, owner, "labelled as the first kernel is")
    rows = None
    if basis is None:
        frame = with_ids_of_columns(frame)
    if first is not None:
        rows = order_of(frame.index, first.index, *of_first, by_position=False)
    if basis is not None:
        rule = "kernels between new and training objects: for a table of features pass "
        rule += "kernels(X_new, X_train)"
        columns = order_of(frame.columns, basis, argument, owner, rule)
    elif first is not None:
        columns = order_of(frame.columns, first.columns, *of_first, by_position=False)
    else:
        columns = square_order(frame.index, frame.columns, argument, owner)
    frame = frame if rows is None else frame.iloc[rows]
    return frame if columns is None else frame.iloc[:, columns]


def _plain(labels: Any) -> list[Hashable]:
    # The values of an index have no time zone.
    given = labels if isinstance(labels, pd.Index) else getattr(labels, "values", labels)
    plain = isinstance(given, np.ndarray) and given.dtype.kind in "Ubif"
    return (given if plain else pd.Index(given)).tolist()


def listed(labels: Iterable[Hashable]) -> str:
    """List the first labels, for a message."""
    each = list(labels)
    named = ", ".join(map(repr, each[:NAMED]))
    return named if len(each) <= NAMED else f"{named} and {len(each) - NAMED} more"


def output_names(targets: Any, n_outputs: int, owner: str) -> Any:
    """Names of the outputs: the columns of a DataFrame, or numbers."""
    if not isinstance(targets, pd.DataFrame):
        return range(n_outputs)
    if targets.columns.nlevels > 1:
        got = f"{targets.columns.nlevels} levels of columns"
        raise argument_error("targets", owner, "a frame with one level of columns", got)
    check_distinct(targets.columns, "targets", owner, "of outputs with distinct names")
    check_storable(targets.columns, "targets", owner)
    return list(targets.columns)
