"""Gamma factors."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import digamma, gammaln

__all__ = ["Gamma"]

type Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Gamma:
    """Independent Gamma variables with a common shape."""

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
