"""Numerics of the multinomial-probit link (Damoulas & Girolami 2009, eqs 4, 7, 8).

An object with scores f (one per class) has a latent y ~ N(f, I) and belongs to the class with the
largest y, the winner. With phi and Phi the standard normal density and distribution function, and
u the winner's noise,

    P(t = i | f) = integral of g(u) = phi(u) prod_{j != i} Phi(u + f_i - f_j) over u.    (eq 4)

h = log g is concave with h'' in [-C, -1], and h' is convex, so Newton's method from u = 0 reaches
the mode m without overshooting. Left of the mode g falls at least as fast as a normal density of
variance -1/h''(m), right of it at least as fast as one of variance one. The trapezoid rule on this
range has an exponentially small error, because g is analytic. For many classes it needs fewer nodes
than Gauss-Hermite, because the widths of g on its two sides may differ by a factor sqrt(C).

The loops are in `probit_compiled`, which is imported when they are needed, because numba takes half
a second to import.

| symbol | paper | here |
|---|---|---|
| scores W k_n | f_n | `f` (N, C) |
| class of object n | t_n = i | `t` (N,), codes 0..C-1 |
| log of the normaliser of the truncated normal | Z_n | `log_p` (N,) |
"""

from collections import deque

import numpy as np
import numpy.typing as npt
from numpy.polynomial import Chebyshev, Polynomial
from scipy.special import erfcx, ndtr

from .threads import in_blocks

type Array = npt.NDArray[np.float64]

LOG_2PI = float(np.log(2 * np.pi))
SQRT_2PI = float(np.sqrt(2 * np.pi))
# Squares of differences of larger scores overflow.
LARGEST_SCORE = 1e150
# Half width of the range in standard deviations; a normal has mass 4e-10 on one side beyond it.
HALF_WIDTH_IN_SDS = 6.15
# Classes with scores this far below the largest have probability zero in double precision.
FLOOR = 54.0
# Node spacing in units of 1/sqrt(C), the narrowest possible width: relative error about 2e-9.
NODE_SPACING = 0.95
# Number of nodes from which the loops run in threads.
THREADS_FROM = 1 << 22
# Argument at which the variable of the polynomial `TAIL` is zero.
MIDDLE = 4.0


def _tail(t: Array) -> Array:
    """(1 + z) (1 - Phi(z)) exp(z^2 / 2) for z >= 0, as a function of t = (z - 4) / (z + 4)."""
    z = MIDDLE * (1 + t) / (1 - t)
    return 0.5 * erfcx(z * np.sqrt(0.5)) * (1 + z)


# Coefficients of the polynomial in t that interpolates it.
TAIL = np.asarray(Chebyshev.interpolate(_tail, 14).convert(kind=Polynomial).coef, dtype=float)


def default_nodes(n_classes: int) -> int:
    """Return the number of nodes that covers the widest range at `NODE_SPACING`."""
    return int(np.ceil(HALF_WIDTH_IN_SDS * (1 + np.sqrt(n_classes)) / NODE_SPACING)) + 1


def log_probability_and_gradient(f: npt.ArrayLike, t: npt.ArrayLike) -> tuple[Array, Array]:
    """Log probability (N,) of each object's class, and its gradient (N, C) in the scores.

    The gradient is E[y_n] - f_n of y_n ~ N(f_n, I) truncated to the cone where y_t is the largest
    (eq 6). For the losers it is -E[lambda(u + f_i - f_j)] with lambda = phi / Phi, under the
    normalised integrand of eq 4 (eq 7); the winner's is minus their sum (eq 8).

    The relative error of a probability is 1e-8, however small it is. The log probability is minus
    infinity, and the gradient zero, for an invalid class code and for scores that are not finite or
    above 1e150 in size. O(N C nodes), with about 6.5 (1 + sqrt(C)) nodes: 50 us for N = 60, C = 3.
    """
    from .probit_compiled import fill_log_probability

    scores, codes = _checked(f, t)
    nodes = default_nodes(scores.shape[1])
    log_p = np.empty(len(scores))
    gradient = np.empty_like(scores)

    def fill(rows: slice) -> None:
        fill_log_probability(scores[rows], codes[rows], nodes, log_p[rows], gradient[rows])

    if scores.size * nodes > THREADS_FROM:
        deque(in_blocks(fill, len(scores)), maxlen=0)
    else:
        fill(slice(None))
    return log_p, gradient


def hessian(f: npt.ArrayLike, t: npt.ArrayLike) -> Array:
    """Second derivatives (N, C, C) of log P(t | f): Cov[y] - I of the truncated normal, or zero."""
    from .probit_compiled import fill_hessian

    scores, codes = _checked(f, t)
    out = np.zeros((*scores.shape, scores.shape[1]))
    fill_hessian(scores, codes, default_nodes(scores.shape[1]), out)
    return out


def near_mode(gaps: Array) -> Array:
    """Points (N,) at or slightly below the modes of the integrands of gaps f_i - f_j (N, C - 1)."""
    from .probit_compiled import fill_near_mode

    out = np.empty(len(gaps))
    fill_near_mode(np.ascontiguousarray(gaps), out)
    return out


def _checked(f: npt.ArrayLike, t: npt.ArrayLike) -> tuple[Array, npt.NDArray[np.int64]]:
    """Scores (N, C) and codes (N,), contiguous."""
    scores = np.ascontiguousarray(f, dtype=float)
    codes = np.ascontiguousarray(t, dtype=np.int64)
    if scores.shape[:1] != codes.shape:
        raise ValueError(
            f"Scores of {len(scores)} objects need one class code each. Got shape {codes.shape}."
        )
    return scores, codes


def class_probabilities(f: npt.ArrayLike) -> Array:
    """Probabilities (..., C) of all classes, for scores (..., C); each row sums to one.

    With y the winner's value, P(t = c | f) is the integral of phi(y - f_c)/Phi(y - f_c) times
    prod_j Phi(y - f_j), so that all classes share one grid of y. The relative error is small even
    for probabilities down to 1e-280. O(C sqrt(C)) per row.
    """
    scores = np.asarray(f, dtype=float)
    n_classes = scores.shape[-1]
    flat = scores.reshape(-1, n_classes)
    if n_classes == 2:
        # P(t = c | f) is Phi((f_c - f_other) / sqrt 2).
        return ndtr((flat - flat[:, ::-1]) * np.sqrt(0.5)).reshape(scores.shape)
    from .probit_compiled import fill_probabilities

    flat = np.maximum(flat - flat.max(axis=1, keepdims=True), -FLOOR)
    # The modes of all integrands lie between half the lowest score and slightly above the highest.
    bottom = flat.min(axis=1) / 2 - HALF_WIDTH_IN_SDS
    top = HALF_WIDTH_IN_SDS + np.sqrt(2 * np.log(n_classes))
    out = np.empty_like(flat)
    fill_probabilities(flat, bottom, top, np.sqrt(n_classes) / NODE_SPACING, out)
    return out.reshape(scores.shape)
