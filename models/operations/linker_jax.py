"""The operations in JAX.

The formulas of the probit are those of `kernelzoo.numerics.probit`. The derivative is analytic,
because JAX's derivative of the quadrature is NaN if a class is certain.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from pytensor.link.jax.dispatch import jax_funcify

from ...numerics.probit import (
    HALF_WIDTH_IN_SDS,
    LARGEST_SCORE,
    LOG_2PI,
    MIDDLE,
    SQRT_2PI,
    TAIL,
    default_nodes,
)
from .arrays import MatrixProduct
from .probit_likelihood import ProbitHessian, ProbitLogProbability

# Number of steps after which Newton's method from below the mode has converged for all scores.
NEWTON_STEPS = 12


def _log_cdf_and_hazard(x: Array) -> tuple[Array, Array]:
    """Log Phi(x), and phi(x) / Phi(x), for x of any shape."""
    z = jnp.abs(x)
    t = (z - MIDDLE) / (z + MIDDLE)
    scaled: Array = jnp.full_like(x, TAIL[-1])
    for coefficient in TAIL[-2::-1]:
        scaled = scaled * t + coefficient
    scaled = scaled / (1 + z)
    bell = jnp.exp(-0.5 * x * x)
    positive = x > 0
    scaled = jnp.where(positive, 1 - bell * scaled, scaled)
    hazard = jnp.where(positive, bell, 1.0) / (scaled * SQRT_2PI)
    return jnp.log(scaled) - 0.5 * jnp.minimum(x, 0) ** 2, hazard


def _mode_and_width(gaps: Array) -> tuple[Array, Array]:
    """Mode (N,) of the integrand and 1/sqrt(-h'') (N,) there, for gaps (N, C - 1)."""
    losers = gaps.shape[1]
    means = -jnp.sort(gaps, axis=1).cumsum(axis=1) / jnp.arange(2, losers + 2)

    def step(_: int, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        mode, curvature, last = state
        x = mode[:, None] + gaps
        hazard = _log_cdf_and_hazard(x)[1]
        # Each object stops after as many steps as in the compiled loops, to have the same nodes.
        going = jnp.abs(last) > 0.1
        new = jnp.clip(1 + (hazard * (x + hazard)).sum(axis=1), 1, losers + 1)
        curvature = jnp.where(going, new, curvature)
        move = (hazard.sum(axis=1) - mode) / curvature
        return jnp.where(going, mode + move, mode), curvature, jnp.where(going, move, last)

    start = jnp.maximum(means.max(axis=1), 0.0)
    state = start, jnp.ones_like(start), jnp.full_like(start, jnp.inf)
    mode, curvature, _ = jax.lax.fori_loop(0, NEWTON_STEPS, step, state)
    return mode, 1 / jnp.sqrt(curvature)


def _moments(f: Array, t: Array) -> tuple[Array, Array, Array]:
    """Log probability (N,), gradient (N, C) and Hessian (N, C, C), given f (N, C) and t (N,)."""
    n_classes = f.shape[1]
    possible = (jnp.abs(f) <= LARGEST_SCORE).all(axis=1) & (t >= 0) & (t < n_classes)
    scores = jnp.where(possible[:, None], f, 0.0)
    own = jnp.where(possible, t, 0)
    losers = (own[:, None] + 1 + jnp.arange(n_classes - 1)) % n_classes
    # Row j maps scores to the gap f_i - f_j; the transpose maps derivatives back.
    to_gaps = jax.nn.one_hot(own, n_classes)[:, None, :] - jax.nn.one_hot(losers, n_classes)
    gaps = jnp.einsum("njc,nc->nj", to_gaps, scores)
    mode, width = _mode_and_width(gaps)
    nodes = default_nodes(n_classes)
    spacing = HALF_WIDTH_IN_SDS * (1 + width) / (nodes - 1)
    u = (mode - HALF_WIDTH_IN_SDS * width)[:, None] + spacing[:, None] * jnp.arange(nodes)
    x = u[:, None, :] + gaps[:, :, None]
    log_cdf, hazard = _log_cdf_and_hazard(x)
    log_g = log_cdf.sum(axis=1) - 0.5 * (u**2 + LOG_2PI) + jnp.log(spacing)[:, None]
    log_p = jax.nn.logsumexp(log_g, axis=1)
    weights = jnp.exp(log_g - log_p[:, None])
    weighted = hazard * weights[:, None, :]
    mean = weighted.sum(axis=-1)
    # The derivative of the hazard is -hazard (x + hazard), between -1 and 0.
    slope = jnp.einsum("njq,nq->nj", jnp.clip(hazard * (x + hazard), 0, 1), weights)
    of_gaps = (
        jnp.einsum("njq,nkq->njk", weighted, hazard)
        - mean[:, :, None] * mean[:, None, :]
        - slope[:, :, None] * jnp.eye(n_classes - 1)
    )
    gradient = jnp.einsum("nj,njc->nc", mean, to_gaps)
    hessian = jnp.einsum("njc,njk,nkd->ncd", to_gaps, of_gaps, to_gaps)
    return (
        jnp.where(possible, log_p, -jnp.inf),
        jnp.where(possible[:, None], gradient, 0.0),
        jnp.where(possible[:, None, None], hessian, 0.0),
    )


@jax.custom_jvp
def log_probability_and_gradient(f: Array, t: Array) -> tuple[Array, Array]:
    """As `log_probability_and_gradient` of `kernelzoo.numerics.probit`."""
    log_p, gradient, _ = _moments(f, t)
    return log_p, gradient


@log_probability_and_gradient.defjvp
def _jvp(primals: Any, tangents: Any) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    log_p, gradient, hessian = _moments(*primals)
    moved, _ = tangents
    slopes = (gradient * moved).sum(axis=1), jnp.einsum("ncd,nd->nc", hessian, moved)
    return (log_p, gradient), slopes


for _op, _function in (
    (MatrixProduct, jnp.matmul),
    (ProbitLogProbability, log_probability_and_gradient),
    (ProbitHessian, lambda f, t: _moments(f, t)[2]),
):
    jax_funcify.register(_op)(lambda op, _function=_function, **kwargs: _function)
