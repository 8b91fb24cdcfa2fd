"""Elliptical slice sampling (Murray, Adams & MacKay 2010, Elliptical slice sampling, Figure 2)."""

from collections.abc import Callable

import numpy as np

__all__ = ["slice_on_ellipse"]

# Arc of an ellipse, in radians, below which the search ends.
_LEAST_BRACKET = 1e-10


def slice_on_ellipse(
    z: np.ndarray,
    current: float,
    log_likelihood: Callable[[np.ndarray], float],
    rng: np.random.Generator,
) -> tuple[np.ndarray, float, int]:
    """Move independent standard normals (n,), whose log likelihood is `current`.

    Returns the new point, `z` itself if rounding of the likelihood leaves an empty slice, its log
    likelihood, and the number of evaluations, about three.
    """
    other = rng.standard_normal(len(z))
    level = current - rng.standard_exponential()
    angle = 2 * np.pi * rng.random()
    lower, upper, evaluations = angle - 2 * np.pi, angle, 0
    while upper - lower > _LEAST_BRACKET:
        proposal = np.cos(angle) * z + np.sin(angle) * other
        proposed = log_likelihood(proposal)
        evaluations += 1
        if proposed >= level:
            return proposal, proposed, evaluations
        lower, upper = (angle, upper) if angle < 0.0 else (lower, angle)
        angle = lower + (upper - lower) * rng.random()
    return z, current, evaluations
