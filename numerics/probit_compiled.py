"""Compiled loops of the multinomial-probit link: log probability and gradient, all probabilities.

The quadratures have the nodes of `kernelzoo.numerics.probit`. Compiled loops avoid dozens of
NumPy operations on small arrays per call, which dominate the time of a Hamiltonian trajectory. On
equally spaced nodes exp(-x^2 / 2) follows from two exponentials by recurrence.

The loops call no array functions of numba: each takes longer to compile than this whole file.
"""

import math

import numpy as np

from .compiled import compiled
from .probit import LARGEST_SCORE, LOG_2PI, SQRT_2PI

__all__ = ["fill_probabilities", "probit_kernel"]

# Phi(x) is one in double precision for larger x.
_CERTAIN = 8.5


SOURCES = "numerics/probit.py", "numerics/probit_compiled.py"
# Sums may be reordered for vector instructions, with the semantics of infinities and NaN.
OPTIONS = {"fastmath": {"contract", "reassoc", "nsz"}, "error_model": "numpy", "nogil": True}
_cached = compiled(*SOURCES, **OPTIONS)


@_cached
def _scaled_tail(x, count, middle, coefficients, t, out):  # type: ignore[no-untyped-def]
    """Write (1 - Phi(|x|)) exp(x^2 / 2) of the first `count` entries of `x` to `out`.

    `t` is a work array; `x`, `t` and `out` have at least `count` entries. `middle` and
    `coefficients` define the polynomial of `kernelzoo.numerics.probit`.
    """
    for q in range(count):
        z = abs(x[q])
        t[q] = (z - middle) / (z + middle)
        out[q] = coefficients[-1]
    for degree in range(len(coefficients) - 2, -1, -1):
        coefficient = coefficients[degree]
        for q in range(count):
            out[q] = out[q] * t[q] + coefficient
    for q in range(count):
        out[q] /= 1.0 + abs(x[q])


# A call would take a fifth more time.
@compiled(*SOURCES, **OPTIONS, inline="always")
def _multiply(  # type: ignore[no-untyped-def]
    first, spacing, decay, nodes, middle, coefficients, x, t, scaled, hazard, product, exponent
):
    """Multiply a class's Phi(x) into product exp(exponent); write sqrt(2 pi) phi / Phi to `hazard`.

    Nodes are x = `first` + `spacing` q, and `decay` is exp(-spacing^2). `x`, `t` and
    `scaled` are work arrays.
    """
    for q in range(nodes):
        x[q] = first + spacing * q
    _scaled_tail(x, nodes, middle, coefficients, t, scaled)
    bell, ratio = 0.0, 0.0
    for q in range(nodes):
        if x[q] <= 0:
            exponent[q] -= 0.5 * x[q] * x[q]
            hazard[q] = 1.0
            continue
        # The first positive node starts the recurrence bell(x + h) = bell(x) ratio(x).
        if ratio == 0.0:
            bell = math.exp(-0.5 * x[q] * x[q])
            ratio = math.exp(-spacing * (x[q] + 0.5 * spacing))
        else:
            bell *= ratio
            ratio *= decay
        hazard[q] = bell
        scaled[q] = 1.0 - bell * scaled[q]
    for q in range(nodes):
        product[q] *= scaled[q]
        hazard[q] /= scaled[q]


@_cached
def _mode(gaps, losers, middle, coefficients, x, t, scaled):  # type: ignore[no-untyped-def]
    """Mode of the integrand over the winner's noise, and its width there.

    `gaps`, `x`, `t` and `scaled` hold at least `losers` entries; the last three are work arrays.
    """
    # Insertion sort of the gaps into x.
    for k in range(losers):
        gap = gaps[k]
        place = k
        while place > 0 and x[place - 1] > gap:
            x[place] = x[place - 1]
            place -= 1
        x[place] = gap
    total, mode = 0.0, 0.0
    for k in range(losers):
        total -= x[k]
        mean = total / (k + 2)
        if mean > mode:
            mode = mean
    curvature = 1.0
    for _ in range(100):
        for k in range(losers):
            x[k] = mode + gaps[k]
        _scaled_tail(x, losers, middle, coefficients, t, scaled)
        slope, curvature = 0.0, 1.0
        for k in range(losers):
            bell = 1.0
            if x[k] > 0:
                bell = math.exp(-0.5 * x[k] * x[k])
                scaled[k] = 1.0 - bell * scaled[k]
            hazard = bell / (scaled[k] * SQRT_2PI)
            slope += hazard
            curvature += hazard * (x[k] + hazard)
        if curvature < 1.0:
            curvature = 1.0
        if curvature > losers + 1.0:
            curvature = losers + 1.0
        step = (slope - mode) / curvature
        mode += step
        if abs(step) <= 0.1:
            break
    return mode, 1.0 / math.sqrt(curvature)


@_cached
def probit_kernel(f, labels, nodes, reach, middle, coefficients, work, log_p, gradient):  # type: ignore[no-untyped-def]
    """Fill `log_p` (N,) and `gradient` (N, C) for scores `f` (N, C) and `labels` (N,).

    `work` is a work array of shape `working_memory`.
    """
    n_obs, n_classes = f.shape
    losers = n_classes - 1
    exponent, product, weight = work[0], work[1], work[2]
    x, t, scaled = work[3], work[4], work[5]
    gaps, hazards = work[6], work[7:]
    for n in range(n_obs):
        own = labels[n]
        possible = 0 <= own < n_classes
        for k in range(n_classes):
            gradient[n, k] = 0.0
            possible = possible and abs(f[n, k]) <= LARGEST_SCORE
        if not possible:
            log_p[n] = -math.inf
            continue
        for k in range(losers):
            gaps[k] = f[n, own] - f[n, k + (k >= own)]
        mode, width = _mode(gaps, losers, middle, coefficients, x, t, scaled)
        left = mode - reach * width
        spacing = reach * (1.0 + width) / (nodes - 1)
        decay = math.exp(-spacing * spacing)
        for q in range(nodes):
            u = left + spacing * q
            exponent[q] = -0.5 * u * u
            product[q] = 1.0
        for k in range(losers):
            first = left + gaps[k]
            if first > _CERTAIN:
                for q in range(nodes):
                    hazards[k, q] = 0.0
                continue
            _multiply(
                first,
                spacing,
                decay,
                nodes,
                middle,
                coefficients,
                x,
                t,
                scaled,
                hazards[k],
                product,
                exponent,
            )
        peak = exponent[0]
        for q in range(nodes):
            if exponent[q] > peak:
                peak = exponent[q]
        mass = 0.0
        for q in range(nodes):
            weight[q] = product[q] * math.exp(exponent[q] - peak)
            mass += weight[q]
        log_p[n] = peak + math.log(mass * spacing) - 0.5 * LOG_2PI
        pull = 0.0
        for k in range(losers):
            shift = 0.0
            for q in range(nodes):
                shift += weight[q] * hazards[k, q]
            shift /= mass * SQRT_2PI
            gradient[n, k + (k >= own)] = -shift
            pull += shift
        gradient[n, own] = pull


@_cached
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
    x, t, scaled = np.empty(most), np.empty(most), np.empty(most)
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
            _multiply(
                first,
                spacing,
                decay,
                nodes,
                middle,
                coefficients,
                x,
                t,
                scaled,
                hazards[c],
                product,
                exponent,
            )
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
