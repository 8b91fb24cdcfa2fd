"""Exact draws from a log-concave density on the line, by rejection sampling from tangents."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

__all__ = ["LogConcave"]

type Array = npt.NDArray[np.float64]

# Tangents of the envelope: with 64, about 99.8 % of the proposals are accepted.
TANGENTS = 64
NODES = 1025
# The range ends where the log density has fallen by this much, a neglected mass of about 1e-18.
DEPTH = 42.0


class LogConcave:
    """A density on the line whose logarithm is concave.

    Parameters
    ----------
    log_density : callable (n,) -> ((n,), (n,))
        Unnormalised log density and its derivative.
    start : float
        A point near the mode.
    """

    def __init__(self, log_density: Callable[[Array], tuple[Array, Array]], start: float):
        self._log_density = log_density
        self.mode = self._find_mode(start)
        self._top = float(log_density(np.array([self.mode]))[0][0])
        self.low, self.high = self._reach(-1.0), self._reach(1.0)

    def _find_mode(self, start: float) -> float:
        """Zero of the decreasing derivative, by bisection of a bracket."""
        low = high = start
        step = 1.0
        while self._slope(low) < 0:
            low, step = low - step, 2 * step
        step = 1.0
        while self._slope(high) > 0:
            high, step = high + step, 2 * step
        for _ in range(60):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self._slope(middle) > 0 else (low, middle)
        return 0.5 * (low + high)

    def _slope(self, x: float) -> float:
        return float(self._log_density(np.array([x]))[1][0])

    def _reach(self, direction: float) -> float:
        """Point on one side at which the log density is about `DEPTH` below its maximum."""

        def fall(distance: float) -> float:
            return self._top - float(
                self._log_density(np.array([self.mode + direction * distance]))[0][0]
            )

        far = 1e-3
        while fall(far) < DEPTH:
            far *= 2
        near = far / 2
        for _ in range(8):
            middle = 0.5 * (near + far)
            near, far = (near, middle) if fall(middle) > DEPTH else (middle, far)
        return self.mode + direction * far

    def _points(self, n: int) -> tuple[Array, Array]:
        """Points from low to high, dense about the mode, and their weights in a trapezoid rule.

        Evenly spaced in asinh, because one tail may be hundreds of times as long as the other.
        """
        left, right = self.mode - self.low, self.high - self.mode
        width = min(left, right) / 4
        ends = -np.arcsinh(left / width), np.arcsinh(right / width)
        u, step = np.linspace(*ends, n, retstep=True)
        return self.mode + width * np.sinh(u), width * np.cosh(u) * step

    def _masses(self) -> tuple[Array, Array]:
        """Points of the trapezoid rule and their masses, relative to the density's maximum."""
        x, weights = self._points(NODES)
        return x, weights * np.exp(self._log_density(x)[0] - self._top)

    def nodes(self) -> tuple[Array, Array]:
        """Points and probabilities of a trapezoid rule, for expectations of smooth functions.

        The error is only that of the neglected tails, because the integrand and all its derivatives
        vanish at both ends.
        """
        x, mass = self._masses()
        return x, mass / mass.sum()

    @property
    def log_integral(self) -> float:
        """Log of the integral of the unnormalised density."""
        _, mass = self._masses()
        return self._top + float(np.log(mass.sum()))

    def sample(self, draws: int, rng: np.random.Generator) -> Array:
        """Independent draws (n,), at about one evaluation of the density a draw."""
        at, _ = self._points(TANGENTS)
        height, slope = self._log_density(at)
        height = height - self._top
        # Avoids division by a slope of zero, if the mode happens to be a node.
        slope = np.where(np.abs(slope) < 1e-12, 1e-12, slope)
        # Every tangent lies above the density, so pieces may meet anywhere: where two tangents
        # cross, or half way if the tangents are equal to rounding (exponential tails).
        bend = -np.diff(slope)
        bent = bend > 1e-9 * np.abs(slope[:-1])
        crossing = (np.diff(height) - np.diff(slope * at)) / np.where(bent, bend, 1.0)
        cut = np.where(bent, np.clip(crossing, at[:-1], at[1:]), (at[:-1] + at[1:]) / 2)
        edges = np.concatenate([[-np.inf], cut, [np.inf]])
        # Log height of each piece at its higher end, its fall, and the log area below.
        larger = height + np.maximum(slope * (edges[:-1] - at), slope * (edges[1:] - at))
        difference = np.abs(slope) * np.diff(edges)
        log_area = larger + np.log(-np.expm1(-difference)) - np.log(np.abs(slope))
        area = np.exp(log_area)
        out = np.empty(draws)
        pending = np.arange(draws)
        while len(pending):
            piece = rng.choice(TANGENTS, size=len(pending), p=area / area.sum())
            u = rng.random(len(pending))
            # Inverse distribution function from the higher end of the piece, where no digits are
            # lost.
            back = -np.log1p(u * np.expm1(-difference[piece])) / np.abs(slope[piece])
            rising = slope[piece] > 0
            x = np.where(rising, edges[1:][piece] - back, edges[:-1][piece] + back)
            envelope = height[piece] + slope[piece] * (x - at[piece])
            accepted = -rng.standard_exponential(len(x)) < (
                self._log_density(x)[0] - self._top - envelope
            )
            out[pending[accepted]] = x[accepted]
            pending = pending[~accepted]
        return out
