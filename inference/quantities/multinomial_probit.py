"""Posterior quantities of the multinomial probit: class probabilities, identified contrasts."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray import Dataset, DataTree

from ...models.kernels import as_stack
from ...models.multinomial_probit import MultinomialProbit
from ...models.probit import class_probabilities
from ..identified import identifies
from ..predict import predictive

# Largest block of regression functions held at once, in numbers (64 MB).
BLOCK = 8_000_000
# Contrasts are compared on this many training objects at most, evenly spaced.
COMPARED_OBJECTS = 40


def _blocks(n_draws: int, numbers_a_draw: int) -> Iterator[slice]:
    size = max(1, BLOCK // max(numbers_a_draw, 1))
    yield from (slice(start, start + size) for start in range(0, n_draws, size))


def _draws(posterior: Dataset, fixed_weights: NDArray | None) -> tuple[NDArray, NDArray]:
    """Weights (draw, kernel) and regressors (draw, class, basis), chains joined."""
    joined = posterior.stack(sample=("chain", "draw"))
    W = joined["W"].transpose("sample", "class", "basis").values
    if fixed_weights is not None:
        return np.broadcast_to(fixed_weights, (len(W), len(fixed_weights))), W
    return joined["beta"].transpose("sample", "kernel").values, W


def _regression_functions(stack: NDArray, beta: NDArray, W: NDArray) -> NDArray:
    """Functions f (draw, obs, class) of draws of the weights and regressors: O(draws S N M C)."""
    n_draws, n_classes, n_basis = W.shape
    regressors = W.reshape(-1, n_basis).T
    f = np.zeros((n_draws, stack.shape[1], n_classes))
    for kernel, weight in zip(stack, beta.T, strict=True):
        projected = (kernel @ regressors).reshape(-1, n_draws, n_classes)
        f += weight[:, None, None] * projected.transpose(1, 0, 2)
    return f


@predictive.register
def _(model: MultinomialProbit, posterior: Dataset, kernels_new: Any) -> Dataset:
    trained = xr.DataArray(
        model.design,
        dims=("kernel", "obs", "basis"),
        coords={dim: np.asarray(model.coords[dim]) for dim in ("kernel", "obs", "basis")},
    )
    stack = as_stack(kernels_new, like=trained, owner="predict", argument="kernels_new")
    beta, W = _draws(posterior, None if "beta" in posterior else model["beta"].get_value())
    n_obs, n_classes = stack.sizes["obs"], model.n_classes
    total = np.zeros((n_obs, n_classes))
    squares = np.zeros((n_obs, n_classes))
    for block in _blocks(len(W), n_obs * n_classes):
        p = class_probabilities(_regression_functions(stack.values, beta[block], W[block]))
        total += p.sum(0)
        squares += (p**2).sum(0)
    mean = total / len(W)
    mean /= mean.sum(-1, keepdims=True)
    sd = np.sqrt(np.maximum(squares / len(W) - (total / len(W)) ** 2, 0.0))
    classes = np.asarray(model.coords["class"])
    return Dataset(
        {
            "probability": (("obs", "class"), mean, {"long_name": "posterior predictive"}),
            "probability_sd": (("obs", "class"), sd, {"long_name": "posterior sd of p"}),
            "label": ("obs", classes[mean.argmax(-1)]),
        },
        coords={"obs": stack["obs"].values, "class": classes},
    )


@identifies(MultinomialProbit)
def _identified(result: DataTree) -> Dataset:
    """Weights, and contrasts of the regression functions with their mean over classes."""
    posterior = result["posterior"].to_dataset()
    data = result["constant_data"]
    stack = data["K"].transpose("kernel", "obs", "basis")
    chosen = np.unique(np.linspace(0, stack.sizes["obs"] - 1, COMPARED_OBJECTS).round().astype(int))
    stack = stack.isel(obs=chosen)
    beta, W = _draws(posterior, data["beta"].to_numpy() if "beta" in data else None)
    f = _regression_functions(stack.values, beta, W)
    contrast = (f - f.mean(-1, keepdims=True)).reshape(
        posterior.sizes["chain"], posterior.sizes["draw"], *f.shape[1:]
    )
    quantities = {
        "contrast": xr.DataArray(
            contrast,
            dims=("chain", "draw", "obs", "class"),
            coords={
                "chain": posterior["chain"],
                "draw": posterior["draw"],
                "obs": stack["obs"].values,
                "class": posterior["class"].values,
            },
        )
    }
    if "beta" in posterior:
        quantities["beta"] = posterior["beta"]
    return Dataset(quantities)
