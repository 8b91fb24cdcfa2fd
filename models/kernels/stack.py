"""Kernel stacks: validated ``xarray.DataArray`` with dims ("kernel", "obs", "basis").

If the "obs" labels of a stack equal its "basis" labels, it holds Gram matrices and is validated as
such.  In a cross stack (new objects against training objects) and a basis expansion they differ.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from math import isclose
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from ...validation import (
    ROUNDING,
    argument_error,
    check_finite,
    check_jitter,
    check_one_table,
    check_psd,
    check_square_symmetric,
)
from .labels import (
    NUMBERED,
    aligned_frame,
    as_frame,
    check_distinct,
    check_ids,
    check_repeated,
    listed,
    order_of,
    square_order,
)
from .objects import counts_as, labels_after
from .source import DIMS, IN_MEMORY, LANDMARK, CompletedRows, KernelSource, ParametricStack

#: Attribute of a stack with the relative size of rounding errors of the kernels it was made from.
PRECISION = "precision"
#: Attribute of the coordinate "kernel" of kernels that a specification has made: an `Origin` of
#: each by name, as JSON.
ORIGIN = "origin"
#: Largest size of an entry.
LARGEST_ENTRY = 1e60
#: Largest relative difference of a kernel from itself, of features in single precision.
SAME_KERNEL = 1e-4


class Origin(NamedTuple):
    """Steps of normalisation of a kernel, and the training objects that it was computed against.

    Their number is 0 and the fingerprint empty where the columns are not training objects. `value`
    is a mean of the kernel's entries, which tells it from another of the same name.
    """

    steps: str
    n_train: int = 0
    fingerprint: str = ""
    value: float = 0.0


def as_stack(
    kernels: Any,
    *,
    jitter: float = 0.0,
    like: xr.DataArray | None = None,
    owner: str = "as_stack",
    argument: str = "kernels",
) -> xr.DataArray:
    """Validate a kernel stack and bring it into its canonical form.

    Parameters
    ----------
    kernels : DataArray, dict of name -> (n, M) array, or array-like of shape (n, M) or (S, n, M)
        DataFrames and DataArrays are aligned by label: matrices of a dict get the order of the
        first, and the columns of a Gram matrix the order of its rows. Arrays are aligned by
        position, and labelled 0, 1, ...; square arrays are therefore Gram matrices. A square
        basis expansion is a DataArray whose labels of "basis" are not those of "obs".
    jitter : float, default=0
        Added to the diagonal of each Gram matrix of training objects.
    like : DataArray, optional
        The training stack, if `kernels` are those of new objects: they get the order of its kernels
        and basis, by name and label; arrays take over both.
    owner, argument : str
        Function called by the user and its argument, for messages.

    Returns
    -------
    DataArray of shape (S, n, M)
        Dims ("kernel", "obs", "basis") in this order, coords on all three, float64, C-contiguous.
        Gram matrices that are symmetric only up to rounding are averaged with their transposes.
        Kernels of an array are named "K0", "K1", ...

    Raises
    ------
    ValueError
        If dims, shapes or labels disagree, names repeat, labels are missing or ambiguous, entries
        are masked or not finite, or a Gram matrix is not symmetric or not positive semidefinite.

    Notes
    -----
    Gram matrices cost one Cholesky factorisation each, O(S N^3 / 3).  Rounding errors are relative
    errors up to 1e-8, or more if the given array has a lower precision (float32).

    Examples
    --------
    >>> stack = kz.kernels.as_stack({"text": truth["a"], "image": truth["b"]})
    >>> stack.sel(kernel="text")
    """
    stack = labelled(kernels, like, owner, argument)
    precision = precision_of(stack)
    jitter = check_jitter(jitter, owner)
    values = np.ascontiguousarray(stack.values, dtype=float)
    among = stack if like is None else like
    similar = np.array_equal(among["obs"].values, among["basis"].values)
    _check_finite(stack, argument, owner, similarities=similar)
    # Models multiply kernels with one another; squares of squares overflow at 1e77.
    if (size := max(float(values.max()), -float(values.min()))) > LARGEST_ENTRY:
        rule = f"at most {LARGEST_ENTRY:g} in size: "
        rule += "kernels.normalize('trace'), or z-score the features"
        raise argument_error(argument, owner, rule, f"an entry of {size:.3g}")
    rows = values.swapaxes(0, 1)
    check_repeated(stack.indexes["obs"], rows, argument, owner, tolerance=precision * size)
    # New objects may have the ids of the training objects: the same patients, a year later.
    if similar and like is None:
        entries = _entries(kernels, stack["kernel"].values, argument)
        for matrix, entry in zip(values, entries, strict=True):
            check_square_symmetric(matrix, entry, owner, tolerance=precision)
        transposed = values.swapaxes(1, 2)
        if not np.array_equal(values, transposed):
            values = (values + transposed) / 2
        if jitter:
            values = values + jitter * np.eye(values.shape[1])
        for matrix, entry in zip(values, entries, strict=True):
            check_psd(matrix, entry, owner, tolerance=precision)
    return xr.DataArray(values, dims=DIMS, coords=stack.coords, name="kernels")


def nearest_psd(similarities: Any, train: Any = None) -> xr.DataArray:
    r"""Set negative eigenvalues of similarities to zero, which makes them kernels.

    Scores of alignments, similarity network fusion and many kernels of graphs and strings have
    negative eigenvalues. With :math:`K = U \Lambda U'` the similarities of the training objects,
    :math:`U \max(\Lambda, 0) U'` is the nearest positive semidefinite matrix. The similarities k of
    a new object to the training objects become :math:`k'U\, 1(\Lambda \ge 0)\, U'`, so that a copy
    of a training object gets its row.

    Parameters
    ----------
    similarities : DataArray (kernel, obs, basis), dict of 2-D arrays, or array (2-D or 3-D)
        Symmetric similarities among the training objects; or of new objects (rows) to the training
        objects, with `train`. Frames are aligned by label, as models do it.
    train : the same, optional
        Similarities among the training objects, if `similarities` are those of new objects.

    Returns
    -------
    DataArray (kernel, obs, basis)
        The coordinates ``smallest`` and ``negative`` (kernel) have the smallest eigenvalue and the
        number of negative ones before, and ``change`` the Frobenius norm of the difference to the
        similarities, relative to theirs. Kernels without negative eigenvalues are unchanged.

    Raises
    ------
    ValueError
        For similarities that are not finite or not symmetric (take the mean with the transpose),
        and new ones of other kernels or training objects.

    Notes
    -----
    One eigendecomposition per kernel, O(N^3). See Y. Chen et al. (2009), Similarity-based
    classification: concepts and algorithms, JMLR 10, section 3.

    Examples
    --------
    >>> scores = truth["a"] - 0.1 * np.eye(len(truth["a"]))
    >>> kernels = kz.kernels.nearest_psd({"alignment": scores})
    >>> kernels["change"]
    >>> new = kz.kernels.nearest_psd({"alignment": scores[:2]}, {"alignment": scores})
    """
    owner = "nearest_psd"
    argument = "similarities" if train is None else "train"
    whole = labelled(similarities if train is None else train, None, owner, argument)
    check_gram(whole, owner, argument)
    _check_finite(whole, argument, owner, similarities=False)
    given = whole
    if train is not None:
        given = labelled(similarities, whole, owner, "similarities")
        _check_finite(given, "similarities", owner, similarities=False)
    changed = given.astype(float)
    found: dict[str, list[float]] = {"smallest": [], "negative": [], "change": []}
    for new, K in zip(changed.values, whole.values.astype(float), strict=True):
        check_square_symmetric(K, argument, owner, tolerance=precision_of(whole))
        eigenvalues, U = np.linalg.eigh((K + K.T) / 2)
        rounding = len(K) * np.finfo(float).eps * np.abs(eigenvalues).max()
        negative = U[:, eigenvalues < -rounding]
        before = new.copy()
        if negative.size:
            new[:] = new - (new @ negative) @ negative.T
        found["smallest"].append(float(eigenvalues[0]))
        found["negative"].append(negative.shape[1])
        found["change"].append(float(np.linalg.norm(new - before) / (np.linalg.norm(before) or 1)))
    return changed.assign_coords({name: ("kernel", values) for name, values in found.items()})


def _check_finite(stack: xr.DataArray, argument: str, owner: str, *, similarities: bool) -> None:
    labels = [stack.indexes[dim].tolist() for dim in DIMS]
    check_finite(stack.values, argument, owner, labels, similarities=similarities)


def labelled(kernels: Any, like: xr.DataArray | None, owner: str, argument: str) -> xr.DataArray:
    """Kernels in any form with dims and labels, which are checked, but not their entries."""
    if isinstance(kernels, CompletedRows):
        kernels = kernels.mean
    if callable(kernels):
        got = "a specification, or kernels with parameters"
        raise argument_error(argument, owner, "computed from data: kernels(X_train)", got)
    make = _of_array if isinstance(kernels, xr.DataArray) else _of_tables
    stack = make(kernels, like, owner, argument)
    names = [str(name) for name in stack["kernel"].values]
    check_distinct(names, argument, owner, "of kernels with distinct names")
    # Columns of new objects must be those of the training objects, which were checked.
    for dim in ("obs", "basis") if like is None else ("obs",):
        check_ids(stack.indexes[dim], argument, owner)
    return stack if like is None else _in_order_of(stack, like, owner, argument)


def read_kernels(kernels: Any, owner: str) -> tuple[xr.DataArray, KernelSource]:
    """Check kernels in any form, and find out where they come from; (kernel, obs, basis)."""
    if isinstance(kernels, ParametricStack):
        return as_stack(kernels.start, owner=owner), kernels
    if isinstance(kernels, xr.DataArray) and kernels.chunks is not None:
        rule = "in memory: compute() of the DataArray loads it. GaussianProcessClassification and "
        rule += "GaussianProcessRegression read Dask arrays of kernels at landmarks"
        raise argument_error("kernels", owner, rule, "a DataArray of a Dask array")
    stack = as_stack(kernels, owner=owner)
    # Matrices that are not square are most likely features, unless a DataArray says otherwise.
    if not isinstance(kernels, xr.DataArray):
        check_gram(stack, owner, "kernels", ", for basis functions kz.kernels.as_stack(functions)")
    return stack, kernels if isinstance(kernels, CompletedRows) else IN_MEMORY


def check_gram(stack: xr.DataArray, owner: str, argument: str, besides: str = "") -> None:
    """Raise unless a stack holds kernels between its own objects; `besides` says what else may."""
    rows = stack["obs"].values
    columns = stack["basis"].values
    if np.array_equal(rows, columns):
        return
    got = f"shape {stack.shape}"
    if len(rows) == len(columns):
        got = f"labels of columns: {label_difference(columns, rows)}"
    rule = "square, labelled alike in rows and columns: for a table of features pass kernels(X)"
    raise argument_error(argument, owner, rule + besides, got)


def rows_of_landmarks(stack: xr.DataArray, owner: str, argument: str) -> NDArray[np.intp]:
    """Rows (M,) of the objects whose kernels are the columns; all in order, of Gram matrices.

    Raises ValueError unless each column is of another object.
    """
    if np.array_equal(stack["obs"].values, stack["basis"].values):
        return np.arange(stack.sizes["obs"])
    objects = stack.indexes["obs"]
    landmarks = pd.Index(stack[LANDMARK if LANDMARK in stack.coords else "basis"].values)
    rule = "kernels of the objects with one another, or with landmarks among them: kernels(X), "
    rule += "kernels.landmarks(50)(X) or, of a table with ids, kernels(X, X[:50])"
    if len(landmarks) > len(objects):
        got = f"{len(landmarks)} landmarks of {len(objects)} objects"
        raise argument_error(argument, owner, rule, got)
    if strangers := [label for label in landmarks.tolist() if label not in objects]:
        got = f"shape {stack.shape}, whose columns {listed(strangers)} are not among the rows"
        raise argument_error(argument, owner, rule, got)
    check_distinct(landmarks, argument, owner, "of distinct landmarks")
    first = dict(zip(reversed(objects.tolist()), range(len(objects))[::-1], strict=True))
    return np.array([first[label] for label in landmarks.tolist()])


def check_landmarks(own: xr.DataArray, owner: str, argument: str) -> None:
    """Raise unless kernels between landmarks are symmetric and positive semidefinite. O(S M^3)."""
    tolerance = precision_of(own)
    for matrix, name in zip(own.to_numpy(), own["kernel"].values, strict=True):
        entry = f'{argument}["{name}"] between the landmarks'
        check_square_symmetric(matrix, entry, owner, tolerance=tolerance)
        check_psd((matrix + matrix.T) / 2, entry, owner, tolerance=tolerance)


def compared_objects(n: int) -> NDArray[np.intp]:
    """Positions of up to 40 of n objects, evenly spaced, on which results are compared."""
    return np.unique(np.linspace(0, n - 1, 40).round().astype(np.intp))


def _entries(kernels: Any, names: Iterable[Any], argument: str) -> list[str]:
    """How messages call each kernel of an argument; one matrix by the argument alone."""
    alone = getattr(kernels, "ndim", 0) == 2
    return [argument] if alone else [f'{argument}["{name}"]' for name in names]


def precision_of(kernels: Any) -> float:
    """Relative size of rounding errors, given the precision of the user's array."""
    dtype = np.asarray(kernels).dtype
    eps = 100 * float(np.finfo(dtype).eps) if dtype.kind == "f" else 0.0
    return max(ROUNDING, eps, getattr(kernels, "attrs", {}).get(PRECISION, 0.0))


