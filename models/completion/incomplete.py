"""Kernels of the same objects, each without the rows and columns of its missing objects."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr
from scipy.linalg import LinAlgError, cholesky, eigh, eigvalsh

from ...user_warnings import warn_user
from ...validation import (
    ROUNDING,
    argument_error,
    check_finite,
    check_jitter,
    check_psd,
    check_square_symmetric,
    check_unmasked,
)
from ..kernels.labels import as_frame, check_distinct, listed, order_of
from ..kernels.source import DIMS
from ..kernels.stack import check_gram, labelled, precision_of

type Array = npt.NDArray[np.float64]

# Kernels whose mean diagonals differ by this factor are most likely in different units.
SCALE_MISMATCH = 1_000.0


@dataclass(frozen=True)
class IncompleteKernel:
    """Visible block of one kernel.

    `values` (n, n) is the positive semidefinite kernel of the visible objects as the model has it:
    divided by `unit`, the mean of the given kernel's visible diagonal, or 1 without normalisation,
    plus the jitter. `visible` (n,) and `hidden` (m,) are increasing positions among all objects.
    """

    name: str
    values: Array
    visible: npt.NDArray[np.intp]
    hidden: npt.NDArray[np.intp]
    unit: float

    @property
    def order(self) -> npt.NDArray[np.intp]:
        """Positions of all objects (l,), the visible ones first."""
        return np.concatenate([self.visible, self.hidden])

    @property
    def full_rank(self) -> bool:
        """Whether the visible block is positive definite beyond rounding. O(n^3 / 3)."""
        return is_definite(self.values)

    def with_zeros(self) -> Array:
        """Zero imputation (l, l): rows and columns of missing objects are 0."""
        whole = np.zeros((len(self.order),) * 2)
        whole[np.ix_(self.visible, self.visible)] = self.values
        return whole

    def with_means(self) -> Array:
        """Mean imputation (l, l), appendix B: the visible objects' mean in feature space, or 0."""
        whole = self.with_zeros()
        if len(self.visible) and len(self.hidden):
            means = self.values.mean(axis=0)
            whole[np.ix_(self.hidden, self.visible)] = means
            whole[np.ix_(self.visible, self.hidden)] = means[:, None]
            whole[np.ix_(self.hidden, self.hidden)] = means.mean()
        return whole

    def add_missing(self, half: Array, hv: Array, hh: Array, weight: float) -> None:
        """Add missing entries to half of a symmetric sum, in place.

        ``half + half.T`` (l, l) gains weight times the missing entries hv (m, n) and hh (m, m), of
        which only the lower triangle is read.
        """
        rows = np.empty((len(self.hidden), len(half)))
        rows[:, self.visible] = hv
        lower = np.tril(hh)
        lower.flat[:: len(lower) + 1] /= 2
        rows[:, self.hidden] = lower
        rows *= weight
        half[self.hidden] += rows


def half_of_visible(
    kernels: Iterable[IncompleteKernel], weights: Iterable[float], n: int, diagonal: float
) -> Array:
    """Half of the sum of weighted visible blocks and `diagonal` times the identity, (n, n)."""
    half = diagonal / 2 * np.eye(n)
    for kernel, weight in zip(kernels, weights, strict=True):
        half[np.ix_(kernel.visible, kernel.visible)] += weight / 2 * kernel.values
    return half


def visible_block(block: Array, argument: str, owner: str, *, tolerance: float = ROUNDING) -> Array:
    """Return a visible block that is exactly symmetric and positive semidefinite, or raise."""
    check_finite(block, argument, owner)
    check_square_symmetric(block, argument, owner, tolerance=tolerance)
    block = (block + block.T) / 2
    check_psd(block, argument, owner, tolerance=tolerance)
    # Rounded entries (single precision) give a block of low rank small negative eigenvalues, which
    # are set to 0. O(n^3).
    root, triangular = square_root(block)
    return block if triangular else root @ root.T


