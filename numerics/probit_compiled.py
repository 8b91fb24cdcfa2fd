"""Compiled loops of the multinomial-probit link; `probit` has the formulas and the notation.

NumPy's dozens of operations on small arrays per call would dominate the time of a Hamiltonian
trajectory. On equally spaced nodes exp(-x^2 / 2) follows from two exponentials by recurrence.
Phi(x) is computed as Phi(x) exp(min(x, 0)^2 / 2), which lies between 1 / (2 + 2.6 |x|) and 1, so
that its product over the classes needs one logarithm only.
"""

import math

import numpy as np

from .compiled import compiled
from .probit import HALF_WIDTH_IN_SDS, LARGEST_SCORE, LOG_2PI, MIDDLE, SQRT_2PI, TAIL

# A loser whose score is this much lower changes the probability by less than 1e-11, relatively:
# P(t | f) over that without the loser is at least Phi(gap / sqrt 2), for all scores of the others.
_CERTAIN = 9.5
# A product of scaled distribution functions below this goes into the exponent, lest it underflows.
_SMALL = 1e-150
# Rows of a work array besides the hazards.
_ROWS = 6

SOURCES = "numerics/probit.py", "numerics/probit_compiled.py"
# Sums may be reordered for vector instructions, with the semantics of infinities and NaN.
OPTIONS = {"fastmath": {"contract", "reassoc", "nsz"}, "error_model": "numpy", "nogil": True}
_cached = compiled(*SOURCES, **OPTIONS)


@_cached
def _scaled_tail(x, count, t, out):  # type: ignore[no-untyped-def]
    """Write (1 - Phi(|x|)) exp(x^2 / 2) of the first `count` entries to `out`; `t` is for work."""
    for q in range(count):
        z = abs(x[q])
        t[q] = (z - MIDDLE) / (z + MIDDLE)
        out[q] = TAIL[-1]
    for degree in range(len(TAIL) - 2, -1, -1):
        coefficient = TAIL[degree]
        for q in range(count):
            out[q] = out[q] * t[q] + coefficient
    for q in range(count):
        out[q] /= 1.0 + abs(x[q])


# A call would take a fifth more time.
@compiled(*SOURCES, **OPTIONS, inline="always")
def _multiply(first, spacing, nodes, work, hazard):  # type: ignore[no-untyped-def]
    """Multiply a class's Phi(x) into product exp(exponent); write sqrt(2 pi) phi / Phi to `hazard`.

    Nodes are x = `first` + `spacing` q. Rows of `work` are the exponent, product, and three more.
    """
    exponent = work[0]
    product = work[1]
    x = work[2]
    t = work[3]
    scaled = work[4]
    for q in range(nodes):
        x[q] = first + spacing * q
    _scaled_tail(x, nodes, t, scaled)
    decay = math.exp(-spacing * spacing)
    bell = 0.0
    ratio = 0.0
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
    # The factors, and so the product, are smallest at the first node.
    if product[0] < _SMALL:
        for q in range(nodes):
            exponent[q] += math.log(product[q])
            product[q] = 1.0


@_cached
def _mode(gaps, losers, x, t, scaled):  # type: ignore[no-untyped-def]
    """Point at or below the mode of the integrand, Newton's step from it, and the width there.

    The other arguments are for work, of at least `losers` entries.
    """
    # Start: with max(-x, 0) in place of the hazard of x, h' is a maximum of lines, whose largest
    # root lies below the mode at a distance of order one. Insertion sort of the gaps into x.
    for k in range(losers):
        gap = gaps[k]
        place = k
        while place > 0 and x[place - 1] > gap:
            x[place] = x[place - 1]
            place -= 1
        x[place] = gap
    total = 0.0
    below = 0.0
    for k in range(losers):
        total -= x[k]
        below = max(below, total / (k + 2))
    step = 0.0
    curvature = 1.0
    # Convergence is quadratic: after a step of 0.1 the error is about 0.01, far below the spacing.
    for _ in range(100):
        for k in range(losers):
            x[k] = below + gaps[k]
        _scaled_tail(x, losers, t, scaled)
        slope = 0.0
        curvature = 1.0
        for k in range(losers):
            bell = 1.0
            if x[k] > 0:
                bell = math.exp(-0.5 * x[k] * x[k])
                scaled[k] = 1.0 - bell * scaled[k]
            hazard = bell / (scaled[k] * SQRT_2PI)
            slope += hazard
            curvature += hazard * (x[k] + hazard)
        # Rounding violates these proven bounds for scores of about 1e5 and more.
        curvature = min(max(curvature, 1.0), losers + 1.0)
        step = (slope - below) / curvature
        if abs(step) <= 0.1:
            break
        below += step
    return below, step, 1.0 / math.sqrt(curvature)


