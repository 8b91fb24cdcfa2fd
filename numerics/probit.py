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

| symbol | paper | here |
|---|---|---|
| scores W k_n | f_n | `f` (N, C) |
| class of object n | t_n = i | `t` (N,), codes 0..C-1 |
| normaliser of the truncated normal | Z_n | `log_z` (N,) |
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.polynomial import Chebyshev, Polynomial
from scipy.special import erfcx, ndtr

from .compiled import numba_compiles
from .threads import in_blocks

__all__ = [
    "class_probabilities",
    "default_nodes",
    "hessian",
    "log_probability",
    "log_probability_and_gradient",
    "near_mode",
    "truncated_moments",
]

type Array = npt.NDArray[np.float64]

TINY = float(np.finfo(float).tiny)
LOG_2PI = float(np.log(2 * np.pi))
SQRT_2PI = float(np.sqrt(2 * np.pi))
# Squares of differences of larger scores overflow.
LARGEST_SCORE = 1e150
# Half width of the range in standard deviations; a normal has mass 4e-10 on one side beyond it.
REACH = 6.15
# Classes with scores this far below the largest have probability zero in double precision.
FLOOR = 54.0
# Node spacing in units of 1/sqrt(C), the narrowest possible width: relative error about 2e-9.
SPACING = 0.95
# Elements of one work array (half a megabyte): objects are processed in blocks of this size.
BLOCK = 1 << 16
# Total number of nodes above which compilation (seconds) pays off.
COMPILED_FROM_NODES = 100_000_000
# Number of nodes from which compiled loops run in threads.
THREADS_FROM = 1 << 22
# Number of classes up to which a product of scaled distribution functions does not underflow.
MOST_COMPILED = 100


def _tail_coefficients(degree: int) -> Array:
    """Interpolate (1 + z) (1 - Phi(z)) exp(z^2 / 2) for z >= 0 in (z - 4) / (z + 4)."""

    def tail(t: Array) -> Array:
        z = MIDDLE * (1 + t) / (1 - t)
        return 0.5 * erfcx(z * np.sqrt(0.5)) * (1 + z)

    return np.asarray(
        Chebyshev.interpolate(tail, degree).convert(kind=Polynomial).coef, dtype=float
    )


MIDDLE = 4.0
TAIL = _tail_coefficients(14)


def _scaled_cdf_and_hazard(x: Array) -> tuple[Array, Array]:
    """Phi(x) exp(min(x, 0)^2 / 2), and phi(x) / Phi(x), to a relative error of 1e-10.

    The scaled function lies between 1 / (2 + 2.6 |x|) and 1, so that its product over the classes
    needs one logarithm only. Most time is spent here; a polynomial runs in vector instructions,
    twice as fast as `erfcx`.
    """
    z = np.abs(x)
    t = (z - MIDDLE) / (z + MIDDLE)
    scaled = np.full_like(x, TAIL[-1])
    for coefficient in TAIL[-2::-1]:
        scaled *= t
        scaled += coefficient
    bell = np.multiply(x, x, out=t)
    bell *= -0.5
    np.exp(bell, out=bell)
    z += 1
    scaled /= z
    positive = x > 0
    scaled = np.where(positive, 1 - bell * scaled, scaled)
    hazard = np.where(positive, bell, 1.0)
    hazard /= scaled
    hazard /= SQRT_2PI
    return scaled, hazard


def _log_product_of_cdfs(x: Array, scaled: Array) -> Array:
    """Sum over the classes (axis 1) of log Phi(x), from the scaled function at x."""
    product = scaled.prod(axis=1)
    # The product underflows if many classes have very negative x.
    small = (product < TINY).any()
    log_product = np.log(scaled).sum(axis=1) if small else np.log(product)
    tail = np.minimum(x, 0)
    log_product -= 0.5 * np.einsum("ijk,ijk->ik", tail, tail)
    return log_product


def default_nodes(n_classes: int) -> int:
    """Return the number of nodes that covers the widest range at `SPACING`."""
    return int(np.ceil(REACH * (1 + np.sqrt(n_classes)) / SPACING)) + 1


