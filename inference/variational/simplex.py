r"""The variational factor of kernel weights on the simplex, by deterministic quadrature.

Both hierarchical models with a composite kernel (Damoulas & Girolami 2009, appendix B.4; Girolami &
Rogers 2005) lead to

    Q(beta) = exp(b'beta - beta'A beta / 2) prod_s beta_s^(a_s - 1) / normaliser

with A positive semidefinite. The papers estimate its moments by importance sampling from the prior;
fixed points make the bound a smooth function of the moments' inputs.

In the coordinates v of R^(S-1), with beta_s = x_s prod_{r<s} (1 - x_r) and x = _logistic(v),
d beta = prod_s beta_s dv: a Dirichlet density factorises, and the quadratic makes v correlated. The
map e -> v undoes the correlation,

    v_s = m_s + e_s + sum_{r<s} B_sr (x_r - x^_r) / (x^_r (1 - x^_r)),

with m the mode, x^ = _logistic(m) and B the regression coefficients of the normal with the Hessian
of log Q at m. The map is linear in the fractions x, like the gradient of the quadratic, hence
bounded in the tails. Along each axis of e, nodes on a sinh scale cover both the peak and the
exponential tails beta_s^a_s.

Two and three weights have a grid of these nodes, if it agrees with every second of its nodes.
Otherwise, and for more weights, Sobol' points are mapped through distributions tabulated along the
axes (somewhat heavier-tailed than Q), with importance weights. The number of points is doubled from
4,096 up to 16,384 until the means of the two halves, themselves nets, agree, or
`SimplexFactor.precise` is False. Errors, as the change of the means in standard deviations when the
weights are reversed, over 24 factors with curvatures up to 1e6 (median, largest): S = 4 0.001,
0.02; S = 6 0.002, 0.03; S = 10 0.004, 0.7; S = 15 0.006, 0.2. The largest are of singular
quadratics with a mode on the boundary.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular
from scipy.special import softmax
from scipy.stats import qmc

type Array = npt.NDArray[np.float64]

# Expected weights vanish where concentrations are tiny; their logarithms are coordinates.
TINY = np.finfo(float).tiny
# Squares of smaller concentrations, and of their inverses, leave double precision.
LEAST_CONCENTRATION = 1e-100
# Q is neglected where log Q is this far below its maximum.
NEGLECTED_LOG_DENSITY = 42.0
NEWTON_STEPS = 200
# Nodes per axis of a grid by number of weights, and the largest difference of its halves.
GRID_NODES = {2: 385, 3: 97}
GRID_TOLERANCE = 6e-4
# Least and largest number of Sobol' points (log2). They suffice if the means of their halves differ
# by at most TOLERANCE_IN_SDS standard deviations and their effective number is above LEAST_ESS.
SOBOL_LOG2 = 12
MOST_LOG2 = 14
TOLERANCE_IN_SDS = 0.04
LEAST_ESS = 1000
# The tabulated proposal is Q's axis density to this power; its table, and the largest array for it.
TEMPER = 0.85
TABLE_NODES = 257
BLOCK_NUMBERS = 1 << 20
# Largest number of batches of proposals for draws.
ROUNDS = 24
# Points of another factor serve while the means of the weights, in standard deviations, and the
# ratios of standard deviations are within these, and their number, which each weight reduces.
NEAR = 0.3
ALIKE = 1.25
LEFT = 0.9
DOZEN = 12


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
class Target:
    """Log Q in the coordinates v, up to its normaliser."""

    concentration: Array
    linear: Array
    quadratic: Array

    def at(self, features: Array) -> Array:
        """Log density (n,) with respect to v at features (2 S, n); includes prod_s beta_s."""
        beta = features[: len(self.linear)]
        log_density = np.concatenate([self.linear, self.concentration]) @ features
        log_density -= 0.5 * np.einsum("sn,sn->n", beta, self.quadratic @ beta)
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


def _mode(target: Target, v: Array) -> tuple[Array, Array]:
    """Damped Newton ascent from `v`; mode and positive definite precision there."""
    value, gradient, hessian = target.derivatives(v)
    for _ in range(NEWTON_STEPS):
        size, axes = np.linalg.eigh(-hessian)
        # Where log Q is not concave, the absolute curvature still gives a sensible scale.
        size = np.maximum(np.abs(size), 1e-6)
        step = axes @ ((axes.T @ gradient) / size)
        # Increases below the rounding error of the value cannot be seen in a line search.
        scale = np.abs(target.linear).max() + np.abs(target.quadratic).max() + abs(value)
        rounding = 64 * np.finfo(float).eps * scale
        if gradient @ step < max(1e-12, rounding):
            break
        step *= min(1.0, 4.0 / np.abs(step).max())
        rate = 1.0
        while True:
            new = target.derivatives(v + rate * step)
            if new[0] >= value + 1e-4 * rate * gradient @ step - rounding or rate < 1e-10:
                break
            rate *= 0.5
        v = v + rate * step
        value, gradient, hessian = new
    size, axes = np.linalg.eigh(-hessian)
    return v, (axes * np.maximum(np.abs(size), 1e-6)) @ axes.T


@dataclass(frozen=True)
class Axes:
    """The map e -> v, and the nodes along the axes of e.

    `start` is the mode in the weights' own order, `mode` that in which sticks are broken off.
    """

    start: Array
    order: npt.NDArray[np.intp]
    mode: Array
    regression: Array
    scale: Array
    left: Array
    right: Array

    @classmethod
    def around(cls, target: Target, start: Array | None) -> Self:
        """Find axes at the mode by a search from the logits `start`."""
        if start is None:
            start = _logits(np.log(target.concentration))
        start, _ = _mode(target, start)
        log_beta = _log_weights(start)
        # The last weight is the remainder. If it is large, it varies little, and the conditional
        # distributions of the others hardly change. Similar weights keep their order, so that the
        # order does not flip from one factor of a sequence to the next.
        order = np.arange(len(log_beta))
        largest = int(log_beta.argmax())
        if log_beta[-1] < log_beta[largest] - np.log(2):
            order[[largest, -1]] = order[[-1, largest]]
        a = target.concentration[order]
        ordered = Target(a, target.linear[order], target.quadratic[np.ix_(order, order)])
        mode, precision = _mode(ordered, _logits(log_beta[order]))
        cholesky = np.linalg.cholesky(np.linalg.inv(precision))
        scale = np.diag(cholesky).copy()
        unit = cholesky / scale
        inverse = solve_triangular(unit, np.eye(len(mode)), lower=True, unit_diagonal=True)
        rest = np.cumsum(a[::-1])[::-1]
        left = 9 + NEGLECTED_LOG_DENSITY / (a[:-1] * scale)
        right = 9 + NEGLECTED_LOG_DENSITY / (rest[1:] * scale)
        regression = np.eye(len(mode)) - inverse
        return cls(start, order, mode, regression, scale, -np.arcsinh(left), np.arcsinh(right))

    def features(self, e: Array, first: int = 0) -> Array:
        """Weights and their logs (2 S, n) at coordinates e (S - 1, n), zero before the `first`."""
        fraction = _logistic(self.mode)
        unit = np.maximum(fraction * (1 - fraction), 1e-300)
        v = e + self.mode[:, None]
        moved = np.empty_like(e[:-1])
        for s in range(first, len(v)):
            v[s] += self.regression[s, first:s] @ moved[first:s]
            if s < len(moved):
                moved[s] = (_logistic(v[s]) - fraction[s]) / unit[s]
        out = np.empty((2 * len(self.order), e.shape[1]))
        out[len(self.order) + self.order] = _log_weights(v)
        np.exp(out[len(self.order) :], out=out[: len(self.order)])
        return out

    def nodes(self, number: int) -> tuple[Array, Array]:
        """Nodes e and log trapezoid weights, both (S - 1, number)."""
        xi = np.linspace(0, 1, number)
        xi = self.left[:, None] + (self.right - self.left)[:, None] * xi
        spacing = (self.right - self.left) / (number - 1) * self.scale
        return self.scale[:, None] * np.sinh(xi), np.log(spacing[:, None] * np.cosh(xi))


@dataclass(frozen=True)
class Proposal:
    """Independent axis distributions with piecewise constant densities between the nodes."""

    nodes: Array
    cumulative: Array

    @classmethod
    def along(cls, target: Target, axes: Axes) -> Self:
        """Tabulate the densities along the axes, in blocks of bounded memory."""
        nodes, _ = axes.nodes(TABLE_NODES)
        dimension = len(nodes)
        log_density = np.empty_like(nodes)
        n_blocks = -(-(dimension**2) * TABLE_NODES // BLOCK_NUMBERS)
        for block in np.array_split(np.arange(dimension), n_blocks):
            e = np.zeros((dimension, len(block), TABLE_NODES))
            e[block, np.arange(len(block))] = nodes[block]
            log_q = target.at(axes.features(e.reshape(dimension, -1), block[0]))
            log_density[block] = TEMPER * log_q.reshape(len(block), -1)
        density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
        mass = 0.5 * (density[:, 1:] + density[:, :-1]) * np.diff(nodes, axis=1)
        # With empty cells the inverse distribution function would be ambiguous.
        mass += 1e-14 * mass.sum(axis=1, keepdims=True)
        cumulative = np.zeros_like(nodes)
        np.cumsum(mass / mass.sum(axis=1, keepdims=True), axis=1, out=cumulative[:, 1:])
        return cls(nodes, cumulative)

    def transform(self, u: Array, order: npt.NDArray[np.intp]) -> tuple[Array, Array]:
        """Axis coordinates (S - 1, n) for uniform points, and their log density (n,).

        `order` sorts the points along each axis: few nodes are then sought among many points.
        """
        e = np.empty_like(u)
        log_density = np.zeros(u.shape[1])
        width = np.diff(self.nodes, axis=1)
        mass = np.diff(self.cumulative, axis=1)
        slope = width / mass
        height = np.log(mass / width)
        cells = np.arange(width.shape[1])
        for s, (nodes, cumulative) in enumerate(zip(self.nodes, self.cumulative, strict=True)):
            first = np.searchsorted(u[s], cumulative[1:-1], sorter=order[s])
            cell = np.empty_like(order[s])
            cell[order[s]] = np.repeat(cells, np.diff(first, prepend=0, append=u.shape[1]))
            e[s] = nodes[cell] + slope[s, cell] * (u[s] - cumulative[cell])
            log_density += height[s, cell]
        return e, log_density


@cache
def _sobol_points(dimension: int, log2: int, known: int) -> tuple[Array, npt.NDArray[np.intp]]:
    """Make the fixed points (dimension, n) after the `known` first of 2^log2, and their order."""
    points = qmc.Sobol(dimension, scramble=True, rng=20090405).random_base2(log2)[known:]
    return np.ascontiguousarray(points.T), points.T.argsort(axis=1)


@dataclass(frozen=True)
class Points:
    """Quadrature points: weights and their logs (2 S, n), log measure (n,), logits of the mode."""

    features: Array
    log_measure: Array
    mode: Array
    suffice: bool

    @classmethod
    def around(cls, target: Target, start: Array | None) -> Self:
        """Place points around the mode, found by a search from the logits `start`."""
        axes = Axes.around(target, start)
        for is_grid, features, log_q, log_measure, half in _candidates(target, axes):
            log_mass = log_q + log_measure
            peak = log_mass.max()
            if not np.spacing(abs(peak)) < 1.0:
                raise FloatingPointError(
                    "The rounding error of the kernel weights' log density must be below 1. Got "
                    f"curvatures up to {np.abs(target.quadratic).max():.3g}: rescale the kernels "
                    "or the targets."
                )
            kept = np.flatnonzero(log_mass > peak - 1.5 * NEGLECTED_LOG_DENSITY)
            features = np.take(features, kept, axis=1)
            mass = np.exp(log_mass[kept] - peak)
            if is_grid:
                suffice = max(_differences(features, mass, half[kept])) <= GRID_TOLERANCE
            else:
                ess = mass.sum() ** 2 / (mass @ mass)
                _, means = _differences(features[: len(target.linear)], mass, half[kept])
                suffice = bool(means <= TOLERANCE_IN_SDS and ess > LEAST_ESS)
            if suffice:
                break
        return cls(features, log_measure[kept], axes.start, suffice)


def _candidates(
    target: Target, axes: Axes
) -> Iterator[tuple[bool, Array, Array, Array, npt.NDArray[np.bool_]]]:
    """Yield a grid for two and three weights, then nets: whether it is a grid, and its points.

    Points are features, log Q, log measure, and half of the points: every second node of a grid,
    and the first half of a net, which is the net before.
    """
    dimension = len(axes.mode)
    if dimension + 1 in GRID_NODES:
        number = GRID_NODES[dimension + 1]
        nodes, log_width = axes.nodes(number)
        e = np.stack(np.meshgrid(*nodes, indexing="ij")).reshape(dimension, -1)
        log_measure = np.sum(np.meshgrid(*log_width, indexing="ij"), axis=0).ravel()
        half = np.indices((number,) * dimension).sum(axis=0).ravel() % 2 == 0
        features = axes.features(e)
        yield True, features, target.at(features), log_measure, half
    proposal = Proposal.along(target, axes)
    features = np.empty((2 * dimension + 2, 0))
    log_q = np.empty(0)
    log_proposal = np.empty(0)
    for log2 in range(SOBOL_LOG2, MOST_LOG2 + 1):
        e, more = proposal.transform(*_sobol_points(dimension, log2, len(log_q)))
        new = axes.features(e)
        features = np.hstack([features, new])
        log_q = np.append(log_q, target.at(new))
        log_proposal = np.append(log_proposal, more)
        log_measure = -log_proposal - log2 * np.log(2)
        yield False, features, log_q, log_measure, np.arange(1 << log2) < 1 << (log2 - 1)


def _differences(features: Array, mass: Array, half: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Differences of half of the points from the rest: of the log total, and largest of the means.

    Means are in standard deviations of all points.
    """
    parts = np.array([mass * half, mass * ~half])
    totals = parts.sum(axis=1)
    sums = features @ parts.T
    square = features**2 @ mass / totals.sum()
    variance = square - (sums.sum(axis=1) / totals.sum()) ** 2
    # Guards against weights whose variance is lost in rounding.
    sd = np.sqrt(np.maximum(variance, 1e-14 * square + TINY))
    total = np.inf if min(totals) == 0 else abs(float(np.log(totals[0] / totals[1])))
    return total, float(np.max(np.ptp(sums / np.maximum(totals, TINY), axis=1) / sd))


