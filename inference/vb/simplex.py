r"""The variational factor of kernel weights on the simplex, by deterministic quadrature.

Both hierarchical models with a composite kernel (Damoulas & Girolami 2009, appendix B.4; Girolami &
Rogers 2005) lead to

    Q(beta) = exp(b'beta - beta'A beta / 2) prod_s beta_s^(a_s - 1) / normaliser

with A positive semidefinite. The papers estimate its moments by importance sampling from the prior.
Here the points are fixed, so the bound that uses the moments changes smoothly.

Coordinates. beta_s = x_s prod_{r<s} (1 - x_r) with x = logistic(v), v in R^(S-1), so that d beta =
prod_s beta_s dv. A Dirichlet density factorises over v, and the quadratic makes v correlated. The
map e -> v undoes the correlation,

    v_s = m_s + e_s + sum_{r<s} B_sr (x_r - x^_r) / (x^_r (1 - x^_r)),

with m the mode, x^ = logistic(m) and B the regression coefficients of the normal with the Hessian
of log Q at m: linear in the fractions x, because the quadratic is, hence bounded in the tails.
Along each axis of e, a grid on a sinh scale covers both the peak and the exponential tails
beta_s^a_s. For S <= 3 the integral is the product trapezoid rule on these grids. For S > 3 Sobol'
points are mapped through the distributions tabulated on the axes (heavier-tailed than Q by
`TEMPER`), with importance weights; these distributions are exact if A = b = 0.
"""

from dataclasses import dataclass
from functools import cache
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular
from scipy.stats import qmc

__all__ = ["SimplexFactor", "simplex_factor"]

type Array = npt.NDArray[np.float64]

# log Q may be neglected this far below its maximum.
DEPTH = 42.0
# The tabulated proposal is Q's axis density to this power.
TEMPER = 0.85
TABLE_NODES = 257
GRID_NODES = {2: 385, 3: 129}
SOBOL_LOG2 = 12
NEWTON_STEPS = 200
ROUNDS = 24


def _log_weights(v: Array) -> Array:
    """Log weights (S, ...) of the stick-breaking logits (S - 1, ...)."""
    log_x = np.minimum(v, 0) - np.log1p(np.exp(-np.abs(v)))
    log_rest = log_x - v
    out = np.zeros((v.shape[0] + 1, *v.shape[1:]))
    np.cumsum(log_rest, axis=0, out=out[1:])
    out[:-1] += log_x
    return out


def _logits(log_beta: Array) -> Array:
    """Stick-breaking logits (S - 1,) of log weights (S,), normalised or not."""
    rest = np.logaddexp.accumulate(log_beta[::-1])[::-1]
    return log_beta[:-1] - rest[1:]


def _logistic(v: Array) -> Array:
    return 1 / (1 + np.exp(-np.clip(v, -700, 700)))


@dataclass(frozen=True)
class _Target:
    """Log Q in the coordinates v, up to its normaliser."""

    concentration: Array
    linear: Array
    quadratic: Array

    def at(self, beta: Array, log_beta: Array) -> Array:
        """Log density (...) at weights (S, ...): with respect to v, prod_s beta_s included."""
        curved = np.tensordot(self.quadratic, beta, axes=1)
        curved *= -0.5
        curved += self.linear.reshape(-1, *[1] * (beta.ndim - 1))
        log_density = np.einsum("s...,s...->...", beta, curved)
        log_density += np.tensordot(self.concentration, log_beta, axes=1)
        return log_density

    def derivatives(self, v: Array) -> tuple[float, Array, Array]:
        """Value, gradient and Hessian at one point."""
        log_beta = _log_weights(v)
        beta = np.exp(log_beta)
        x = _logistic(v)
        pull = self.quadratic @ beta
        force = beta * (self.linear - pull)
        slope = self.concentration + force
        tail = slope[::-1].cumsum()[::-1][:-1]
        # d log beta / dv
        jacobian = np.eye(len(beta), len(x)) - np.tri(len(beta), len(x)) * x
        scaled = beta[:, None] * jacobian
        hessian = jacobian.T @ (force[:, None] * jacobian) - scaled.T @ self.quadratic @ scaled
        hessian.flat[:: len(x) + 1] -= x * (1 - x) * tail
        value = (self.linear - 0.5 * pull) @ beta + self.concentration @ log_beta
        return float(value), slope[:-1] - x * tail, hessian


