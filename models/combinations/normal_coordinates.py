r"""Normal coordinates of exponents of a product and of kernel parameters.

Gibbs steps move them, and VB approximates them, in coordinates psi that are independent standard
normals under the prior: psi = Phi^-1(F(value)) with F the prior's distribution function. Parameters
have a Gamma prior. Exponents have pi ~ Exponential(a), chi ~ Exponential(b) and
beta ~ Gamma(pi, rate chi) (damoulas2009, section 3.1). Integrating chi and then pi out gives closed
forms, with kappa = a + log(1 + b / beta):

.. math::

    F(\beta) &= a / \kappa, \qquad p(\beta) = \frac{ab}{\beta (b + \beta)\, \kappa^2} \\
    \pi \mid \beta &\sim \mathrm{Gamma}(2, \kappa), \qquad
        \chi \mid \pi, \beta \sim \mathrm{Gamma}(\pi + 1, b + \beta)

Exact draws therefore replace the paper's Metropolis moves of pi and chi, and moves of beta need
neither. On the log scale the prior of beta has a Cauchy-like tail towards zero (kernels left out),
unlike the prior of its coordinate.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import expit, gammaincc, gammainccinv, gammaincinv, gammaln, ndtr, ndtri
from scipy.special import gammainc as gamma_cdf

from ..kernels.source import KernelSource
from .products import Product
from .sums import LEAST_LOG_ARGUMENT, Combination

type Values = dict[str, np.ndarray]


@dataclass(frozen=True)
class NormalCoordinates:
    """Coordinates psi of exponents and parameters, in this order.

    `a` and `b` are the rates of the exponential priors of pi and chi, `omega` and `phi` (P,) the
    shapes and rates of the parameters' Gamma priors.
    """

    n_exponents: int
    a: float
    b: float
    omega: np.ndarray
    phi: np.ndarray

    @classmethod
    def of(cls, rule: Combination, n_kernels: int, source: KernelSource) -> Self:
        """Return the coordinates of the learned exponents and parameters."""
        if isinstance(rule, Product):
            return cls(n_kernels, rule.pi_rate, rule.chi_rate, source.omega, source.phi)
        return cls(0, 1.0, 1.0, source.omega, source.phi)

    def __len__(self) -> int:
        return self.n_exponents + len(self.omega)

    def values(self, psi: np.ndarray) -> Values:
        """Exponents and parameters by name, at coordinates (..., d)."""
        u, v = np.split(np.asarray(psi, dtype=float), [self.n_exponents], axis=-1)
        named = {}
        if self.n_exponents:
            # 1 / F - 1, without cancellation if F is close to one.
            odds = ndtr(-u) / np.maximum(ndtr(u), LEAST_LOG_ARGUMENT)
            with np.errstate(over="ignore"):
                named["beta"] = np.maximum(self.b / np.expm1(self.a * odds), LEAST_LOG_ARGUMENT)
        if len(self.omega):
            upper = gammainccinv(self.omega, ndtr(-v))
            lower = gammaincinv(self.omega, ndtr(v))
            named["theta"] = np.maximum(
                np.where(v > 0, upper, lower) / self.phi, LEAST_LOG_ARGUMENT
            )
        return named

    def psi(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """Coordinates (..., d) of exponents and parameters."""
        parts = []
        if self.n_exponents:
            log_odds = np.log(_log_ratio(values["beta"], self.b)) - np.log(self.a)
            # Phi^-1 of the smaller of F and 1 - F, for accuracy in both tails.
            below = -ndtri(expit(log_odds))
            above = ndtri(expit(-log_odds))
            parts.append(np.where(log_odds > 0, above, below))
        if len(self.omega):
            scaled = self.phi * values["theta"]
            below = gamma_cdf(self.omega, scaled)
            above = gammaincc(self.omega, scaled)
            parts.append(np.where(below < above, ndtri(below), -ndtri(above)))
        return np.concatenate(parts, axis=-1)

    def log_density(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """Log prior density (...) of parameters, and exponents with pi and chi integrated out."""
        total = np.zeros(())
        if self.n_exponents:
            beta = values["beta"]
            density = np.log(self.a * self.b) - np.log(beta) - np.log(self.b + beta)
            kappa = self.a + _log_ratio(beta, self.b)
            total = total + np.sum(density - 2 * np.log(kappa), axis=-1)
        if len(self.omega):
            theta = values["theta"]
            density = (self.omega - 1) * np.log(theta) - self.phi * theta
            density += self.omega * np.log(self.phi) - gammaln(self.omega)
            total = total + density.sum(axis=-1)
        return total


def draw_hyperparameters(
    beta: np.ndarray, a: float, b: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw pi and chi given the exponents beta, exactly; shapes as of `beta`."""
    pi = rng.standard_gamma(2.0, size=beta.shape) / (a + _log_ratio(beta, b))
    return pi, rng.standard_gamma(pi + 1) / (b + beta)


def log_hyperparameter_density(
    pi: np.ndarray, chi: np.ndarray, beta: np.ndarray, a: float, b: float
) -> np.ndarray:
    """Log density of the draws of `draw_hyperparameters` given beta, entry by entry."""
    kappa = a + _log_ratio(beta, b)
    log_pi = 2 * np.log(kappa) + np.log(pi) - kappa * pi
    log_chi = (pi + 1) * np.log(b + beta) + pi * np.log(chi) - (b + beta) * chi
    return log_pi + log_chi - gammaln(pi + 1)


def _log_ratio(beta: np.ndarray, b: float) -> np.ndarray:
    """Evaluate log(1 + b / beta) accurately for small and large ratios."""
    small = np.log(b + beta) - np.log(beta)
    return np.where(beta < b, small, np.log1p(b / np.maximum(beta, b)))