@dataclass(frozen=True)
class SimplexFactor:
    """Moments of Q(beta); made by `simplex_factor`.

    `log_normaliser` is the log of the integral over the first S - 1 weights, `ess` the effective
    number of points, which are `precise` if they suffice for the factor for which they were placed.
    That is `_origin`, if it is another one.
    """

    mean: Array
    second_moment: Array
    mean_log: Array
    log_normaliser: float
    ess: float
    precise: bool
    _target: Target
    _points: Points
    _origin: Self | None

    @property
    def sd(self) -> Array:
        """Standard deviations of the weights."""
        return np.sqrt(np.maximum(np.diag(self.second_moment) - self.mean**2, TINY))

    @property
    def covered(self) -> bool:
        """Whether points placed for another factor still suit this one."""
        if self._origin is None:
            return True
        own = self._target.concentration
        origin = self._origin._target.concentration
        heavier_tails = (own * ALIKE < origin).any()
        moved = np.abs(self.mean - self._origin.mean) / self._origin.sd
        ratio = self.sd / self._origin.sd
        return bool(
            not heavier_tails
            and moved.max() < NEAR
            and ratio.min() > 1 / ALIKE
            and ratio.max() < ALIKE
            and self.ess > LEFT ** max(1.0, len(own) / DOZEN) * self._origin.ess
        )

    @property
    def entropy(self) -> float:
        """-E[log Q(log beta)]; that of beta is larger by the sum of `mean_log`."""
        target = self._target
        expected = target.linear @ self.mean - 0.5 * np.sum(target.quadratic * self.second_moment)
        expected += target.concentration @ self.mean_log
        return float(self.log_normaliser - expected)

    def log_density(self, beta: Array) -> Array:
        """Log Q at weights (n, S), with respect to the first S - 1 weights."""
        log_beta = np.log(beta.T)
        log_density = self._target.at(np.concatenate([beta.T, log_beta])) - log_beta.sum(axis=0)
        return log_density - self.log_normaliser

    def sample(self, draws: int, rng: np.random.Generator) -> Array:
        """Independent draws (draws, S), by rejection from the tabulated proposal.

        The envelope is the largest importance weight found. If too few draws are accepted in
        `ROUNDS` batches, the proposals are resampled by their weights, with repetitions.
        """
        axes = Axes.around(self._target, self._points.mode)
        proposal = Proposal.along(self._target, axes)
        pool = np.empty((len(self.mean), 0))
        log_weight = np.empty(0)
        log_u = np.empty(0)
        for _ in range(ROUNDS):
            batch = max(4 * draws, 1 << SOBOL_LOG2)
            u = rng.random((len(self.mean) - 1, batch))
            e, log_q = proposal.transform(u, u.argsort(axis=1))
            features = axes.features(e)
            pool = np.concatenate([pool, features[: len(self.mean)]], axis=1)
            log_weight = np.append(log_weight, self._target.at(features) - log_q)
            log_u = np.append(log_u, np.log(rng.random(batch)))
            accepted = np.flatnonzero(log_u < log_weight - log_weight.max())
            if len(accepted) >= draws:
                return pool[:, accepted[:draws]].T
        weight = np.exp(log_weight - log_weight.max())
        return pool[:, rng.choice(len(weight), size=draws, p=weight / weight.sum())].T


