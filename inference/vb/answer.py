"""What every handwritten variational algorithm returns."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xarray as xr

__all__ = ["VariationalAnswer"]

type Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class VariationalAnswer:
    """An approximate posterior q and the history of its bound.

    Attributes
    ----------
    elbo : list of array of shape (iterations,)
        The objective after each iteration, one array a start.
    best : int
        Index of the start with the highest final objective: the one that `parameters` and `sample`
        describe.
    converged : bool
        Whether that start met the tolerance.
    parameters : Dataset
        Parameters of q with the model's dims and coords.
    sample : callable (draws, rng) -> (dict of array (draw, *shape), array (draw,))
        Independent draws of every free random variable, on its constrained space, and log q there,
        with respect to the same measure as PyMC's constrained log density.
    """

    elbo: list[Array]
    best: int
    converged: bool
    parameters: xr.Dataset
    sample: Callable[[int, np.random.Generator], tuple[dict[str, Array], Array]]
