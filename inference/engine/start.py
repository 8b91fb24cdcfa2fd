"""Chains that begin at another engine's result."""

from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pytensor.tensor import TensorVariable
from xarray import DataArray, Dataset, DataTree

from ...validation import argument_error
from .compilation import python_mode

__all__ = ["initial_values"]


def initial_values(
    start: DataTree, model: pm.Model, chains: int, rng: np.random.Generator
) -> list[dict[str, NDArray]]:
    """Choose a draw of a result for each chain.

    Parameters
    ----------
    start : DataTree
        A result with a group ``posterior``. Free variables without draws there are left out.
    model : pm.Model
        Model of the chains. Variables are aligned to its coordinates by their labels.
    chains : int
    rng : Generator
        Draws are chosen at random, each once where there are enough.

    Returns
    -------
    list of dict
        One value of each free variable for each chain, as ``initvals`` of ``pm.sample``.

    Raises
    ------
    TypeError
        When `start` is no DataTree.
    ValueError
        When it has no draws of any free variable, or none that are finite and inside the support,
        and when a variable has other labels or another shape than in the model.
    """
    if not isinstance(start, DataTree):
        raise TypeError(f"The 'start' argument of fit must be a result of fit. Got {type(start)}.")
    posterior = start["posterior"].to_dataset() if "posterior" in start.children else Dataset()
    drawn = [rv for rv in model.free_RVs if rv.name in posterior]
    if not drawn:
        names = ", ".join(str(rv.name) for rv in model.free_RVs)
        raise argument_error("start", "fit", f"a result with draws of {names}", "none of them")
    values, usable = {}, np.array(True)
    for rv in drawn:
        found = _aligned(posterior[rv.name], model).to_numpy()
        flat = found.reshape(-1, *found.shape[2:]).astype(rv.dtype)
        inside = _inside(rv, model.rvs_to_transforms[rv], flat)
        if not inside.any():
            rule = f"a result with finite draws inside the support of {rv.name}"
            raise argument_error("start", "fit", rule, "no such draw")
        values[str(rv.name)], usable = flat, usable & inside
    places = np.flatnonzero(usable)
    if not len(places):
        raise argument_error("start", "fit", "a result with finite draws", "no such draw")
    chosen = rng.choice(places, size=chains, replace=len(places) < chains)
    return [{name: x[i] for name, x in values.items()} for i in chosen]


def _inside(rv: TensorVariable, transform: Any, draws: NDArray) -> NDArray[np.bool_]:
    """Whether each draw (draw, ...) has finite unconstrained values."""
    moved = draws
    if transform is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            moved = transform.forward(draws, *rv.owner.inputs).eval(mode=python_mode())
    return np.isfinite(moved).reshape(len(draws), -1).all(axis=1)


def _aligned(draws: DataArray, model: pm.Model) -> DataArray:
    """Draws (chain, draw, ...) of a variable, in the order of the model's dims and coordinates."""
    if missing := {"chain", "draw"}.difference(draws.dims):
        got = f"{draws.name} without {' and '.join(sorted(missing))}"
        raise argument_error("start", "fit", "a result with the dims chain and draw", got)
    dims = tuple(model.named_vars_to_dims.get(str(draws.name), ()))
    known = set(dims) == set(draws.dims) - {"chain", "draw"}
    order: tuple[Any, ...] = dims if known else (...,)
    draws = draws.transpose("chain", "draw", *order)
    for dim in dims if known else ():
        labels = model.coords.get(dim)
        theirs = draws.indexes.get(dim)
        if labels is None or theirs is None or list(theirs) == list(labels):
            continue
        rule = f"a result on the model's labels of {dim}"
        if absent := [label for label in labels if label not in theirs]:
            got = f"no {absent[0]!r} in {draws.name}"
            raise argument_error("start", "fit", rule, got)
        if not theirs.is_unique:
            repeated = theirs[theirs.duplicated()][0]
            raise argument_error("start", "fit", rule, f"{repeated!r} more than once")
        draws = draws.sel({dim: list(labels)})
    shape = tuple(map(int, model.eval_rv_shapes()[str(draws.name)]))
    if draws.shape[2:] != shape:
        rule = f"a result with {draws.name} of shape {shape}"
        raise argument_error("start", "fit", rule, f"{draws.name} of shape {draws.shape[2:]}")
    return draws