def simplex_factor(
    concentration: Array, linear: Array, quadratic: Array, near: SimplexFactor | None = None
) -> SimplexFactor:
    """Integrate Q(beta) ~ exp(b'beta - beta'A beta / 2) prod beta_s^(a_s - 1) for S >= 2.

    The points of a factor `near` are used again while this factor is close to the one for which
    they were placed: a sequence of factors then maximises a bound with respect to the same measure.
    With new points the bound may jump by the quadrature's error. O(S^2) per point; 100 weights take
    1 s. FloatingPointError for A or b above 1e15 and concentrations outside 1e-100..1e100.
    """
    if (
        not LEAST_CONCENTRATION
        < concentration.min()
        <= concentration.max()
        < 1 / LEAST_CONCENTRATION
    ):
        raise FloatingPointError(
            "The concentrations of the kernel weights must be from "
            f"{LEAST_CONCENTRATION:g} to {1 / LEAST_CONCENTRATION:g}. "
            f"Got {concentration}: take a less extreme prior."
        )
    target = Target(concentration, linear, quadratic)
    if near is not None:
        factor = _integrate(target, near._points, near._origin or near)
        if factor.covered:
            return factor
    points = Points.around(target, None if near is None else near._points.mode)
    return _integrate(target, points, None)


def _integrate(target: Target, points: Points, origin: SimplexFactor | None) -> SimplexFactor:
    """Sum over the points."""
    n_weights = len(target.linear)
    beta = points.features[:n_weights]
    log_mass = target.at(points.features) + points.log_measure
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
        precise=points.suffice,
        _target=target,
        _points=points,
        _origin=origin,
    )


def moments_around(log_weights: Array, mean: Array, second: Array) -> tuple[Array, Array]:
    """Move moments E[beta], E[beta beta'] to another mean, with the covariance unchanged.

    `log_weights` are the logarithms of the new mean, up to a constant.
    """
    moved = softmax(log_weights)
    return moved, second - np.outer(mean, mean) + np.outer(moved, moved)
