"""Random variables of `MutualKernelCompletion`, kernel by kernel; call these inside a model."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor import TensorVariable

from ...validation import argument_error
from ..distributions.normal import MatrixNormal
from ..distributions.wishart import Wishart
from ..kernels.labels import numbers_by_kernel
from ..operations.arrays import (
    cholesky_or_nan,
    impossible_if_nan,
    log_det,
    matrix_product,
    solve_lower,
)
from .blocks import partition
from .incomplete import IncompleteKernel

type Array = npt.NDArray[np.float64]

#: Largest number of monitored entries, and of monitored pairs.
MONITORED = 30


def checked_degrees_of_freedom(
    nu: Any, names: list[str], n: int, owner: str, *, collapsed: bool
) -> Array:
    """Return the degrees of freedom (kernel,), l + 1 for None, or raise."""
    # A collapsed model has no Wishart matrices.
    least, bound = (0, "0 (collapsed)") if collapsed else (n - 1, f"l - 1 = {n - 1}")
    return numbers_by_kernel(nu, names, "nu", owner, f"above {bound}", lambda nu: nu > least, n + 1)


def declare_kernel(
    kernel: IncompleteKernel, M: TensorVariable, nu: TensorVariable
) -> tuple[TensorVariable, TensorVariable]:
    """Declare Q ~ W(nu, M / nu) in blocks, visible objects first; return Q (l, l) and its trace."""
    name = kernel.name
    n = len(kernel.visible)
    psi = M / nu
    seen = f"visible_{name}"
    hidden = f"hidden_{name}"
    if n == 0:
        Q = Wishart(f"Qhh_v_{name}", nu, psi, dims=(hidden, f"{hidden}_"))
        return Q, pt.trace(Q)
    values = _visible_block(kernel)
    Qvv = Wishart(f"Qvv_{name}", nu, psi[:n, :n], observed=values, dims=(seen, f"{seen}_"))
    if not len(kernel.hidden):
        return Qvv, pt.trace(Qvv)
    parts = partition(psi, n)
    root = cholesky_or_nan(parts.schur)
    factor = cholesky_or_nan(Qvv)
    mean = matrix_product(parts.coefficients, Qvv)
    Qhv = MatrixNormal(f"Qhv_{name}", mean, root, factor, dims=(hidden, seen))
    Qhh_v = Wishart(f"Qhh_v_{name}", nu - n, parts.schur, dims=(hidden, f"{hidden}_"))
    explained = solve_lower(factor, Qhv.T)
    trace = pt.trace(Qvv) + pt.trace(Qhh_v) + (explained**2).sum()
    return _joined(Qvv, Qhv, Qhh_v + matrix_product(explained.T, explained)), trace


def declare_visible(
    kernel: IncompleteKernel, M: TensorVariable, nu: TensorVariable
) -> tuple[TensorVariable, TensorVariable]:
    """Declare -nu KL(Q_vv, M_vv) without ln|Q_vv|, visible first; return E[Q | M] and its trace."""
    n = len(kernel.visible)
    if n == 0:
        return M, pt.trace(M)
    values = _visible_block(kernel)
    parts = partition(M, n)
    half = solve_lower(parts.factor11, values)
    whitened = solve_lower(parts.factor11, half.T)
    deviance = pt.trace(whitened) + log_det(parts.factor11) - n
    pm.Potential(f"Qvv_{kernel.name}", impossible_if_nan(-0.5 * nu * deviance))
    if not len(kernel.hidden):
        return values, pt.trace(values)
    Qhv = matrix_product(parts.coefficients, values)
    Qhh = parts.schur + matrix_product(Qhv, parts.coefficients.T)
    return _joined(values, Qhv, Qhh), pt.trace(values) + pt.trace(Qhh)


def _visible_block(kernel: IncompleteKernel) -> TensorVariable:
    """Register the visible block as data (visible, visible_)."""
    dims = (f"visible_{kernel.name}", f"visible_{kernel.name}_")
    values = kernel.values
    return pm.Data(f"Qvv_{kernel.name}_values", values, shape=values.shape, dims=dims)


def _joined(vv: TensorVariable, hv: TensorVariable, hh: TensorVariable) -> TensorVariable:
    """Assemble a symmetric matrix from its blocks."""
    rows = [pt.concatenate([vv, hv.T], axis=1), pt.concatenate([hv, hh], axis=1)]
    return pt.concatenate(rows)


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
    requirement = f"pairs of objects, such as {[tuple(objects[[0, -1]].tolist())]}"
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
