"""What the handwritten algorithms return; the engines turn an output into a result."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import xarray as xr

from .result import Converged

__all__ = ["ExactOutput", "ModeOutput", "Moments", "PointOutput", "VariationalOutput"]

type Array = npt.NDArray[np.float64]
type Sample = Callable[[int, np.random.Generator], Mapping[str, Array]]
# Posterior mean of a variable, and its standard deviation; None when that is infinite.
type Moments = tuple[Array, Array | None]


@dataclass(frozen=True)
class VariationalOutput:
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
    moments : mapping of str to (mean, sd or None), optional
        Moments under q in closed form, those that exist. None: they are taken from the draws.
    """

    elbo: list[Array]
    best: int
    converged: bool
    parameters: xr.Dataset
    sample: Callable[[int, np.random.Generator], tuple[Mapping[str, Array], Array]]
    moments: Mapping[str, Moments] | None = None


@dataclass(frozen=True)
class ExactOutput:
    """The posterior itself, to draw from.

    Attributes
    ----------
    sample : callable (draws, rng) -> dict of array (draw, *shape)
        Independent draws of every free random variable, on its constrained space.
    moments : mapping of str to (mean, sd or None), optional
        Posterior moments in closed form, of free variables or deterministics, those that exist.
        None: they are taken from the draws.
    log_evidence : float, optional
        Log of the marginal likelihood.
    tails : mapping of str to float or array, optional
        How heavy the tails of a variable are, or of each of its elements: E|x|^p is finite for p
        below that number alone. Moments that are taken from draws are NaN where it says that they
        are infinite. A variable that is not named has all its moments, or none is known to fail.
    """

    sample: Sample
    moments: Mapping[str, Moments] | None = None
    log_evidence: float | None = None
    tails: Mapping[str, float | Array] = field(default_factory=dict)


@dataclass(frozen=True)
class PointOutput:
    """A single point, and how it was reached.

    Attributes
    ----------
    values : mapping of str to array
        Values of free variables and deterministics, on their constrained space; those that the
        algorithm integrates out are missing.
    objective : array of shape (iterations,)
        What the algorithm increases, after each iteration.
    converged : {"yes", "no", "no fixed point"}
    note : str
        What a reader of the result must know about the point.
    """

    values: Mapping[str, Array]
    objective: Array
    converged: Converged
    note: str = ""


@dataclass(frozen=True)
class ModeOutput:
    """A mode of a density of the declaration, and how it was climbed.

    Attributes
    ----------
    values : mapping of str to array
        Every free variable, on its constrained space.
    log_density : float
        Of the declaration at the mode.
    climbs : list of array of shape (iterations,)
        What the algorithm increases, after each iteration, one array a start.
    best : int
        Index of the start that `values` come from.
    converged : bool
    attributes : mapping of str to str or float
        Attributes of the result: ``lp_measure``, that of `log_density`, and what the algorithm
        knows of the quality of the mode.
    note : str
        What a reader of the result must know about the mode.
    ends : mapping of str to array of shape (start, *shape)
        Where every start ended, of the variables that tell the modes apart.
    """

    values: Mapping[str, Array]
    log_density: float
    climbs: list[Array]
    best: int
    converged: bool
    attributes: Mapping[str, str | float]
    note: str = ""
    ends: Mapping[str, Array] = field(default_factory=dict)
