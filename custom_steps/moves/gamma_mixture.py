r"""Weights on the simplex as normalised Gammas, with their concentrations integrated out.

With rho_s ~ Gamma(mu, rate lam) and g_s ~ Gamma(rho_s, 1), beta = g / sum g is Dirichlet(rho) and
independent of sum g (damoulas2009, section 3.1).  The logarithms l = log g are independent with

.. math:: \log p(l) = \log \int \rho^\mu e^{(l - lam) \rho} / \Gamma(\rho + 1) \, d\rho - e^l
          + \mathrm{const},

a density whose left tail falls like |l|^-(mu + 1), which Metropolis moves of beta given rho, and of
rho given beta, cross slowly. In the coordinate z with l = centre + scale sinh(z), the tails are
like exp(-mu |z|).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.special import digamma, gammaln

_LOWEST = -1e30
_KNOTS_A_UNIT = 100
_WIDEST = 10.0
_NODES = 200
# The integrand is neglected below exp(-40) of its peak, and values of rho at depth exp(-60).
_DEPTH = 40.0
_RARE = 60.0
_HALVINGS = 50
# Number of proposals made at once; at least one in four is accepted (one in eight near zero).
_BATCH = 16
# Covers the table's error in the normaliser, which is far smaller.
_SAFETY = 0.999


@dataclass(frozen=True)
class GammaMixture:
    """Distribution of l = log g with rho integrated out, in z with l = centre + scale sinh z.

    The splines, on equally spaced knots, are the log density of z up to a constant, and the
    logarithm of the concentration that is most likely given z.
    """

    mu: float
    lam: float
    centre: float
    scale: float
    log_density: CubicSpline
    log_mode: CubicSpline

    @classmethod
    def of(cls, mu: float, lam: float) -> Self:
        """Tabulate the density: about ten thousand integrals, 0.15 s."""
        centre = np.log(mu / lam)
        # The drop of exp(-e^l) on the right has a width of order one for any tail on the left.
        scale = min(np.sqrt((1 + lam) / mu), _WIDEST)
        # Bounds g by a quantile of the Gamma with the largest rho.
        largest = (mu + _RARE + 12 * np.sqrt(mu)) / lam
        highest = np.log(largest + _RARE + 12 * np.sqrt(largest))
        first, last = np.arcsinh((np.array([_LOWEST, highest]) - centre) / scale)
        z = np.linspace(first, last, int(_KNOTS_A_UNIT * (last - first)))
        log_g = centre + scale * np.sinh(z)
        values = _log_integral(log_g - lam, mu) - np.exp(log_g) + np.log(np.cosh(z))
        modes = CubicSpline(z, _mode(log_g - lam, mu))
        return cls(mu, lam, float(centre), float(scale), CubicSpline(z, values), modes)

    def log_gamma(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Give l and dl/dz at z."""
        return self.centre + self.scale * np.sinh(z), self.scale * np.cosh(z)

    def coordinate(self, log_g: np.ndarray) -> np.ndarray:
        """Give z at l."""
        return np.arcsinh((log_g - self.centre) / self.scale)

    def value_and_slope(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        """Log density of independent coordinates z, and its gradient; minus infinity off range."""
        # Number by number: arrays of a few entries cost several times as much, in every gradient.
        knots, cubics = self.log_density.x, self.log_density.c
        first, last, pieces = float(knots[0]), float(knots[-1]), len(knots) - 1
        a_unit = pieces / (last - first)
        total, slopes = 0.0, []
        for value in z.tolist():
            if not first <= value <= last:
                return -np.inf, np.zeros_like(z)
            piece = min(int((value - first) * a_unit), pieces - 1)
            x = value - float(knots[piece])
            d, c, b, a = cubics[:, piece].tolist()
            total += a + x * (b + x * (c + x * d))
            slopes.append(b + x * (2 * c + x * 3 * d))
        return total, np.array(slopes)

    def draw_concentrations(self, log_g: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw rho | l exactly, with density f prop. to rho^mu e^((l - lam) rho) / Gamma(rho + 1).

        A log-concave density with mode m lies below f(m) min(1, e^(1 - f(m) |rho - m|)), which has
        four times its mass for any mu, lam and l (Devroye 1986, Non-uniform random variate
        generation, VII.2). The tables give m and f(m). Values of l beyond their range, where there
        is no posterior mass, are replaced by its ends.
        """
        log_g = np.clip(log_g, *self.log_gamma(self.log_density.x[[0, -1]])[0])
        offset = log_g - self.lam

        def log_kernel(rho: np.ndarray) -> np.ndarray:
            inside = np.where(rho > 0, rho, 1.0)
            value = self.mu * np.log(inside) + offset * inside - gammaln(inside + 1)
            return np.where(rho > 0, value, -np.inf)

        z = self.coordinate(log_g)
        mode = np.exp(self.log_mode(z))
        highest = log_kernel(mode)
        log_mass = self.log_density(z) - np.log(np.cosh(z)) + np.exp(log_g)
        width = np.exp(log_mass - highest) / _SAFETY
        rho = np.full_like(log_g, np.nan)
        while np.isnan(rho).any():
            shape = (_BATCH, len(rho))
            beyond = np.where(rng.uniform(size=shape) < 0.5, 0.0, rng.standard_exponential(shape))
            away = np.where(beyond > 0, 1 + beyond, rng.uniform(size=shape))
            proposal = mode + width * np.where(rng.uniform(size=shape) < 0.5, -away, away)
            level = highest - beyond - rng.standard_exponential(shape)
            accepted = (level < log_kernel(proposal)) & np.isnan(rho)
            first, drawn = accepted.argmax(axis=0), accepted.any(axis=0)
            rho[drawn] = np.take_along_axis(proposal, first[None], axis=0)[0, drawn]
        return rho


def _mode(offset: np.ndarray, mu: float, power: float = 0.0) -> np.ndarray:
    """Log of the rho that maximises rho^(mu + power) exp(offset rho) / Gamma(rho + 1).

    Bisection finds the only root of rho (digamma(rho + 1) - offset) = mu + power.
    """

    def climbs(r: np.ndarray) -> np.ndarray:
        rho = np.exp(r)
        return rho * (digamma(rho + 1) - offset) < mu + power

    # digamma(rho + 1) > log rho: at the upper end rho (log rho - offset) exceeds mu + power.
    upper = np.maximum(offset, 0.0) + np.log(2 + mu + power)
    lower = np.log((mu + power) / (1 + np.maximum(-offset, 0) + mu + power)) - 1.0
    return _bisect(climbs, lower, upper)


def _log_integral(offset: np.ndarray, mu: float) -> np.ndarray:
    """Log integral of rho^mu exp(offset rho) / Gamma(rho + 1), by the trapezoid rule in log rho."""

    def log_integrand(r: np.ndarray) -> np.ndarray:
        rho = np.exp(r)
        return (mu + 1) * r + offset * rho - gammaln(rho + 1)

    mode = _mode(offset, mu, power=1.0)
    peak = log_integrand(mode)

    def low(r: np.ndarray) -> np.ndarray:
        return log_integrand(r) < peak - _DEPTH

    left = _bisect(low, mode - 2 * _DEPTH / (mu + 1) - 10, mode)
    right = _bisect(lambda r: ~low(r), mode, mode + 10)
    grid = left + (right - left) * np.linspace(0, 1, _NODES)[:, None]
    spacing = (right - left) / (_NODES - 1)
    return peak + np.log(np.exp(log_integrand(grid) - peak).sum(axis=0) * spacing)


def _bisect(
    is_below: Callable[[np.ndarray], np.ndarray], lower: np.ndarray, upper: np.ndarray
) -> np.ndarray:
    """Elementwise root between bounds, given a function that is true below the root."""
    for _ in range(_HALVINGS):
        middle = (lower + upper) / 2
        below = is_below(middle)
        lower, upper = np.where(below, middle, lower), np.where(below, upper, middle)
    return (lower + upper) / 2
