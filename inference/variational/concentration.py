r"""The variational factor of a Dirichlet's concentrations, by quadrature.

With beta ~ Dirichlet(rho), rho_s ~ Gamma(mu, rate lam) and l_s = E[log beta_s], mean field gives

    Q(rho) = Gamma(sum rho) prod_s Gamma(rho_s | mu, lam) exp((rho_s - 1) l_s) / Gamma(rho_s)

over its normaliser. (Damoulas & Girolami 2009, appendix B.4, and Girolami & Rogers 2005 use
importance sampling from the prior.) With Gamma(sum rho) written as the integral of exp(x sum rho -
e^x) over x, the rho_s are independent given x. This leaves one integral over x of a product of
one-dimensional integrals over y_s = log rho_s, whose integrands are exp(h),

    h(y) = mu y - log Gamma(rho) + rho (x + l_s - lam).

Given x, h has one maximum, of curvature -(mu + rho^2 psi'(rho)); far to the left it rises with
slope at least mu + 1. The mass over x is largest near e^x = sum rho at these maxima, with precision
e^x - sum rho^2 / (mu + rho^2 psi'(rho)) > 0; to the left it falls only as a power of -x. Both
integrals use the trapezoid rule, centred at these maxima with these widths, on sinh scales, which
turn exponential and power tails into light tails.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import digamma, gammaln, zeta

from ...validation import argument_error

type Array = npt.NDArray[np.float64]

# Range of mu, lam and mu / lam in which the integrals are accurate: outside, log Gamma loses its
# digits, or concentrations vanish in double precision.
LEAST_CONCENTRATION = 1e-2
LARGEST_CONCENTRATION = 1e8
LARGEST_MEAN = 1e7

# Densities are neglected this far below their maximum (in logs); for a normal, this many sds out.
NEGLECTED_LOG_DENSITY = 24.0
RANGE_IN_SDS = float(np.sqrt(2 * NEGLECTED_LOG_DENSITY))
# Widths over which the sinh scales are nearly linear, and spacing of the nodes.
STRAIGHT = 2.0
NODE_SPACING = 0.125
# Draws invert linear interpolations of the densities, on finer nodes.
DRAW_NODES_X = 1025
DRAW_NODES_Y = 129
DRAWS_AT_ONCE = 500
# Nodes are used again while the mass has moved by less than this many standard deviations.
DRIFT = 0.5
# The nodes' maxima are interpolated in a table over log rho, to a relative error of 1e-5.
TABLE = np.arange(-100.0, 50.0, 0.01)


def _sinh_nodes(
    center: Array, width: Array, left: Array, right: Array, nodes: int | None
) -> tuple[Array, Array]:
    """Nodes and log trapezoid weights (..., nodes), from center - left to center + right."""
    scale = STRAIGHT * width
    start = -np.arcsinh(left / scale)
    stop = np.arcsinh(right / scale)
    nodes = nodes or int(np.ceil(np.max(stop - start) / NODE_SPACING)) + 1
    xi = start[..., None] + (stop - start)[..., None] * np.linspace(0, 1, nodes)
    spacing = (stop - start) / (nodes - 1) * scale
    points = center[..., None] + scale[..., None] * np.sinh(xi)
    return points, np.log(spacing[..., None] * np.cosh(xi))


@dataclass(frozen=True)
class ConcentrationFactor:
    """Moments of Q(rho); made by `concentration_factor`.

    `log_normaliser` is the log of the factor's integral with exp(rho_s l_s) for exp((rho_s - 1)
    l_s): l_s may be so large that a bound with it would be rounded to integers.
    """

    mean: Array
    sd: Array
    log_normaliser: float
    _mu: float
    _lam: float
    _mean_log_beta: Array
    _grid: "_Grid"

    @property
    def mean_log(self) -> Array:
        """E[log rho] (S,); costs as much as the other moments."""
        p, log_mass = self._grid.conditionals(self._mean_log_beta - self._lam)
        mass = np.exp(log_mass - log_mass.max())
        return np.einsum("sxy,sxy,x->s", p, np.log(self._grid.rho), mass / mass.sum())

    def log_density(self, rho: Array) -> Array:
        """Log Q at concentrations (n, S)."""
        log_prior = self._mu * np.log(self._lam) - gammaln(self._mu)
        log_prior = log_prior + (self._mu - 1) * np.log(rho) - self._lam * rho
        value = np.sum(log_prior + rho * self._mean_log_beta - gammaln(rho), axis=1)
        return gammaln(rho.sum(axis=1)) + value - self.log_normaliser

    def sample(self, draws: int, rng: np.random.Generator) -> Array:
        """Independent draws (draws, S): x from its marginal, then rho given x."""
        slope = self._mean_log_beta - self._lam
        grid = _Grid.around_peak(self._mu, slope, DRAW_NODES_X)
        log_mass = grid.conditionals(slope)[1] - grid.log_width_x
        x = _draw(grid.x[None], log_mass[None], rng.random((1, draws)))[0]
        rho = np.empty((draws, len(slope)))
        for start in range(0, draws, DRAWS_AT_ONCE):
            block = slice(start, start + DRAWS_AT_ONCE)
            pull = (x[block, None] + slope).ravel()
            y, _ = _nodes_y(self._mu, pull, DRAW_NODES_Y)
            value = np.exp(y)
            log_density = self._mu * y - gammaln(value) + value * pull[:, None]
            log_rho = _draw(y, log_density, rng.random((len(pull), 1)))
            rho[block] = np.exp(log_rho).reshape(-1, len(slope))
        return rho


def check_prior(mu: float, lam: float, rule: object, names: tuple[str, str], owner: str) -> None:
    """Raise ValueError for priors for which the integrals would be inaccurate.

    The argument 'combination' of `owner`, `rule`, holds shape and rate under `names`.
    """
    if (
        min(mu, lam) >= LEAST_CONCENTRATION
        and max(mu, lam) <= LARGEST_CONCENTRATION
        and mu / lam <= LARGEST_MEAN
    ):
        return
    shape, rate = names
    raise argument_error(
        "combination",
        owner,
        f"a {type(rule).__name__} with {shape} and {rate} from {LEAST_CONCENTRATION:g} to "
        f"{LARGEST_CONCENTRATION:g} and "
        f"{shape} / {rate} at most {LARGEST_MEAN:g}, where the integrals over the concentrations "
        "keep their digits (FixedWeights for weights that are known)",
        repr(rule),
    )


def _draw(nodes: Array, log_density: Array, u: Array) -> Array:
    """Inverse distribution functions (n, k) at u of densities (n, nodes), linear between nodes."""
    density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    width = np.diff(nodes, axis=1)
    cumulative = np.cumsum(0.5 * (density[:, 1:] + density[:, :-1]) * width, axis=1)
    target = u * cumulative[:, -1:]
    rows = np.arange(len(density))[:, None]
    cell = np.sum(cumulative[:, None, :-1] < target[:, :, None], axis=2)
    low = density[rows, cell]
    high = density[rows, cell + 1]
    before = np.where(cell > 0, cumulative[rows, cell - 1], 0.0)
    # Root of low z + (high - low) z^2 / 2 = (target - before) / width, free of cancellation.
    area = (target - before) / width[rows, cell]
    z = 2 * area / (low + np.sqrt(np.maximum(low**2 + 2 * (high - low) * area, 0)))
    return nodes[rows, cell] + width[rows, cell] * np.clip(z, 0, 1)


@lru_cache(8)
def _pulls(mu: float) -> Array:
    """Find pulls x + l - lam at which the maximum of h is at each log rho of the table."""
    rho = np.exp(TABLE)
    return digamma(rho) - mu / rho


def _conditional_peaks(mu: float, pull: Array) -> Array:
    """Maximum (...) of h over rho, for pulls x + l - lam (...)."""
    return np.exp(np.interp(pull, _pulls(mu), TABLE))


def _nodes_x(mu: float, slope: Array, nodes: int | None = None) -> tuple[Array, Array]:
    """Nodes for x and their log trapezoid weights; by default at `NODE_SPACING`."""

    def excess(x: float) -> float:
        return x - np.log(_conditional_peaks(mu, x + slope).sum())

    # The largest mass is where e^x = sum rho at the maxima of h.
    rho = _conditional_peaks(mu, brentq(excess, TABLE[0], TABLE[-1]) + slope)
    peak = float(np.log(rho.sum()))
    width = float(np.sum(rho - rho**2 / (mu + rho**2 * zeta(2, rho))) ** -0.5)
    # If all rho are near zero, the mass is flat from -1 / sum rho to zero, where exp(-e^x) drops.
    center = max(peak, -1.0)
    scale = min(width, 1.0)
    # The mass falls as prod_s (-x - slope_s)^-(mu + 1).
    power = len(slope) * (mu + 1) - 1
    tail = (np.abs(slope).max() + abs(center)) * np.expm1(NEGLECTED_LOG_DENSITY / power)
    left = RANGE_IN_SDS * width + tail
    right = RANGE_IN_SDS * width / (1 + width)
    return _sinh_nodes(np.array(center), np.array(scale), np.array(left), np.array(right), nodes)


def _nodes_y(mu: float, pull: Array, nodes: int | None = None) -> tuple[Array, Array]:
    """Nodes (..., nodes) for y given pulls (...), and their log trapezoid weights."""
    rho = _conditional_peaks(mu, pull)
    width = 1 / np.sqrt(mu + rho**2 * zeta(2, rho))
    # To the right h falls like a log gamma density, from a parabola to an exponential.
    left = RANGE_IN_SDS * width + NEGLECTED_LOG_DENSITY / (mu + 1)
    right = RANGE_IN_SDS * width / (1 + width)
    return _sinh_nodes(np.log(rho), width, left, right, nodes)


@dataclass(frozen=True)
class _Grid:
    """Nodes for x, and nodes for every rho_s at each x, placed for one l - lam.

    `log_kernel` (S, X, Y) is h without rho (x + l - lam), plus the nodes' log weights.
    """

    x: Array
    log_width_x: Array
    rho: Array
    log_kernel: Array
    placed_for: Array

    @classmethod
    def around_peak(cls, mu: float, slope: Array, nodes_x: int | None = None) -> Self:
        x, log_width_x = _nodes_x(mu, slope, nodes_x)
        y, log_width = _nodes_y(mu, x + slope[:, None])
        rho = np.exp(y)
        return cls(x, log_width_x, rho, mu * y - gammaln(rho) + log_width, slope)

    def conditionals(self, slope: Array) -> tuple[Array, Array]:
        """Masses of the rho_s given x (S, X, Y), which add up to 1; the log mass (X,) of x."""
        p = self.rho * (self.x + slope[:, None])[:, :, None]
        p += self.log_kernel
        peak = p.max(axis=2, keepdims=True)
        p -= peak
        np.exp(p, out=p)
        total = p.sum(axis=2, keepdims=True)
        p /= total
        log_mass = self.log_width_x - np.exp(self.x) + (peak + np.log(total))[:, :, 0].sum(axis=0)
        return p, log_mass


def concentration_factor(
    mu: float, lam: float, mean_log_beta: Array, near: ConcentrationFactor | None = None
) -> ConcentrationFactor:
    """Integrate Q(rho) for given E[log beta] (S,), negative; S >= 2.

    The nodes of a factor `near` are used again if they still fit. Log normaliser (absolute) and
    moments (relative) are accurate to 1e-7 for mu and lam from 1e-3 to 1e8 and mu / lam <= 1e7. O(S
    X Y) with X = 30 to 60 nodes (hundreds if mu is small or lam large) and Y = 30 to 70.
    """
    slope = mean_log_beta - lam
    if (
        near is not None
        and near._mu == mu
        and np.all(np.abs(slope - near._grid.placed_for) * near.sd < DRIFT)
    ):
        grid = near._grid
    else:
        grid = _Grid.around_peak(mu, slope)
    p, log_mass = grid.conditionals(slope)
    peak = log_mass.max()
    mass = np.exp(log_mass - peak)
    total = mass.sum()
    p *= grid.rho
    mean = p.sum(axis=2) @ mass / total
    square = np.einsum("sxy,sxy->sx", p, grid.rho) @ mass / total
    constant = len(mean_log_beta) * (mu * np.log(lam) - gammaln(mu))
    return ConcentrationFactor(
        mean=mean,
        sd=np.sqrt(np.maximum(square - mean**2, 0)),
        log_normaliser=float(peak + np.log(total) + constant),
        _mu=mu,
        _lam=lam,
        _mean_log_beta=mean_log_beta,
        _grid=grid,
    )
