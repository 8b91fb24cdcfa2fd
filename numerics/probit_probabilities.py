"""Compiled class probabilities of many objects and draws.

Uses the nodes and the polynomial of `probit.class_probabilities` and is several times faster. The
first call compiles for seconds, or loads the code from the cache.
"""

import math

import numpy as np
import numpy.typing as npt

from .compiled import compiled
from .probit_tail import FAST, scaled_tail

__all__ = ["fill_probabilities"]

type Array = npt.NDArray[np.float64]


@compiled(
    "numerics/probit_tail.py",
    "numerics/probit_probabilities.py",
    fastmath=FAST,
    error_model="numpy",
)
def fill_probabilities(scores, bottom, top, per_unit, middle, coefficients, out):  # type: ignore[no-untyped-def]
    """Write the probabilities of all classes into `out`; each row sums to one.

    Parameters
    ----------
    scores : ndarray of shape (N, C)
        Scores; the largest of each object is zero.
    bottom, top : ndarray of shape (N,), float
        Range of the winner's value.
    per_unit : float
        Quadrature nodes per unit of the range.
    middle, coefficients : float, ndarray
        Polynomial for the tail of the normal distribution.
    out : ndarray of shape (N, C)
        Array for the result.
    """
    n_obs, n_classes = scores.shape
    most = 1 + math.ceil((top - bottom.min()) * per_unit)
    hazards = np.empty((n_classes, most))
    x, t, tail = np.empty(most), np.empty(most), np.empty(most)
    product, exponent = np.empty(most), np.empty(most)
    for n in range(n_obs):
        nodes = 1 + math.ceil((top - bottom[n]) * per_unit)
        spacing = (top - bottom[n]) / (nodes - 1)
        decay = math.exp(-spacing * spacing)
        for q in range(nodes):
            product[q] = 1.0
            exponent[q] = 0.0
        for c in range(n_classes):
            first = bottom[n] - scores[n, c]
            for q in range(nodes):
                x[q] = first + spacing * q
            scaled_tail(x, nodes, middle, coefficients, t, tail)
            # Recurrence for exp(-x^2 / 2) over the nodes with positive x.
            bell, ratio = 0.0, 0.0
            for q in range(nodes):
                if x[q] <= 0:
                    t[q] = 1.0
                else:
                    if bell == 0.0 and ratio == 0.0:
                        bell = math.exp(-0.5 * x[q] * x[q])
                        ratio = math.exp(-spacing * (x[q] + 0.5 * spacing))
                    t[q] = bell
                    bell *= ratio
                    ratio *= decay
            for q in range(nodes):
                scaled = tail[q]
                below = min(x[q], 0.0)
                exponent[q] -= 0.5 * below * below
                if x[q] > 0:
                    scaled = 1.0 - t[q] * scaled
                hazards[c, q] = t[q] / scaled
                product[q] *= scaled
        for q in range(nodes):
            product[q] *= math.exp(exponent[q])
        total = 0.0
        for c in range(n_classes):
            mass = 0.0
            for q in range(nodes):
                mass += hazards[c, q] * product[q]
            out[n, c] = mass
            total += mass
        for c in range(n_classes):
            out[n, c] /= total
