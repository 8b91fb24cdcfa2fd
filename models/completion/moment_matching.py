r"""Wishart approximation of a weighted sum of independent Wishart matrices.

Sigma = sum_k alpha_k M_k with M_k ~ W(eta_k, Theta_k) is Wishart only if all alpha_k Theta_k are
equal. Otherwise W(eta, Theta) is matched to it: Theta by the mean, eta by a scalar summary of the
covariance of vec(Sigma) (Zhang, Yeung & Kwok, mixture model of kernels, section 4.2).
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytensor.tensor as pt

from ..kernels.labels import numbers_by_kernel
from ..kernels.stack import as_stack, check_gram
from ..operations.arrays import matrix_product
from .input import check_weights

type Array = npt.NDArray[np.float64]

_OWNER = "match_wishart"


def match_wishart(
    theta: Any, eta: npt.ArrayLike | None = None, alpha: npt.ArrayLike | None = None
) -> tuple[float, Array]:
    r"""Degrees of freedom and scale of the Wishart matrix matched to :math:`\sum_k \alpha_k M_k`.

    With :math:`a_k = \alpha_k \eta_k`, :math:`\Theta = \sum_k a_k \Theta_k / \eta` (eq 10) matches
    the mean exactly. The covariance (eq 11) cannot be matched as a whole; its trace (eq 12) is
    matched by (eq 13, misprint corrected: the second term of the numerator is the trace of the
    square, not the square of the trace)

    .. math::

        \eta = \frac{(\sum_k a_k \mathrm{tr}\,\Theta_k)^2 + \mathrm{tr}[(\sum_k a_k \Theta_k)^2]}
            {\sum_k (a_k^2/\eta_k) [(\mathrm{tr}\,\Theta_k)^2 + \mathrm{tr}\,\Theta_k^2]},

    It gives :math:`\eta \ge n` if each :math:`\eta_k \ge n` (Theorem 4), and those of kernel j if
    all other weights are 0. The paper's generalized variance (eq 14), at O(n^6), is not available.

    Parameters
    ----------
    theta, eta, alpha
        Scales, degrees of freedom and weights, as `WishartKernelMixture` takes them.

    Returns
    -------
    eta : float
    Theta : ndarray (n, n)

    Raises
    ------
    ValueError
        For invalid stacks, degrees of freedom or weights.

    Notes
    -----
    O(K^2 n^2).

    Examples
    --------
    >>> matched = kz.completion.match_wishart(kernels(X_train), alpha=[0.2, 0.3, 0.5])
    """
    stack = as_stack(theta, owner=_OWNER, argument="theta")
    kernels = stack.values
    n = stack.sizes["obs"]
    check_gram(stack, _OWNER, "theta")
    etas = check_component_degrees(eta, stack["kernel"].values, n, _OWNER)
    a = check_weights(alpha, stack["kernel"].values, "alpha", _OWNER) * etas
    matched = matched_by_trace(kernels, etas, a)
    return matched, np.tensordot(a / matched, kernels, axes=1)


def check_component_degrees(eta: Any, names: npt.NDArray[Any], n: int, owner: str) -> Array:
    """Return degrees of freedom eta_k (kernel,), aligned by name, n + 1 for None, or raise."""
    rule = f"a finite number above n - 1 = {n - 1}"
    return numbers_by_kernel(eta, names, "eta", owner, rule, lambda eta: eta > n - 1, n + 1)


def traces_of_products(kernels: Any) -> tuple[Any, Any]:
    """Traces (kernel,) and tr(Theta_k Theta_l) (kernel, kernel), also of tensors. O(K^2 n^2)."""
    flat = kernels.reshape((kernels.shape[0], -1))
    if isinstance(kernels, np.ndarray):
        return np.trace(kernels, axis1=1, axis2=2), flat @ flat.T
    return pt.trace(kernels, axis1=1, axis2=2), matrix_product(flat, flat.T)


def matched_degrees(traces: Any, products: Any, etas: Any, a: Any) -> Any:
    """Eq (13) from the traces; a_k = alpha_k eta_k. Arrays or tensors, O(K^2)."""
    mean = (a * traces).sum() ** 2 + (a[:, None] * products * a).sum()
    squares = traces**2 + products.diagonal()
    return mean / (a**2 / etas * squares).sum()


def matched_by_trace(kernels: Array, etas: Array, a: Array) -> float:
    """Eq (13) for arrays; exactly eta_k if only kernel k has a weight."""
    alone = np.flatnonzero(a)
    if len(alone) == 1:
        return float(etas[alone[0]])
    return float(matched_degrees(*traces_of_products(kernels), etas, a))
