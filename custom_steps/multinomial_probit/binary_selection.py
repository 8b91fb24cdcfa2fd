r"""Evidence of a 0/1 selection of kernels, with the regressors integrated out.

Given the latent utilities Y of the multinomial probit and the variances of the regressors, the
selection beta has (damoulas2009, appendix A)

.. math:: p(\beta \mid Y) \propto p(\beta) \prod_c \mathcal N(y_c; 0, \Omega_c),
    \qquad \Omega_c = I + K_\beta Z_c K_\beta'.

The paper prints :math:`Z_c^{-1}` in Omega and Omega itself, not its inverse, in the exponent. W
must be redrawn right after the move, because the move ignores its value.
"""

import numpy as np

from ...numerics.normal_regression import orthogonal_factor, precision_factor_or_none, solve_lower

__all__ = ["log_evidence"]


def log_evidence(y: np.ndarray, zeta: np.ndarray, composite: np.ndarray, gram: np.ndarray) -> float:
    """Log of prod_c N(y_c; 0, I + K Z_c K') / N(y_c; 0, I), regressors integrated out.

    Parameters
    ----------
    y : ndarray of shape (N, C)
        Latent utilities.
    zeta : ndarray of shape (C, M)
        Variances of the regressors.
    composite : ndarray of shape (N, M)
        Composite kernel K.
    gram : ndarray of shape (M, M)
        K'K.

    Notes
    -----
    Cost: one Cholesky factorisation of size M a class.
    """
    projected = y.T @ composite
    buffer = np.empty_like(gram)
    total = 0.0
    for c, precisions in enumerate(1.0 / zeta):
        factor = precision_factor_or_none(gram, precisions, buffer)
        if factor is None:
            factor, half = orthogonal_factor(composite, 1.0, y[:, c], precisions)
        else:
            half = solve_lower(factor, projected[c])
        log_root = np.log(factor.diagonal()).sum()
        total += 0.5 * (half @ half + np.log(precisions).sum()) - log_root
    return float(total)