def label_difference(labels: Iterable, expected: Iterable) -> str:
    """Describe the first difference between labels and those expected, for a message."""
    given = list(map(str, labels))
    wanted = list(map(str, expected))
    kind = "the same in another order" if sorted(given) == sorted(wanted) else "others"
    differing = (pair for pair in zip_longest(given, wanted) if pair[0] != pair[1])
    one, other = next(differing, ("labels of another type", "the expected type"))
    return f"{kind}, {one!r} instead of {other!r}"


def _in_order_of(
    stack: xr.DataArray, like: xr.DataArray, owner: str, argument: str
) -> xr.DataArray:
    """Return kernels of new objects in the order of the training stack's kernels and basis."""
    names = stack["kernel"].values.tolist()
    expected = like["kernel"].values.tolist()
    if sorted(names, key=str) != sorted(expected, key=str):
        alone = np.array_equal(stack["obs"].values, stack["basis"].values)
        hint = " of the new objects only; use kernels(X_new, X_train)" if alone else ""
        raise argument_error(argument, owner, f"the kernels {expected}", f"{names}{hint}")
    if names != expected:
        stack = stack.isel(kernel=[names.index(name) for name in expected])
    n_train = like.sizes["basis"]
    given = stack.sizes["basis"]
    if given != n_train:
        hint = ", which looks transposed" if stack.sizes["obs"] == n_train else ""
        rule = f"of shape ({len(names)}, new objects, {n_train} training objects): for a table of "
        rule += "features pass kernels(X_new, X_train)"
        raise argument_error(argument, owner, rule, f"shape {stack.shape}{hint}")
    rule = "computed against the training objects, in their order: kernels(X_new, X_train)"
    labels = stack.indexes["basis"], like.indexes["basis"]
    columns = order_of(*labels, argument, owner, rule, by_position=False)
    own, trained = (json.loads(each["kernel"].attrs.get(ORIGIN, "{}")) for each in (stack, like))
    for name in map(str, expected):
        if name not in own.keys() & trained:
            continue
        mine = Origin(*own[name])
        theirs = Origin(*trained[name])
        if mine.steps != theirs.steps:
            rule = f"kernels normalised as the training kernels ({theirs.steps or 'not at all'}; "
            rule += "after a normalisation by hand, drop_attrs() of the kernels)"
            raise argument_error(argument, owner, rule, f"{name}: {mine.steps or 'not at all'}")
        # Of a part of the training objects, the fingerprint says nothing.
        whole = mine.n_train == theirs.n_train == n_train
        same = isclose(mine.value, theirs.value, rel_tol=SAME_KERNEL)
        if whole and not (same and mine.fingerprint == theirs.fingerprint):
            rule = f"{rule} (if they are, drop_attrs() of the kernels)"
            got = f"{name!r} against objects with other features, or in another order"
            if mine.fingerprint == theirs.fingerprint:
                got = f"{name!r} by another kernel, such as one of another width"
            raise argument_error(argument, owner, rule, got)
    return stack if columns is None else stack.isel(basis=columns)


