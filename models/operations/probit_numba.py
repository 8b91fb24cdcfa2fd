"""The multinomial-probit log probability in PyTensor's numba graphs."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, objmode
from pytensor.graph.basic import Apply
from pytensor.link.numba.dispatch.basic import (
    numba_funcify,
    numba_njit,
    register_funcify_default_op_cache_key,
)

from ...numerics.compiled import source_digest
from ...numerics.probit import MIDDLE, REACH, TAIL, default_nodes, hessian, working_memory
from ...numerics.probit_compiled import probit_kernel
from .probit_likelihood import ProbitHessian, ProbitLogProbability

__all__ = ["numba_probit_hessian", "numba_probit_log_probability"]

# PyTensor caches compiled code by the operation's name and this number, which changes with the
# sources.
SOURCES = (
    "numerics/probit.py",
    "numerics/probit_compiled.py",
    "models/operations/probit_numba.py",
)
SALT = int(source_digest(*SOURCES), 16)

_default_nodes = njit(default_nodes)
_working_memory = njit(working_memory)


@register_funcify_default_op_cache_key(ProbitLogProbability)
def numba_probit_log_probability(
    op: ProbitLogProbability, node: Apply, **kwargs: Any
) -> tuple[Callable[..., Any], int]:
    """Return the compiled function (N, C), (N,) -> log_p (N,), gradient (N, C), and its salt."""

    @numba_njit
    def log_probability_and_gradient(f, t):  # type: ignore[no-untyped-def]
        n_objects, n_classes = f.shape
        if t.shape[0] != n_objects:
            raise ValueError("The multinomial probit needs one class code per object.")
        # With copies the kernel is compiled for one memory layout only.
        scores = np.empty((n_objects, n_classes))
        codes = np.empty(n_objects, dtype=np.int64)
        for n in range(n_objects):
            codes[n] = t[n]
            for c in range(n_classes):
                scores[n, c] = f[n, c]
        log_p, gradient = np.empty(n_objects), np.empty((n_objects, n_classes))
        nodes = _default_nodes(n_classes)
        work = np.empty(_working_memory(n_classes, nodes))
        probit_kernel(scores, codes, nodes, REACH, MIDDLE, TAIL, work, log_p, gradient)
        return log_p, gradient

    return log_probability_and_gradient, SALT


@numba_funcify.register(ProbitHessian)
def numba_probit_hessian(op: ProbitHessian, node: Apply, **kwargs: Any) -> Callable[..., Any]:
    """Return the function (N, C), (N,) -> (N, C, C), which calls NumPy."""

    @numba_njit
    def second_derivatives(f, t):  # type: ignore[no-untyped-def]
        with objmode(out="float64[:,:,::1]"):
            out = hessian(f, t)
        return out

    return second_derivatives