def square_root(values: Array) -> tuple[Array, bool]:
    """Square root R (n, rank) of a positive semidefinite matrix RR', and whether it is triangular.

    R is the lower Cholesky factor at full rank, otherwise eigenvectors times the roots of the
    eigenvalues above rounding. It is in Fortran order; O(n^3).
    """
    if is_definite(values):
        return cholesky(values.T, lower=True, check_finite=False), True
    roots, vectors = eigh(values, check_finite=False)
    kept = roots > len(values) * np.finfo(float).eps * roots[-1]
    return np.asfortranarray(vectors[:, kept] * np.sqrt(roots[kept])), False


def is_definite(values: Array) -> bool:
    """Whether a matrix is positive definite beyond rounding. O(n^3 / 3)."""
    n = len(values)
    rounding = n * np.finfo(float).eps * np.max(np.diagonal(values), initial=0.0)
    try:
        cholesky(values - rounding * np.eye(n), lower=True, check_finite=False)
    except LinAlgError:
        return False
    return True


@dataclass(frozen=True)
class IncompleteKernels:
    """Checked kernels and the names of their objects (l,)."""

    objects: npt.NDArray[Any]
    kernels: tuple[IncompleteKernel, ...]

    @classmethod
    def of(
        cls,
        kernels: Any,
        visible: Any = None,
        *,
        normalize: bool = True,
        jitter: float = 0.0,
        owner: str,
    ) -> "IncompleteKernels":
        """Check the kernels, as `MutualKernelCompletion` documents them; cut out visible blocks."""
        named = kernels.items() if isinstance(kernels, dict) else ()
        sizes = {name: len(K) for name, K in named if isinstance(K, np.ndarray | pd.DataFrame)}
        if len(set(sizes.values())) > 1:
            rule = "of all objects each: K.reindex(index=ids, columns=ids) of a DataFrame leaves "
            rule += "NaN where K has no object"
            raise argument_error("kernels", owner, rule, f"{sizes}")
        stack = labelled(as_frame(kernels), None, owner, "kernels")
        check_gram(stack, owner, "kernels")
        # Messages and results identify entries by the labels of their objects.
        check_distinct(stack.indexes["obs"], "kernels", owner)
        jitter = check_jitter(jitter, owner)
        names = [str(name) for name in stack["kernel"].values]
        objects = stack["obs"].values
        tolerance = precision_of(stack)
        numbers = stack.values.astype(np.float64, copy=False)
        if visible is None:
            seen = _seen(numbers, names, objects, owner)
        else:
            seen = _mask(visible, stack, owner)
        _check_cover(seen, objects, owner)

        kept: list[IncompleteKernel] = []
        units: dict[str, float] = {}
        for name, matrix, column in zip(names, numbers, seen.T, strict=True):
            present = np.flatnonzero(column)
            absent = np.flatnonzero(~column)
            argument = f'kernels["{name}"]'
            block = matrix[np.ix_(present, present)]
            ids = objects[present].tolist()
            check_finite(block, argument, owner, (ids, ids))
            check_square_symmetric(block, argument, owner, tolerance=tolerance, ids=ids)
            if len(block):
                unit = units[name] = float(np.diagonal(block).mean())
                if not unit > 0:
                    got = "a diagonal whose mean is not above 0"
                    raise argument_error(argument, owner, "a kernel other than 0", got)
            unit = units.get(name, 1.0) if normalize else 1.0
            block = block / unit + jitter * np.eye(len(block))
            block = visible_block(block, argument, owner, tolerance=tolerance)
            kept.append(IncompleteKernel(name, block, present, absent, unit))
        if not normalize:
            _warn_of_mismatch(units, owner)
        return cls(objects, tuple(kept))

    def check_seen(self, owner: str) -> None:
        """Raise if a kernel has no visible object: its completion has no unit."""
        unseen = [kernel.name for kernel in self.kernels if not len(kernel.visible)]
        if unseen:
            rule = "kernels with at least one visible object each: leave the others out"
            raise argument_error("kernels", owner, rule, f"none in {listed(unseen)}")

    def stacked(self, matrices: list[Array]) -> xr.DataArray:
        """Stack (kernel, obs, basis) of whole kernels (l, l), in the original units."""
        values = np.stack([k.unit * m for k, m in zip(self.kernels, matrices, strict=True)])
        coords = [kernel.name for kernel in self.kernels], self.objects, self.objects
        return xr.DataArray(values, coords, DIMS, name="kernels")