@_cached
def _gaps(scores, own, gaps, who):  # type: ignore[no-untyped-def]
    """Write gaps of class `own` to losers that count, and these; return their number, or -1.

    It is -1 for an impossible code or score.
    """
    if not 0 <= own < len(scores):
        return -1
    losers = 0
    for k in range(len(scores)):
        if not abs(scores[k]) <= LARGEST_SCORE:
            return -1
        gap = scores[own] - scores[k]
        if k != own and gap < _CERTAIN:
            gaps[losers] = gap
            who[losers] = k
            losers += 1
    return losers


@_cached
def _integrate(gaps, losers, nodes, work):  # type: ignore[no-untyped-def]
    """Log of the integral of eq (4), the first node, the spacing and the number of nodes.

    `nodes` suffice for as many losers as there are rows. Row 1 of `work` gets the weights of the
    nodes, which sum to one, and the last rows each loser's hazard at the nodes, times sqrt(2 pi).
    """
    exponent = work[0]
    weight = work[1]
    below, step, width = _mode(gaps, losers, work[2], work[3], work[4])
    fewer = (1.0 + math.sqrt(losers + 1)) / (1.0 + math.sqrt(len(work) - _ROWS))
    nodes = min(nodes, 1 + math.ceil((nodes - 1) * fewer))
    left = below + step - HALF_WIDTH_IN_SDS * width
    spacing = HALF_WIDTH_IN_SDS * (1.0 + width) / (nodes - 1)
    for q in range(nodes):
        u = left + spacing * q
        exponent[q] = -0.5 * u * u
        weight[q] = 1.0
    for k in range(losers):
        _multiply(left + gaps[k], spacing, nodes, work, work[_ROWS + k])
    peak = exponent[0]
    for q in range(nodes):
        peak = max(peak, exponent[q])
    mass = 0.0
    for q in range(nodes):
        weight[q] *= math.exp(exponent[q] - peak)
        mass += weight[q]
    for q in range(nodes):
        weight[q] /= mass
    return peak + math.log(mass * spacing) - 0.5 * LOG_2PI, left, spacing, nodes


@_cached
def fill_log_probability(f, labels, nodes, log_p, gradient):  # type: ignore[no-untyped-def]
    """Fill `log_p` (N,) and `gradient` (N, C) for scores `f` (N, C) and codes `labels` (N,)."""
    n_obs, n_classes = f.shape
    work = np.empty((_ROWS + n_classes, max(nodes, n_classes)))
    who = np.empty(n_classes, np.int64)
    gaps = work[5]
    weight = work[1]
    for n in range(n_obs):
        own = labels[n]
        gradient[n] = 0.0
        losers = _gaps(f[n], own, gaps, who)
        if losers <= 0:
            log_p[n] = 0.0 if losers == 0 else -math.inf
            continue
        log_p[n], _, _, used = _integrate(gaps, losers, nodes, work)
        pull = 0.0
        for k in range(losers):
            shift = 0.0
            for q in range(used):
                shift += weight[q] * work[_ROWS + k, q]
            shift /= SQRT_2PI
            gradient[n, who[k]] = -shift
            pull += shift
        gradient[n, own] = pull