def _mode(target: _Target, v: Array) -> tuple[Array, Array]:
    """Damped Newton ascent from `v`; mode and positive definite precision there."""
    value, gradient, hessian = target.derivatives(v)
    for _ in range(NEWTON_STEPS):
        size, axes = np.linalg.eigh(-hessian)
        # Where log Q is not concave, its curvature's size still is a sensible scale.
        size = np.maximum(np.abs(size), 1e-6)
        step = axes @ ((axes.T @ gradient) / size)
        gain = gradient @ step
        if gain < 1e-12:
            break
        step *= min(1.0, 4.0 / np.abs(step).max())
        rate = 1.0
        while True:
            new = target.derivatives(v + rate * step)
            if new[0] >= value + 1e-4 * rate * gradient @ step or rate < 1e-10:
                break
            rate *= 0.5
        v = v + rate * step
        value, gradient, hessian = new
    size, axes = np.linalg.eigh(-hessian)
    return v, (axes * np.maximum(np.abs(size), 1e-6)) @ axes.T


@dataclass(frozen=True)
class _Axes:
    """The map e -> v, and the grids along the axes of e."""

    start: Array
    order: npt.NDArray[np.intp]
    mode: Array
    regression: Array
    scale: Array
    left: Array
    right: Array

    def log_weights(self, e: Array) -> Array:
        """Log weights (S, ...) of the axis coordinates e (S - 1, ...)."""
        fraction = _logistic(self.mode)
        unit = np.maximum(fraction * (1 - fraction), 1e-300)
        v = np.empty_like(e)
        moved: list[Array] = []
        for s, offset in enumerate(self.mode):
            v[s] = e[s] + offset
            for coefficient, shift in zip(self.regression[s], moved, strict=False):
                v[s] += coefficient * shift
            if s < len(e) - 1:
                moved.append((_logistic(v[s]) - fraction[s]) / unit[s])
        log_beta = np.empty((len(self.order), *e.shape[1:]))
        log_beta[self.order] = _log_weights(v)
        return log_beta

    def grid(self, nodes: int) -> tuple[Array, Array]:
        """Nodes e and log trapezoid weights, both (S - 1, nodes)."""
        xi = np.linspace(0, 1, nodes)
        xi = self.left[:, None] + (self.right - self.left)[:, None] * xi
        spacing = (self.right - self.left) / (nodes - 1) * self.scale
        return self.scale[:, None] * np.sinh(xi), np.log(spacing[:, None] * np.cosh(xi))


def _axes(target: _Target, start: Array | None) -> _Axes:
    if start is None:
        start = _logits(np.log(target.concentration))
    # The last weight is what the others leave: a large one varies little, and the conditional
    # distributions of the others hardly change. Similar weights keep their order, so that it does
    # not flip from one factor of a sequence to the next.
    start, _ = _mode(target, start)
    log_beta = _log_weights(start)
    order = np.arange(len(log_beta))
    largest = int(log_beta.argmax())
    if log_beta[-1] < log_beta[largest] - np.log(2):
        order[[largest, -1]] = order[[-1, largest]]
    a = target.concentration[order]
    ordered = _Target(a, target.linear[order], target.quadratic[np.ix_(order, order)])
    mode, precision = _mode(ordered, _logits(log_beta[order]))
    cholesky = np.linalg.cholesky(np.linalg.inv(precision))
    scale = np.diag(cholesky).copy()
    unit = cholesky / scale
    inverse = solve_triangular(unit, np.eye(len(mode)), lower=True, unit_diagonal=True)
    rest = np.cumsum(a[::-1])[::-1]
    left = 9 + DEPTH / (a[:-1] * scale)
    right = 9 + DEPTH / (rest[1:] * scale)
    regression = np.eye(len(mode)) - inverse
    return _Axes(start, order, mode, regression, scale, -np.arcsinh(left), np.arcsinh(right))


