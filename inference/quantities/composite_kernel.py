"""Posterior quantities of the composite-kernel models: predictions, and what data identify."""

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import expit
from xarray import Dataset, DataTree

from ...custom_steps.normal_regression import primal, solve_lower, solve_upper
from ...models.composite_kernel import CompositeKernelClassification, CompositeKernelRegression
from ..composite_functions import (
    blocks,
    check_draws,
    composite_functions,
    stack_of_new_objects,
)
from ..identified import identifies
from ..predict import predictive

type CompositeKernelModel = CompositeKernelRegression | CompositeKernelClassification

# The model's responses are compared on this many training objects at most, evenly spaced.
COMPARED_OBJECTS = 40


def _joined(posterior: Dataset, name: str) -> NDArray:
    """Draws (sample, ...) of a variable, chains joined."""
    return posterior[name].stack(sample=("chain", "draw")).transpose("sample", ...).to_numpy()


def _design_of_new_objects(model: CompositeKernelModel, kernels_new: Any) -> xr.DataArray:
    """Design (kernel, new obs, function), with bias, of the kernels given to `predict`."""
    stack = stack_of_new_objects(model, kernels_new)
    return xr.DataArray(
        model.with_bias(stack.to_numpy()),
        dims=("kernel", "obs", "function"),
        coords={"obs": stack["obs"]},
    )


def _weights(model: CompositeKernelModel, posterior: Dataset) -> NDArray:
    """Weights (sample, matrix) of the matrices of the design."""
    if model.learned:
        return _joined(posterior, "beta")
    return np.ones((posterior.sizes["chain"] * posterior.sizes["draw"], 1))


def _by_draw(values: NDArray, posterior: Dataset, obs: Any) -> xr.DataArray:
    """Values (sample, obs) as draws of chains again."""
    shape = (posterior.sizes["chain"], posterior.sizes["draw"], len(obs))
    return xr.DataArray(
        values.reshape(shape),
        dims=("chain", "draw", "obs"),
        coords={"chain": posterior["chain"], "draw": posterior["draw"], "obs": obs},
    )


@predictive.register
def _(
    model: CompositeKernelRegression, result: DataTree, kernels_new: Any, *, keep_draws: bool
) -> Dataset:
    posterior = result["posterior"].to_dataset()
    check_draws(model, posterior, "alpha", "beta", "gamma", *(["phi"] * model.collapsed))
    design = _design_of_new_objects(model, kernels_new)
    new, obs = design.to_numpy(), design["obs"].to_numpy()
    respond = _expected_responses if model.collapsed else _drawn_responses
    n_draws = posterior.sizes["chain"] * posterior.sizes["draw"]
    mean, variance = np.empty((2, len(obs)))
    draws = np.empty((n_draws, len(obs))) if keep_draws else None
    for block in blocks(len(obs), n_draws * len(new)):
        y, spread = respond(model, posterior, new[:, block])
        mean[block], variance[block] = y.mean(0), y.var(0) + spread
        if draws is not None:
            draws[:, block] = y
    noise = (1 / _joined(posterior, "gamma")).mean()
    predictions = Dataset(
        {
            "mean": ("obs", mean, {"long_name": "posterior predictive mean"}),
            "sd": ("obs", np.sqrt(variance + noise), {"long_name": "of a new target"}),
            "response_sd": ("obs", np.sqrt(variance), {"long_name": "of the response, no noise"}),
        },
        coords={"obs": design["obs"]},
    )
    if draws is not None:
        predictions["mean_draws"] = _by_draw(draws, posterior, design["obs"])
    return predictions


def _drawn_responses(
    model: CompositeKernelModel, posterior: Dataset, design: NDArray
) -> tuple[NDArray, NDArray | float]:
    """Responses y (sample, obs) of draws of alpha; what they leave out of the variance: nothing."""
    alpha = _joined(posterior, "alpha")
    y = composite_functions(design, _weights(model, posterior), alpha[:, None])[:, :, 0]
    return y, 0.0


