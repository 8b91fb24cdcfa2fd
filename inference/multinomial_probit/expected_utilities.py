"""Expected utilities of the multinomial probit, and their products with the kernels, in blocks.

One pass over the objects computes all that an iteration needs from the data; the rest of it does
not depend on the number of objects.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...numerics.probit import default_nodes, log_probability_and_gradient
from ...numerics.threads import in_blocks

__all__ = ["ExpectedUtilities", "expected_utilities"]

type Array = npt.NDArray[np.float64]

# Nodes of a pass from which compiled loops save their two seconds of compilation in a usual fit.
COMPILED_FROM = 1 << 21


class ExpectedUtilities(NamedTuple):
    """Sums over the objects that an iteration needs, and E[y].

    Attributes
    ----------
    log_z : float
        sum_n log P(t_n | f_n).
    square : float
        sum_nc f_nc^2.
    mean : array of shape (N, C)
        E[y_nc].
    products : array of shape (S, C, M)
        E[Y]'K_s.
    """

    log_z: float
    square: float
    mean: Array
    products: Array


def expected_utilities(
    kernels: Array, weights: Array, regressors: Array, labels: npt.NDArray[np.integer]
) -> ExpectedUtilities:
    """Expect utilities y_n ~ N(f_n, I) whose largest is that of class t_n (eqs 7-8).

    Parameters
    ----------
    kernels : array of shape (S, N, M)
    weights : array of shape (S,)
        Weights of the kernels in f_n = sum_s beta_s W k_sn.
    regressors : array of shape (C, M)
        W.
    labels : int array of shape (N,)
        Class codes t_n.

    Notes
    -----
    Cost O(S N M C + N C^1.5). Threads share the blocks; sums are in the order of the blocks, so
    that the result does not depend on the number of threads.
    """
    n_kernels, n_obs, n_basis = kernels.shape
    n_classes = len(regressors)
    mean = np.empty((n_obs, n_classes))
    compiled = mean.size * default_nodes(n_classes) > COMPILED_FROM

    def sums(objects: slice) -> tuple[float, float, Array]:
        rows = kernels[:, objects]
        f = np.tensordot(weights, rows @ regressors.T, axes=1)
        log_p, gradient = log_probability_and_gradient(f, labels[objects], compiled=compiled)
        y = np.add(f, gradient, out=mean[objects])
        return float(log_p.sum()), float(np.vdot(f, f)), y.T @ rows

    log_z, square, products = 0.0, 0.0, np.zeros((n_kernels, n_classes, n_basis))
    for log_p, squares, product in in_blocks(sums, n_obs):
        log_z += log_p
        square += squares
        products += product
    return ExpectedUtilities(log_z, square, mean, products)
