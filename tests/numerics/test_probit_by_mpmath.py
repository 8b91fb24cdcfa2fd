"""The probit log probability against quadrature in thirty digits."""

import mpmath
import numpy as np
import pytest

from kernelzoo.numerics.probit import log_probability_and_gradient

# Two hundred points in all.
NUMBERS = {2: 80, 3: 80, 10: 30, 50: 10}


def _reference(f, winner, loser):
    """Log probability of a class, and the gradient in one of the other scores."""
    with mpmath.workdps(30):
        gaps = [mpmath.mpf(f[winner]) - mpmath.mpf(x) for i, x in enumerate(f) if i != winner]
        place = loser - (loser > winner)

        def log_integrand(u):
            return -(u**2) / 2 + sum(mpmath.log(mpmath.ncdf(u + gap)) for gap in gaps)

        # The integrand is log-concave: its mode lies between zero and where all losers are beaten.
        low, high = mpmath.mpf(0), max(mpmath.mpf(0), -min(gaps)) + 1
        for _ in range(200):
            middle = (low + high) / 2
            slope = -middle + sum(
                mpmath.npdf(middle + gap) / mpmath.ncdf(middle + gap) for gap in gaps
            )
            low, high = (middle, high) if slope > 0 else (low, middle)
            if high - low < 1e-8:
                break
        top = log_integrand(low)
        pieces = [low + step for step in (-14, -6, -2, -0.5, 0.5, 2, 6, 14)]

        def weight(u):
            return mpmath.exp(log_integrand(u) - top)

        def slope_times_weight(u):
            hazard = mpmath.npdf(u + gaps[place]) / mpmath.ncdf(u + gaps[place])
            return weight(u) * hazard

        mass = mpmath.quad(weight, pieces)
        log_p = top + mpmath.log(mass) - mpmath.log(2 * mpmath.pi) / 2
        return float(log_p), float(-mpmath.quad(slope_times_weight, pieces) / mass)


def _check(n_classes, number):
    rng = np.random.default_rng(n_classes)
    sizes = np.logspace(-3, 4, number)
    f = rng.normal(size=(number, n_classes)) * sizes[:, None]
    t = rng.integers(n_classes, size=number)
    losers = (t + rng.integers(1, n_classes, size=number)) % n_classes
    log_p, gradient = log_probability_and_gradient(f, t)
    for n in range(number):
        value, slope = _reference(f[n], t[n], losers[n])
        # Rounding of the exponent, a number of the order of the squared scores.
        error = 1e-8 + 1e-15 * sizes[n] ** 2
        assert abs(log_p[n] - value) <= error * max(1.0, abs(value) ** 0.5)
        assert abs(gradient[n, losers[n]] - slope) <= error * max(1.0, abs(slope))


def test_values_and_gradients_at_a_few_scores():
    _check(3, 4)


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", NUMBERS)
def test_values_and_gradients_at_scores_of_all_sizes(n_classes):
    _check(n_classes, NUMBERS[n_classes])
