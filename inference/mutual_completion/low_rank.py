r"""Mutual completion of kernels that are given by features, for thousands of objects.

Each kernel is :math:`Q^{(k)} = F_k F_k'` on its visible objects, with r features. The model matrix
of Kato & Rivero (2017) is restricted to :math:`M = UU' + \delta I` with R components, as in
probabilistic principal component analysis (Tipping & Bishop 1999; Rivero & Kato 2018 restrict M in
this way). So no matrix of order l is formed:

| step | paper | here |
|---|---|---|
| E, eq (17) | Q_hv = M_hv M_vv^-1 Q_vv | missing objects get the features U_h G^-1 U_v'F_k |
| E, eq (17) | Q_hh + M_hh - M_hv M_vv^-1 M_vh | the same features, and delta (I + U_h G^-1 U_h') |
| M, eq (22) | (lambda I + sum_k Q_k) / (K + lambda) | its R largest eigenpairs, the others' mean |

with G = delta I + U_v'U_v.

The eigenpairs come from subspace iterations that begin at those of the last M-step, so that an
M-step may be incomplete; J is that of the paper at M. With R = l - 1 any M has this form, and the
steps are the paper's. Gibbs has no such form: M given the completed kernels is an inverse-Wishart
matrix, of full rank.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve, eigh, qr, solve_triangular

__all__ = ["FeatureBlock", "Found", "LowRank", "Problem", "minimize"]

type Array = npt.NDArray[np.float64]

# Subspace iterations of an M-step, and directions besides those that are kept.
ROUNDS, SPARE = 2, 10
# Least delta, relative to the mean of M's diagonal: M must not be singular where R is large.
LEAST = 1e-10


@dataclass(frozen=True)
class FeatureBlock:
    """Features (n, r) of the visible objects of a kernel, and which are visible (l,)."""

    features: Array
    visible: npt.NDArray[np.bool_]


class LowRank(NamedTuple):
    """M = vectors diag(sizes) vectors' + noise I.

    Attributes
    ----------
    vectors : array (l, R)
        Orthonormal.
    sizes : array (R,)
    noise : float
        delta.
    """

    vectors: Array
    sizes: Array
    noise: float

    @property
    def components(self) -> Array:
        """U (l, R)."""
        return self.vectors * np.sqrt(self.sizes)


class Expected(NamedTuple):
    """E-step of a kernel: features of all objects, and factors of the missing ones' variance.

    Attributes
    ----------
    features : array (l, r)
    spread : array (l, R)
        Rows of sqrt(delta) U_h G^-1/2; zero for visible objects.
    objective : float
        2 KL(Q_vv, M_vv) without ln|Q_vv|.
    """

    features: Array
    spread: Array
    objective: float


class Target(NamedTuple):
    """N of the M-step: a sum of products of factors (l, m), and a diagonal (l,), times `scale`."""

    factors: Sequence[Array]
    diagonal: Array
    scale: float

    def times(self, X: Array) -> Array:
        """N X for X (l, p)."""
        out = self.diagonal[:, None] * X
        for factor in self.factors:
            out += factor @ (factor.T @ X)
        return self.scale * out

    @property
    def trace(self) -> float:
        """Trace of N."""
        return self.scale * float(self.diagonal.sum() + sum(np.vdot(f, f) for f in self.factors))


@dataclass(frozen=True)
class Problem:
    """Kernels and lambda; l objects."""

    blocks: Sequence[FeatureBlock]
    lam: float

    @property
    def n(self) -> int:
        """Number of objects l."""
        return len(self.blocks[0].visible)

    def start(self, n_components: int, rng: np.random.Generator) -> tuple[LowRank, Array]:
        """M-step with missing features at the mean of the visible ones."""
        whole = []
        for block in self.blocks:
            features = np.empty((self.n, block.features.shape[1]))
            features[block.visible] = block.features
            features[~block.visible] = block.features.mean(axis=0)
            whole.append(features)
        target = self._target(whole, np.full(self.n, self.lam))
        directions = rng.normal(size=(self.n, min(self.n, n_components + SPARE)))
        return m_step(target, directions, n_components)

    def _target(self, factors: Sequence[Array], diagonal: Array) -> Target:
        return Target(factors, diagonal, 1 / (self.lam + len(self.blocks)))

    def expect(self, M: LowRank) -> tuple[Target, list[Expected], float]:
        """E-step, and 2 J without ln|Q_vv|."""
        U, (n, R) = M.components, M.vectors.shape
        expected, diagonal = [], np.full(self.n, self.lam)
        for block in self.blocks:
            expected.append(_expect(block, U, M.noise))
            diagonal[~block.visible] += M.noise
        log_det = (n - R) * np.log(M.noise) + np.log(M.sizes + M.noise).sum()
        inverse = (n - R) / M.noise + (1 / (M.sizes + M.noise)).sum()
        objective = self.lam * (log_det + inverse - n) + sum(each.objective for each in expected)
        factors = [each.features for each in expected] + [each.spread for each in expected]
        return self._target(factors, diagonal), expected, float(objective)


def _expect(block: FeatureBlock, U: Array, noise: float) -> Expected:
    visible, features = block.visible, block.features
    seen, unseen = U[visible], U[~visible]
    gram = seen.T @ seen
    gram[np.diag_indices_from(gram)] += noise
    factor = cho_factor(gram, lower=True)
    crossed = seen.T @ features
    regression = cho_solve(factor, crossed)
    whole = np.empty((len(U), features.shape[1]))
    whole[visible], whole[~visible] = features, unseen @ regression
    spread = np.zeros_like(U)
    root = solve_triangular(factor[0], unseen.T, lower=True)
    spread[~visible] = np.sqrt(noise) * root.T
    log_det = (len(seen) - len(gram)) * np.log(noise) + 2 * np.log(np.diag(factor[0])).sum()
    trace = (np.vdot(features, features) - np.vdot(crossed, regression)) / noise
    return Expected(whole, spread, float(log_det + trace - len(seen)))


def m_step(target: Target, directions: Array, n_components: int) -> tuple[LowRank, Array]:
    """R largest eigenpairs of N, by subspace iterations from `directions`, and where these end."""
    for _ in range(ROUNDS):
        basis, _ = qr(directions, mode="economic")
        directions = target.times(basis)
    sizes, turn = eigh(basis.T @ directions)
    found = basis @ turn[:, ::-1]
    sizes, n, trace = sizes[::-1][:n_components], len(found), target.trace
    rest = (trace - sizes.sum()) / max(n - n_components, 1)
    noise = max(float(rest), LEAST * trace / n)
    return LowRank(found[:, :n_components], np.maximum(sizes - noise, 0), noise), found


class Found(NamedTuple):
    """Where the iterations ended.

    Attributes
    ----------
    model : LowRank
        M.
    expected : list of Expected
        E-step of every kernel at M.
    objective : array (iteration,)
        2 J without ln|Q_vv|.
    converged : bool
    """

    model: LowRank
    expected: list[Expected]
    objective: Array
    converged: bool


def minimize(
    problem: Problem,
    n_components: int,
    rng: np.random.Generator,
    *,
    max_iterations: int,
    tolerance: float,
    report: Callable[[float], None] = lambda objective: None,
) -> Found:
    """EM from means until features would change by `tolerance` at most; an interrupt ends it.

    The change is relative to the largest feature of a kernel. What is left is estimated from the
    last two changes, as those of a geometric series: J is so flat that it says little of the
    features. An iteration costs O(l R (sum_k r_k + K R)).
    """
    model, directions = problem.start(n_components, rng)
    target, expected, objective = problem.expect(model)
    history, changes, converged = [objective], [np.inf], False
    with suppress(KeyboardInterrupt):
        while not converged and len(history) < max_iterations:
            model, directions = m_step(target, directions, n_components)
            target, renewed, objective = problem.expect(model)
            changes.append(max(map(_change, expected, renewed)))
            expected = renewed
            history.append(objective)
            report(objective)
            converged = _left(*changes[-2:]) <= tolerance
    return Found(model, expected, np.array(history), converged)


def _change(before: Expected, after: Expected) -> float:
    """Largest change of a feature, relative to the largest feature."""
    size = np.abs(after.features).max()
    return float(np.abs(after.features - before.features).max() / size)


def _left(before: float, last: float) -> float:
    """Change that is still to come, if changes go on to shrink as the last two did."""
    if last < np.finfo(float).eps:
        return 0.0
    return last**2 / (before - last) if last < before < np.inf else np.inf