class Mode(NamedTuple):
    """Last step of Newton's method to the mode of the integrand of each object.

    Attributes
    ----------
    below : array of shape (N,)
        The point before the step, at or below the mode.
    step, curvature : array of shape (N,)
        The step, at most 0.1, and -h'' before it.
    """

    below: Array
    step: Array
    curvature: Array


def near_mode(gaps: Array) -> Mode:
    """Climb to the mode of the integrand, for gaps f_i - f_j of shape (N, C - 1)."""
    # Start: with max(-x, 0) in place of the hazard of x, h' is a maximum of lines, whose largest
    # root lies below the mode at a distance of order one.
    means = -np.sort(gaps, axis=1).cumsum(axis=1) / np.arange(2, gaps.shape[1] + 2)
    below = np.maximum(means.max(axis=1), 0.0)
    # Convergence is quadratic: after a step of 0.1 the error is about 0.01, far below the spacing.
    for _ in range(100):
        x = below[:, None] + gaps
        _, hazard = _scaled_cdf_and_hazard(x)
        curvature = 1 + (hazard * (x + hazard)).sum(axis=1)
        # Rounding violates these proven bounds for scores of about 1e5 and more.
        np.clip(curvature, 1, gaps.shape[1] + 1, out=curvature)
        step = (hazard.sum(axis=1) - below) / curvature
        if not np.any(np.abs(step) > 0.1):
            break
        below += step
    return Mode(below, step, curvature)


