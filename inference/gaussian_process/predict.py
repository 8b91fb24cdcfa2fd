"""Predictions and identified quantities of Gaussian processes.

Given a draw of the hyperparameters and of the scores f of the training objects, or of the landmarks
among them, the score of a new object is normal (Rasmussen & Williams 2006, section 2.2): its mean
is k*'K^-1 f, and its variance k** - k*'K^-1 k*.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import norm, qmc
from xarray import DataArray, Dataset, DataTree

from ...models.gaussian_process import (
    GaussianProcessClassification,
    GaussianProcessRegression,
)
from ...models.kernels.source import VARIANCE
from ...models.kernels.stack import compared_objects
from ...numerics.gaussian_process import cholesky, solve_triangular
from ...numerics.softmax import softmax
from ...validation import argument_error
from ..engine.result import joined_draws
from ..new_objects import (
    Responses,
    check_draws,
    judged_probabilities,
    kernels_of_new_objects,
)
from .hyperparameters import GaussianProcess, Hyperparameters

type Array = NDArray[np.float64]

#: Scores of a new object over which class probabilities are averaged, for all draws together.
SCORES_AVERAGED = 4096
#: Largest relative difference of training objects' variances that count as equal.
EQUAL_VARIANCES = 1e-8


class ScoresOfNewObjects:
    """Mean and variance of the scores of new objects (section 2.2), by draw.

    Draws with equal hyperparameters share a Cholesky factor: O(M^3 + M^2 n) for each distinct one,
    with M landmarks, or training objects.
    """

    def __init__(self, model: GaussianProcess, posterior: Dataset, kernels_new: Any):
        self.hyperparameters = Hyperparameters(model)
        check_draws(model, posterior, "v", *self.hyperparameters.blocks)
        stack = kernels_of_new_objects(model, kernels_new)
        self.obs = stack["obs"]
        self._parametric = kernels_new if self.hyperparameters.source.parameters else None
        self._new = stack.to_numpy()
        self._model = model
        self._stack = stack
        self._draws = {name: joined_draws(posterior[name]) for name in self.hyperparameters.blocks}
        v = joined_draws(posterior["v"])
        #: Whitened scores (draw, basis, function).
        self.v = v.reshape(*v.shape[:2], -1)

    @cached_property
    def prior_variances(self) -> Array:
        """Variances k(x, x) of new objects (kernel, n)."""
        return _variances(self._model, self._stack)

    def means(self, block: slice) -> Array:
        """Means (draw, n, function) of a slice of the draws."""
        return self._of(block, variances=None)

    def __call__(self, block: slice) -> tuple[Array, Array]:
        """Means (draw, n, function) and variances (draw, n) of a slice of the draws."""
        variances = np.empty((len(self.v[block]), len(self.obs)))
        return self._of(block, variances), variances

    def _of(self, block: slice, variances: Array | None) -> Array:
        """Means of a slice of the draws; `variances` are filled in."""
        drawn = {
            name: each[block].reshape(len(self.v[block]), -1) for name, each in self._draws.items()
        }
        v = self.v[block]
        together = np.hstack([np.empty((len(v), 0)), *drawn.values()])
        _, first, which = np.unique(together, axis=0, return_index=True, return_inverse=True)
        means = np.empty((len(v), len(self.obs), v.shape[2]))
        for number, row in enumerate(first):
            values = self.hyperparameters.known | {name: each[row] for name, each in drawn.items()}
            root = cholesky(self.hyperparameters.covariance_of_landmarks(values))
            weights = values["scale"] * values["beta"]
            new = (
                self._new
                if self._parametric is None
                else self._parametric.evaluate(values["theta"])
            )
            half = solve_triangular(root, np.tensordot(weights, new, axes=1).T)
            same = np.flatnonzero(which == number)
            # The mean of f* is k*'K^-1 f = (root^-1 k*)' v.
            means[same] = half.T @ v[same]
            if variances is not None:
                left = weights @ self.prior_variances - np.square(half).sum(axis=0)
                variances[same] = np.maximum(left, 0.0)
        return means


def _variances(model: GaussianProcess, stack: DataArray) -> Array:
    """Variances k(x, x) of new objects (kernel, n), from the stack or from the training objects."""
    known = np.full(stack.shape[:2], np.nan)
    if VARIANCE in stack.coords:
        known = stack[VARIANCE].transpose("kernel", "obs").to_numpy().copy()
    if model.kernel_source.parameters:
        return np.where(np.isnan(known), 1.0, known)
    if model.kernel_source.in_memory:
        trained = model.kernel_values()[:, model.landmarks, np.arange(len(model.landmarks))]
    else:
        trained = np.einsum("kmm->km", model["K"].get_value())
    for row, diagonal, name in zip(known, trained, stack["kernel"].values, strict=True):
        missing = np.isnan(row)
        if missing.any() and np.ptp(diagonal) > EQUAL_VARIANCES * np.abs(diagonal).max():
            rule = (
                f"with the coordinate {VARIANCE!r} (kernel, obs), k(x, x) of each new object, as "
            )
            rule += "kernels(X_new, X_train) has it: kernels_new.assign_coords(variance=...)"
            got = f"the kernel {str(name)!r} without it"
            raise argument_error("kernels_new", "predict", rule, got)
        row[missing] = diagonal[0]
    return known


def responses_of(
    model: GaussianProcessRegression, posterior: Dataset, kernels_new: Any
) -> tuple[Callable[[slice, np.random.Generator], Responses], DataArray]:
    """Return the responses of new objects by draw, for `predict_targets`."""
    scores = ScoresOfNewObjects(model, posterior, kernels_new)

    def responses(block: slice, rng: np.random.Generator) -> Responses:
        means, variances = scores(block)
        drawn = means + np.sqrt(variances)[..., None] * rng.standard_normal(means.shape)
        if model.several:
            return Responses(means, np.broadcast_to(variances[..., None], means.shape), drawn)
        return Responses(means[..., 0], variances, drawn[..., 0])

    return responses, scores.obs


def probabilities_of(
    model: GaussianProcessClassification, posterior: Dataset, kernels_new: Any
) -> tuple[Callable[[slice], NDArray], DataArray]:
    """Return the class probabilities of new objects by draw, for `predict_classes`.

    They are averaged over Sobol' points of the normal distribution of the scores, at least
    `SCORES_AVERAGED` for all draws together, so that equal calls give equal probabilities. Of a
    single point, the mode of the scores, they are those of the mode of the new scores, too.
    """
    scores = ScoresOfNewObjects(model, posterior, kernels_new)
    n_draws, _, n_functions = scores.v.shape
    if n_draws == 1:
        return lambda block: _of_scores(scores.means(block)), scores.obs
    each = max(2, -(-SCORES_AVERAGED // n_draws))
    powers = int(np.ceil(np.log2(n_draws * each)))
    uniform = qmc.Sobol(n_functions, rng=0).random_base2(powers)[: n_draws * each]
    normal = norm.ppf(np.clip(uniform, 1e-12, 1 - 1e-12)).reshape(n_draws, each, 1, n_functions)

    def probabilities(block: slice) -> NDArray:
        means, variances = scores(block)
        sd = np.sqrt(variances)[:, None, :, None]
        return _of_scores(means[:, None] + sd * normal[block])

    return probabilities, scores.obs


def _of_scores(f: Array) -> Array:
    """Class probabilities (..., class) of scores (..., function)."""
    if f.shape[-1] > 1:
        return softmax(f)
    second = expit(f)
    return np.concatenate([1.0 - second, second], axis=-1)


def identified_quantities(result: DataTree, variant: str) -> Dataset:
    """Hyperparameters, and the scores of some training objects, of several classes as contrasts."""
    posterior = result["posterior"].to_dataset()
    names = ("scale", "beta", "theta", "gamma")
    quantities = {name: posterior[name] for name in names if name in posterior}
    if "f" in posterior:
        f = posterior["f"]
        f = f.isel(obs=compared_objects(f.sizes["obs"]))
        quantities["scores"] = f - f.mean("class") if "class" in f.dims else f
    return Dataset(quantities)


def predicted_scores(quantities: Dataset) -> Dataset:
    """Scores (chain, draw, obs), or all quantities without them."""
    return quantities[["scores"]] if "scores" in quantities else quantities


def predicted_probabilities(quantities: Dataset) -> Dataset:
    """Probabilities (chain, draw, obs, class), of two classes of the second one."""
    if "scores" not in quantities:
        return quantities
    scores = quantities["scores"]
    if "class" not in scores.dims:
        return judged_probabilities(expit(scores))
    return judged_probabilities(
        scores.copy(data=softmax(scores.values, scores.get_axis_num("class")))
    )