def _of_array(
    kernels: xr.DataArray, like: xr.DataArray | None, owner: str, argument: str
) -> xr.DataArray:
    """Return a DataArray with the dims of a stack and coords on each; columns are in row order."""
    if set(kernels.dims) != set(DIMS):
        raise argument_error(argument, owner, f"of dims {DIMS}", f"dims {kernels.dims}")
    stack = kernels.transpose(*DIMS)
    if 0 in stack.shape or stack.dtype.kind not in "fiub":
        got = f"{stack.dtype}, {stack.shape}"
        raise argument_error(argument, owner, "numbers with nonempty dims", got)
    if like is None and {"obs", "basis"} <= set(stack.indexes):
        order = square_order(stack["obs"], stack["basis"], argument, owner)
        stack = stack if order is None else stack.isel(basis=order)
    s, n, m = stack.shape
    names = [f"K{k}" for k in range(s)]
    default: dict[str, Any] = {"kernel": names, "obs": np.arange(n), "basis": np.arange(m)}
    if like is not None:
        default["obs"] = ("obs", labels_after(like["basis"].values, n), NUMBERED)
    missing = {dim: labels for dim, labels in default.items() if dim not in stack.coords}
    return stack.assign_coords(missing)


def _of_tables(kernels: Any, like: xr.DataArray | None, owner: str, argument: str) -> xr.DataArray:
    """Stack tables; labels are those of DataFrames or of the training stack, otherwise numbers."""
    basis = None if like is None else like["basis"]
    named = _named(as_frame(kernels), like, owner, argument)
    frame = None
    entries = _entries(kernels, named, argument)
    arrays = []
    for entry, table in zip(entries, named.values(), strict=True):
        if isinstance(table, pd.DataFrame):
            table = aligned_frame(table, frame, basis, entry, owner)
            frame = table if frame is None else frame
        check_one_table(table, entry, owner)
        values = np.asarray(table)
        if values.ndim != 2 or 0 in values.shape or values.dtype.kind not in "fiub":
            got = f"{values.dtype} of shape {values.shape}"
            raise argument_error(entry, owner, "a two-dimensional array of numbers", got)
        arrays.append(values)
    shape = Counter(array.shape for array in arrays).most_common(1)[0][0]
    for entry, array in zip(entries, arrays, strict=True):
        if array.shape != shape:
            hint = ", which looks transposed" if array.shape == shape[::-1] else ""
            rule = f"of shape {shape}, objects by basis functions"
            raise argument_error(entry, owner, rule, f"shape {array.shape}{hint}")
    coords: dict[str, Any] = {"kernel": list(named)}
    if frame is not None:
        coords |= {"obs": frame.index.to_numpy(), "basis": frame.columns.to_numpy()}
    if basis is not None:
        if len(basis) == shape[1]:
            coords["basis"] = basis.values
        # Rows without labels are new objects.
        if frame is not None and counts_as(coords["obs"], basis.values):
            del coords["obs"]
    stack = xr.DataArray(np.stack(arrays), coords, DIMS)
    # Beside one of double precision, a kernel of single precision keeps its rounding errors.
    if (rounding := max(map(precision_of, arrays))) > ROUNDING:
        stack.attrs[PRECISION] = rounding
    return _of_array(stack, like, owner, argument)


