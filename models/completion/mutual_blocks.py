"""Random variables of `MutualKernelCompletion`, kernel by kernel; call these inside a model."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor import TensorVariable

from ...validation import argument_error, check_positive, check_unmasked
from ..distributions.matrix_normal import MatrixNormal
from ..distributions.wishart import Wishart
from ..kernels.labels import in_order
from ..operations.arrays import (
    cholesky_or_nan,
    impossible_if_nan,
    log_det,
    matrix_product,
    solve_lower,
)
from .blocks import partition
from .incomplete import IncompleteKernel

__all__ = [
    "ExcessPrior",
    "GammaExcess",
    "declare_degrees_of_freedom",
    "declare_kernel",
    "declare_visible",
    "fixed_or_excess",
]

type Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class GammaExcess:
    """Prior of the degrees of freedom: nu_k - (l - 1) ~ Gamma, independent between kernels.

    Parameters
    ----------
    shape : float, default=2
    mean : float, optional
        Mean of nu_k - (l - 1). Default: l, the number of objects.

    Raises
    ------
    ValueError
        For a shape or a mean that is not a finite number above 0.

    Examples
    --------
    >>> prior = kz.completion.GammaExcess()
    >>> model = kz.MutualKernelCompletion({"a": A, "b": B}, nu=prior)
    """

    shape: float = 2.0
    mean: float | None = None

    def __post_init__(self) -> None:
        check_positive(self.shape, "shape", "GammaExcess")
        if self.mean is not None:
            check_positive(self.mean, "mean", "GammaExcess")


class ExcessPrior(NamedTuple):
    """Checked shape and rate of `GammaExcess`: nu_k - (l - 1) ~ Gamma(shape, rate)."""

    shape: float
    rate: float


def fixed_or_excess(
    nu: Any, names: list[str], n: int, owner: str, *, collapsed: bool
) -> tuple[Array | None, ExcessPrior | None]:
    """Return fixed degrees of freedom (kernel,) or their prior, with None for the other.

    They must be above l - 1, or above 0 in a collapsed model, which has no Wishart matrices.
    """
    if isinstance(nu, GammaExcess):
        return None, ExcessPrior(nu.shape, nu.shape / (n if nu.mean is None else nu.mean))
    least, bound = (0, "0 (collapsed)") if collapsed else (n - 1, f"l - 1 = {n - 1}")
    requirement = f"above {bound}, one number or one for each of {names}"
    requirement += "" if collapsed else ", or a GammaExcess"
    check_unmasked(nu, "nu", owner)
    nu = in_order(nu, names, "nu", owner, requirement)
    try:
        given = np.asarray(n + 1 if nu is None else nu, dtype=float)
    except (TypeError, ValueError):
        raise argument_error("nu", owner, requirement, repr(nu)) from None
    if given.shape not in {(), (len(names),)} or not ((given > least) & np.isfinite(given)).all():
        raise argument_error("nu", owner, requirement, repr(nu))
    return np.broadcast_to(given, len(names)).copy(), None


def declare_degrees_of_freedom(
    fixed: Array | None, excess: ExcessPrior | None, n: int
) -> TensorVariable:
    """Declare the degrees of freedom (kernel,)."""
    if excess is None:
        return pm.Data("nu", fixed, dims="kernel")
    beyond = pm.Gamma("excess", excess.shape, excess.rate, dims="kernel")
    return pm.Deterministic("nu", n - 1 + beyond, dims="kernel")


def declare_kernel(
    kernel: IncompleteKernel, M: TensorVariable, nu: TensorVariable, s: TensorVariable
) -> tuple[TensorVariable, TensorVariable]:
    """Declare Q ~ W(nu, s M / nu) in blocks; return Q and its trace.

    M and Q (l, l) have the kernel's visible objects first.
    """
    name, n, psi = kernel.name, len(kernel.visible), s / nu * M
    seen, hidden = f"visible_{name}", f"hidden_{name}"
    if n == 0:
        Q = Wishart(f"Qhh_v_{name}", nu, psi, dims=(hidden, f"{hidden}_"))
        return Q, pt.trace(Q)
    values = _visible_block(kernel)
    Qvv = Wishart(f"Qvv_{name}", nu, psi[:n, :n], observed=values, dims=(seen, f"{seen}_"))
    if not len(kernel.hidden):
        return Qvv, pt.trace(Qvv)
    parts = partition(psi, n)
    root, factor = cholesky_or_nan(parts.schur), cholesky_or_nan(Qvv)
    mean = matrix_product(parts.coefficients, Qvv)
    Qhv = MatrixNormal(f"Qhv_{name}", mean, root, factor, dims=(hidden, seen))
    Qhh_v = Wishart(f"Qhh_v_{name}", nu - n, parts.schur, dims=(hidden, f"{hidden}_"))
    explained = solve_lower(factor, Qhv.T)
    trace = pt.trace(Qvv) + pt.trace(Qhh_v) + (explained**2).sum()
    return _joined(Qvv, Qhv, Qhh_v + matrix_product(explained.T, explained)), trace


def declare_visible(
    kernel: IncompleteKernel, M: TensorVariable, nu: TensorVariable, s: TensorVariable
) -> tuple[TensorVariable, TensorVariable]:
    """Declare -nu KL(Q_vv, s M_vv) without ln|Q_vv|; return E[Q | M] and its trace.

    M and Q (l, l) have the kernel's visible objects first.
    """
    n = len(kernel.visible)
    if n == 0:
        return s * M, s * pt.trace(M)
    values, parts = _visible_block(kernel), partition(M, n)
    half = solve_lower(parts.factor11, values)
    whitened = solve_lower(parts.factor11, half.T)
    deviance = pt.trace(whitened) / s + log_det(parts.factor11) + n * (pt.log(s) - 1)
    pm.Potential(f"Qvv_{kernel.name}", impossible_if_nan(-0.5 * nu * deviance))
    if not len(kernel.hidden):
        return values, pt.trace(values)
    Qhv = matrix_product(parts.coefficients, values)
    Qhh = s * parts.schur + matrix_product(Qhv, parts.coefficients.T)
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
