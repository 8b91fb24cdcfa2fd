"""The curvature at a result, as the mass matrix of NUTS."""

from math import inf

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.model.core import ValueGradFunction
from xarray import DataTree

from .curvature import curvature
from .engine import Run
from .start import mean_and_spread

__all__ = ["curvature_at"]

# Least curvature, in inverse squares of the result's standard deviations: variances are at most
# a million times the result's, which may be far too narrow (mean-field VB).
LEAST = 1e-6


def curvature_at(
    start: DataTree, model: pm.Model, run: Run
) -> tuple[NDArray, NDArray, ValueGradFunction]:
    """Minus the Hessian of the log density, made positive definite, and its inverse.

    The Hessian is that at the mean of the result's draws, in unconstrained coordinates. Directions
    of negative curvature have its absolute value.

    Parameters
    ----------
    start : DataTree
        A result with draws.
    model : pm.Model
        Without discrete variables.
    run : Run

    Returns
    -------
    precision, covariance : ndarray (D, D)
        Those of a normal approximation, in the order of the model's value variables.
    density : ValueGradFunction
        The log density and its gradient, as `pm.NUTS` takes them.

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
    covariance = (directions / size) @ directions.T * np.outer(spread, spread)
    return precision, covariance, density
