"""Functions of new objects on composite kernels, from draws of the weights: what predicts."""

from functools import singledispatch
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from xarray import Dataset

from ..models.checks import argument_error
from ..models.combination import Binary, Combination, FixedWeights, Mean
from ..models.kernels import as_stack

__all__ = [
    "blocks",
    "check_draws",
    "combined_functions",
    "composite_functions",
    "stack_of_new_objects",
]

# Largest block of functions held at once, in numbers (64 MB).
BLOCK = 8_000_000


def stack_of_new_objects(model: pm.Model, kernels_new: Any) -> xr.DataArray:
    """Kernels between new and training objects, checked against those of the model.

    Parameters
    ----------
    model : pm.Model
        With data ``K`` (kernel, obs, basis).
    kernels_new : stack of kernels (kernel, new obs, basis)
        As given to `predict`.

    Raises
    ------
    ValueError
        For None, and for kernels that are not of the model's names and training objects.
    """
    if kernels_new is None:
        raise argument_error(
            "kernels_new", "predict", "kernels between new and training objects", "None"
        )
    dims = ("kernel", "obs", "basis")
    trained = xr.DataArray(
        model["K"].get_value(),
        dims=dims,
        coords={dim: np.asarray(model.coords[dim]) for dim in dims},
    )
    return as_stack(kernels_new, like=trained, owner="predict", argument="kernels_new")


def check_draws(model: pm.Model, posterior: Dataset, *names: str) -> None:
    """Raise unless the result holds draws of those of the variables that are random."""
    free = {rv.name for rv in model.free_RVs}
    for name in names:
        if name in free and name not in posterior:
            raise argument_error("result", "predict", f"a result with draws of {name}", "none")


def composite_functions(stack: NDArray, beta: NDArray, W: NDArray) -> NDArray:
    """Functions f (draw, obs, class) = sum_s beta_s K_s w_c of draws of the weights.

    Parameters
    ----------
    stack : ndarray (kernel, obs, basis)
    beta : ndarray (draw, kernel)
    W : ndarray (draw, class, basis)

    Notes
    -----
    Cost O(draws S N M C).
    """
    n_draws, n_classes, n_basis = W.shape
    regressors = W.reshape(-1, n_basis).T
    f = np.zeros((n_draws, stack.shape[1], n_classes))
    for kernel, weight in zip(stack, beta.T, strict=True):
        projected = (kernel @ regressors).reshape(-1, n_draws, n_classes)
        f += weight[:, None, None] * projected.transpose(1, 0, 2)
    return f


@singledispatch
def combined_functions(
    rule: Combination, stack: NDArray, beta: NDArray, W: NDArray
) -> NDArray[np.float64]:
    """Functions f (draw, obs, class) on the composite kernel of any rule.

    Parameters
    ----------
    rule : Combination
    stack : ndarray (kernel, obs, basis)
    beta : ndarray (draw, kernel)
    W : ndarray (draw, class, basis)

    Notes
    -----
    Cost O(draws N M (S + C)), one composite kernel a draw; sums need none.
    """
    terms = rule.terms(stack)
    f = np.empty((len(W), stack.shape[1], W.shape[1]))
    for values, weights, regressors in zip(f, beta, W, strict=True):
        np.matmul(rule.from_terms(np.tensordot(weights, terms, axes=1)), regressors.T, out=values)
    return f


@combined_functions.register(Mean)
@combined_functions.register(FixedWeights)
@combined_functions.register(Binary)
def _(rule: Combination, stack: NDArray, beta: NDArray, W: NDArray) -> NDArray[np.float64]:
    return composite_functions(stack, beta, W)


def blocks(n_obs: int, numbers_an_object: int) -> list[slice]:
    """Slices of the objects so that a block of functions has `BLOCK` numbers at most."""
    size = max(1, BLOCK // numbers_an_object)
    return [slice(start, start + size) for start in range(0, n_obs, size)]