def _expected_responses(
    model: CompositeKernelRegression, posterior: Dataset, design: NDArray
) -> tuple[NDArray, NDArray]:
    """E[y | draw] (sample, obs) with alpha integrated out, and the mean of Var[y | draw] (obs).

    Costs O(N M^2 + M^3) a draw.
    """
    beta, phi, gamma = (
        _weights(model, posterior),
        _joined(posterior, "phi"),
        _joined(posterior, "gamma"),
    )
    trained, targets = model.design, model.target_values
    expected = np.empty((len(beta), design.shape[1]))
    spread = np.zeros(design.shape[1])
    for row, weights, precisions, g in zip(expected, beta, phi, gamma, strict=True):
        law = primal(np.tensordot(weights, trained, axes=1), g, g * targets, precisions)
        composite = np.tensordot(weights, design, axes=1)
        row[:] = composite @ solve_upper(law.factor, law.half)
        spread += (solve_lower(law.factor, composite.T) ** 2).sum(0)
    return expected, spread / len(beta)


@predictive.register
def _(
    model: CompositeKernelClassification, result: DataTree, kernels_new: Any, *, keep_draws: bool
) -> Dataset:
    posterior = result["posterior"].to_dataset()
    check_draws(model, posterior, "alpha", "beta")
    design = _design_of_new_objects(model, kernels_new)
    new, obs = design.to_numpy(), design["obs"].to_numpy()
    classes = np.asarray(model.coords["class"])
    n_draws = posterior.sizes["chain"] * posterior.sizes["draw"]
    mean, sd = np.empty((2, len(obs)))
    draws = np.empty((n_draws, len(obs))) if keep_draws else None
    for block in blocks(len(obs), n_draws * len(new)):
        p = expit(_drawn_responses(model, posterior, new[:, block])[0])
        mean[block], sd[block] = p.mean(0), p.std(0)
        if draws is not None:
            draws[:, block] = p
    predictions = Dataset(
        {
            "probability": (
                ("obs", "class"),
                np.stack([1 - mean, mean], axis=1),
                {"long_name": "posterior predictive"},
            ),
            "probability_sd": (
                ("obs", "class"),
                np.stack([sd, sd], axis=1),
                {"long_name": "posterior sd of p"},
            ),
            "label": ("obs", classes[(mean > 0.5).astype(int)]),
        },
        coords={"obs": design["obs"], "class": classes},
    )
    if draws is not None:
        both = np.stack([1 - draws, draws], axis=-1)
        predictions["probability_draws"] = xr.concat(
            [_by_draw(both[..., c], posterior, design["obs"]) for c in (0, 1)], dim="class"
        ).transpose("chain", "draw", "obs", "class")
    return predictions


@identifies(CompositeKernelRegression, "gamma")
@identifies(CompositeKernelClassification, "alpha")
def _identified(result: DataTree, variant: str) -> Dataset:
    """Weights, noise, and the responses of some training objects where alpha is drawn."""
    posterior = result["posterior"].to_dataset()
    quantities = {name: posterior[name] for name in ("beta", "gamma") if name in posterior}
    if "alpha" in posterior:
        quantities["y"] = _training_responses(posterior, result["constant_data"].to_dataset())
    return Dataset(quantities)


def _training_responses(posterior: Dataset, data: Dataset) -> xr.DataArray:
    """Responses y (chain, draw, obs) of evenly spaced training objects."""
    stack = data["K"].transpose("kernel", "obs", "basis")
    chosen = np.unique(np.linspace(0, stack.sizes["obs"] - 1, COMPARED_OBJECTS).round().astype(int))
    stack = stack.isel(obs=chosen)
    alpha = _joined(posterior, "alpha")
    if "beta" in posterior:
        beta = _joined(posterior, "beta")
    else:
        beta = np.broadcast_to(data["beta"].to_numpy(), (len(alpha), stack.sizes["kernel"]))
    n_basis = stack.sizes["basis"]
    y = composite_functions(stack.to_numpy(), beta, alpha[:, None, -n_basis:])[:, :, 0]
    if alpha.shape[1] > n_basis:
        y += alpha[:, :1]
    return _by_draw(y, posterior, stack["obs"].to_numpy())
