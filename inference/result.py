"""The one layout of every engine's answer: an ArviZ DataTree.

Groups: ``posterior`` (dims chain, draw, ...), ``sample_stats``, ``observed_data``,
``constant_data``, ``log_likelihood``; for deterministic engines ``variational`` or ``point`` (the
parameters of the answer) and ``trajectory`` (objective by iteration). Independent draws come as
one chain: R-hat says nothing about them.
"""

import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Literal

import arviz as az
import numpy as np
import pymc as pm
from pymc.backends.arviz import (
    coords_and_dims_for_inferencedata,
    find_constants,
    find_observations,
)
from xarray import Dataset, DataTree

__all__ = ["Converged", "draws_to_tree", "stamp", "with_group"]

Converged = Literal["yes", "no", "unknown"]

_VERSIONED = ("kernelzoo", "pymc", "pytensor", "arviz", "numpy", "scipy")


def draws_to_tree(
    model: pm.Model,
    draws: Mapping[str, np.ndarray],
    sample_stats: Mapping[str, np.ndarray] | None = None,
) -> DataTree:
    """Tree from independent draws, arrays (draw, ...), as one chain.

    Parameters
    ----------
    model : pm.Model
        Gives dims, coords, observed and constant data.
    draws : mapping of str to array (draw, ...)
        Draws of the model's variables.
    sample_stats : mapping of str to array (draw, ...), optional
        For example ``lp`` and ``lq``.
    """
    coords, dims = coords_and_dims_for_inferencedata(model)
    groups: dict[str, dict[str, Any]] = {
        "posterior": {name: np.asarray(value)[None] for name, value in draws.items()},
        "observed_data": find_observations(model),
        "constant_data": find_constants(model),
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


def with_group(tree: DataTree, name: str, dataset: Dataset) -> DataTree:
    """Add a group and return the tree."""
    tree[name] = DataTree(dataset)
    return tree


def stamp(tree: DataTree, **attributes: Any) -> DataTree:
    """Write the attributes every result carries; keeps those that the engine has set."""
    tree.attrs.update(attributes)
    tree.attrs.setdefault("converged", "unknown")
    tree.attrs["versions"] = json.dumps({name: version(name) for name in _VERSIONED})
    return tree
