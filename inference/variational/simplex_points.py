"""Quadrature points of `simplex`: grids for two and three weights, Sobol' nets for more."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.stats import qmc

from .simplex_coordinates import DEPTH, Axes, Target, axes_around, grid_of_three

__all__ = ["GRID_TOLERANCE", "SOBOL_LOG2", "Points", "Proposal"]

type Array = npt.NDArray[np.float64]

# The tabulated proposal is Q's axis density to this power.
TEMPER = 0.85
TABLE_NODES = 257
# Least and largest number of nodes per axis by number of weights, and the difference between a grid
# and every second of its nodes at which the nodes suffice: the error is about its square.
GRID_NODES = {2: 385, 3: 97}
MOST_NODES = {2: 6145, 3: 769}
GRID_TOLERANCE = 3e-4
# Size of the largest array of a block.
BLOCK = 1 << 20
# Least and largest number of Sobol' points (log2). They suffice if the error of the means, in
# standard deviations, is at most TOLERANCE and their effective number is above LEAST_ESS.
SOBOL_LOG2 = 12
MOST_LOG2 = 14
TOLERANCE = 0.02
LEAST_ESS = 1000


@cache
def _uniform_points(dimension: int, log2: int) -> Array:
    """Make the fixed points (dimension, 2^log2) in the unit cube."""
    points = qmc.Sobol(dimension, scramble=True, rng=20090405).random_base2(log2)
    return np.ascontiguousarray(points.T)


@dataclass(frozen=True)
class Proposal:
    """Independent axis distributions with piecewise constant densities between the grid's nodes."""

    nodes: Array
    cumulative: Array

    @classmethod
    def along(cls, target: Target, axes: Axes) -> Self:
        """Tabulate the densities along the axes, in blocks of bounded memory."""
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
        # With empty cells the inverse distribution function would be ambiguous.
        mass += 1e-14 * mass.sum(axis=1, keepdims=True)
        cumulative = np.zeros_like(nodes)
        np.cumsum(mass / mass.sum(axis=1, keepdims=True), axis=1, out=cumulative[:, 1:])
        return cls(nodes, cumulative)

    def transform(self, u: Array) -> tuple[Array, Array]:
        """Axis coordinates (S - 1, n) for uniform points, and their log density (n,)."""
        e = np.empty_like(u)
        log_density = np.zeros(u.shape[1])
        for s, (nodes, cumulative) in enumerate(zip(self.nodes, self.cumulative, strict=True)):
            cell = np.searchsorted(cumulative, u[s], side="right").clip(1, len(nodes) - 1) - 1
            width = np.diff(nodes)
            mass = np.diff(cumulative)
            e[s] = nodes[cell] + (width / mass)[cell] * (u[s] - cumulative[cell])
            log_density += np.log(mass / width)[cell]
        return e, log_density