def _seen(
    values: Array, names: list[str], objects: npt.NDArray[Any], owner: str
) -> npt.NDArray[np.bool_]:
    """Mask (object, kernel) of objects without NaN; raise unless whole rows and columns are NaN."""
    absent = np.isnan(values)
    hidden = absent.diagonal(axis1=1, axis2=2)
    partly = absent != (hidden[:, :, None] | hidden[:, None, :])
    if partly.any():
        k, i, j = (int(x) for x in np.argwhere(partly)[0])
        rule = "NaN in the whole row and column of a missing object, and nowhere else"
        got = f"{'NaN' if absent[k, i, j] else 'a number'} at ({objects[i]}, {objects[j]})"
        raise argument_error(f'kernels["{names[k]}"]', owner, rule, got)
    return ~hidden.T


def _mask(visible: Any, stack: xr.DataArray, owner: str) -> npt.NDArray[np.bool_]:
    """Check the mask (object, kernel) and order it as the stack."""
    n_kernels, n, _ = stack.shape
    check_unmasked(visible, "visible", owner)
    if isinstance(visible, xr.DataArray) and "kernel" in visible.dims:
        visible = visible.transpose(..., "kernel")
    visible = as_frame(visible)
    if isinstance(visible, pd.DataFrame):
        rule = "labelled as the objects and kernels are"
        rows = order_of(visible.index, stack["obs"], "visible", owner, rule)
        columns = order_of(visible.columns, stack["kernel"], "visible", owner, rule)
        visible = visible if rows is None else visible.iloc[rows]
        visible = visible if columns is None else visible.iloc[:, columns]
    mask = np.asarray(visible)
    requirement = f"true or false for {n} objects (rows) and {n_kernels} kernels (columns)"
    if mask.shape != (n, n_kernels):
        hint = ", which looks transposed" if mask.shape == (n_kernels, n) else ""
        raise argument_error("visible", owner, requirement, f"shape {mask.shape}{hint}")
    other = mask[~np.isin(mask, (0, 1))].tolist()
    if other:
        raise argument_error("visible", owner, requirement, repr(other[0]))
    return mask.astype(bool)


def _check_cover(seen: npt.NDArray[np.bool_], objects: npt.NDArray[Any], owner: str) -> None:
    """Raise unless every object is in some kernel, and some kernel has two objects."""
    nowhere = objects[~seen.any(axis=1)].tolist()
    if nowhere:
        rule = "such that each object is in at least one kernel"
        raise argument_error("kernels", owner, rule, f"{len(nowhere)} in none: {listed(nowhere)}")
    if seen.sum(axis=0).max() < 2:
        rule = "such that at least one has two visible objects"
        raise argument_error("kernels", owner, rule, "no such kernel")


def _warn_of_mismatch(units: dict[str, float], owner: str) -> None:
    least = min(units, key=lambda k: units[k])
    most = max(units, key=lambda k: units[k])
    if units[most] >= SCALE_MISMATCH * units[least]:
        warn_user(
            f"The mean diagonals of the kernels given to {owner} differ by a factor of "
            f"{units[most] / units[least]:.0f} ({units[least]:.3g} of {least!r}, "
            f"{units[most]:.3g} of {most!r}), but the model assumes one scale. "
            "normalize=True divides each kernel by its mean diagonal."
        )


def rank_error(kernel: IncompleteKernel, owner: str) -> ValueError:
    """Return the error for a rank-deficient visible block, with its rank and an adequate jitter."""
    values = np.asarray(eigvalsh(kernel.values, check_finite=False))
    n = len(values)
    rank = int((values > n * np.finfo(float).eps * values[-1]).sum())
    jitter = 10.0 ** np.ceil(np.log10(max(1e-6 * values[-1], -2 * values[0])))
    rule = "positive definite among its visible objects, to have a Wishart density "
    rule += f"(jitter={jitter:.0e} makes it so; collapsed=True, which suffices for EM, needs none)"
    return argument_error(f'kernels["{kernel.name}"]', owner, rule, f"rank {rank} of {n}")
