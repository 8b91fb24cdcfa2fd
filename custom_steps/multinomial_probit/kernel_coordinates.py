r"""Unbounded coordinates of the variables that a composite kernel depends on, for gradient moves.

=================== ======================================================= =====================
variables           coordinates                                             prior
=================== ======================================================= =====================
beta of `Mean`      z with log g = centre + scale sinh z, beta = g / sum g  `GammaMixture`
beta of `Product`   psi, see `NormalCoordinates`                            standard normal
theta               psi, see `NormalCoordinates`                            standard normal
=================== ======================================================= =====================

The hyperparameters (rho of `Mean`, pi and chi of `Product`) are integrated out of these priors and
drawn from their exact conditionals after a move.

With rho_s ~ Gamma(mu, rate lam) and g_s ~ Gamma(rho_s, 1), beta = g / sum g is Dirichlet(rho) and
independent of sum g (damoulas2009, section 3.1).  The logarithms l = log g are independent with

.. math:: \log p(l) = \log \int \rho^\mu e^{(l - lam) \rho} / \Gamma(\rho + 1) \, d\rho - e^l
          + \mathrm{const},

a density whose left tail falls like |l|^-(mu + 1), which Metropolis moves of beta given rho, and of
rho given beta, cross slowly. In the coordinate z with l = centre + scale sinh(z), the tails are
like exp(-mu |z|).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.special import digamma, gammaln

from ...models.combinations.normal_coordinates import draw_hyperparameters
from ...models.combinations.sums import LEAST_LOG_ARGUMENT, Mean
from ...models.multinomial_probit import Composition
from ..moves.metropolis import log_gamma_draw

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
type Values = dict[str, np.ndarray]
# Difference of a normal coordinate for numerical derivatives. Their error, of about this size, only
# affects the acceptance of Hamiltonian moves.
DIFFERENCE = 1e-6


@dataclass(frozen=True)
class GammaMixture:
    """Distribution of l = log g with rho integrated out, in z with l = centre + scale sinh z.

    Splines on equally spaced knots: log density of z, and logarithm of the most likely rho given z.
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
        first, last = self.log_density.x[[0, -1]]
        if not (first <= z.min() and z.max() <= last):
            return -np.inf, np.zeros_like(z)
        return float(self.log_density(z).sum()), self.log_density(z, 1)

    def draw_concentrations(self, log_g: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw rho | l exactly, with density f prop. to rho^mu e^((l - lam) rho) / Gamma(rho + 1).

        A log-concave density with mode m lies below f(m) min(1, e^(1 - f(m) |rho - m|)), which has
        four times its mass (Devroye 1986, Non-uniform random variate generation, VII.2). The tables
        give m and f(m); there is no posterior mass beyond their range.
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
            first = accepted.argmax(axis=0)
            drawn = accepted.any(axis=0)
            rho[drawn] = np.take_along_axis(proposal, first[None], axis=0)[0, drawn]
        return rho


def _mode(offset: np.ndarray, mu: float) -> np.ndarray:
    """Log of the rho that maximises rho^mu exp(offset rho) / Gamma(rho + 1).

    Bisection finds the only root of rho (digamma(rho + 1) - offset) = mu.
    """

    def climbs(r: np.ndarray) -> np.ndarray:
        rho = np.exp(r)
        return rho * (digamma(rho + 1) - offset) < mu

    # digamma(rho + 1) > log rho: at the upper end rho (log rho - offset) exceeds mu.
    upper = np.maximum(offset, 0.0) + np.log(2 + mu)
    lower = np.log(mu / (1 + np.maximum(-offset, 0) + mu)) - 1.0
    return _bisect(climbs, lower, upper)


def _log_integral(offset: np.ndarray, mu: float) -> np.ndarray:
    """Log integral of rho^mu exp(offset rho) / Gamma(rho + 1), by the trapezoid rule in log rho."""

    def log_integrand(r: np.ndarray) -> np.ndarray:
        rho = np.exp(r)
        return (mu + 1) * r + offset * rho - gammaln(rho + 1)

    mode = _mode(offset, mu + 1)
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
        lower = np.where(below, middle, lower)
        upper = np.where(below, upper, middle)
    return (lower + upper) / 2


class KernelPoint(NamedTuple):
    """Log prior and composite kernel (N, M) at a position, and what its derivatives need.

    These are beta (S,), the values that have coordinates, the terms (S, N, M), their weighted sum,
    and the derivatives of the log prior and of log g in z, each (S,) or (0,).
    """

    log_prior: float
    composite: np.ndarray
    weights: np.ndarray
    values: Values
    terms: np.ndarray
    total: np.ndarray
    slope_of_z: np.ndarray
    velocity: np.ndarray


@dataclass(frozen=True)
class KernelCoordinates:
    """Coordinates u = (z, psi) of a composite kernel's variables; `mixture` is the law of z."""

    composition: Composition
    mixture: GammaMixture | None

    @classmethod
    def of(cls, composition: Composition) -> Self:
        """Return the coordinates of all variables of a composition; 0.15 s for `Mean`."""
        rule = composition.rule
        mixture = None
        if composition.learned and isinstance(rule, Mean):
            mixture = GammaMixture.of(rule.mu, rule.lam)
        return cls(composition, mixture)

    def __len__(self) -> int:
        return self._n_weights + len(self.composition.coordinates)

    def position(self, values: Mapping[str, np.ndarray], rng: np.random.Generator) -> np.ndarray:
        """Coordinates of values; sum g, which is independent of beta, is drawn."""
        parts = [np.empty(0)]
        if self.mixture is not None:
            log_g = np.log(np.maximum(values["beta"], LEAST_LOG_ARGUMENT))
            parts.append(self.mixture.coordinate(log_g + log_gamma_draw(values["rho"].sum(), rng)))
        if len(self.composition.coordinates):
            parts.append(self.composition.coordinates.psi(values))
        return np.concatenate(parts)

    def values(self, u: np.ndarray, rng: np.random.Generator) -> Values:
        """Values at a position, with new draws of their hyperparameters."""
        z = u[: self._n_weights]
        psi = u[self._n_weights :]
        new = self._normal_values(psi)
        if self.mixture is not None:
            log_g, _ = self.mixture.log_gamma(z)
            new["beta"] = np.maximum(simplex(log_g), LEAST_LOG_ARGUMENT)
            new["rho"] = self.mixture.draw_concentrations(log_g, rng)
        elif self.composition.coordinates.n_exponents:
            normal = self.composition.coordinates
            new["pi"], new["chi"] = draw_hyperparameters(new["beta"], normal.a, normal.b, rng)
        return new

    def at(self, u: np.ndarray, weights: np.ndarray | None = None) -> KernelPoint | None:
        """Composite kernel at a position, for `weights` without coordinates; None off support."""
        z = u[: self._n_weights]
        psi = u[self._n_weights :]
        log_prior = -0.5 * float(psi @ psi)
        values = self._normal_values(psi)
        slope_of_z = z
        velocity = z
        if self.mixture is not None:
            log_density, slope_of_z = self.mixture.value_and_slope(z)
            log_prior += log_density
            log_g, velocity = self.mixture.log_gamma(z)
            values["beta"] = simplex(log_g)
        if not np.isfinite(log_prior):
            return None
        if any(value.min() <= LEAST_LOG_ARGUMENT for value in values.values()):
            return None
        terms = self.composition.terms(values)
        s, n, m = terms.shape
        given = self.composition.known if weights is None else weights
        beta = np.asarray(values.get("beta", given), dtype=float)
        total = (beta @ terms.reshape(s, n * m)).reshape(n, m)
        # Differences need the sum; otherwise the rule may work in place.
        composite = self._from_total(total) if len(psi) else self.composition.rule.from_terms(total)
        return KernelPoint(log_prior, composite, beta, values, terms, total, slope_of_z, velocity)

    def at_centre(self) -> np.ndarray:
        """Composite kernel (N, M) at the prior medians, with equal weights of a learned sum."""
        values = self._normal_values(np.zeros(len(self.composition.coordinates)))
        if self.composition.learned and "beta" not in values:
            values["beta"] = np.full(len(self.composition.known), 1 / len(self.composition.known))
        return self.composition.composite(values)

    def gradient(self, u: np.ndarray, point: KernelPoint, slope: np.ndarray) -> np.ndarray:
        """Gradient (d,) of the log prior and of a function of the kernel with gradient `slope`.

        `point` is what `at` gives at u. O(S N M) for weights of `Mean`. Derivatives in psi are
        differences: O(N M) for an exponent, and one kernel, O(N M D), for a parameter.
        """
        psi = u[self._n_weights :]
        beta = point.weights
        parts = [np.empty(0)]
        if self.mixture is not None:
            slope_of_beta = point.terms.reshape(len(beta), -1) @ slope.ravel()
            of_beta = point.velocity * beta * (slope_of_beta - beta @ slope_of_beta)
            parts.append(of_beta + point.slope_of_z)
        if len(psi):
            changed = self._normal_values(psi + DIFFERENCE)
            base = np.vdot(slope, point.composite)
            rises = [
                np.vdot(slope, self._from_total(total)) - base
                for total in self._changed_totals(point, changed)
            ]
            parts.append(np.array(rises) / DIFFERENCE - psi)
        return np.concatenate(parts)

    def _changed_totals(self, point: KernelPoint, changed: Values) -> Iterator[np.ndarray]:
        """Weighted sums with one exponent or parameter changed, in the order of psi."""
        composition = self.composition
        values = point.values
        beta = point.weights
        if composition.coordinates.n_exponents:
            for s, term in enumerate(point.terms):
                yield point.total + (changed["beta"][s] - beta[s]) * term
        for kernel, part in composition.source.learned_parts():
            s = kernel.position
            for j in range(part.start, part.stop):
                theta = values["theta"].copy()
                theta[j] = changed["theta"][j]
                term = composition.rule.terms(kernel.evaluate(theta[part], slice(None))[None])[0]
                yield point.total + beta[s] * (term - point.terms[s])

    @property
    def _n_weights(self) -> int:
        return 0 if self.mixture is None else len(self.composition.known)

    def _normal_values(self, psi: np.ndarray) -> Values:
        return self.composition.coordinates.values(psi) if len(psi) else {}

    def _from_total(self, total: np.ndarray) -> np.ndarray:
        """Composite kernel of a weighted sum, which is not modified."""
        return self.composition.rule.from_terms(total.copy())


def simplex(log_g: np.ndarray) -> np.ndarray:
    """Give the weights g / sum g."""
    g = np.exp(log_g - log_g.max())
    return g / g.sum()
