"""Posterior quantities of the multinomial probit: class probabilities, identified contrasts."""

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray import Dataset, DataTree

from ...models.combination import FixedWeights, Mean
from ...models.multinomial_probit import MultinomialProbit
from ...models.probit import class_probabilities
from ..applicability import combination_other_than
from ..composite_functions import (
    blocks,
    check_draws,
    composite_functions,
    stack_of_new_objects,
)
from ..identified import identifies
from ..predict import predictive

# Rules under which f is linear in the weights.
WEIGHTED_SUMS = (Mean, FixedWeights)
# Contrasts are compared on this many training objects at most, evenly spaced.
COMPARED_OBJECTS = 40


def _draws(posterior: Dataset, fixed_weights: NDArray | None) -> tuple[NDArray, NDArray]:
    """Weights (draw, kernel) and regressors (draw, class, basis), chains joined."""
    joined = posterior.stack(sample=("chain", "draw"))
    W = joined["W"].transpose("sample", "class", "basis").values
    if fixed_weights is not None:
        return np.broadcast_to(fixed_weights, (len(W), len(fixed_weights))), W
    return joined["beta"].transpose("sample", "kernel").values, W


@predictive.register
def _(model: MultinomialProbit, result: DataTree, kernels_new: Any, *, keep_draws: bool) -> Dataset:
    if reason := combination_other_than(*WEIGHTED_SUMS)(model):
        raise ValueError(f"predict does not apply: {reason}.")
    posterior = result["posterior"].to_dataset()
    check_draws(model, posterior, "W", "beta")
    stack = stack_of_new_objects(model, kernels_new)
    beta, W = _draws(posterior, None if "beta" in posterior else model["beta"].get_value())
    n_draws, n_classes = W.shape[:2]
    n_obs = stack.sizes["obs"]
    mean, sd = np.empty((2, n_obs, n_classes))
    draws = np.empty((n_draws, n_obs, n_classes)) if keep_draws else None
    for block in blocks(n_obs, n_draws * n_classes):
        p = class_probabilities(composite_functions(stack.values[:, block], beta, W))
        mean[block], sd[block] = p.mean(0), p.std(0)
        if draws is not None:
            draws[:, block] = p
    classes = np.asarray(model.coords["class"])
    predictions = Dataset(
        {
            "probability": (("obs", "class"), mean, {"long_name": "posterior predictive"}),
            "probability_sd": (("obs", "class"), sd, {"long_name": "posterior sd of p"}),
            "label": ("obs", classes[mean.argmax(-1)]),
        },
        coords={"obs": stack["obs"].values, "class": classes},
    )
    if draws is not None:
        shape = (posterior.sizes["chain"], posterior.sizes["draw"], n_obs, n_classes)
        predictions["probability_draws"] = xr.DataArray(
            draws.reshape(shape),
            dims=("chain", "draw", "obs", "class"),
            coords={dim: posterior[dim] for dim in ("chain", "draw")},
        )
    return predictions


@identifies(MultinomialProbit, "W")
def _identified(result: DataTree, variant: str) -> Dataset:
    """Weights, and contrasts of the regression functions with their mean over classes."""
    posterior = result["posterior"].to_dataset()
    data = result["constant_data"]
    learned = variant == Mean.__name__
    if variant not in {rule.__name__ for rule in WEIGHTED_SUMS} or (
        learned and "beta" not in posterior
    ):
        return posterior
    stack = data["K"].transpose("kernel", "obs", "basis")
    chosen = np.unique(np.linspace(0, stack.sizes["obs"] - 1, COMPARED_OBJECTS).round().astype(int))
    stack = stack.isel(obs=chosen)
    beta, W = _draws(posterior, data["beta"].to_numpy() if "beta" in data else None)
    f = composite_functions(stack.values, beta, W)
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
