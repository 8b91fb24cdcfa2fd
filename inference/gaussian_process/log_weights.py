"""Many hyperparameters: coordinates in which kernels are alike, and a skewed distribution of them.

In logarithms, the density of a weight that the data do not need is that of a log-Gamma variable:
the prior's slope towards zero, a steep end above. A normal distribution at the mode has most of
its mass where such weights are far too large. Here each weight has the beta prime distribution with
the mode and the curvature of the posterior, and they are joined by a normal copula.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import (
    betainc,
    betaincinv,
    betaln,
    gammaln,
    log_ndtr,
    log_softmax,
    logsumexp,
    ndtr,
    ndtri_exp,
)
from scipy.stats import norm, qmc

from ...numerics.gaussian_process import log_det, solve_triangular
from .hyperparameters import Hyperparameters, SimplexBlock

type Array = NDArray[np.float64]

#: Least second shape of a weight's beta prime distribution: large weights are so rare.
LARGEST_TAIL = 10.0
#: Share of a beta variable below which its distribution function is a power, up to this relative
#: error.
POWER = 1e-9
#: Logarithm of the smallest share of a beta variable.
LEAST_LOG = float(np.log(1e-300))


@dataclass(frozen=True)
class LogWeights:
    """Coordinates y: log weights log(s beta_k), in place of log scale and log ratios.

    The Jacobian is one, so that densities are the same. Of a known scale, the total of the weights
    is one more variable: it has the Gamma distribution that makes the weights independent a priori,
    and tells nothing about beta. Without learned weights y is z.
    """

    hyperparameters: Hyperparameters

    @property
    def concentrations(self) -> Array:
        """Concentrations (kernel,) of the weights; empty unless they are learned."""
        block = self.hyperparameters.blocks.get("beta")
        return block.concentrations if isinstance(block, SimplexBlock) else np.empty(0)

    @property
    def _scale_is_learned(self) -> bool:
        return "scale" in self.hyperparameters.blocks

    @property
    def start(self) -> Array:
        """Where a search begins: at equal weights."""
        z = self.hyperparameters.start
        n_kernels = len(self.concentrations)
        if not n_kernels:
            return z
        rest = z[self.hyperparameters.slices["beta"].stop :]
        log_total = z[0] if self._scale_is_learned else np.log(self.concentrations.sum())
        return np.concatenate([np.full(n_kernels, log_total - np.log(n_kernels)), rest])

    def z(self, y: Array) -> Array:
        """Coordinates of the hyperparameters."""
        n_kernels = len(self.concentrations)
        if not n_kernels:
            return y
        log_weights = y[:n_kernels]
        total = [logsumexp(log_weights)] if self._scale_is_learned else []
        return np.concatenate([total, log_weights[:-1] - log_weights[-1], y[n_kernels:]])

    def with_total(self, y: Array, value: float, of_z: Array) -> tuple[float, Array]:
        """Log density and gradient with respect to y, from those with respect to z."""
        n_kernels = len(self.concentrations)
        if not n_kernels:
            return value, of_z
        log_weights = y[:n_kernels]
        if self._scale_is_learned:
            of_total, of_ratios = of_z[0], of_z[1:n_kernels]
        else:
            value += self.log_total(y)
            of_total = self.concentrations.sum() - np.exp(logsumexp(log_weights))
            of_ratios = of_z[: n_kernels - 1]
        shares = np.exp(log_softmax(log_weights))
        of_weights = np.append(of_ratios, -of_ratios.sum()) + of_total * shares
        return value, np.concatenate([of_weights, of_z[len(of_z) - len(y) + n_kernels :]])

    def log_total(self, y: Array) -> float:
        """Log density of the logarithm of the total, if the scale is known."""
        shape = self.concentrations.sum()
        if not shape or self._scale_is_learned:
            return 0.0
        log_total = logsumexp(y[: len(self.concentrations)])
        return float(shape * log_total - np.exp(log_total) - gammaln(shape))


@dataclass(frozen=True)
class SkewedProposal:
    """Normal copula of log beta prime variables, the weights, and of normal ones.

    Parameters
    ----------
    mode : array (D,)
    sd : array (D,)
        Standard deviations of a normal variable with the posterior's curvature.
    root : array (D, D)
        Cholesky factor of the correlations.
    n_weights : int
        The first so many coordinates are log weights.
    """

    mode: Array
    sd: Array
    root: Array
    n_weights: int

    @classmethod
    def at_mode(cls, mode: Array, curvature: Array, n_weights: int, least: float) -> Self:
        """Distribution with the posterior's mode and curvature (D, D), which is `least` or more."""
        values, vectors = np.linalg.eigh(curvature)
        covariance = vectors / np.maximum(values, least) @ vectors.T
        sd = np.sqrt(covariance.diagonal())
        return cls(mode, sd, np.linalg.cholesky(covariance / np.outer(sd, sd)), n_weights)

    @property
    def shapes(self) -> tuple[Array, Array]:
        """Shapes a and b of the weights: slopes of the log density below and above the mode.

        The curvature at the mode is ab / (a + b).
        """
        curvature = self.sd[: self.n_weights] ** -2
        b = np.maximum(LARGEST_TAIL, 2.0 * curvature)
        return curvature * b / (b - curvature), b

    def draw(self, number: int, rng: np.random.Generator) -> Array:
        """Scrambled Sobol' points of the distribution (number, D)."""
        powers = int(np.ceil(np.log2(number)))
        uniform = qmc.Sobol(len(self.mode), rng=rng).random_base2(powers)[:number]
        # An end of the interval would be infinite.
        normal = norm.ppf(np.clip(uniform, 1e-12, 1 - 1e-12)) @ self.root.T
        points = self.mode + self.sd * normal
        a, b = self.shapes
        of_weights = normal[:, : self.n_weights]
        x = betaincinv(a, b, ndtr(of_weights))
        by_power = (log_ndtr(of_weights) + np.log(a) + betaln(a, b)) / a
        with np.errstate(divide="ignore"):
            log_x = np.where(x < POWER, by_power, np.log(x))
        # The odds of a beta variable are a beta prime one, with the mode a/b of its logarithm.
        log_odds = np.maximum(log_x, LEAST_LOG) - np.log1p(-x)
        points[:, : self.n_weights] = self.mode[: self.n_weights] + log_odds - np.log(a / b)
        return points

    def log_density(self, point: Array) -> float:
        """Log density of a point (D,)."""
        a, b = self.shapes
        log_odds = point[: self.n_weights] - self.mode[: self.n_weights] + np.log(a / b)
        log_x = -np.logaddexp(0.0, -log_odds)
        by_power = a * log_x - np.log(a) - betaln(a, b)
        x = np.exp(log_x)
        with np.errstate(divide="ignore"):
            log_cdf = np.where(x < POWER, by_power, np.log(betainc(a, b, x)))
        rest = (point - self.mode)[self.n_weights :] / self.sd[self.n_weights :]
        normal = np.concatenate([ndtri_exp(np.minimum(log_cdf, -1e-15)), rest])
        log_margins = (a * log_x - b * np.logaddexp(0.0, log_odds) - betaln(a, b)).sum()
        log_margins += (norm.logpdf(rest) - np.log(self.sd[self.n_weights :])).sum()
        white = solve_triangular(self.root, normal)
        log_copula = 0.5 * (normal @ normal - white @ white - log_det(self.root))
        return float(log_margins + log_copula)
