r"""The variational factor of kernel weights on the simplex, by deterministic quadrature.

Both hierarchical models with a composite kernel (Damoulas & Girolami 2009, appendix B.4; Girolami &
Rogers 2005) lead to

    Q(beta) = exp(b'beta - beta'A beta / 2) prod_s beta_s^(a_s - 1) / normaliser

with A positive semidefinite. The papers estimate its moments by importance sampling from the prior.
Here the points are fixed, so the bound that uses the moments changes smoothly.

The integral is taken in coordinates that undo most of Q's correlation (`simplex_coordinates`). For
S <= 3 it is the product trapezoid rule on the axes' grids, right to 1e-8. For S > 3 Sobol' points
are mapped through the distributions tabulated on the axes (heavier-tailed than Q by `TEMPER`), with
importance weights; these distributions are exact if A = b = 0. There are 4,096 points, or twice
as many up to 16,384 until the means of the two halves, themselves nets, agree.

Measured as the change of the means, in standard deviations, when the weights are reversed, over 24
factors with curvatures up to 1e6 of any rank (median, largest): S = 4 .001, .02; S = 6 .002, .03;
S = 10 .004, .7; S = 15 .006, .2. The largest are of singular quadratics with a mode on the
boundary, where the cap is met (`SimplexFactor.precise`); the median's kind needs no doubling.
"""

import warnings
from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.stats import qmc

from .simplex_coordinates import DEPTH, Axes, Target, axes_around

__all__ = ["SimplexFactor", "simplex_factor", "warn_of_imprecision"]

type Array = npt.NDArray[np.float64]

# The tabulated proposal is Q's axis density to this power.
TEMPER = 0.85
TABLE_NODES = 257
# Nodes an axis by the number of weights, at least and at most, and the distance between a grid and
# every second of its nodes at which they suffice: the error is about the square of it.
GRID_NODES = {2: 385, 3: 129}
MOST_NODES = {2: 6145, 3: 513}
GRID_TOLERANCE = 3e-4
# Numbers in the largest array of a block.
BLOCK = 1 << 20
# Sobol' points at least and at most (log2), and the error of the means, in standard deviations, and
# the effective number of points at which they suffice.
SOBOL_LOG2 = 12
MOST_LOG2 = 14
TOLERANCE = 0.02
LEAST_ESS = 1000
ROUNDS = 24


@cache
def _uniform_points(dimension: int, log2: int) -> Array:
    """Return the fixed points (dimension, 2^log2) of the unit cube."""
    points = qmc.Sobol(dimension, scramble=True, rng=20090405).random_base2(log2)
    return np.ascontiguousarray(points.T)


