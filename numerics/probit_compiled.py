"""Compiled log probability of the multinomial-probit link, and its gradient in the scores.

The quadrature has the same nodes as in `kernelzoo.numerics.probit`.  Compiled loops avoid dozens of
NumPy operations on small arrays per call, which dominate the time of a Hamiltonian trajectory.  On
equally spaced nodes exp(-x^2 / 2) follows from two exponentials by recurrence.

The loops call no array functions of numba: each takes longer to compile than this whole file.
"""

import math

from .compiled import compiled
from .probit_constants import LARGEST_SCORE, LOG_2PI, SQRT_2PI
from .probit_tail import FAST, scaled_tail

__all__ = ["probit_kernel"]

# Phi(x) is one in double precision for larger x.
_CERTAIN = 8.5


_cached = compiled(
    *("numerics/probit_constants.py", "numerics/probit_tail.py", "numerics/probit_compiled.py"),
    fastmath=FAST,
    error_model="numpy",
    nogil=True,
)


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
        scaled_tail(x, losers, middle, coefficients, t, scaled)
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
            for q in range(nodes):
                x[q] = first + spacing * q
            scaled_tail(x, nodes, middle, coefficients, t, scaled)
            bell, ratio = 0.0, 0.0
            for q in range(nodes):
                if x[q] <= 0:
                    exponent[q] -= 0.5 * x[q] * x[q]
                    hazards[k, q] = 1.0
                    continue
                # The first positive node starts the recurrence bell(x + h) = bell(x) ratio(x).
                if ratio == 0.0:
                    bell = math.exp(-0.5 * x[q] * x[q])
                    ratio = math.exp(-spacing * (x[q] + 0.5 * spacing))
                else:
                    bell *= ratio
                    ratio *= decay
                hazards[k, q] = bell
                scaled[q] = 1.0 - bell * scaled[q]
            for q in range(nodes):
                product[q] *= scaled[q]
                hazards[k, q] /= scaled[q]
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
