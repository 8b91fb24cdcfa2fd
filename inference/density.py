"""The declaration's log density on constrained draws: the judge of every approximation."""

import math
from collections.abc import Callable, Mapping

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.logprob.basic import conditional_logp
from pymc.pytensorf import compile as compile_graph
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.variable import TensorConstant

from .compilation import python_mode

__all__ = ["compile_log_density", "log_density"]

# Draws are evaluated together as long as their arrays fit in a processor's cache: for each draw, a
# matrix over the longest dimension, or all data where they are more.
ELEMENTS_AT_ONCE = 200_000


def compile_log_density(model: pm.Model) -> Callable[[Mapping[str, np.ndarray]], np.ndarray]:
    """Make a function of the log joint density of the declaration at values of its free variables.

    Python evaluates it for many draws at once: no compiler takes less time than a few thousand
    evaluations.

    No Jacobian enters: variables on a simplex have their density with respect to their first
    coordinates, as the Dirichlet distribution's usual form has it.

    Parameters
    ----------
    model : pm.Model

    Returns
    -------
    callable
        From a mapping of str to array (draw, ...), draws of every free variable, to an array
        (draw,).
    """
    values = {rv: rv.type(name=rv.name) for rv in model.free_RVs}
    observed = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    terms = conditional_logp({**values, **observed})
    potentials = graph_replace(model.potentials, values, strict=False)
    total = pt.sum([term.sum() for term in (*terms.values(), *potentials)])
    batches = {
        value: pt.tensor(value.name, dtype=value.dtype, shape=(None,) * (value.ndim + 1))
        for value in values.values()
    }
    density = compile_graph(
        list(batches.values()),
        vectorize_graph(total, batches),
        on_unused_input="ignore",
        mode=python_mode(),
    )
    inputs = list(graph_inputs([total]))
    constants = [v.data.shape for v in inputs if isinstance(v, TensorConstant)]
    shared = [v for v in inputs if isinstance(v, TensorSharedVariable)]

    def of_draws(draws: Mapping[str, np.ndarray]) -> np.ndarray:
        arrays = [np.asarray(draws[str(rv.name)], dtype=rv.dtype) for rv in model.free_RVs]
        shapes = [array.shape[1:] for array in arrays] + constants
        shapes += [v.get_value(borrow=True).shape for v in shared]
        longest = max((length for shape in shapes for length in shape), default=1)
        elements = max(longest**2, sum(map(math.prod, shapes)))
        step = max(1, ELEMENTS_AT_ONCE // elements)
        starts = range(0, len(arrays[0]), step)
        return np.concatenate([density(*(x[i : i + step] for x in arrays)) for i in starts])

    return of_draws


def log_density(model: pm.Model, draws: Mapping[str, np.ndarray]) -> np.ndarray:
    """Log joint density of the declaration at constrained draws (see `compile_log_density`)."""
    return compile_log_density(model)(draws)
