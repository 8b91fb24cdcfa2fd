"""Coordinates that are standard normal a priori, and in which posteriors are nearly normal."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.integrate import cumulative_trapezoid
from scipy.interpolate import CubicHermiteSpline, PchipInterpolator
from scipy.special import (
    gammainc,
    gammaincc,
    gammainccinv,
    gammaincinv,
    gammaln,
    log_ndtr,
    ndtr,
    ndtri,
    ndtri_exp,
)

from ...custom_steps.moves.gamma_mixture import GammaMixture
from ...models.combinations.sums import SMALLEST

__all__ = ["LOG_SQRT_2PI", "LogGamma", "WeightCoordinates"]

type Array = npt.NDArray[np.float64]

LOG_SQRT_2PI = 0.5 * float(np.log(2 * np.pi))
# Largest coordinate, whose tail still has a double, and spacing of the knots.
FARTHEST = 37.0
SPACING = 0.05
# Below this logarithm a lower tail of the Gamma distribution is a power to all digits.
POWER_TAIL = -40.0


@dataclass(frozen=True)
class LogGamma:
    """Logarithm of a Gamma variable of rate 1 as a function of a standard normal coordinate.

    Parameters
    ----------
    shape : float
    table : CubicHermiteSpline
        Logarithms of quantiles.
    """

    shape: float
    table: CubicHermiteSpline

    @classmethod
    def of(cls, shape: float) -> Self:
        """Tabulate the quantiles with their exact slopes."""
        v = np.arange(-FARTHEST, FARTHEST + SPACING / 2, SPACING)
        values = np.where(v < 0, gammaincinv(shape, ndtr(v)), gammainccinv(shape, ndtr(-v)))
        power = (log_ndtr(v) + gammaln(shape + 1)) / shape
        log_values = np.where(power < POWER_TAIL, power, np.log(np.maximum(values, 1e-300)))
        return cls(shape, CubicHermiteSpline(v, log_values, _slope(shape, v, log_values)))

    def __call__(self, v: Array) -> Array:
        """Logarithms at coordinates of any shape."""
        return np.asarray(self.table(np.minimum(np.maximum(v, -FARTHEST), FARTHEST)))

    def inverse(self, log_values: Array) -> Array:
        """Coordinates of logarithms."""
        values = np.exp(log_values)
        power = ndtri_exp(np.minimum(self.shape * log_values - gammaln(self.shape + 1), -1e-300))
        below, above = gammainc(self.shape, values), gammaincc(self.shape, values)
        inside = np.where(below < 0.5, ndtri(below), -ndtri(above))
        return np.clip(np.where(log_values < POWER_TAIL, power, inside), -FARTHEST, FARTHEST)

    def derivatives(self, v: Array) -> tuple[Array, Array, Array]:
        """Logarithms, and their first and second derivatives in the coordinate."""
        log_values = self(v)
        first = _slope(self.shape, v, log_values)
        return log_values, first, first * (-v - first * (self.shape - np.exp(log_values)))


def _slope(shape: float, v: Array, log_values: Array) -> Array:
    """Ratio of the normal density to the density of the logarithm."""
    log_density = shape * log_values - np.exp(log_values) - gammaln(shape)
    return np.asarray(np.exp(-0.5 * v**2 - LOG_SQRT_2PI - log_density))


@dataclass(frozen=True)
class WeightCoordinates:
    """Weights beta = g / sum g, each log g a function of its own standard normal coordinate.

    For beta ~ Dirichlet(a) the g_k are Gamma(a_k) and independent of one another. Learned
    concentrations a_k ~ Gamma(shape, rate) are integrated out of the law of log g_k, and can be
    drawn given it (`GammaMixture`).

    Parameters
    ----------
    log_gamma : callable
        From coordinates to log g.
    mixture : GammaMixture or None
        Law of log g with the concentration integrated out; None for a known concentration.
    """

    log_gamma: "LogGamma | _LogMixture"
    mixture: GammaMixture | None

    @classmethod
    def learned(cls, shape: float, rate: float) -> Self:
        """Concentrations with the prior Gamma(shape, rate)."""
        mixture = GammaMixture.of(shape, rate)
        return cls(_LogMixture.of(mixture), mixture)

    @classmethod
    def known(cls, concentration: float) -> Self:
        """Return the coordinates for one known concentration of all weights."""
        return cls(LogGamma.of(concentration), None)

    def weights(self, v: Array) -> Array:
        """Weights (..., K) at coordinates (..., K)."""
        log_gamma = self.log_gamma(v)
        gamma = np.exp(log_gamma - log_gamma.max(axis=-1, keepdims=True))
        return np.maximum(gamma / gamma.sum(axis=-1, keepdims=True), SMALLEST)

    def concentrations(self, v: Array, rng: np.random.Generator) -> Array | None:
        """Draw concentrations (n, K) given coordinates (n, K); None where they are known."""
        if self.mixture is None:
            return None
        flat = self.mixture.draw_concentrations(self.log_gamma(v).ravel(), rng)
        return flat.reshape(v.shape)


@dataclass(frozen=True)
class _LogMixture:
    """Logarithm of g under a `GammaMixture` as a function of a standard normal coordinate."""

    mixture: GammaMixture
    table: PchipInterpolator
    ends: tuple[float, float]

    @classmethod
    def of(cls, mixture: GammaMixture) -> Self:
        z = mixture.log_density.x
        log_density = mixture.log_density(z)
        density = np.exp(log_density - log_density.max())
        below = cumulative_trapezoid(density, z, initial=0)
        above = -cumulative_trapezoid(density[::-1], z[::-1], initial=0)[::-1]
        total = below[-1]
        v = np.where(below < above, ndtri(below / total), -ndtri(above / total))
        kept = np.isfinite(v)
        kept[kept] = np.diff(v[kept], prepend=-np.inf) > 0
        v, z = v[kept], z[kept]
        return cls(mixture, PchipInterpolator(v, z), (float(v[0]), float(v[-1])))

    def __call__(self, v: Array) -> Array:
        inside = np.minimum(np.maximum(v, self.ends[0]), self.ends[1])
        return self.mixture.log_gamma(self.table(inside))[0]
