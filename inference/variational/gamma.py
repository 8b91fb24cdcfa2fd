"""Gamma factors, and the maximum-likelihood Gamma prior of several variables."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import digamma, gammaln, zeta

__all__ = ["Gamma", "most_likely"]

type Array = npt.NDArray[np.float64]

# Largest shape: beyond, log a - digamma(a) has lost its digits.
LARGEST_SHAPE = 1e8
NEWTON_STEPS = 100


@dataclass(frozen=True)
class Gamma:
    """Independent Gamma variables with a common shape.

    Parameters
    ----------
    shape : float
    rate : float or array
        Rate of each variable.
    """

    shape: float
    rate: float | Array

    @property
    def mean(self) -> Array:
        """Expectations."""
        return np.asarray(self.shape / self.rate)

    @property
    def mean_log(self) -> Array:
        """Expectations of the logarithms."""
        return np.asarray(digamma(self.shape) - np.log(self.rate))

    @property
    def log_constant(self) -> float:
        """Sum over the variables of the log constants of their densities."""
        log_rate = np.asarray(np.log(self.rate))
        return float(self.shape * log_rate.sum() - log_rate.size * gammaln(self.shape))

    def sample(self, draws: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draws (draw, ...), and their log densities (draw,)."""
        values = rng.gamma(self.shape, size=(draws, *np.shape(self.rate))) / self.rate
        log_density = (self.shape - 1) * np.log(values) - self.rate * values
        return values, log_density.reshape(draws, -1).sum(axis=1) + self.log_constant


def most_likely(mean: Array, mean_log: Array) -> Gamma:
    """Maximise sum_m E[log Gamma(x_m | shape, rate)] (girolami2005, section 4.2).

    Parameters
    ----------
    mean, mean_log : array
        E[x_m] and E[log x_m] of one or more variables.

    Returns
    -------
    Gamma
        The shape solves log a - digamma(a) = log(mean of E[x]) - mean of E[log x], by Newton's
        method on 1 / a; it is at most 1e8.

    References
    ----------
    T. Minka (2002), Estimating a Gamma distribution.
    """
    average = float(np.mean(mean))
    gap = float(np.log(average) - np.mean(mean_log))
    if gap <= 0.5 / LARGEST_SHAPE:
        return Gamma(LARGEST_SHAPE, LARGEST_SHAPE / average)
    # Minka's approximation, between 1 / (2 gap) and 1 / gap.
    shape = (3 - gap + np.sqrt((gap - 3) ** 2 + 24 * gap)) / (12 * gap)
    for _ in range(NEWTON_STEPS):
        misfit = np.log(shape) - digamma(shape) - gap
        slope = shape**2 * (1 / shape - zeta(2, shape))
        new = 1 / (1 / shape + misfit / slope)
        if abs(new - shape) <= 1e-12 * shape:
            break
        shape = new
    return Gamma(float(shape), float(shape / average))
