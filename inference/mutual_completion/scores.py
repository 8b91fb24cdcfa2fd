"""Scores of completed kernels: distance from the truth, coverage of intervals.

The first score is that of Kato and Rivero (2017), section 5.2. Alignment, and the ideal
kernel of class labels, are those of Cristianini et al. (2002), On kernel target alignment, and of
Zhang, Yeung and Kwok, mixture model of kernels, section 5.1.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from xarray import Dataset

from ...models.completion.incomplete import IncompleteKernels
from ...models.kernels.labels import as_frame, check_distinct, order_of, with_ids_of_columns
from ...models.kernels.stack import as_stack
from ...validation import (
    Seed,
    argument_error,
    check_count,
    check_finite,
    check_labels,
    check_real,
    integer_seed,
)

type Entries = Mapping[str, Sequence[tuple[Any, Any]]]


def correlation_distance(completed: xr.DataArray, truth: Any) -> xr.DataArray:
    r"""Distance from the true kernels, :math:`1 - \langle Q, Q'\rangle / (\|Q\|\, \|Q'\|)`.

    Parameters
    ----------
    completed : DataArray (kernel, object, object)
        Kernels from `impute_kernels`, or ``kernel_mean`` from `predict`.
    truth : stack of square kernels, in any form that `MutualKernelCompletion` takes
        True kernels of the same objects, without missing entries; further kernels are ignored.

    Returns
    -------
    DataArray (kernel)
        0 for proportional kernels; at most 1 for positive semidefinite kernels. Visible entries are
        included. The paper's measure is the mean over kernels.

    Raises
    ------
    ValueError
        For kernels or objects that differ from those of the truth, and entries that are not finite.

    Notes
    -----
    O(K l^2).

    Examples
    --------
    >>> completed = kz.completion.impute_kernels({"a": A, "b": B}, method="mean")
    >>> kz.scores.correlation_distance(completed, truth)
    """
    owner = "correlation_distance"
    deep = isinstance(completed, xr.DataArray) and completed.ndim == 3
    if not deep or "kernel" not in completed.dims:
        rule = "a DataArray (kernel, object, object)"
        raise argument_error("completed", owner, rule, type(completed).__name__)
    stack = as_stack(truth, owner=owner, argument="truth")
    ours = completed.transpose("kernel", ...)
    _, rows, columns = ours.dims
    names, known = ([*map(str, each["kernel"].values)] for each in (ours, stack))
    if absent := [name for name in names if name not in known]:
        raise argument_error("truth", owner, f"one that has the kernels {names}", f"no {absent}")
    indices = {"obs": ours.get_index(rows), "basis": ours.get_index(columns)}
    for dim, index in indices.items():
        check_distinct(stack.indexes[dim], "truth", owner)
        if set(index) != set(stack[dim].values.tolist()):
            got = f"{stack[dim].values[:3]}..."
            raise argument_error("truth", owner, "of the objects that were completed", got)
    theirs = stack.isel(kernel=[known.index(name) for name in names]).sel(indices)
    distances = 1 - np.atleast_1d(kernel_alignment(ours.to_numpy(), theirs.to_numpy()))
    # Rounding may give proportional kernels a negative distance.
    return xr.DataArray(distances.clip(0.0), {"kernel": names}, dims="kernel", name="distance")


def missing_entries(
    kernels: Any, visible: Any = None, *, number: int = 50, random_seed: Seed = None
) -> dict[str, list[tuple[Any, Any]]]:
    """Choose missing entries of each kernel at random, for `MutualKernelCompletion`'s `entries`.

    Parameters
    ----------
    kernels, visible
        As in `MutualKernelCompletion`.
    number : int, default=50
        Number of pairs of objects per kernel with at least one missing object, or all if there are
        fewer.
    random_seed : int, SeedSequence or Generator, optional
        Seed; a Generator advances with each call.

    Returns
    -------
    dict of str to list of (object, object)
        Distinct pairs by kernel, for kernels with missing objects.

    Notes
    -----
    O(K l^2), and O(K l^3) for the checks.

    Examples
    --------
    >>> chosen = kz.completion.missing_entries({"a": A, "b": B}, number=5, random_seed=1)
    """
    owner = "missing_entries"
    check_count(number, "number", owner)
    rng = np.random.default_rng(integer_seed(random_seed, "random_seed", owner))
    given = IncompleteKernels.of(kernels, visible, owner=owner)
    chosen = {}
    for kernel in given.kernels:
        hidden = np.isin(np.arange(len(given.objects)), kernel.hidden)
        pairs = np.argwhere(np.triu(hidden[:, None] | hidden))
        if len(pairs):
            kept = rng.choice(len(pairs), min(number, len(pairs)), replace=False)
            names = given.objects[pairs[np.sort(kept)]].tolist()
            chosen[kernel.name] = [(one, other) for one, other in names]
    return chosen


def entry_coverage(completed: Dataset, truth: Any, entries: Entries) -> xr.DataArray:
    """Share of the chosen entries whose interval contains the true value.

    Parameters
    ----------
    completed : Dataset
        Output of `predict` for a result with draws of the entries.
    truth : stack of square kernels, in any form that `MutualKernelCompletion` takes
    entries : mapping of kernel name to pairs of objects
        Entries of the model.

    Returns
    -------
    DataArray (kernel)
        Compare with ``completed.attrs["ci_prob"]``. Errors of entries that share an object are
        dependent, so the standard error is larger than for independent entries.

    Raises
    ------
    ValueError
        If a kernel's intervals are not those of these entries, or the truth lacks the entries.

    Examples
    --------
    >>> entries = kz.completion.missing_entries({"a": A, "b": B}, number=5, random_seed=1)
    >>> mutual = kz.MutualKernelCompletion({"a": A, "b": B}, entries=entries)
    >>> completed = kz.predict(mutual, kz.fit(mutual, "gibbs", random_seed=1))
    >>> kz.scores.entry_coverage(completed, truth, entries)
    """
    owner = "entry_coverage"
    stack = as_stack(truth, owner=owner, argument="truth")
    by_name = dict(zip(map(str, stack["kernel"].values), stack, strict=True))
    shares = {}
    for name, pairs in entries.items():
        labels = [f"{one}|{other}" for one, other in pairs]
        if name not in by_name:
            raise argument_error("truth", owner, f"one with kernel {name!r}", f"{[*by_name]}")
        if f"lower_{name}" not in completed:
            got = f"no intervals of {name!r}"
            raise argument_error("entries", owner, "of completions with draws, not of a point", got)
        lower = completed[f"lower_{name}"]
        upper = completed[f"upper_{name}"]
        if lower[f"entry_{name}"].values.tolist() != labels:
            got = f"{labels[:3]}... of {name!r}"
            raise argument_error("entries", owner, "those that the model was made with", got)
        rows, columns = map(list, zip(*pairs, strict=True))
        matrix = by_name[name]
        check_distinct(matrix.indexes["obs"], "truth", owner)
        at = matrix.indexes["obs"].get_indexer(rows), matrix.indexes["basis"].get_indexer(columns)
        if np.min(at) < 0:
            rule = f"labelled as the objects of the entries, {labels[:3]}..."
            raise argument_error("truth", owner, rule, f"{matrix['obs'].values[:3].tolist()}...")
        values = matrix.to_numpy()[at]
        inside = (lower.to_numpy() <= values) & (values <= upper.to_numpy())
        shares[name] = float(inside.mean())
    return xr.DataArray([*shares.values()], {"kernel": [*shares]}, dims="kernel", name="coverage")


def ideal_kernel(labels: ArrayLike) -> NDArray:
    """Kernel of labels, of shape (n, n): 1 for two objects of the same class, 0 otherwise."""
    codes, _ = check_labels(labels, "labels", "ideal_kernel")
    return np.equal.outer(codes, codes).astype(float)


def kernel_alignment(K: Any, L: Any) -> Any:
    """Alignment of two kernels, <K, L> / sqrt(<K, K> <L, L>) in the Frobenius inner product.

    1 for proportional kernels; between 0 and 1 for positive semidefinite ones. Leading dimensions
    of K and L (..., n, m) broadcast; two DataFrames are aligned by their labels. O(n m).
    """
    owner = "kernel_alignment"
    K, L = (with_ids_of_columns(as_frame(kernel)) for kernel in (K, L))
    if isinstance(K, pd.DataFrame) and isinstance(L, pd.DataFrame):
        for axis in (0, 1):
            order = order_of(L.axes[axis], K.axes[axis], "L", owner, "labelled as K is")
            L = L if order is None else L.take(order, axis=axis)
    K = check_real(K, "K", owner)
    L = check_real(L, "L", owner)
    if K.ndim < 2 or K.shape[-2:] != L.shape[-2:]:
        raise argument_error("L", owner, f"of the size of K, shape {K.shape}", f"shape {L.shape}")
    check_finite(K, "K", owner)
    check_finite(L, "L", owner)
    inner = "...ij,...ij->..."
    sizes = np.einsum(inner, K, K) * np.einsum(inner, L, L)
    if not np.all(sizes > 0):
        raise argument_error("K", owner, "a kernel other than 0, as L", "zeros only")
    return np.einsum(inner, K, L) / np.sqrt(sizes)
