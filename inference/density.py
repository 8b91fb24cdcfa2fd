"""The declaration's log density on constrained draws: the judge of every approximation."""

from collections.abc import Callable, Mapping

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.logprob.basic import conditional_logp
from pymc.pytensorf import compile as compile_graph
from pytensor.graph.replace import graph_replace

from .compilation import python_mode

__all__ = ["compile_log_density", "log_density"]


def compile_log_density(model: pm.Model) -> Callable[[Mapping[str, np.ndarray]], np.ndarray]:
    """Make a function of the log joint density of the declaration at values of its free variables.

    It is evaluated by Python: no compiler takes less time than a few thousand evaluations.

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
    density = compile_graph(
        list(values.values()), total, on_unused_input="ignore", mode=python_mode()
    )

    def of_draws(draws: Mapping[str, np.ndarray]) -> np.ndarray:
        arrays = [np.asarray(draws[str(rv.name)], dtype=rv.dtype) for rv in model.free_RVs]
        return np.array([float(density(*point)) for point in zip(*arrays, strict=True)])

    return of_draws


def log_density(model: pm.Model, draws: Mapping[str, np.ndarray]) -> np.ndarray:
    """Log joint density of the declaration at constrained draws (see `compile_log_density`)."""
    return compile_log_density(model)(draws)
