"""NUTS with the curvature at a result as its mass matrix."""

from collections.abc import Mapping
from math import inf
from typing import Any

import numpy as np
import pymc as pm
from xarray import DataTree

from .curvature import curvature
from .engine import Run
from .start import mean_and_spread

__all__ = ["step_with_curvature"]

# Least curvature, in inverse squares of the result's standard deviations: variances are at most
# a million times the result's, which may be far too narrow (mean-field VB).
LEAST = 1e-6


def step_with_curvature(
    model: pm.Model, start: DataTree, run: Run, options: Mapping[str, Any]
) -> pm.NUTS:
    """Make NUTS with a dense, fixed mass matrix: minus the Hessian of the log density.

    The Hessian is that at the mean of the result's draws, in unconstrained coordinates. Directions
    of negative curvature have its absolute value.

    Parameters
    ----------
    model : pm.Model
        Without discrete variables.
    start : DataTree
        A result with draws.
    run : Run
    options : mapping
        Further arguments of `pm.NUTS`.

    Returns
    -------
    pm.NUTS
        Step for all variables.

    Raises
    ------
    TypeError, ValueError
        As `initial_values`, when the result has no usable draws.

    Notes
    -----
    2 D gradients and one eigendecomposition, O(D^3), for D coordinates.
    """
    x, spread = mean_and_spread(start, model)
    density = model.logp_dlogp_function(ravel_inputs=True, **run.compile_kwargs(inf))
    density.trust_input = True
    hessian = curvature(lambda x: density([x], extra_vars={})[1], x, run)
    size, directions = np.linalg.eigh(-hessian * np.outer(spread, spread))
    size = np.maximum(np.abs(size), LEAST)
    precision = (directions * size) @ directions.T / np.outer(spread, spread)
    return pm.NUTS(model=model, scaling=precision, logp_dlogp_func=density, **options)
