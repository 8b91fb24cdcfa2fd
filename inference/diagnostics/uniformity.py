"""Simultaneous bands of the ECDF of uniform numbers, and what they find."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import brentq

# Largest number of points at which an ECDF is compared.
POINTS = 100
# Standard normal numbers that stand for the law of the truth.
NORMAL = stats.norm.ppf((np.arange(400) + 0.5) / 400)


class Band:
    """Bounds between which the ECDF of n uniform numbers stays at all points with a probability.

    ``lower`` and ``upper`` are the smallest and largest number of values up to each of ``points``:
    pointwise binomial intervals, whose common level is chosen so that all hold together (Säilynoja
    et al. 2022, Section 2); exact, as counts of a Poisson process given their total: O(n^2) per
    point.
    """

    def __init__(self, n: int, level: float):
        self.n = n
        parts = min(n, POINTS)
        self.points = np.arange(1, parts) / parts
        low, high = 0.0, 1.0
        for _ in range(40):
            middle = (low + high) / 2
            self.bound_each(middle)
            low, high = (middle, high) if self.holds(self.points) >= level else (low, middle)
        self.bound_each(low)

    def bound_each(self, pointwise: float) -> None:
        """Let each point alone be left with a probability."""
        self.lower = stats.binom.ppf(pointwise / 2, self.n, self.points).astype(int).clip(0)
        self.upper = stats.binom.isf(pointwise / 2, self.n, self.points).astype(int)

    def holds(self, cdf: NDArray) -> float:
        """Probability that all bounds hold for numbers with the distribution `cdf` (point,)."""
        steps = np.diff(cdf, prepend=0.0, append=1.0)
        counts = np.arange(self.n + 1)
        added = stats.poisson.pmf(counts, self.n * steps[:, None])
        state = np.eye(1, self.n + 1)[0]
        for more, low, high in zip(
            added, [*self.lower, self.n], [*self.upper, self.n], strict=True
        ):
            state = np.convolve(state, more)[: self.n + 1]
            state[:low] = 0
            state[high + 1 :] = 0
        return float(state[-1] / stats.poisson.pmf(self.n, self.n))

    def left_by(self, values: NDArray) -> bool:
        """Whether the ECDF of `values`, array (n,) of numbers in [0, 1], leaves the band."""
        counts = np.searchsorted(np.sort(values), self.points, side="right")
        return bool(((counts < self.lower) | (counts > self.upper)).any())


def power(band: Band, draws: int, *, bias: float = 0.0, scale: float = 1.0) -> float:
    """Probability that a wrong engine's ranks leave the band, for a normal posterior.

    A truth is ranked among a number of independent draws. `bias` is the error of the mean and
    `scale` the engine's standard deviation, both in standard deviations of the posterior.
    """
    below = stats.norm.cdf((NORMAL - bias) / scale)
    edges = np.arange(draws + 2) / (draws + 1)
    law = stats.binom.cdf(np.arange(draws + 1)[:, None], draws, below).mean(1)
    return 1 - band.holds(np.interp(band.points, edges, [0.0, *law]))


def detectable_bias(band: Band, draws: int, probability: float) -> float:
    """Smallest bias in posterior standard deviations that `power` finds with a probability."""
    return _root(lambda bias: power(band, draws, bias=bias) - probability, 0.0, 8.0)


def detectable_scale(band: Band, draws: int, probability: float) -> float:
    """Largest `scale` below one that `power` finds with a probability; 0 where none is found."""
    return _root(lambda scale: power(band, draws, scale=scale) - probability, 1.0, 0.01)


def _root(excess: Callable[[float], float], none: float, most: float) -> float:
    """Size of the error with no excess; infinite or 0 where the largest size has none."""
    if excess(most) < 0:
        return float("inf") if most > none else 0.0
    return float(brentq(excess, none, most, xtol=1e-3))