def _weights_at(axes: Axes, e: Array) -> Array:
    """Log weights (S, n), computed in blocks to bound the memory of intermediate arrays."""
    log_beta = np.empty((len(axes.order), e.shape[1]))
    n_blocks = -(-log_beta.size // BLOCK)
    for block in np.array_split(np.arange(e.shape[1]), n_blocks):
        log_beta[:, block] = axes.log_weights(e[:, block])
    return log_beta


@dataclass(frozen=True)
class Points:
    """Quadrature points: weights and their logs (2 S, n), log measure (n,), logits of the mode.

    `part` marks every second node of a grid, or the first half of a net.
    """

    features: Array
    log_measure: Array
    mode: Array
    suffice: bool
    part: npt.NDArray[np.bool_]

    @property
    def are_grid(self) -> bool:
        """Whether they are a grid, and not a net."""
        return len(self.mode) + 1 in GRID_NODES

    def gap(self, mass: Array) -> float:
        """Difference of a grid's sums of a mass (n,) from those over every second node.

        Doubling the nodes squares the trapezoid rule's error on analytic functions.
        """
        coarse, rest = self._sums(mass)
        fine = coarse.joined(rest)
        total = coarse.log_total + len(self.mode) * np.log(2) - fine.log_total
        return max(abs(total), float(coarse.distances(fine).max()))

    @classmethod
    def around(cls, target: Target, start: Array | None) -> Self:
        """Place points around the mode, found by a search from the logits `start`."""
        if len(target.linear) in GRID_NODES:
            return cls._on_grid(target, start)
        axes = axes_around(target, start)
        proposal = Proposal.along(target, axes)
        for log2 in range(SOBOL_LOG2, MOST_LOG2 + 1):
            e, log_proposal = proposal.transform(_uniform_points(len(axes.mode), log2))
            log_measure = -log_proposal - np.log(e.shape[1])
            half = np.arange(e.shape[1]) < e.shape[1] // 2
            log_beta = _weights_at(axes, e)
            points, mass = cls._kept(target, axes.start, log_beta, log_measure, half)
            one, other = points._sums(mass)
            gap = one.distances(other)[: len(axes.order)].max()
            ess = mass.sum() ** 2 / (mass @ mass)
            suffice = bool(gap <= 2 * TOLERANCE and ess > LEAST_ESS)
            if suffice:
                break
        return replace(points, suffice=suffice)

    @classmethod
    def _on_grid(cls, target: Target, start: Array | None) -> Self:
        """Place points on a grid; try other orders of the weights, then more nodes."""
        n_weights = len(target.linear)
        nodes = GRID_NODES[n_weights]
        axes = axes_around(target, start)
        best, gap = cls._grid(target, axes, nodes)
        if gap > GRID_TOLERANCE and n_weights > 2:
            # The order of the other two weights does not change the grid.
            for first in range(n_weights):
                order = np.roll(np.arange(n_weights), -first)
                other = axes_around(target, axes.start, order)
                points, other_gap = cls._grid(target, other, nodes)
                if other_gap < gap:
                    best, gap, axes = points, other_gap, other
        while gap > GRID_TOLERANCE and nodes < MOST_NODES[n_weights]:
            nodes = 2 * nodes - 1
            best, gap = cls._grid(target, axes, nodes)
        return replace(best, mode=axes.start, suffice=gap <= GRID_TOLERANCE)

    @classmethod
    def _grid(cls, target: Target, axes: Axes, nodes: int) -> tuple[Self, float]:
        """Points and their `gap`."""
        d = len(axes.mode)
        if d == 1:
            e, log_measure = axes.grid(nodes)
            log_beta, log_measure = axes.log_weights(e), log_measure[0]
        else:
            log_beta, log_measure = grid_of_three(target, axes, nodes)
        second = np.zeros(log_measure.shape, dtype=bool)
        second[(slice(None, None, 2),) * d] = True
        log_beta = log_beta.reshape(d + 1, -1)
        points, mass = cls._kept(target, axes.start, log_beta, log_measure.ravel(), second.ravel())
        return points, points.gap(mass)

    @classmethod
    def _kept(
        cls,
        target: Target,
        mode: Array,
        log_beta: Array,
        log_measure: Array,
        part: npt.NDArray[np.bool_],
    ) -> tuple[Self, Array]:
        """Points with mass, and their mass (n,)."""
        log_mass = target.at(np.exp(log_beta), log_beta) + log_measure
        peak = log_mass.max()
        if not np.spacing(abs(peak)) < 1.0:
            raise FloatingPointError(
                "The log density of the kernel weights must be known to less than 1. Got "
                f"curvatures up to {np.abs(target.quadratic).max():.3g}: rescale the kernels or "
                "the targets."
            )
        kept = np.flatnonzero(log_mass > peak - 1.5 * DEPTH)
        features = np.empty((2 * len(log_beta), len(kept)))
        np.take(log_beta, kept, axis=1, out=features[len(log_beta) :])
        np.exp(features[len(log_beta) :], out=features[: len(log_beta)])
        mass = np.exp(log_mass[kept] - peak)
        return cls(features, log_measure[kept], mode, False, part[kept]), mass

    def _sums(self, mass: Array) -> tuple["_Sums", "_Sums"]:
        """Sum over `part` and over the rest."""
        return _Sums.of(self.features, mass * self.part), _Sums.of(self.features, mass * ~self.part)


@dataclass(frozen=True)
class _Sums:
    """Sums over points of the mass, and of the mass times the features and their squares."""

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

    def distances(self, other: Self) -> Array:
        """Differences of the means (2 S,), in standard deviations of all points."""
        both = self.joined(other)
        variance = both.second / both.total - (both.first / both.total) ** 2
        gap = np.abs(self.first / self.total - other.first / other.total)
        # Guards against weights whose variance is lost in rounding.
        floor = 1e-14 * both.second / both.total + np.finfo(float).tiny
        return gap / np.sqrt(np.maximum(variance, floor))
