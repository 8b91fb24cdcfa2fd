"""Unbounded coordinates of the variables that a composite kernel depends on, for gradient moves.

=================== ======================================================= =====================
variables           coordinates                                             prior
=================== ======================================================= =====================
beta of `Mean`      z with log g = centre + scale sinh z, beta = g / sum g  `GammaMixture`
beta of `Product`   psi, see `NormalCoordinates`                            standard normal
theta               psi, see `NormalCoordinates`                            standard normal
=================== ======================================================= =====================

The hyperparameters (rho of `Mean`, pi and chi of `Product`) are integrated out of these priors and
drawn from their exact conditionals after a move.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from ...models.combinations.normal_coordinates import draw_hyperparameters
from ...models.combinations.sums import SMALLEST, Mean
from ...models.multinomial_probit import Composition
from ..moves.gamma_mixture import GammaMixture
from ..moves.metropolis import log_gamma_draw

# Scale of the coordinates in the mass matrix.
SCALE = 0.5
# Difference of a normal coordinate for numerical derivatives. Their error, of about this size, only
# affects the acceptance of Hamiltonian moves.
DIFFERENCE = 1e-6

type Values = dict[str, np.ndarray]


class KernelPoint(NamedTuple):
    """Log prior and composite kernel (N, M) at a position, and what its derivatives need.

    Weights beta (S,), the values of beta and theta that have coordinates, the matrices (S, N,
    M) that the weights multiply, and their weighted sum, of no use without normal coordinates.
    """

    log_prior: float
    composite: np.ndarray
    weights: np.ndarray
    values: Values
    terms: np.ndarray
    total: np.ndarray


@dataclass(frozen=True)
class KernelCoordinates:
    """Coordinates u = (z, psi) of a composite kernel's variables; `mixture` is the law of z."""

    composition: Composition
    mixture: GammaMixture | None

    @classmethod
    def of(cls, composition: Composition) -> Self:
        """Return the coordinates of all variables of a composition; 0.15 s for `Mean`."""
        rule, mixture = composition.rule, None
        if composition.learned and isinstance(rule, Mean):
            mixture = GammaMixture.of(rule.mu, rule.lam)
        return cls(composition, mixture)

    def __len__(self) -> int:
        return self._n_weights + len(self.composition.coordinates)

    @property
    def scale(self) -> np.ndarray:
        """Scales of the coordinates in a mass matrix."""
        return np.full(len(self), SCALE)

    def position(self, values: Mapping[str, np.ndarray], rng: np.random.Generator) -> np.ndarray:
        """Coordinates of values.

        sum g is independent of beta. It is not kept between sweeps, but drawn.
        """
        parts = [np.empty(0)]
        if self.mixture is not None:
            log_g = np.log(np.maximum(values["beta"], SMALLEST))
            parts.append(self.mixture.coordinate(log_g + log_gamma_draw(values["rho"].sum(), rng)))
        if len(self.composition.coordinates):
            parts.append(self.composition.coordinates.psi(values))
        return np.concatenate(parts)

    def values(self, u: np.ndarray, rng: np.random.Generator) -> Values:
        """Values at a position, with new draws of their hyperparameters."""
        z, psi = u[: self._n_weights], u[self._n_weights :]
        new = self._normal_values(psi)
        if self.mixture is not None:
            log_g, _ = self.mixture.log_gamma(z)
            new["beta"] = np.maximum(simplex(log_g), SMALLEST)
            new["rho"] = self.mixture.draw_concentrations(log_g, rng)
        elif self.composition.coordinates.n_exponents:
            normal = self.composition.coordinates
            new["pi"], new["chi"] = draw_hyperparameters(new["beta"], normal.a, normal.b, rng)
        return new

    def at(self, u: np.ndarray, weights: np.ndarray | None = None) -> KernelPoint | None:
        """Composite kernel at a position; None outside the support. O(S N M).

        Parameters
        ----------
        u : ndarray of shape (d,)
            Position.
        weights : ndarray of shape (S,), optional
            Weights if they have no coordinates. Default: those of the composition.
        """
        z, psi = u[: self._n_weights], u[self._n_weights :]
        log_prior, values = -0.5 * float(psi @ psi), self._normal_values(psi)
        if self.mixture is not None:
            log_density, _ = self.mixture.value_and_slope(z)
            log_prior += log_density
            values["beta"] = simplex(self.mixture.log_gamma(z)[0])
        if not np.isfinite(log_prior):
            return None
        if any(value.min() <= SMALLEST for value in values.values()):
            return None
        terms = self.composition.terms(values)
        s, n, m = terms.shape
        given = self.composition.known if weights is None else weights
        beta = np.asarray(values.get("beta", given), dtype=float)
        total = (beta @ terms.reshape(s, n * m)).reshape(n, m)
        # Differences need the sum; otherwise the rule may work in place.
        composite = self._from_total(total) if len(psi) else self.composition.rule.from_terms(total)
        return KernelPoint(log_prior, composite, beta, values, terms, total)

    def at_centre(self) -> np.ndarray:
        """Composite kernel (N, M) at the prior medians, with equal weights of a learned sum."""
        values = self._normal_values(np.zeros(len(self.composition.coordinates)))
        if self.composition.learned and "beta" not in values:
            values["beta"] = np.full(len(self.composition.known), 1 / len(self.composition.known))
        return self.composition.composite(values)

    def gradient(self, u: np.ndarray, point: KernelPoint, slope: np.ndarray) -> np.ndarray:
        """Gradient (d,) of the log prior and of a function of the kernel with gradient `slope`.

        `point` is what `at` gives at u. Cost O(S N M) for weights of `Mean`. Derivatives in psi are
        differences: O(N M) for an exponent, and one kernel, O(N M D), for a parameter.
        """
        z, psi = u[: self._n_weights], u[self._n_weights :]
        parts = [np.empty(0)]
        if self.mixture is not None:
            _, slope_of_z = self.mixture.value_and_slope(z)
            _, velocity = self.mixture.log_gamma(z)
            beta = point.weights
            slope_of_beta = point.terms.reshape(len(beta), -1) @ slope.ravel()
            parts.append(velocity * beta * (slope_of_beta - beta @ slope_of_beta) + slope_of_z)
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
        composition, values, beta = self.composition, point.values, point.weights
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
