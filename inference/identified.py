"""Quantities that the data identify, on which engines can be compared."""

from collections.abc import Callable

import pymc as pm
from xarray import Dataset, DataTree

__all__ = ["identified", "identifies"]

_FUNCTIONS: dict[str, Callable[[DataTree], Dataset]] = {}


def identifies(
    model_type: type[pm.Model],
) -> Callable[[Callable[[DataTree], Dataset]], Callable[[DataTree], Dataset]]:
    """Register the function that maps a result of `model_type` to its identified quantities."""

    def decorate(function: Callable[[DataTree], Dataset]) -> Callable[[DataTree], Dataset]:
        _FUNCTIONS[model_type.__name__] = function
        return function

    return decorate


def identified(result: DataTree) -> Dataset:
    """Quantities (chain, draw, ...) of a result on which its model's engines must agree.

    Found by the model's name in the result's attributes, so that a saved result can be compared
    without its model. A model without such a function is compared on all of its posterior.

    Parameters
    ----------
    result : DataTree
        Result of `fit`.
    """
    function = _FUNCTIONS.get(result.attrs.get("model", ""))
    return function(result) if function else result["posterior"].to_dataset()
