"""Quadratic programme of kernel weights: maximise a concave quadratic on the simplex."""

import numpy as np
import numpy.typing as npt

__all__ = ["maximize_on_simplex"]

type Array = npt.NDArray[np.float64]

# Tolerance of residuals and duality gap, relative to the mean diagonal entry of the quadratic.
PRECISION = 1e-12


def maximize_on_simplex(linear: Array, quadratic: Array, near: Array) -> Array:
    """Maximise b'beta - beta'A beta / 2 over beta >= 0, sum beta = 1.

    Parameters
    ----------
    linear : array (K,)
        b.
    quadratic : array (K, K)
        A, symmetric positive semidefinite; redundant kernels make it singular.
    near : array (K,)
        Point of the simplex, returned if the solver finds no better one.

    Returns
    -------
    array (K,)
        Weights; vanishing entries are exactly zero.

    Notes
    -----
    A primal-dual interior-point method with proximal terms, so that A need not be positive
    definite; about 10 to 20 iterations of O(K^3).
    """
    import piqp

    size = np.trace(quadratic) / len(linear)
    if not size > 0:
        return near  # A = 0 implies b = 0 here: nothing depends on the weights.
    A, b = quadratic / size, linear / size
    solver = piqp.DenseSolver()
    settings = solver.settings
    settings.eps_abs = settings.eps_duality_gap_abs = PRECISION
    settings.eps_rel = settings.eps_duality_gap_rel = 0.0
    lower = np.zeros_like(b)
    solver.setup(A, -b, np.ones((1, len(b))), np.ones(1), x_l=lower)
    # The status is ignored: if rounding prevents this precision, the last iterate may still do.
    solver.solve()
    result = solver.result
    # By complementarity, a weight is zero if its multiplier is larger.
    weights = np.where(result.x > result.z_bl, result.x, 0.0)
    if not np.isfinite(weights).all() or not weights.any():
        return near
    weights /= weights.sum()
    # Computed from the step, because a difference of two values would lose it in rounding.
    step = weights - near
    gain = step @ (b - A @ (near + weights) / 2)
    return weights if gain >= 0 else near
