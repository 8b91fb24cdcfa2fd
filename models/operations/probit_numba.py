"""The multinomial-probit log probability in PyTensor's numba graphs."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from pytensor.graph.basic import Apply
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key

from ...numerics.compiled import source_digest
from ...numerics.probit import default_nodes
from ...numerics.probit_compiled import SOURCES, fill_hessian, fill_log_probability
from .probit_likelihood import ProbitHessian, ProbitLogProbability

# PyTensor caches compiled code by the operation's name and this number, which changes with the
# sources.
SALT = int(source_digest(*SOURCES, "models/operations/probit_numba.py"), 16)

_default_nodes = njit(default_nodes)


@numba_njit
def _copies(f, t):  # type: ignore[no-untyped-def]
    """Scores and codes in one memory layout, for which the loops are compiled."""
    n_objects, n_classes = f.shape
    if t.shape[0] != n_objects:
        raise ValueError("The multinomial probit needs one class code per object.")
    scores = np.empty((n_objects, n_classes))
    codes = np.empty(n_objects, dtype=np.int64)
    for n in range(n_objects):
        codes[n] = t[n]
        for c in range(n_classes):
            scores[n, c] = f[n, c]
    return scores, codes


@numba_njit
def _log_probability_and_gradient(f, t):  # type: ignore[no-untyped-def]
    scores, codes = _copies(f, t)
    log_p, gradient = np.empty(len(scores)), np.empty(scores.shape)
    fill_log_probability(scores, codes, _default_nodes(scores.shape[1]), log_p, gradient)
    return log_p, gradient


@numba_njit
def _hessian(f, t):  # type: ignore[no-untyped-def]
    scores, codes = _copies(f, t)
    out = np.zeros((len(scores), scores.shape[1], scores.shape[1]))
    fill_hessian(scores, codes, _default_nodes(scores.shape[1]), out)
    return out


@register_funcify_default_op_cache_key(ProbitLogProbability)
def _log_probability_op(op: Any, node: Apply, **kwargs: Any) -> tuple[Callable[..., Any], int]:
    return _log_probability_and_gradient, SALT


@register_funcify_default_op_cache_key(ProbitHessian)
def _hessian_op(op: Any, node: Apply, **kwargs: Any) -> tuple[Callable[..., Any], int]:
    return _hessian, SALT
