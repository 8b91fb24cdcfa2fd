"""Predictions and identified quantities of the composite-kernel models.

The predictive distribution of Girolami & Rogers (2005, section 4.3) is averaged over draws of all
variables. The paper's normal approximation sets beta and gamma to their means; the average keeps
their uncertainty.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import expit
from xarray import Dataset, DataTree

from ...models.composite_kernel import CompositeKernelClassification, CompositeKernelRegression
from ...numerics.normal_regression import primal, solve_lower, solve_upper
from ..engine.moments import RunningMoments
from ..engine.predict import (
    ProbabilityDraws,
    check_draws,
    compared_rows,
    composite_functions,
    stack_of_new_objects,
    tracked_blocks,
)

type CompositeKernelModel = CompositeKernelRegression | CompositeKernelClassification


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
        return model.matrix_weights(_joined(posterior, "beta"))
    return np.ones((posterior.sizes["chain"] * posterior.sizes["draw"], 1))


def _by_draw(values: NDArray, posterior: Dataset, coords: Mapping[str, Any]) -> xr.DataArray:
    """Values (sample, ...) reshaped to (chain, draw, ...), with the dims and coords given."""
    chains = {"chain": posterior["chain"], "draw": posterior["draw"]}
    shape = (posterior.sizes["chain"], posterior.sizes["draw"], *values.shape[1:])
    return xr.DataArray(values.reshape(shape), coords={**chains, **coords}, dims=[*chains, *coords])


def _responses(design: NDArray, beta: NDArray, alpha: NDArray) -> NDArray:
    """Responses (draw, obs), or (draw, obs, output) of alpha (draw, output, function).

    The outputs may have weights beta (draw, output, matrix) of their own.
    """
    if alpha.ndim == 2:
        return composite_functions(design, beta, alpha[:, None])[:, :, 0]
    if beta.ndim == 2:
        return composite_functions(design, beta, alpha)
    each = zip(beta.swapaxes(0, 1), alpha.swapaxes(0, 1), strict=True)
    return np.stack([_responses(design, own, own_alpha) for own, own_alpha in each], axis=-1)


def predict_targets(
    model: CompositeKernelRegression,
    result: DataTree,
    kernels_new: Any,
    *,
    keep_draws: bool,
    progressbar: bool,
    random_seed: int | None = None,
) -> Dataset:
    """Targets of new objects.

    Parameters
    ----------
    random_seed : int, optional
        Seed of the targets drawn for the new objects; by default none are drawn.

    Returns
    -------
    Dataset
        See `predict`.
    """
    posterior = result["posterior"].to_dataset()
    check_draws(model, posterior, "alpha", "beta", "gamma", *(["phi"] * model.collapsed))
    design = _design_of_new_objects(model, kernels_new)
    new = design.to_numpy()
    coords: dict[str, Any] = {"obs": design["obs"]}
    if model.several:
        coords["output"] = list(model.coords["output"])
    shape = tuple(map(len, coords.values()))
    respond = _expected_responses if model.collapsed else _drawn_responses
    parameters = _Parameters.of(model, posterior)
    n_draws = len(parameters)
    moments, within = RunningMoments(), np.zeros(shape)
    draws = np.empty((n_draws, *shape)) if keep_draws else None
    targets = None if random_seed is None else np.empty((n_draws, *shape))
    rng = None if random_seed is None else np.random.default_rng(random_seed)
    with tracked_blocks(n_draws, new[0].size, progressbar) as blocks:
        for block in blocks:
            drawn = parameters[block]
            y, spread, response = respond(model, drawn, new, rng)
            moments.update(y)
            within += spread
            if targets is not None and rng is not None:
                gamma = drawn.others["gamma"]
                noise_sd = gamma.reshape(len(gamma), *[1] * (len(shape) - 1), -1) ** -0.5
                targets[block] = response + noise_sd * rng.standard_normal(response.shape)
            if draws is not None:
                draws[block] = y
    mean, variance = moments.mean, moments.spread**2 + within / n_draws
    noise, dims = (1 / _joined(posterior, "gamma")).mean(axis=0), [*coords]
    predictions = Dataset(
        {
            "mean": (dims, mean, {"long_name": "posterior predictive mean"}),
            "sd": (dims, np.sqrt(variance + noise), {"long_name": "of a new target"}),
            "response_sd": (dims, np.sqrt(variance), {"long_name": "of the response, no noise"}),
        },
        coords=coords,
    )
    if draws is not None:
        predictions["mean_draws"] = _by_draw(draws, posterior, coords)
    if targets is not None:
        predictions["t"] = _by_draw(targets, posterior, coords)
    return predictions


@dataclass(frozen=True)
class _Parameters:
    """Draws of the weights (draw, [output,] matrix), and of alpha, phi and gamma if they exist."""

    beta: NDArray
    others: Mapping[str, NDArray]

    @classmethod
    def of(cls, model: CompositeKernelModel, posterior: Dataset) -> Self:
        """Draws of a posterior, with chains joined."""
        names = [name for name in ("alpha", "phi", "gamma") if name in posterior]
        others = {name: _joined(posterior, name) for name in names}
        return cls(_weights(model, posterior), others)

    def __len__(self) -> int:
        return len(self.beta)

    def __getitem__(self, block: slice) -> Self:
        others = {name: values[block] for name, values in self.others.items()}
        return type(self)(self.beta[block], others)


class _Responses(NamedTuple):
    """Responses of new objects by draw.

    Attributes
    ----------
    mean : ndarray (sample, obs) or (sample, obs, output)
        E[y | draw].
    variance : ndarray (obs,) or float
        Sum of Var[y | draw] over the draws.
    drawn : ndarray, of the same shape as `mean`
        Draws of y, if there is a generator.
    """

    mean: NDArray
    variance: NDArray | float
    drawn: NDArray


def _drawn_responses(
    model: CompositeKernelModel,
    drawn: _Parameters,
    design: NDArray,
    rng: np.random.Generator | None = None,
) -> _Responses:
    """Responses for draws of alpha, whose variance within a draw is 0."""
    y = _responses(design, drawn.beta, drawn.others["alpha"])
    return _Responses(y, 0.0, y)


def _expected_responses(
    model: CompositeKernelRegression,
    drawn: _Parameters,
    design: NDArray,
    rng: np.random.Generator | None = None,
) -> _Responses:
    """Responses with alpha integrated out; with a generator, alpha is drawn.

    These are the moments of girolami2005, section 4.3, at a draw of beta and gamma instead of their
    means. Cost O(N M^2 + M^3) a draw.
    """
    phi, gamma = drawn.others["phi"], drawn.others["gamma"]
    trained, targets = model.design, model.target_values
    expected = np.empty((len(drawn), design.shape[1]))
    responses = np.empty_like(expected)
    spread = np.zeros(design.shape[1])
    rows = zip(expected, responses, drawn.beta, phi, gamma, strict=True)
    for row, response, weights, precisions, g in rows:
        law = primal(np.tensordot(weights, trained, axes=1), g, g * targets, precisions)
        composite = np.tensordot(weights, design, axes=1)
        row[:] = composite @ solve_upper(law.factor, law.half)
        spread += (solve_lower(law.factor, composite.T) ** 2).sum(0)
        if rng is not None:
            response[:] = composite @ law.draw(rng)
    return _Responses(expected, spread, responses)


def probabilities_of(
    model: CompositeKernelClassification, posterior: Dataset, kernels_new: Any
) -> ProbabilityDraws:
    """Return the class probabilities of new objects by draw, for `predict_classes`.

    Reads the draws of alpha and beta in `posterior`. `kernels_new` is as in `predict`.
    """
    check_draws(model, posterior, "alpha", "beta")
    design = _design_of_new_objects(model, kernels_new)
    new, parameters = design.to_numpy(), _Parameters.of(model, posterior)

    def probabilities(block: slice) -> NDArray:
        p = expit(_drawn_responses(model, parameters[block], new).mean)
        return np.stack([1 - p, p], axis=-1)

    return ProbabilityDraws(probabilities, design["obs"])


def identified_quantities(result: DataTree, variant: str) -> Dataset:
    """Weights, noise, scale, and responses of some training objects if alpha is drawn."""
    posterior = result["posterior"].to_dataset()
    quantities = {
        name: posterior[name] for name in ("beta", "gamma", "varsigma") if name in posterior
    }
    if "alpha" in posterior:
        quantities["y"] = _training_responses(result)
    return Dataset(quantities)


def _training_responses(result: DataTree) -> xr.DataArray:
    """Responses y (chain, draw, obs[, output]) of training objects, or of their mean."""
    posterior, data = result["posterior"].to_dataset(), result["constant_data"]
    stack = compared_rows(result)
    alpha = _joined(posterior, "alpha")
    if "beta" in posterior:
        beta = _joined(posterior, "beta")
    else:
        beta = np.broadcast_to(data["beta"].to_numpy(), (len(alpha), stack.sizes["kernel"]))
    n_basis = stack.sizes["basis"]
    y = _responses(stack.to_numpy(), beta, alpha[..., -n_basis:])
    if alpha.shape[-1] > n_basis:
        y += alpha[:, None, ..., 0]
    coords = {"obs": stack["obs"].to_numpy()}
    if y.ndim == 3:
        coords["output"] = posterior["output"].to_numpy()
    return _by_draw(y, posterior, coords)
