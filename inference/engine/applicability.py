"""Reasons why an engine does not apply to a model, shared by the engines that have them."""

from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pymc as pm

__all__ = [
    "coordinates",
    "dask_kernels",
    "discrete_variables",
    "setting_of_no_use",
    "small_only",
    "too_large",
    "unknown_combination",
]

# A matrix over this many coordinates takes 0.8 GB.
LARGEST_DIMENSION = 10_000

# The count takes a compilation. By model: the shapes it was made for, and the count.
_COORDINATES: WeakKeyDictionary[pm.Model, tuple[object, int]] = WeakKeyDictionary()


def discrete_variables(model: pm.Model) -> str | None:
    """Why an engine that needs gradients does not apply; None when every variable has one."""
    if reason := dask_kernels(model):
        return reason
    names = [rv.name for rv in model.discrete_value_vars]
    return f"it needs gradients; {', '.join(names)} is discrete" if names else None


def dask_kernels(model: pm.Model) -> str | None:
    """Why an engine other than VB does not apply to kernels in a Dask array; None in memory."""
    if getattr(model, "blocks", None) is None:
        return None
    return "it needs the kernels in memory; compute() of their DataArray loads them"


def too_large(model: pm.Model) -> str | None:
    """Why an engine with a matrix over all coordinates does not apply; None when it fits."""
    size = coordinates(model)
    if size <= LARGEST_DIMENSION:
        return None
    return (
        f"it needs a matrix over the model's {size:,} coordinates; it does at most "
        f"{LARGEST_DIMENSION:,}"
    )


def coordinates(model: pm.Model) -> int:
    """Count the unconstrained coordinates of a model."""
    shapes = tuple(data.get_value(borrow=True).shape for data in model.data_vars)
    known, size = _COORDINATES.get(model, (None, 0))
    if known != (shapes, len(model.free_RVs)):
        size = sum(np.size(value) for value in model.initial_point().values())
        _COORDINATES[model] = (shapes, len(model.free_RVs)), size
    return size


def small_only(model: pm.Model, most: int | None) -> str | None:
    """Advice against an engine that serves fewer coordinates than the model has, or None."""
    if most is None or (size := coordinates(model)) <= most:
        return None
    return f"small n only: the model has {size:,} coordinates; it serves about {most:,}"


def setting_of_no_use(setting: str, owner: str, reason: str) -> ValueError:
    """Make the error for a setting of an algorithm that does not apply to the model."""
    return ValueError(
        f"The setting {setting!r} of {owner} is one of an algorithm that does not apply: {reason}."
    )


def unknown_combination(model: Any, rules: Iterable[type], others: str = "") -> str | None:
    """Why an algorithm that knows some rules of combination does not apply to the model's, or None.

    `others` names, for the message, further rules that it takes.
    """
    rules, name = tuple(rules), type(model.combination).__name__
    if not isinstance(model.combination, rules):
        names = ", ".join(each.__name__ for each in rules)
        return f"it knows the combinations {names}{others}, not {name}"
    if "beta" in {variable.name for variable in model.deterministics}:
        return f"it draws the weights beta themselves; {name} declares them as a Deterministic"
    return None
