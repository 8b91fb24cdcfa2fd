"""Predictions and identified quantities of the composite-kernel models.

The predictive distribution of Girolami & Rogers (2005, section 4.3) is averaged over draws of all
variables. The paper's normal approximation sets beta and gamma to their means; the average keeps
their uncertainty.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from xarray import DataArray, Dataset, DataTree

from ...models.composite_kernel import CompositeKernelClassification, CompositeKernelRegression
from ...numerics.normal_regression import primal, solve_lower, solve_upper
from ..engine.result import joined_draws
from ..new_objects import (
    Responses,
    by_draw,
    check_draws,
    compared_rows,
    composite_functions,
    judged_probabilities,
    stack_of_new_objects,
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


def responses_by_draw(design: NDArray, beta: NDArray, alpha: NDArray) -> NDArray:
    """Responses (draw, obs), or (draw, obs, output) of alpha (draw, output, function)."""
    if alpha.ndim == 2:
        return composite_functions(design, beta, alpha[:, None])[:, :, 0]
    return composite_functions(design, beta, alpha)


def responses_of(
    model: CompositeKernelRegression, posterior: Dataset, kernels_new: Any
) -> tuple[Callable[[slice, np.random.Generator], Responses], DataArray]:
    """Return the responses of new objects by draw, for `predict_targets`."""
    check_draws(model, posterior, "alpha", "beta", "gamma", *(["phi"] * model.collapsed))
    stack = stack_of_new_objects(model, kernels_new)
    parameters = _draws_of(model, posterior)
    new = model.functions(stack.to_numpy())

    def responses(block: slice, rng: np.random.Generator) -> Responses:
        drawn = {name: values[block] for name, values in parameters.items()}
        if model.collapsed:
            return _expected_responses(model, drawn, new, rng)
        y = responses_by_draw(new, drawn["weights"], drawn["alpha"])
        return Responses(y, np.zeros_like(y), y)

    return responses, stack["obs"]


def _expected_responses(
    model: CompositeKernelRegression,
    drawn: Mapping[str, NDArray],
    design: NDArray,
    rng: np.random.Generator,
) -> Responses:
    """Responses with alpha integrated out.

    alpha is integrated out at each draw of beta and gamma (section 4.3). O(N M^2 + M^3) per draw.
    """
    expected = []
    variances = []
    responses = []
    for beta, phi, gamma in zip(drawn["weights"], drawn["phi"], drawn["gamma"], strict=True):
        trained = np.tensordot(beta, model.design, axes=1)
        law = primal(trained, gamma, gamma * model.target_values, phi)
        composite = np.tensordot(beta, design, axes=1)
        expected.append(composite @ solve_upper(law.factor, law.half))
        variances.append((solve_lower(law.factor, composite.T) ** 2).sum(0))
        responses.append(composite @ law.draw(rng))
    return Responses(np.stack(expected), np.stack(variances), np.stack(responses))


def probabilities_of(
    model: CompositeKernelClassification, posterior: Dataset, kernels_new: Any
) -> tuple[Callable[[slice], NDArray], DataArray]:
    """Return the class probabilities of new objects by draw, for `predict_classes`.

    Reads the draws of alpha and beta in `posterior`. `kernels_new` is as in `predict`.
    """
    check_draws(model, posterior, "alpha", "beta")
    stack = stack_of_new_objects(model, kernels_new)
    drawn = _draws_of(model, posterior)
    new = model.functions(stack.to_numpy())

    def probabilities(block: slice) -> NDArray:
        y = responses_by_draw(new, drawn["weights"][block], drawn["alpha"][block])
        return probabilities_by_draw(y)

    return probabilities, stack["obs"]


def probabilities_by_draw(responses: NDArray) -> NDArray:
    """Probabilities (draw, obs, class) of both classes, for responses (draw, obs)."""
    p = expit(responses)
    return np.stack([1 - p, p], axis=-1)


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
    y = responses_by_draw(stack.to_numpy(), beta, alpha[..., -n_basis:])
    if alpha.shape[-1] > n_basis:
        y += alpha[:, None, ..., 0]
    coords = {"obs": stack["obs"].to_numpy()}
    if y.ndim == 3:
        coords["output"] = posterior["output"].to_numpy()
    return Dataset(quantities | {"y": by_draw(y, posterior, coords)})


def predicted_responses(quantities: Dataset) -> Dataset:
    """Responses (chain, draw, obs), or all quantities without them."""
    return quantities[["y"]] if "y" in quantities else quantities


def predicted_probabilities(quantities: Dataset) -> Dataset:
    """Probabilities (chain, draw, obs) of the second class, or all quantities without responses."""
    return judged_probabilities(expit(quantities["y"])) if "y" in quantities else quantities
