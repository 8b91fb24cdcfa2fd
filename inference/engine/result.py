"""What a paper's algorithm returns, and the layout of every engine's result, an ArviZ DataTree.

Groups: ``posterior`` (dims chain, draw, ...), ``sample_stats``, ``observed_data``,
``constant_data``, ``log_likelihood``; for deterministic engines ``variational`` or ``point`` (the
parameters of the output) and ``trajectory`` (objective by iteration); ``moments`` (means and
standard deviations of variables whose draws are too large to keep). Independent draws form one
chain: R-hat has no meaning for them.

``lp`` in ``sample_stats`` is a log density of the declaration. The attribute ``lp_measure`` says
which one: "constrained", of the variables as declared, or "unconstrained", of their transforms,
Jacobians included.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import arviz as az
import numpy as np
import numpy.typing as npt
import pymc as pm
from pymc.backends.arviz import coords_and_dims_for_inferencedata, find_observations
from xarray import Dataset, DataTree

from ...models.declaration import Declaration, family
from .provenance import constants_of, declaration

Converged = Literal["yes", "no", "unknown", "no fixed point"]

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
    parameters: Dataset
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


def draws_to_tree(
    model: pm.Model,
    draws: Mapping[str, np.ndarray],
    sample_stats: Mapping[str, np.ndarray] | None = None,
) -> DataTree:
    """Tree of one chain from independent draws (draw, ...) and their ``lp`` and ``lq``."""
    coords, dims = coords_and_dims_for_inferencedata(model)
    groups: dict[str, dict[str, Any]] = {
        "posterior": {name: np.asarray(value)[None] for name, value in draws.items()},
        "observed_data": find_observations(model),
        "constant_data": constants_of(model),
    }
    if sample_stats:
        groups["sample_stats"] = {
            name: np.asarray(value)[None] for name, value in sample_stats.items()
        }
    return az.from_dict(
        {name: group for name, group in groups.items() if group},
        coords={name: value for name, value in coords.items() if value is not None},
        dims=dims,
    )


def point_to_tree(
    model: pm.Model,
    values: Mapping[str, np.ndarray],
    sample_stats: Mapping[str, np.ndarray] | None = None,
) -> DataTree:
    """Tree from a single point: the group ``point``, and a posterior of one draw."""
    draws = {name: np.asarray(value)[None] for name, value in values.items()}
    tree = draws_to_tree(model, draws, sample_stats)
    point = tree["posterior"].to_dataset().isel(chain=0, draw=0, drop=True)
    return with_group(tree, "point", point)


def with_group(tree: DataTree, name: str, dataset: Dataset) -> DataTree:
    """Add a group and return the tree."""
    tree[name] = DataTree(dataset)
    return tree


def trajectory(name: str, histories: Sequence[np.ndarray], best: int = 0) -> Dataset:
    """Objective by start and iteration, NaN after a start's last iteration."""
    longest = max(len(history) for history in histories)
    table = np.full((len(histories), longest), np.nan)
    for row, history in zip(table, histories, strict=True):
        row[: len(history)] = history
    return Dataset(
        {name: (("start", "iteration"), table)},
        coords={"start": np.arange(len(table)), "iteration": np.arange(1, longest + 1)},
        attrs={"best_start": best},
    )


def stamp(tree: DataTree, model: pm.Model, **attributes: Any) -> DataTree:
    """Write the attributes of every result."""
    tree.attrs.update(attributes)
    tree.attrs |= {
        "model": type(model).__name__,
        "family": family(model),
        "variant": model.variant if isinstance(model, Declaration) else "",
        **declaration(model),
    }
    tree.attrs.setdefault("converged", "unknown")
    return tree


def constant_variable(tree: DataTree, model: pm.Model) -> str:
    """Name the first variable of which all draws are the same; empty if there is none."""
    for rv in model.free_RVs:
        if rv.name in tree["posterior"]:
            draws = tree["posterior"].to_dataset()[rv.name]
            if (draws == draws[0, 0]).all():
                return str(rv.name)
    return ""


def draws_to_keep(lengths: Sequence[int]) -> int:
    """Length to which chains are cut: as many are kept as give the most draws, as PyMC does."""
    made = {length: length * sum(n >= length for n in lengths) for length in lengths}
    return min(length for length in made if made[length] >= max(made.values()))
