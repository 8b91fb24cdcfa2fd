r"""Gibbs moves of a 0/1 selection of kernels, with the regressors integrated out.

Given the latent utilities Y of the multinomial probit and the variances of the regressors, the
selection beta has (damoulas2009, appendix A)

.. math:: p(\beta \mid Y) \propto p(\beta) \prod_c \mathcal N(y_c; 0, \Omega_c),
    \qquad \Omega_c = I + K_\beta Z_c K_\beta'.

The paper prints :math:`Z_c^{-1}` in Omega and Omega itself, not its inverse, in the exponent. W
must be redrawn right after the move, because the move ignores its value.
"""

import numpy as np

from ...numerics.kernel_products import Design
from ...numerics.normal_regression import orthogonal_factor, precision_factor_or_none, solve_lower

__all__ = ["log_evidence", "update_selection"]


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


def update_selection(
    beta: np.ndarray,
    y: np.ndarray,
    zeta: np.ndarray,
    design: Design,
    log_odds: np.ndarray,
    rng: np.random.Generator,
    block: int,
    empty: bool = True,
) -> np.ndarray:
    """Redraw the selection, `block` kernels at a time.

    The kernels are shuffled and split into blocks; each block is drawn from all its 2^block states
    given the other blocks. With all kernels in one block the new selection is independent of the
    old one.

    Parameters
    ----------
    beta : ndarray of shape (S,), integer
        Current selection; not modified.
    y : ndarray of shape (N, C)
        Latent utilities.
    zeta : ndarray of shape (C, M)
        Variances of the regressors.
    design : Design
        Kernels.
    log_odds : ndarray of shape (S,)
        Prior log odds of each kernel.
    rng : numpy.random.Generator
        Source of randomness.
    block : int
        Largest number of kernels drawn jointly; 0 keeps the selection.
    empty : bool, default=True
        Whether the empty selection is a state.

    Returns
    -------
    ndarray of shape (S,), integer
        New selection.

    Notes
    -----
    Cost: C Cholesky factorisations of size M for each of about 2^block S / block states.
    """
    known: dict[bytes, float] = {}

    def log_density(state: np.ndarray) -> float:
        key = state.tobytes()
        if key not in known:
            known[key] = float(log_odds @ state)
            if not state.any():
                known[key] = 0.0 if empty else -np.inf
            else:
                composite = design.composite(state.astype(float))
                gram = design.gram(state.astype(float), composite)
                known[key] += log_evidence(y, zeta, composite, gram)
        return known[key]

    beta = np.array(beta)
    order = rng.permutation(len(beta))
    for start in range(0, len(beta) if block else 0, block or 1):
        chosen = order[start : start + block]
        codes = np.arange(2 ** len(chosen))
        states = np.tile(beta, (len(codes), 1))
        states[:, chosen] = codes[:, None] >> np.arange(len(chosen)) & 1
        log_p = np.array([log_density(state) for state in states])
        beta = states[np.argmax(log_p + rng.gumbel(size=len(codes)))]
    return beta
