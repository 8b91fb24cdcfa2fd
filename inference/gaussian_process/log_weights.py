"""Many hyperparameters: coordinates in which kernels are alike, and a skewed distribution of them.

In logarithms, the density of a weight that the data do not need is that of a log-Gamma variable:
the prior's slope towards zero, a steep end above. A normal distribution at the mode has most of
its mass where such weights are far too large. Here each weight has a beta prime distribution, and
they are joined by a normal copula.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import (
    betainc,
    betaincinv,
    betaln,
    gammainc,
    gammaincinv,
    gammaln,
    log_ndtr,
    ndtr,
    ndtri,
    ndtri_exp,
)
from scipy.stats import norm, qmc

from ...numerics.gaussian_process import log_det, solve_triangular
from ...numerics.softmax import log_sum_exp
from .hyperparameters import LOG_2_PI, Hyperparameters, SimplexBlock

type Array = NDArray[np.float64]

#: Least second shape of a weight's beta prime distribution: large weights are so rare.
LARGEST_TAIL = 10.0
#: Below this the distribution functions of Gamma and beta variables are powers of them, up to a
#: relative error of this size.
LEAST_BETA_ARGUMENT = 1e-9
#: Standard deviation of the logarithm of the total of w. A total that is free would fall, which
#: makes small weights likely.
TOTAL_SD = 0.1
#: Logarithm of the smallest weight.
LEAST_LOG = float(np.log(1e-300))


@dataclass(frozen=True)
class LogWeights:
    """Coordinates y: logarithms of w in place of log ratios, where beta = w / sum(w).

    The total of w is an independent variable, of which the data tell nothing; it is about that of
    variables w_k ~ Gamma(varphi_k, 1), whose ratios have the weights' distribution. Without learned
    weights y is z. In the coordinates x, logarithms are replaced by normal variables:
    w_k = F^-1(Phi(x_k)) with the distribution function F of this Gamma variable.

    The mode depends on the coordinates. Where concentrations are small, that of y has a small
    amount of every kernel, and all of them together fit the noise; that of x has none of those that
    the data do not need, as almost all of the posterior.
    """

    hyperparameters: Hyperparameters

    @cached_property
    def concentrations(self) -> Array:
        """Concentrations (kernel,) of the weights; empty unless they are learned."""
        block = self.hyperparameters.blocks.get("beta")
        return block.concentrations if isinstance(block, SimplexBlock) else np.empty(0)

    @cached_property
    def ratios(self) -> slice:
        """Where z has the log ratios of the weights."""
        return self.hyperparameters.slices.get("beta", slice(0, 0))

    @property
    def start(self) -> Array:
        """Coordinates x at which a search begins, with equal weights."""
        varphi = self.concentrations
        equal = ndtri(gammainc(varphi, varphi))
        return np.concatenate([equal, np.delete(self.hyperparameters.start, self.ratios)])

    def z(self, y: Array) -> Array:
        """Coordinates of the hyperparameters."""
        n_kernels = len(self.concentrations)
        if not n_kernels:
            return y
        log_w = y[:n_kernels]
        rest = y[n_kernels:]
        return np.insert(rest, self.ratios.start, log_w[:-1] - log_w[-1])

    def _total(self, y: Array) -> tuple[float, float]:
        """Log density of log sum(w), and its derivative."""
        if not len(self.concentrations):
            return 0.0, 0.0
        log_total = log_sum_exp(y[: len(self.concentrations)])
        deviation = (log_total - np.log(self.concentrations.sum())) / TOTAL_SD
        constant = 0.5 * LOG_2_PI + np.log(TOTAL_SD)
        return -0.5 * deviation**2 - constant, -deviation / TOTAL_SD

    def log_total(self, y: Array) -> float:
        """Log density of log sum(w)."""
        return self._total(y)[0]

    def of_y(self, y: Array, value: float, of_z: Array) -> tuple[float, Array]:
        """Log density of y and its gradient, from those of z."""
        n_kernels = len(self.concentrations)
        if not n_kernels:
            return value, of_z
        of_ratios = of_z[self.ratios]
        w = np.exp(y[:n_kernels])
        log_total, slope = self._total(y)
        of_w = np.append(of_ratios, -of_ratios.sum()) + slope * w / w.sum()
        return value + log_total, np.concatenate([of_w, np.delete(of_z, self.ratios)])

    def y(self, x: Array) -> Array:
        """Logarithms of w, of normal variables."""
        n_kernels = len(self.concentrations)
        return np.concatenate([self._log_w(x[:n_kernels]), x[n_kernels:]])

    def _log_w(self, normal: Array) -> Array:
        varphi = self.concentrations
        by_power = (log_ndtr(normal) + gammaln(1.0 + varphi)) / varphi
        tiny = by_power < np.log(LEAST_BETA_ARGUMENT)
        w = gammaincinv(varphi, np.where(tiny, 0.5, ndtr(normal)))
        return np.maximum(np.where(tiny, by_power, np.log(w)), LEAST_LOG)

    def of_x(self, x: Array, value: float, of_y: Array) -> tuple[float, Array]:
        """Log density of x and its gradient, from those of y."""
        n_kernels = len(self.concentrations)
        normal = x[:n_kernels]
        varphi = self.concentrations
        log_w = self._log_w(normal)
        log_prior = varphi * log_w - np.exp(log_w) - gammaln(varphi)
        log_slopes = norm.logpdf(normal) - log_prior
        slopes = np.exp(log_slopes)
        of_normal = (of_y[:n_kernels] - varphi + np.exp(log_w)) * slopes - normal
        gradient = np.concatenate([of_normal, of_y[n_kernels:]])
        return value + float(log_slopes.sum()), gradient


@dataclass(frozen=True)
class SkewedProposal:
    """Normal copula of log beta prime variables, the weights, and of normal ones.

    Parameters
    ----------
    mode : array (D,)
    sd : array (D,)
        Standard deviations of a normal variable with the posterior's curvature along each
        coordinate.
    root : array (D, D)
        Cholesky factor of the correlations.
    n_weights : int
        The first so many coordinates are log weights.
    """

    mode: Array
    sd: Array
    root: Array
    n_weights: int

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
        by_power = (log_ndtr(of_weights) + np.log(a) + betaln(a, b)) / a
        tiny = by_power < np.log(LEAST_BETA_ARGUMENT)
        x = np.where(tiny, 0.0, betaincinv(a, b, np.where(tiny, 0.5, ndtr(of_weights))))
        with np.errstate(divide="ignore"):
            log_x = np.where(tiny, by_power, np.log(x))
        # The odds of a beta variable are a beta prime one, with the mode a/b of its logarithm.
        log_odds = np.maximum(log_x, LEAST_LOG) - np.log1p(-x)
        points[:, : self.n_weights] = self.mode[: self.n_weights] + log_odds - np.log(a / b)
        return points

    def log_density(self, points: Array) -> Array:
        """Log density (point,) of points (point, D)."""
        a, b = self.shapes
        n = self.n_weights
        log_odds = points[:, :n] - self.mode[:n] + np.log(a / b)
        log_x = -np.logaddexp(0.0, -log_odds)
        by_power = a * log_x - np.log(a) - betaln(a, b)
        x = np.exp(log_x)
        with np.errstate(divide="ignore"):
            log_cdf = np.where(x < LEAST_BETA_ARGUMENT, by_power, np.log(betainc(a, b, x)))
        rest = (points - self.mode)[:, n:] / self.sd[n:]
        normal = np.hstack([ndtri_exp(np.minimum(log_cdf, -1e-15)), rest])
        of_weights = a * log_x - b * np.logaddexp(0.0, log_odds) - betaln(a, b)
        of_rest = norm.logpdf(rest) - np.log(self.sd[n:])
        white = solve_triangular(self.root, normal.T)
        squares = np.square(normal).sum(axis=1) - np.square(white).sum(axis=0)
        log_copula = 0.5 * (squares - log_det(self.root))
        return of_weights.sum(axis=1) + of_rest.sum(axis=1) + log_copula