@cache
def _uniform_points(dimension: int) -> Array:
    """Return the fixed points (dimension, 2^SOBOL_LOG2) of the unit cube."""
    points = qmc.Sobol(dimension, scramble=True, rng=20090405).random_base2(SOBOL_LOG2)
    return np.ascontiguousarray(points.T)


@dataclass(frozen=True)
class _Proposal:
    """Independent axis distributions with piecewise constant densities between the grid's nodes."""

    nodes: Array
    cumulative: Array

    @classmethod
    def along(cls, target: _Target, axes: _Axes) -> Self:
        nodes, _ = axes.grid(TABLE_NODES)
        dimension = len(nodes)
        e = np.zeros((dimension, dimension, TABLE_NODES))
        e[np.arange(dimension), np.arange(dimension)] = nodes
        log_beta = axes.log_weights(e)
        log_density = TEMPER * target.at(np.exp(log_beta), log_beta)
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
    """Quadrature points: weights and their logs (S, n), log measure (n,), the mode."""

    beta: Array
    log_beta: Array
    log_measure: Array
    mode: Array

    @classmethod
    def around(cls, target: _Target, start: Array | None) -> Self:
        axes = _axes(target, start)
        dimension = len(axes.mode)
        if dimension + 1 in GRID_NODES:
            nodes, log_width = axes.grid(GRID_NODES[dimension + 1])
            e = np.stack(np.meshgrid(*nodes, indexing="ij")).reshape(dimension, -1)
            log_measure = np.sum(np.meshgrid(*log_width, indexing="ij"), axis=0).ravel()
        else:
            e, log_proposal = _Proposal.along(target, axes).transform(_uniform_points(dimension))
            log_measure = -log_proposal - np.log(e.shape[1])
        log_beta = axes.log_weights(e)
        beta = np.exp(log_beta)
        log_mass = target.at(beta, log_beta) + log_measure
        kept = np.flatnonzero(log_mass > log_mass.max() - 1.5 * DEPTH)
        return cls(beta[:, kept], log_beta[:, kept], log_measure[kept], axes.start)


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
    _target: _Target
    _points: _Points
    _origin: Self | None

    @property
    def sd(self) -> Array:
        """Standard deviations of the weights."""
        return np.sqrt(np.maximum(np.diag(self.second_moment) - self.mean**2, 0))

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
        axes = _axes(self._target, self._points.mode)
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
        Right to about 1e-8 for S = 2 and 3 (385 and 129^2 grid points), and to the accuracy of
        4,096 Sobol' points for more weights. Cost O(S^2) a point.
    """
    target = _Target(concentration, linear, quadratic)
    if near is not None:
        factor = _integrate(target, near._points, near._origin or near)
        if factor.covered:
            return factor
    points = _Points.around(target, None if near is None else near._points.mode)
    return _integrate(target, points, None)


def _integrate(target: _Target, points: _Points, origin: SimplexFactor | None) -> SimplexFactor:
    log_mass = target.at(points.beta, points.log_beta) + points.log_measure
    peak = log_mass.max()
    mass = np.exp(log_mass - peak)
    total = mass.sum()
    mass /= total
    return SimplexFactor(
        mean=points.beta @ mass,
        second_moment=(points.beta * mass) @ points.beta.T,
        mean_log=points.log_beta @ mass,
        log_normaliser=float(peak + np.log(total)),
        ess=float(1 / (mass @ mass)),
        _target=target,
        _points=points,
        _origin=origin,
    )
