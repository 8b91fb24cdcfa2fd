"""Further updates of the probit's factors with the same covariances of the regressors.

On large problems the covariances take nearly all the time of an iteration. As a function of the
means, the bound does not depend on the covariances, so that an ascent step in the means raises it.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas

from ...numerics.probit import default_nodes

__all__ = ["MOST_KEPT", "ascend", "inner_steps"]

type Array = npt.NDArray[np.float64]

# Largest number of updates, and their share of the time of the covariances.
MOST = 6
SHARE = 0.4
# Measured costs in units of a factorisation's multiplication: of a node of the quadrature, and of a
# number of the covariances or products that is read from memory.
NODE = 900
NUMBER = 12
# Largest size of the stored covariances (1 GB).
MOST_KEPT = 1 << 27


def inner_steps(n_kernels: int, n_obs: int, n_basis: int, n_classes: int) -> int:
    """Count the further updates that save time; none on small problems.

    Ten classes with Gram matrices get one update at about 350 objects, six at 1,000.
    """
    if n_classes * n_basis**2 > MOST_KEPT:
        return 0
    quadrature = NODE * n_obs * n_classes * default_nodes(n_classes)
    products = 4 * n_kernels * n_obs * n_basis * n_classes
    numbers = NUMBER * (n_classes + n_kernels * (n_kernels + 1)) * n_basis**2
    return min(MOST, int(SHARE * n_classes * n_basis**3 / (quadrature + products + numbers)))


def ascend(
    mean: Array, inverses: Sequence[Array], *, gram: Array, precision: Array, target: Array
) -> Array:
    """Raise sum_c m_c't_c - m_c'(G + D_c) m_c / 2 by one step in the means m (C, M).

    The direction is the gradient times a covariance, and the length is the best one for each class.
    The step reaches the maximum if the covariance is the inverse of G + D_c. O(C M^2).

    Parameters
    ----------
    mean : array of shape (C, M)
    inverses : sequence of array of shape (M, M)
        Covariances; only the lower triangle is read.
    gram : array of shape (M, M)
        G, symmetric.
    precision, target : array of shape (C, M)
        Diagonals of D_c, and t_c.
    """
    gradient = target - mean @ gram - precision * mean
    pairs = zip(inverses, gradient, strict=True)
    step = np.array([blas.dsymv(1.0, inverse, slope, lower=True) for inverse, slope in pairs])
    rise = np.sum(gradient * step, axis=1)
    curvature = np.sum(((step @ gram) + precision * step) * step, axis=1)
    # A step of zero is already at the maximum.
    length = np.divide(rise, curvature, out=np.zeros_like(rise), where=curvature > 0)
    return mean + length[:, None] * step
