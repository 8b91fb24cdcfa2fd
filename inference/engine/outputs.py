"""Outputs of the handwritten algorithms, which the engines turn into results."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import xarray as xr

from .result import Converged

type Array = npt.NDArray[np.float64]
type Sample = Callable[[int, np.random.Generator], Mapping[str, Array]]
# Posterior mean and standard deviation of a variable; None for an infinite standard deviation.
type Moments = tuple[Array, Array | None]


@dataclass(frozen=True)
class VariationalOutput:
    """An approximate posterior q and the history of its bound.

    Attributes
    ----------
    elbo : list of array of shape (iterations,)
        The objective after each iteration, one array per start.
    best : int
        Index of the start with the highest final objective, which `parameters` and `sample`
        describe.
    converged : bool
        Whether that start met the tolerance.
    parameters : Dataset
        Parameters of q with the model's dims and coords.
    sample : callable (draws, rng) -> (dict of array (draw, ...), array (draw,))
        Independent draws of every free random variable, on its constrained space, and their log q,
        with respect to the same measure as PyMC's constrained log density.
    moments : mapping of str to (mean, sd or None), optional
        Those moments under q that have a closed form. None: moments are taken from the draws.
    """

    elbo: list[Array]
    best: int
    converged: bool
    parameters: xr.Dataset
    sample: Callable[[int, np.random.Generator], tuple[Mapping[str, Array], Array]]
    moments: Mapping[str, Moments] | None = None


@dataclass(frozen=True)
class ExactOutput:
    """Independent sampler of the posterior.

    Attributes
    ----------
    sample : callable (draws, rng) -> dict of array (draw, ...)
        Independent draws of every free random variable, on its constrained space.
    moments : mapping of str to (mean, sd or None), optional
        Those posterior moments of free variables or deterministics that have a closed form. None:
        moments are taken from the draws.
    log_evidence : float, optional
    tails : mapping of str to float or array, optional
        Tail index of a variable or of each of its elements: E|x|^p is finite only for p below it.
        Moments from draws are NaN where they are known to be infinite.
    """

    sample: Sample
    moments: Mapping[str, Moments] | None = None
    log_evidence: float | None = None
    tails: Mapping[str, float | Array] = field(default_factory=dict)


@dataclass(frozen=True)
class PointOutput:
    """A single point, such as a mode, and the history of the search.

    Attributes
    ----------
    values : mapping of str to array
        Values of free variables and deterministics, without those that are integrated out.
    climbs : list of array of shape (iterations,)
        Objective of the algorithm after each iteration, one array per start.
    converged : {"yes", "no", "no fixed point"}
    note : str
        Remark on the point, for the result.
    best : int
        Index of the start that gave `values`.
    log_density : float, optional
        Log density of the declaration at the point.
    attributes : mapping of str to str or float
        Attributes of the result, such as ``lp_measure``, the measure of `log_density`.
    ends : mapping of str to array of shape (start, ...)
        Final values of every start, for the variables that tell the points apart.
    """

    values: Mapping[str, Array]
    climbs: list[Array]
    converged: Converged
    note: str = ""
    best: int = 0
    log_density: float | None = None
    attributes: Mapping[str, str | float] = field(default_factory=dict)
    ends: Mapping[str, Array] = field(default_factory=dict)
