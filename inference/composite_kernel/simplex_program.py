"""The quadratic programme of kernel weights: a concave quadratic, maximised on the simplex."""

import numpy as np
import numpy.typing as npt

__all__ = ["maximize_on_simplex"]

type Array = npt.NDArray[np.float64]

# Of residuals and of the duality gap, relative to the mean diagonal entry of the quadratic.
PRECISION = 1e-12


def maximize_on_simplex(linear: Array, quadratic: Array, near: Array) -> Array:
    """Maximise b'beta - beta'A beta / 2 over beta >= 0, sum beta = 1.

    Parameters
    ----------
    linear : array (K,)
        b.
    quadratic : array (K, K)
        A, symmetric positive semidefinite: kernels that say the same make it singular.
    near : array (K,)
        Point of the simplex. Nothing worse is returned.

    Returns
    -------
    array (K,)
        Entries that vanish are zero exactly.

    Notes
    -----
    A primal-dual interior-point method with proximal terms, which need no positive definite A; some
    10 to 20 iterations of O(K^3).
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
    # Where rounding keeps it from this precision, its last iterate is judged as any other.
    solver.solve()
    result = solver.result
    # Of a weight and its multiplier one vanishes, and the other is far larger.
    weights = np.where(result.x > result.z_bl, result.x, 0.0)
    if not np.isfinite(weights).all() or not weights.any():
        return near
    weights /= weights.sum()
    # Of the gain itself, as a difference of two values would lose it in rounding.
    step = weights - near
    gain = step @ (b - A @ (near + weights) / 2)
    return weights if gain >= 0 else near