def _named(kernels: Any, like: xr.DataArray | None, owner: str, argument: str) -> dict[str, Any]:
    if isinstance(kernels, Mapping):
        if not kernels:
            raise argument_error(argument, owner, "at least one kernel", "none")
        check_distinct(list(map(str, kernels)), argument, owner, "of kernels with distinct names")
        return {str(name): as_frame(table) for name, table in kernels.items()}
    if isinstance(kernels, list | tuple):
        tables = list(map(as_frame, kernels))
        kernels = tables if any(isinstance(each, pd.DataFrame) for each in tables) else kernels
    try:
        shape = np.shape(kernels)
    except ValueError:
        rule = "of matrices of one shape"
        got = "a ragged sequence"
        raise argument_error(argument, owner, rule, got) from None
    if len(shape) not in (2, 3) or shape[0] == 0:
        rule = "a dict of named arrays, or an array of shape (n, M) or (S, n, M)"
        raise argument_error(argument, owner, rule, f"{type(kernels).__name__} of shape {shape}")
    matrices = [kernels] if len(shape) == 2 else list(kernels)
    numbered = [f"K{s}" for s in range(len(matrices))]
    names = numbered if like is None else like["kernel"].values.tolist()
    if len(names) != len(matrices):
        rule = f"the {len(names)} kernels {names}: for features pass kernels(X_new, X_train)"
        raise argument_error(argument, owner, rule, f"an array of shape {shape}")
    return dict(zip(names, matrices, strict=True))
