r"""Draws of degrees of freedom and scales of `MutualKernelCompletion`, without missing blocks.

Missing blocks are integrated out. With :math:`t = \mathrm{tr}(M_{vv}^{-1} Q_{vv})` a kernel's
visible block has the log density

.. math::

    \tfrac{\nu}{2}\Big[n \ln\tfrac{\nu}{2} + \ln|Q_{vv}| - \ln|M_{vv}| - n \ln s - \tfrac ts\Big]
        - \ln\Gamma_n(\tfrac\nu2) + \mathrm{const}

in nu and s. Given nu, s is inverse gamma. lambda' and the prior of s also depend on nu, which is
drawn by slice sampling (Neal 2003) in ln(nu - l + 1), kernel by kernel.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas, lapack
from scipy.special import gammaln, multigammaln

from ...models.mutual_kernel_completion import CompletionProblem
from ...numerics.matrix_draws import log_det_of_factor

__all__ = ["ModelMatrix", "VisibleBlock", "draw_excess", "draw_scales", "log_density", "slice_draw"]

type Array = npt.NDArray[np.float64]

# Initial width of a slice in log excess, and largest number of widenings in total.
WIDTH, WIDENINGS = 1.0, 20


class VisibleBlock(NamedTuple):
    """Statistics for a kernel's nu and s: n, ln|Q_vv|, ln|M_vv|, tr(M_vv^-1 Q_vv)."""

    n: int
    log_det_Q: float
    log_det_M: float
    trace: float

    @classmethod
    def of(cls, root: Array, factor: Array) -> "VisibleBlock":
        """Compute them from the lower Cholesky factors (n, n) of Q_vv and M_vv. O(n^3)."""
        if not len(root):
            return cls(0, 0.0, 0.0, 0.0)
        whitened = blas.dtrsm(1.0, factor, root, lower=1)
        trace = float(np.vdot(whitened, whitened))
        return cls(len(root), log_det_of_factor(root), log_det_of_factor(factor), trace)


class ModelMatrix(NamedTuple):
    """Statistics for the prior of M, which depends on nu: l, ln|M|, tr(M^-1)."""

    n: int
    log_det: float
    trace_of_inverse: float

    @classmethod
    def of(cls, factor: Array) -> "ModelMatrix":
        """Compute them from the lower Cholesky factor (l, l). O(l^3 / 3)."""
        inverse, _ = lapack.dtrtri(factor, lower=1)
        return cls(len(factor), log_det_of_factor(factor), float(np.vdot(inverse, inverse)))


def log_density(
    problem: CompletionProblem,
    blocks: Sequence[VisibleBlock],
    M: ModelMatrix,
    excess: Array,
    s: Array,
) -> float:
    """Log density of the excess, s, M and the visible blocks, up to a constant in the excess."""
    prior = problem.excess
    assert prior is not None
    nu = M.n - 1 + excess
    value = float(np.sum((prior.shape - 1) * np.log(excess) - prior.rate * excess))
    for block, v, scale in zip(blocks, nu, s, strict=True):
        n = block.n
        if n:
            deviance = block.log_det_M - block.log_det_Q + n * np.log(scale) + block.trace / scale
            value += v / 2 * (n * np.log(v / 2) - deviance) - multigammaln(v / 2, n)
    if problem.spread is not None:
        a = nu * problem.spread / 2
        value += float(np.sum(a * np.log(a) - gammaln(a) - (a + 1) * np.log(s) - a / s))
    strength = problem.strength(nu)
    df = strength + M.n + 1
    return value + float(
        df * M.n / 2 * np.log(strength / 2)
        - df / 2 * M.log_det
        - strength / 2 * M.trace_of_inverse
        - multigammaln(df / 2, M.n)
    )


def draw_excess(
    problem: CompletionProblem,
    blocks: Sequence[VisibleBlock],
    M: ModelMatrix,
    excess: Array,
    s: Array,
    rng: np.random.Generator,
) -> Array:
    """Redraw nu - (l - 1) of each kernel (kernel,) given the scales. O(K l) a density."""
    excess = excess.copy()
    for k in range(len(excess)):

        def target(x: float, k: int = k) -> float:
            moved = excess.copy()
            moved[k] = np.exp(x)
            # The last term is the Jacobian of the logarithm.
            return log_density(problem, blocks, M, moved, s) + x

        excess[k] = np.exp(slice_draw(target, float(np.log(excess[k])), rng))
    return excess


def draw_scales(
    spread: float, blocks: Sequence[VisibleBlock], nu: Array, rng: np.random.Generator
) -> Array:
    """Redraw the scales (kernel,) given nu."""
    a = nu * spread / 2
    n, traces = np.array([block.n for block in blocks]), np.array([b.trace for b in blocks])
    return (a + nu * traces / 2) / rng.standard_gamma(a + nu * n / 2)


def slice_draw(log_density: Callable[[float], float], x: float, rng: np.random.Generator) -> float:
    """Make one slice-sampling move by stepping out and shrinking (Neal 2003, figures 3 and 5)."""
    level = log_density(x) - rng.standard_exponential()
    low = x - WIDTH * rng.uniform()
    high = low + WIDTH
    # The widenings are split at random, which keeps the move reversible.
    below = int(rng.integers(WIDENINGS + 1))
    for _ in range(below):
        if log_density(low) <= level:
            break
        low -= WIDTH
    for _ in range(WIDENINGS - below):
        if log_density(high) <= level:
            break
        high += WIDTH
    while True:
        proposal = rng.uniform(low, high)
        if log_density(proposal) > level:
            return float(proposal)
        if proposal < x:
            low = proposal
        else:
            high = proposal
