r"""Coordinates in which the weights are nearly independent under their variational factor.

beta_s = x_s prod_{r<s} (1 - x_r) with x = _logistic(v), v in R^(S-1), so that d beta =
prod_s beta_s dv. A Dirichlet density factorises over v, and the quadratic makes v correlated. The
map e -> v undoes the correlation,

    v_s = m_s + e_s + sum_{r<s} B_sr (x_r - x^_r) / (x^_r (1 - x^_r)),

with m the mode, x^ = _logistic(m) and B the regression coefficients of the normal with the Hessian
of log Q at m. The map is linear in the fractions x, like the gradient of the quadratic, hence
bounded in the tails. Along each axis of e, a grid on a sinh scale covers both the peak and the
exponential tails beta_s^a_s.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular

__all__ = ["DEPTH", "Axes", "Target", "axes_around", "grid_of_three"]

type Array = npt.NDArray[np.float64]

# Q is neglected where log Q is this far below its maximum.
DEPTH = 42.0
NEWTON_STEPS = 200
# Logits of the fractions are searched within this reach, to an error in standard deviations. A grid
# serves at a less exact mode, too.
LOGIT_REACH = 100.0
MODE_ERROR = 1e-3
MODE_STEPS = 50


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

    def at(self, beta: Array, log_beta: Array) -> Array:
        """Log density (...) with respect to v at weights (S, ...); includes prod_s beta_s."""
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


def grid_of_three(target: Target, axes: Axes, nodes: int) -> tuple[Array, Array]:
    """Log weights (3, nodes, nodes) of a grid for three weights, and its log measure.

    The first fraction is on its axis. For each of its nodes, the conditional log density of the
    second,

        a log x + a' log(1 - x) + g x - q x^2 / 2,    q >= 0,

    has a single mode in the logit of x. Newton's method within a shrinking bracket finds the mode
    and the scale there, so that the grid follows a ridge of any curvature.
    """
    along, log_width = axes.grid(nodes)
    v = axes.mode[0] + along[0]
    log_first = _log_weights(v[None])
    first, rest = np.exp(log_first)
    a, linear = target.concentration[axes.order], target.linear[axes.order]
    quadratic = target.quadratic[np.ix_(axes.order, axes.order)]
    across = quadratic[1] - quadratic[2]
    force = rest * (linear[1] - linear[2] - across[0] * first - across[2] * rest)
    curvature = rest**2 * (across[1] - across[2])
    low, high = np.full((2, nodes), [[-LOGIT_REACH], [LOGIT_REACH]])
    middle = np.zeros(nodes)
    for _ in range(MODE_STEPS):
        x, y = _logistic(middle), _logistic(-middle)
        slope = a[1] * y - a[2] * x + x * y * (force - curvature * x)
        bend = x * y * (a[1] + a[2] + curvature * x * y - (y - x) * (force - curvature * x))
        scale = 1 / np.sqrt(np.maximum(bend, 1e-12))
        if np.all(np.abs(slope) * scale <= MODE_ERROR):
            break
        low, high = np.where(slope > 0, middle, low), np.where(slope > 0, high, middle)
        newton = middle + slope * scale**2
        inside = (low < newton) & (newton < high) & (bend > 0)
        middle = np.where(inside, newton, 0.5 * (low + high))
    left = np.arcsinh(9 + DEPTH / (a[1] * scale))
    right = np.arcsinh(9 + DEPTH / (a[2] * scale))
    xi = -left + (left + right) * np.linspace(0, 1, nodes)[:, None]
    second = _log_weights((middle + scale * np.sinh(xi)).T[None])
    log_beta = np.empty((3, nodes, nodes))
    log_beta[axes.order[0]] = log_first[0][:, None]
    log_beta[axes.order[1:]] = log_first[1][:, None] + second
    log_step = np.log((left + right) / (nodes - 1) * scale)
    return log_beta, (log_width[0] + log_step + np.log(np.cosh(xi))).T


def axes_around(
    target: Target, start: Array | None, order: npt.NDArray[np.intp] | None = None
) -> Axes:
    """Find axes at the mode by a search from the logits `start`.

    Sticks are broken off in the given order of the weights; by default in their own order, but with
    the largest last.
    """
    if start is None:
        start = _logits(np.log(target.concentration))
    # The last weight is the remainder. If it is large, it varies little, and the conditional
    # distributions of the others hardly change. Similar weights keep their order, so that the order
    # does not flip from one factor of a sequence to the next.
    start, _ = _mode(target, start)
    log_beta = _log_weights(start)
    if order is None:
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
    left = 9 + DEPTH / (a[:-1] * scale)
    right = 9 + DEPTH / (rest[1:] * scale)
    regression = np.eye(len(mode)) - inverse
    return Axes(start, order, mode, regression, scale, -np.arcsinh(left), np.arcsinh(right))