@dataclass(frozen=True)
class _Proposal:
    """Independent axis distributions with piecewise constant densities between the grid's nodes."""

    nodes: Array
    cumulative: Array

    @classmethod
    def along(cls, target: Target, axes: Axes) -> Self:
        nodes, _ = axes.grid(TABLE_NODES)
        dimension = len(nodes)
        log_density = np.empty_like(nodes)
        n_blocks = -(-(dimension**2) * TABLE_NODES // BLOCK)
        for block in np.array_split(np.arange(dimension), n_blocks):
            e = np.zeros((dimension, len(block), TABLE_NODES))
            e[block, np.arange(len(block))] = nodes[block]
            log_beta = axes.log_weights(e)
            log_density[block] = TEMPER * target.at(np.exp(log_beta), log_beta)
        density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
        mass = 0.5 * (density[:, 1:] + density[:, :-1]) * np.diff(nodes, axis=1)
        # Empty cells would make the inverse distribution function ambiguous.
        mass += 1e-14 * mass.sum(axis=1, keepdims=True)
        cumulative = np.zeros_like(nodes)
        np.cumsum(mass / mass.sum(axis=1, keepdims=True), axis=1, out=cumulative[:, 1:])
        return cls(nodes, cumulative)

    def transform(self, u: Array) -> tuple[Array, Array]:
        """Axis coordinates (S - 1, n) of uniform points, and their log density (n,)."""
        e = np.empty_like(u)
        log_density = np.zeros(u.shape[1])
        for s, (nodes, cumulative) in enumerate(zip(self.nodes, self.cumulative, strict=True)):
            cell = np.searchsorted(cumulative, u[s], side="right").clip(1, len(nodes) - 1) - 1
            width = np.diff(nodes)
            mass = np.diff(cumulative)
            e[s] = nodes[cell] + (width / mass)[cell] * (u[s] - cumulative[cell])
            log_density += np.log(mass / width)[cell]
        return e, log_density


@dataclass(frozen=True)
class _Points:
    """Quadrature points: weights above their logs (2 S, n), log measure (n,), the mode's logits."""

    features: Array
    log_measure: Array
    mode: Array
    suffice: bool

    @classmethod
    def around(cls, target: Target, start: Array | None) -> Self:
        if len(target.linear) in GRID_NODES:
            return cls._on_grid(target, start)
        axes = axes_around(target, start)
        proposal = _Proposal.along(target, axes)
        for log2 in range(SOBOL_LOG2, MOST_LOG2 + 1):
            e, log_proposal = proposal.transform(_uniform_points(len(axes.mode), log2))
            log_measure = -log_proposal - np.log(e.shape[1])
            half = np.arange(e.shape[1]) < e.shape[1] // 2
            points, one, other, ess = cls._kept(target, axes, e, log_measure, half)
            suffice = one.distance(other) <= 2 * TOLERANCE and ess > LEAST_ESS
            if suffice:
                break
        return replace(points, suffice=suffice)

    @classmethod
    def _on_grid(cls, target: Target, start: Array | None) -> Self:
        """Points on a grid: other orders of the weights, then more nodes, until they suffice."""
        n_weights = len(target.linear)
        nodes = GRID_NODES[n_weights]
        axes = axes_around(target, start)
        best, gap = cls._grid(target, axes, nodes)
        if gap > GRID_TOLERANCE and n_weights > 2:
            for order in permutations(range(n_weights)):
                other = axes_around(target, axes.start, np.array(order))
                points, other_gap = cls._grid(target, other, nodes)
                if other_gap < gap:
                    best, gap, axes = points, other_gap, other
        while gap > GRID_TOLERANCE and nodes < MOST_NODES[n_weights]:
            nodes = 2 * nodes - 1
            best, gap = cls._grid(target, axes, nodes)
        return replace(best, mode=axes.start, suffice=gap <= GRID_TOLERANCE)

    @classmethod
    def _grid(cls, target: Target, axes: Axes, nodes: int) -> tuple[Self, float]:
        """Points and their distance from the grid of every second node.

        The trapezoid rule's error on analytic functions is squared when the nodes are doubled.
        """
        d = len(axes.mode)
        along, log_width = axes.grid(nodes)
        e = np.stack(np.meshgrid(*along, indexing="ij")).reshape(d, -1)
        log_measure = np.sum(np.meshgrid(*log_width, indexing="ij"), axis=0).ravel()
        second = np.zeros([nodes] * d, dtype=bool)
        second[(slice(None, None, 2),) * d] = True
        points, coarse, rest, _ = cls._kept(target, axes, e, log_measure, second.ravel())
        fine = coarse.joined(rest)
        scaled = abs(coarse.log_total + d * np.log(2) - fine.log_total)
        return points, max(scaled, coarse.distance(fine))

    @classmethod
    def _kept(
        cls, target: Target, axes: Axes, e: Array, log_measure: Array, part: npt.NDArray[np.bool_]
    ) -> tuple[Self, "_Sums", "_Sums", float]:
        """Points with mass, the sums of a part of them and of the rest, and their effective number.

        Weights are made in blocks of `BLOCK` numbers: an array of them takes several others.
        """
        n_blocks = -(-len(axes.order) * e.shape[1] // BLOCK)
        log_beta = np.empty((len(axes.order), e.shape[1]))
        log_mass = np.empty(e.shape[1])
        for block in np.array_split(np.arange(e.shape[1]), n_blocks):
            chosen = slice(block[0], block[-1] + 1)
            log_beta[:, chosen] = axes.log_weights(e[:, chosen])
            of_block = log_beta[:, chosen]
            log_mass[chosen] = target.at(np.exp(of_block), of_block)
        log_mass += log_measure
        if not np.isfinite(peak := log_mass.max()):
            raise FloatingPointError(
                "The density of the kernel weights must be finite. Got curvatures up to "
                f"{np.abs(target.quadratic).max():.3g}: rescale the kernels or the targets."
            )
        kept = np.flatnonzero(log_mass > peak - 1.5 * DEPTH)
        features = np.empty((2 * len(log_beta), len(kept)))
        np.take(log_beta, kept, axis=1, out=features[len(log_beta) :])
        np.exp(features[len(log_beta) :], out=features[: len(log_beta)])
        mass = np.exp(log_mass[kept] - peak)
        part = part[kept]
        one, other = (_Sums.of(features, mass * half) for half in (part, ~part))
        ess = float(mass.sum() ** 2 / (mass @ mass))
        return cls(features, log_measure[kept], axes.start, False), one, other, ess


@dataclass(frozen=True)
class _Sums:
    """Sums over points of the mass, and of the mass times the weights and logs and squares."""

    total: float
    first: Array
    second: Array

    @classmethod
    def of(cls, features: Array, mass: Array) -> Self:
        return cls(float(mass.sum()), features @ mass, features**2 @ mass)

    def joined(self, other: Self) -> Self:
        return replace(
            self,
            total=self.total + other.total,
            first=self.first + other.first,
            second=self.second + other.second,
        )

    @property
    def log_total(self) -> float:
        return float(np.log(self.total))

    def distance(self, other: Self) -> float:
        """Largest difference of the means, in standard deviations of all points."""
        both = self.joined(other)
        variance = both.second / both.total - (both.first / both.total) ** 2
        gap = np.abs(self.first / self.total - other.first / other.total)
        # Weights whose spread is lost in rounding have none to compare.
        floor = 1e-14 * both.second / both.total
        return float(np.max(gap / np.sqrt(np.maximum(variance, floor))))


@dataclass(frozen=True)
class SimplexFactor:
    """Moments of Q(beta); made by `simplex_factor`.

    Attributes
    ----------
    mean : array of shape (S,)
        E[beta].
    second_moment : array of shape (S, S)
        E[beta beta'].
    mean_log : array of shape (S,)
        E[log beta].
    log_normaliser : float
        Log of the integral over the first S - 1 weights.
    ess : float
        Effective number of quadrature points: (sum w)^2 / sum w^2. A few points only mean that the
        moments cannot be trusted.
    """

    mean: Array
    second_moment: Array
    mean_log: Array
    log_normaliser: float
    ess: float
    _target: Target
    _points: _Points
    _origin: Self | None

    @property
    def sd(self) -> Array:
        """Standard deviations of the weights."""
        return np.sqrt(np.maximum(np.diag(self.second_moment) - self.mean**2, 0))

    @property
    def precise(self) -> bool:
        """Whether the points sufficed where they were placed; always true for S <= 3."""
        return len(self.mean) in GRID_NODES or self._points.suffice

    @property
    def covered(self) -> bool:
        """Whether points that were placed for another factor still suit this one."""
        if self._origin is None:
            return True
        moved = np.abs(self.mean - self._origin.mean) / self._origin.sd
        ratio = self.sd / self._origin.sd
        return bool(
            moved.max() < 0.3
            and ratio.min() > 0.8
            and ratio.max() < 1.25
            and self.ess > 0.9 * self._origin.ess
        )

    @property
    def entropy(self) -> float:
        """-E[log Q(beta)]."""
        target = self._target
        expected = target.linear @ self.mean - 0.5 * np.sum(target.quadratic * self.second_moment)
        expected += (target.concentration - 1) @ self.mean_log
        return float(self.log_normaliser - expected)

    def log_density(self, beta: Array) -> Array:
        """Log Q at weights (n, S), with respect to the first S - 1 weights."""
        target = self._target
        value = beta @ target.linear - 0.5 * np.einsum("ns,st,nt->n", beta, target.quadratic, beta)
        return value + np.log(beta) @ (target.concentration - 1) - self.log_normaliser

    def sample(self, draws: int, rng: np.random.Generator) -> Array:
        """Independent draws (draws, S), by rejection from the tabulated proposal.

        The envelope is the largest importance weight met. If rejection leaves too few after
        `ROUNDS` batches, the proposals are resampled by their weights, with repetitions.
        """
        axes = axes_around(self._target, self._points.mode)
        proposal = _Proposal.along(self._target, axes)
        pool = np.empty((len(self.mean), 0))
        log_weight, log_u = np.empty(0), np.empty(0)
        for _ in range(ROUNDS):
            batch = max(4 * draws, 1 << SOBOL_LOG2)
            e, log_q = proposal.transform(rng.random((len(self.mean) - 1, batch)))
            log_beta = axes.log_weights(e)
            beta = np.exp(log_beta)
            pool = np.concatenate([pool, beta], axis=1)
            log_weight = np.append(log_weight, self._target.at(beta, log_beta) - log_q)
            log_u = np.append(log_u, np.log(rng.random(batch)))
            accepted = np.flatnonzero(log_u < log_weight - log_weight.max())
            if len(accepted) >= draws:
                return pool[:, accepted[:draws]].T
        weight = np.exp(log_weight - log_weight.max())
        return pool[:, rng.choice(len(weight), size=draws, p=weight / weight.sum())].T


def simplex_factor(
    concentration: Array, linear: Array, quadratic: Array, near: SimplexFactor | None = None
) -> SimplexFactor:
    """Integrate Q(beta), proportional to exp(b'beta - beta'A beta / 2) prod beta_s^(a_s - 1).

    Parameters
    ----------
    concentration : array of shape (S,)
        a > 0, S >= 2.
    linear : array of shape (S,)
        b.
    quadratic : array of shape (S, S)
        A, symmetric positive semidefinite.
    near : SimplexFactor, optional
        A similar factor. Its points are used again while this factor is close to the one they were
        placed for: as long as they last, a sequence of factors maximises a bound on one and the
        same measure, which cannot fall. New points start from its mode; the bound may then
        jump by the quadrature's error.

    Returns
    -------
    SimplexFactor
        Right to about 1e-8 for S = 2 and 3 (385 and 129^2 grid points); for more weights as the
        module says. Cost O(S^2) a point.
    """
    target = Target(concentration, linear, quadratic)
    if near is not None:
        factor = _integrate(target, near._points, near._origin or near)
        if factor.covered:
            return factor
    points = _Points.around(target, None if near is None else near._points.mode)
    return _integrate(target, points, None)


def _integrate(target: Target, points: _Points, origin: SimplexFactor | None) -> SimplexFactor:
    n_weights = len(target.linear)
    beta = points.features[:n_weights]
    log_mass = np.concatenate([target.linear, target.concentration]) @ points.features
    log_mass -= 0.5 * np.einsum("sn,sn->n", beta, target.quadratic @ beta)
    log_mass += points.log_measure
    peak = log_mass.max()
    mass = np.exp(log_mass - peak)
    total = mass.sum()
    mass /= total
    means = points.features @ mass
    return SimplexFactor(
        mean=means[:n_weights],
        second_moment=(beta * mass) @ beta.T,
        mean_log=means[n_weights:],
        log_normaliser=float(peak + np.log(total)),
        ess=float(1 / (mass @ mass)),
        _target=target,
        _points=points,
        _origin=origin,
    )


def warn_of_imprecision(factor: SimplexFactor | None) -> None:
    """Warn when the points of the final factor do not suffice; None has none."""
    if factor is not None and not factor.precise:
        warnings.warn(
            "VB's moments of the kernel weights are imprecise: their distribution is too uneven "
            f"for its quadrature ({factor.ess:,.0f} effective points). Compare with a sampler, or "
            "leave out kernels.",
            stacklevel=3,
        )
