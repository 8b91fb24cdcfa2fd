"""Chains that begin at another engine's result."""

from collections.abc import Sequence

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from xarray import DataArray, DataTree

from ...validation import argument_error

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
        When it has no draws of any free variable, or none that are finite, and when a variable has
        other labels or another shape than in the model.
    """
    if not isinstance(start, DataTree):
        raise TypeError(f"The 'start' argument of fit must be a result of fit. Got {type(start)}.")
    posterior = start["posterior"].to_dataset() if "posterior" in start.children else None
    drawn = [rv for rv in model.free_RVs if posterior is not None and rv.name in posterior]
    if posterior is None or not drawn:
        names = ", ".join(str(rv.name) for rv in model.free_RVs)
        raise argument_error("start", "fit", f"a result with draws of {names}", "none of them")
    shapes = model.eval_rv_shapes()
    values = {}
    for rv in drawn:
        found = _aligned(posterior[rv.name], model)
        flat = found.to_numpy().reshape(-1, *found.shape[2:])
        shape = tuple(map(int, shapes[str(rv.name)]))
        if flat.shape[1:] != shape:
            got = f"{rv.name} of shape {flat.shape[1:]}"
            raise argument_error("start", "fit", f"a result with {rv.name} of shape {shape}", got)
        values[str(rv.name)] = flat.astype(rv.dtype)
    finite = np.all(
        [np.isfinite(x).reshape(len(x), -1).all(axis=1) for x in values.values()], axis=0
    )
    usable = np.flatnonzero(finite)
    if not len(usable):
        raise argument_error("start", "fit", "a result with finite draws", "no finite draw")
    chosen = rng.choice(usable, size=chains, replace=len(usable) < chains)
    return [{name: x[i] for name, x in values.items()} for i in chosen]


def _aligned(draws: DataArray, model: pm.Model) -> DataArray:
    """Order the draws of a variable as the model's coordinates."""
    dims: Sequence[str | None] = model.named_vars_to_dims.get(str(draws.name), ())
    for dim in dims:
        labels = model.coords.get(dim) if dim is not None else None
        if labels is None or dim not in draws.coords:
            continue
        theirs = draws.indexes[dim]
        if missing := [label for label in labels if label not in theirs]:
            raise argument_error(
                "start",
                "fit",
                f"a result on the model's labels of {dim}",
                f"no {missing[0]!r} in {draws.name}",
            )
        draws = draws.sel({dim: list(labels)})
    return draws