def _quadrature(gaps: Array) -> Iterator[tuple[slice, Array, Array, Array]]:
    """Yield blocks of objects: their slice, log(g spacing), x = u + gap and the hazard at x.

    Shapes of the arrays: (n, nodes), (n, C - 1, nodes) and (n, C - 1, nodes).
    """
    nodes = default_nodes(gaps.shape[1] + 1)
    grid = np.linspace(0.0, 1.0, nodes)
    size = max(1, BLOCK // (gaps.shape[1] * nodes))
    near = near_mode(gaps)
    width = 1 / np.sqrt(near.curvature)
    left = near.below + near.step - REACH * width
    span = REACH * (1 + width)
    for start in range(0, len(gaps), size):
        block = slice(start, start + size)
        u = left[block, None] + span[block, None] * grid
        x = u[:, None, :] + gaps[block][:, :, None]
        scaled, hazard = _scaled_cdf_and_hazard(x)
        log_g = _log_product_of_cdfs(x, scaled)
        log_g -= 0.5 * (u**2 + LOG_2PI)
        log_g += np.log(span[block, None] / (nodes - 1))
        yield block, log_g, x, hazard


def _others(n_classes: int) -> npt.NDArray[np.intp]:
    """Array (C, C - 1) whose row i lists the classes other than i."""
    return np.array(
        [[j for j in range(n_classes) if j != i] for i in range(n_classes)], dtype=np.intp
    )


def _winner_gaps(f: npt.ArrayLike, t: npt.ArrayLike) -> tuple[Array, npt.NDArray[np.intp], Array]:
    """Scores, the losing classes (N, C - 1) and the gaps f_i - f_j to them."""
    scores = np.asarray(f, dtype=float)
    codes = np.asarray(t, dtype=np.intp)
    losers = _others(scores.shape[1])[codes]
    winner = np.take_along_axis(scores, codes[:, None], axis=1)
    return scores, losers, winner - np.take_along_axis(scores, losers, axis=1)


def log_probability(f: npt.ArrayLike, t: npt.ArrayLike) -> Array:
    """Log probability of the classes `t` (eq 4), as `truncated_moments` has it."""
    return truncated_moments(f, t)[0]


def truncated_moments(f: npt.ArrayLike, t: npt.ArrayLike) -> tuple[Array, Array]:
    """Normaliser and mean of y ~ N(f, I) truncated to the cone where y_t is the largest (eq 6).

    For the losers E[y_j] = f_j - E[lambda(u + f_i - f_j)] with lambda = phi/Phi; the expectation is
    under the normalised integrand of eq 4 (eq 7). For the winner E[y_i] = f_i + sum_j (f_j -
    E[y_j]) (eq 8). E[y] - f is the gradient of log P(t | f).

    Parameters
    ----------
    f : array of shape (N, C)
        Scores, one per class, in standard deviations of the noise.
    t : integer array of shape (N,)
        Class codes 0..C-1.

    Returns
    -------
    log_z : array of shape (N,)
        log P(t_n | f_n), finite for finite scores. The relative error of the probability is 1e-8,
        however small it is.
    mean : array of shape (N, C)
        E[y_n]. Cost O(N C nodes), with about 6.5 (1 + sqrt(C)) nodes.
    """
    scores, losers, gaps = _winner_gaps(f, t)
    log_z = np.empty(len(gaps))
    shift = np.empty_like(gaps)
    for block, log_g, _, hazard in _quadrature(gaps):
        peak = log_g.max(axis=1)
        weights = np.exp(log_g - peak[:, None])
        total = weights.sum(axis=1)
        log_z[block] = peak + np.log(total)
        shift[block] = (hazard @ weights[:, :, None])[:, :, 0] / total[:, None]
    mean = scores + shift.sum(axis=1, keepdims=True)
    np.put_along_axis(mean, losers, np.take_along_axis(scores, losers, axis=1) - shift, axis=1)
    return log_z, mean


def hessian(f: npt.ArrayLike, t: npt.ArrayLike) -> Array:
    """Second derivatives of log P(t | f) in the scores: Cov[y] - I of the truncated normal.

    Parameters
    ----------
    f, t
        As for `truncated_moments`.

    Returns
    -------
    array of shape (N, C, C)
        Zero for objects with a score that is not finite or above 1e150 in size, or an invalid
        code. Cost O(N C^2 nodes).
    """
    scores, codes = np.asarray(f, dtype=float), np.asarray(t, dtype=np.intp)
    n_classes = scores.shape[1]
    out = np.zeros((len(scores), n_classes, n_classes))
    possible = _possible(scores, codes)
    _, losers, gaps = _winner_gaps(scores[possible], codes[possible])
    of_gaps = np.empty((*gaps.shape, gaps.shape[1]))
    for block, log_g, x, hazard in _quadrature(gaps):
        weights = np.exp(log_g - log_g.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        weighted = hazard * weights[:, None, :]
        mean = weighted.sum(axis=-1)
        of_gaps[block] = weighted @ hazard.mT - mean[:, :, None] * mean[:, None, :]
        # The derivative of the hazard is -hazard (x + hazard), between -1 and 0.
        slope = np.clip(hazard * (x + hazard), 0, 1)
        diagonal = np.einsum("nkk->nk", of_gaps[block])
        diagonal -= (slope @ weights[:, :, None])[:, :, 0]
    # Gap j is the winner's score minus that of loser j.
    of_scores = np.zeros((len(gaps), n_classes, n_classes))
    rows, own = np.arange(len(gaps)), codes[possible]
    of_scores[rows[:, None, None], losers[:, :, None], losers[:, None, :]] = of_gaps
    across = -of_gaps.sum(axis=2)
    of_scores[rows[:, None], own[:, None], losers] = across
    of_scores[rows[:, None], losers, own[:, None]] = across
    of_scores[rows, own, own] = -across.sum(axis=1)
    out[possible] = of_scores
    return out


def _possible(scores: Array, codes: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """Mask of the objects with scores up to `LARGEST_SCORE` in size and a valid class code."""
    sized = (np.abs(scores) <= LARGEST_SCORE).all(axis=1)
    return sized & (codes >= 0) & (codes < scores.shape[1])


def log_probability_and_gradient(
    f: npt.ArrayLike, t: npt.ArrayLike, *, compiled: bool = True
) -> tuple[Array, Array]:
    """Log probability of each object's class, and its gradient in the scores.

    Parameters
    ----------
    f : array of shape (N, C)
        Scores.
    t : integer array of shape (N,)
        Class codes.
    compiled : bool, default=True
        Use loops compiled by numba, four times as fast as NumPy on a hundred objects. The first
        call compiles them in two seconds, or loads them from the cache.

    Returns
    -------
    log_p : array of shape (N,)
        log P(t_n | f_n); minus infinity for an invalid class code or a score that is not finite or
        above 1e150 in size.
    gradient : array of shape (N, C)
        E[y_n] - f_n of the truncated normal (eqs 7, 8); zero where `log_p` is minus infinity.

    Raises
    ------
    ValueError
        If `f` and `t` differ in the number of objects.

    Notes
    -----
    Cost O(N C nodes): compiled, 50 us for N = 60, C = 3. NumPy is used if ``NUMBA_DISABLE_JIT=1``.
    """
    scores = np.ascontiguousarray(f, dtype=float)
    codes = np.ascontiguousarray(t, dtype=np.int64)
    if scores.shape[:1] != codes.shape:
        raise ValueError(
            f"Scores of {len(scores)} objects need one class code each. Got shape {codes.shape}."
        )
    if not (compiled and numba_compiles()):
        possible = _possible(scores, codes)
        log_p, gradient = np.full(len(scores), -np.inf), np.zeros_like(scores)
        log_p[possible], mean = truncated_moments(scores[possible], codes[possible])
        gradient[possible] = mean - scores[possible]
        return log_p, gradient
    from .probit_compiled import probit_kernel

    log_p, gradient = np.empty(len(scores)), np.empty_like(scores)
    nodes = default_nodes(scores.shape[1])

    def fill(rows: slice) -> None:
        work = np.empty(working_memory(scores.shape[1], nodes))
        given = scores[rows], codes[rows], nodes, REACH, MIDDLE, TAIL, work
        probit_kernel(*given, log_p[rows], gradient[rows])

    if scores.size * nodes > THREADS_FROM:
        deque(in_blocks(fill, len(scores)), maxlen=0)
    else:
        fill(slice(None))
    return log_p, gradient


def working_memory(n_classes: int, nodes: int) -> tuple[int, int]:
    """Shape of the work array of the compiled kernel."""
    return 6 + n_classes, max(nodes, n_classes)


def class_probabilities(f: npt.ArrayLike) -> Array:
    """Probabilities of all classes.

    With y the winner's value, P(t = c | f) is the integral of phi(y - f_c)/Phi(y - f_c) times
    prod_j Phi(y - f_j), so that all classes share one grid of y. The relative error is small even
    for probabilities down to 1e-280.

    Parameters
    ----------
    f : array of shape (..., C)
        Scores; any leading dimensions (draws, chains, objects).

    Returns
    -------
    array of shape (..., C)
        Each row sums to one. Cost O(C sqrt(C)) per row, in blocks of bounded memory. For many rows
        (a few seconds of work) a compiled version is used; compiling takes seconds, once per
        computer.
    """
    scores = np.asarray(f, dtype=float)
    n_classes = scores.shape[-1]
    flat = scores.reshape(-1, n_classes)
    if n_classes == 2:
        # P(t = c | f) is Phi((f_c - f_other) / sqrt 2).
        return ndtr((flat - flat[:, ::-1]) * np.sqrt(0.5)).reshape(scores.shape)
    flat = np.maximum(flat - flat.max(axis=1, keepdims=True), -FLOOR)
    # The modes of all integrands lie between half the lowest score and slightly above the highest.
    bottom = flat.min(axis=1) / 2 - REACH
    top = REACH + np.sqrt(2 * np.log(n_classes))
    longest = (top - bottom).max(initial=0.0)
    nodes = int(np.ceil(longest * np.sqrt(n_classes) / SPACING)) + 1
    grid = np.linspace(0.0, 1.0, nodes)
    out = np.empty_like(flat)
    if flat.size * nodes > COMPILED_FROM_NODES and n_classes <= MOST_COMPILED:
        from .probit_compiled import fill_probabilities

        per_unit = np.sqrt(n_classes) / SPACING
        fill_probabilities(flat, bottom, top, per_unit, MIDDLE, TAIL, out)
        return out.reshape(scores.shape)
    size = max(1, BLOCK // (n_classes * nodes))
    for start in range(0, len(flat), size):
        block = slice(start, start + size)
        y = bottom[block][:, None] + (top - bottom[block])[:, None] * grid
        x = y[:, None, :] - flat[block][:, :, None]
        scaled, hazard = _scaled_cdf_and_hazard(x)
        log_all = _log_product_of_cdfs(x, scaled)
        out[block] = (hazard @ np.exp(log_all)[:, :, None])[:, :, 0]
    out /= out.sum(axis=1, keepdims=True)
    return out.reshape(scores.shape)
