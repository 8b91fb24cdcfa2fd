"""Predictions and identified quantities of the composite-kernel models.

The predictive distribution of Girolami & Rogers (2005, section 4.3) is averaged over draws of all
variables. The paper's normal approximation sets beta and gamma to their means; the average keeps
their uncertainty.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import expit
from xarray import DataArray, Dataset, DataTree

from ...models.composite_kernel import CompositeKernelClassification, CompositeKernelRegression
from ...numerics.normal_regression import primal, solve_lower, solve_upper
from ..engine.result import RunningMoments, joined_draws
from ..new_objects import (
    check_draws,
    compared_rows,
    composite_functions,
    judged_probabilities,
    stack_of_new_objects,
    tracked_blocks,
)

type CompositeKernelModel = CompositeKernelRegression | CompositeKernelClassification


def _draws_of(model: CompositeKernelModel, posterior: Dataset) -> dict[str, NDArray]:
    """Weights of the matrices ("weights"), alpha, phi and gamma by draw (sample, ...)."""
    if model.learned:
        weights = model.matrix_weights(joined_draws(posterior["beta"]))
    else:
        weights = np.ones((posterior.sizes["chain"] * posterior.sizes["draw"], 1))
    names = [name for name in ("alpha", "phi", "gamma") if name in posterior]
    return {"weights": weights, **{name: joined_draws(posterior[name]) for name in names}}


def _by_draw(values: NDArray, posterior: Dataset, coords: Mapping[str, Any]) -> xr.DataArray:
    """Values (sample, ...) reshaped to (chain, draw, ...), with the dims and coords given."""
    chains = {"chain": posterior["chain"], "draw": posterior["draw"]}
    shape = (posterior.sizes["chain"], posterior.sizes["draw"], *values.shape[1:])
    return xr.DataArray(values.reshape(shape), coords={**chains, **coords}, dims=[*chains, *coords])


def _responses(design: NDArray, beta: NDArray, alpha: NDArray) -> NDArray:
    """Responses (draw, obs), or (draw, obs, output) of alpha (draw, output, function)."""
    if alpha.ndim == 2:
        return composite_functions(design, beta, alpha[:, None])[:, :, 0]
    return composite_functions(design, beta, alpha)


def predict_targets(
    model: CompositeKernelRegression,
    result: DataTree,
    kernels_new: Any,
    *,
    keep_draws: bool,
    progressbar: bool,
    random_seed: int | None = None,
) -> Dataset:
    """Targets of new objects, as `predict` returns them.

    With a `random_seed`, targets are drawn for the new objects, too.
    """
    posterior = result["posterior"].to_dataset()
    check_draws(model, posterior, "alpha", "beta", "gamma", *(["phi"] * model.collapsed))
    stack, parameters = stack_of_new_objects(model, kernels_new), _draws_of(model, posterior)
    new = model.functions(stack.to_numpy())
    coords: dict[str, Any] = {"obs": stack["obs"]}
    if model.several:
        coords["output"] = list(model.coords["output"])
    shape, gamma = tuple(map(len, coords.values())), parameters["gamma"]
    n_draws = len(gamma)
    moments, within, rng = RunningMoments(), np.zeros(shape), np.random.default_rng(random_seed)
    draws = np.empty((n_draws, *shape)) if keep_draws else None
    variances = np.zeros((n_draws, *shape)) if keep_draws and model.collapsed else np.zeros(1)
    targets = None if random_seed is None else np.empty((n_draws, *shape))
    noise_sd = gamma.reshape(len(gamma), *[1] * (len(shape) - 1), -1) ** -0.5
    with tracked_blocks(n_draws, new[0].size, progressbar) as blocks:
        for block in blocks:
            drawn = {name: values[block] for name, values in parameters.items()}
            if model.collapsed:
                y, variance_of_y, response = _expected_responses(model, drawn, new, rng)
                within += variance_of_y.sum(axis=0)
                if keep_draws:
                    variances[block] = variance_of_y
            else:
                y = response = _responses(new, drawn["weights"], drawn["alpha"])
            moments.update(y)
            if targets is not None:
                noise = noise_sd[block] * rng.standard_normal(response.shape)
                targets[block] = response + noise
            if draws is not None:
                draws[block] = y
    mean, variance = moments.mean, moments.spread**2 + within / n_draws
    target_sd, dims = np.sqrt(variance + (1 / gamma).mean(axis=0)), [*coords]
    variables: dict[str, Any] = {
        "mean": (dims, mean, {"long_name": "posterior predictive mean"}),
        "target_sd": (dims, target_sd, {"long_name": "of a new target"}),
        "response_sd": (dims, np.sqrt(variance), {"long_name": "of the response, no noise"}),
    }
    if draws is not None:
        variables["mean_draws"] = _by_draw(draws, posterior, coords)
        sds = np.broadcast_to(np.sqrt(variances + noise_sd**2), draws.shape)
        variables["target_sd_draws"] = _by_draw(sds, posterior, coords)
    if targets is not None:
        variables["t"] = _by_draw(targets, posterior, coords)
    return Dataset(variables, coords)


def _expected_responses(
    model: CompositeKernelRegression,
    drawn: Mapping[str, NDArray],
    design: NDArray,
    rng: np.random.Generator,
) -> tuple[NDArray, NDArray, NDArray]:
    """E[y | draw], Var[y | draw] and draws of y, each (sample, obs).

    alpha is integrated out at each draw of beta and gamma (section 4.3). O(N M^2 + M^3) per draw.
    """
    expected, variances, responses = [], [], []
    for beta, phi, gamma in zip(drawn["weights"], drawn["phi"], drawn["gamma"], strict=True):
        trained = np.tensordot(beta, model.design, axes=1)
        law = primal(trained, gamma, gamma * model.target_values, phi)
        composite = np.tensordot(beta, design, axes=1)
        expected.append(composite @ solve_upper(law.factor, law.half))
        variances.append((solve_lower(law.factor, composite.T) ** 2).sum(0))
        responses.append(composite @ law.draw(rng))
    return np.stack(expected), np.stack(variances), np.stack(responses)


def probabilities_of(
    model: CompositeKernelClassification, posterior: Dataset, kernels_new: Any
) -> tuple[Callable[[slice], NDArray], DataArray]:
    """Return the class probabilities of new objects by draw, for `predict_classes`.

    Reads the draws of alpha and beta in `posterior`. `kernels_new` is as in `predict`.
    """
    check_draws(model, posterior, "alpha", "beta")
    stack, drawn = stack_of_new_objects(model, kernels_new), _draws_of(model, posterior)
    new = model.functions(stack.to_numpy())

    def probabilities(block: slice) -> NDArray:
        p = expit(_responses(new, drawn["weights"][block], drawn["alpha"][block]))
        return np.stack([1 - p, p], axis=-1)

    return probabilities, stack["obs"]


def identified_quantities(result: DataTree, variant: str) -> Dataset:
    """Weights, noise, scale, and responses of some training objects if alpha is drawn."""
    posterior = result["posterior"].to_dataset()
    quantities = {
        name: posterior[name] for name in ("beta", "gamma", "varsigma") if name in posterior
    }
    if "alpha" not in posterior:
        return Dataset(quantities)
    stack = compared_rows(result)
    alpha = joined_draws(posterior["alpha"])
    known = result["constant_data"].get("beta")
    beta = joined_draws(posterior["beta"]) if known is None else known.to_numpy()[None]
    n_basis = stack.sizes["basis"]
    y = _responses(stack.to_numpy(), beta, alpha[..., -n_basis:])
    if alpha.shape[-1] > n_basis:
        y += alpha[:, None, ..., 0]
    coords = {"obs": stack["obs"].to_numpy()}
    if y.ndim == 3:
        coords["output"] = posterior["output"].to_numpy()
    return Dataset(quantities | {"y": _by_draw(y, posterior, coords)})


def predicted_responses(quantities: Dataset) -> Dataset:
    """Responses (chain, draw, obs), or all quantities without them."""
    return quantities[["y"]] if "y" in quantities else quantities


def predicted_probabilities(quantities: Dataset) -> Dataset:
    """Probabilities (chain, draw, obs) of the second class, or all quantities without responses."""
    return judged_probabilities(expit(quantities["y"])) if "y" in quantities else quantities