@_cached
def fill_student(growth, bend, tau, standard, stretch, tail, slope):  # type: ignore[no-untyped-def]
    """Fill arrays (n,) for v with b sinh(v / b) of Student's t; `growth` is exp(v / b).

    `standard` is that t, of 2 `tau` degrees of freedom and scale one over root `tau`; `stretch` is
    its derivative in v, `tail` its density to the power -1 / (tau + 1/2), and `slope` the
    derivative of the log density of v.
    """
    for i in range(len(growth)):
        standard[i] = 0.5 * bend * (growth[i] - 1.0 / growth[i])
        stretch[i] = 0.5 * (growth[i] + 1.0 / growth[i])
        tail[i] = 1.0 + standard[i] ** 2 / (2.0 * tau)
        pull = (1.0 + 0.5 / tau) * stretch[i] / tail[i]
        slope[i] = standard[i] * (1.0 / (bend * bend * stretch[i]) - pull)


@_cached
def fill_hessian(f, labels, nodes, out):  # type: ignore[no-untyped-def]
    """Add second derivatives to `out` (N, C, C), which is zero."""
    n_obs, n_classes = f.shape
    work = np.empty((_ROWS + n_classes, max(nodes, n_classes)))
    who = np.empty(n_classes, np.int64)
    gaps = work[5]
    weight = work[1]
    mean = work[2]
    for n in range(n_obs):
        own = labels[n]
        losers = _gaps(f[n], own, gaps, who)
        if losers <= 0:
            continue
        _, left, spacing, used = _integrate(gaps, losers, nodes, work)
        for j in range(losers):
            hazard = work[_ROWS + j]
            mean[j] = 0.0
            slope = 0.0
            for q in range(used):
                hazard[q] /= SQRT_2PI
                mean[j] += weight[q] * hazard[q]
                # The derivative of the hazard is -hazard (x + hazard), between -1 and 0.
                x = left + gaps[j] + spacing * q
                slope += weight[q] * min(max(hazard[q] * (x + hazard[q]), 0.0), 1.0)
            a = who[j]
            for k in range(j + 1):
                b = who[k]
                entry = -mean[j] * mean[k]
                for q in range(used):
                    entry += weight[q] * hazard[q] * work[_ROWS + k, q]
                if j == k:
                    entry -= slope
                else:
                    out[n, b, a] = entry
                    out[n, own, a] -= entry
                    out[n, a, own] -= entry
                    out[n, own, own] += entry
                # A gap is the winner's score minus the loser's.
                out[n, a, b] = entry
                out[n, own, b] -= entry
                out[n, b, own] -= entry
                out[n, own, own] += entry


@_cached
def fill_near_mode(gaps, out):  # type: ignore[no-untyped-def]
    """Fill `out` (N,) with points at or below the modes, for gaps (N, C - 1)."""
    n_obs, losers = gaps.shape
    work = np.empty((3, losers))
    for n in range(n_obs):
        below, step, _ = _mode(gaps[n], losers, work[0], work[1], work[2])
        out[n] = below + step


@_cached
def fill_probabilities(scores, bottom, top, per_unit, out):  # type: ignore[no-untyped-def]
    """Fill `out` (N, C) with the probabilities of all classes; each row sums to one.

    The largest of each object's `scores` (N, C) is zero; the winner's value is between `bottom`
    (N,) and `top`, with `per_unit` nodes per unit of this range.
    """
    n_obs, n_classes = scores.shape
    lowest = 0.0
    for n in range(n_obs):
        lowest = min(lowest, bottom[n])
    most = 1 + math.ceil((top - lowest) * per_unit)
    work = np.empty((_ROWS + n_classes, most))
    exponent = work[0]
    product = work[1]
    for n in range(n_obs):
        nodes = 1 + math.ceil((top - bottom[n]) * per_unit)
        spacing = (top - bottom[n]) / (nodes - 1)
        for q in range(nodes):
            product[q] = 1.0
            exponent[q] = 0.0
        for c in range(n_classes):
            _multiply(bottom[n] - scores[n, c], spacing, nodes, work, work[_ROWS + c])
        for q in range(nodes):
            product[q] *= math.exp(exponent[q])
        total = 0.0
        for c in range(n_classes):
            mass = 0.0
            for q in range(nodes):
                mass += work[_ROWS + c, q] * product[q]
            out[n, c] = mass
            total += mass
        for c in range(n_classes):
            out[n, c] /= total
