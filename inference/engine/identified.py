"""Quantities that the data identify, for comparing engines."""

from collections.abc import Callable

import pymc as pm
from xarray import Dataset, DataTree

from ...models.declaration import family

__all__ = ["identified", "identifies"]

type Quantities = Callable[[DataTree, str], Dataset]

_FUNCTIONS: dict[str, tuple[frozenset[str], Quantities]] = {}


def identifies(model_type: type[pm.Model], *needs: str) -> Callable[[Quantities], Quantities]:
    """Register the function (result, variant) -> Dataset of a model's identified quantities.

    `needs` names the variables whose draws the function reads.
    """

    def decorate(function: Quantities) -> Quantities:
        _FUNCTIONS[model_type.__name__] = frozenset(needs), function
        return function

    return decorate


def identified(result: DataTree, model: pm.Model | None = None) -> Dataset:
    """Quantities (chain, draw, ...) of a result on which its model's engines must agree.

    A saved result can be compared without its model, because its attributes name the model. Without
    a registered function, or without the draws that the function needs, these are all posterior
    variables.

    Parameters
    ----------
    result : DataTree
        Result of `fit`.
    model : pm.Model, optional
        Model of a result whose attributes do not name it yet.
    """
    if "posterior" not in result.children:
        return Dataset()
    posterior = result["posterior"].to_dataset()
    name = family(model) if model is not None else result.attrs.get("family", "")
    variant = (
        getattr(model, "variant", "") if model is not None else result.attrs.get("variant", "")
    )
    needs, function = _FUNCTIONS.get(name, (frozenset(), None))
    if function is None or not needs <= set(posterior.data_vars):
        return posterior
    return function(result, variant)
