"""Tail of the normal distribution, compiled: what the loops of the probit link have in common."""

from .compiled import compiled

__all__ = ["FAST", "scaled_tail"]

#: Sums may be reordered into vector instructions; infinities and NaN keep their meaning.
FAST = {"contract", "reassoc", "nsz"}


@compiled("numerics/probit_tail.py", fastmath=FAST, error_model="numpy")
def scaled_tail(x, count, middle, coefficients, t, out):  # type: ignore[no-untyped-def]
    """(1 - Phi(|x|)) exp(x^2 / 2) of the first `count` entries, into `out`; `t` is memory.

    `x`, `t` and `out` are vectors of `count` entries at least.

    `middle` and `coefficients` are those of the polynomial in `kernelzoo.numerics.probit`.
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
