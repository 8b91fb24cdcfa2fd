"""Compiled tail of the normal distribution, shared by the compiled loops of the probit link."""

from .compiled import compiled

__all__ = ["FAST", "scaled_tail"]

#: Allow reordered sums for vector instructions, but keep the semantics of infinities and NaN.
FAST = {"contract", "reassoc", "nsz"}


@compiled("numerics/probit_tail.py", fastmath=FAST, error_model="numpy")
def scaled_tail(x, count, middle, coefficients, t, out):  # type: ignore[no-untyped-def]
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
