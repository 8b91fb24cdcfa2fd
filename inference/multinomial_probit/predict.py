"""Predictions and identified quantities of the multinomial probit.

Probabilities are those of eq 4 of Damoulas & Girolami (2009), averaged over draws of all variables,
as in their appendix A, also for draws from VB's q, where D.1-D.3 and eq 12 have a closed form at
the kernel weights' means.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray import DataArray, Dataset, DataTree

from ...models.combinations.sums import COMBINATIONS_BY_NAME, Combination
from ...models.kernels.source import ParametricStack
from ...models.multinomial_probit import MultinomialProbit
from ...numerics.probit import class_probabilities
from ..engine.result import joined_draws
from ..new_objects import (
    check_draws,
    combined_functions,
    compared_rows,
    judged_probabilities,
    kernels_of_new_objects,
)


def _functions_by_draw(
    rule: Combination,
    kernels: NDArray | ParametricStack,
    posterior: Dataset,
    known_weights: NDArray | None,
) -> Callable[[slice], NDArray]:
    """Map a slice of the draws to functions (draw, obs, class) on kernels (kernel, obs, basis).

    Chains are joined. Kernels with parameters are evaluated once per draw.
    """
    W = joined_draws(posterior["W"], "class", "basis")
    if known_weights is None:
        beta = joined_draws(posterior["beta"], "kernel")
    else:
        beta = np.broadcast_to(known_weights, (len(W), len(known_weights)))
    if not isinstance(kernels, ParametricStack):
        return lambda block: combined_functions(rule, kernels, beta[block], W[block])
    theta = joined_draws(posterior["theta"])

    def functions(block: slice) -> NDArray:
        each = zip(theta[block], beta[block], W[block], strict=True)
        return np.concatenate(
            [combined_functions(rule, kernels.evaluate(t), b[None], w[None]) for t, b, w in each]
        )

    return functions


def probabilities_of(
    model: MultinomialProbit, posterior: Dataset, kernels_new: Any
) -> tuple[Callable[[slice], NDArray], DataArray]:
    """Return the class probabilities of new objects by draw, for `predict_classes`.

    Reads the draws of W, beta and theta in `posterior`. `kernels_new` is as in `predict`.
    """
    check_draws(model, posterior, "W", "beta", "theta")
    source = model.kernel_source
    stack = kernels_of_new_objects(model, kernels_new)
    known = None if "beta" in posterior else model["beta"].get_value()
    kernels = kernels_new if source.parameters else stack.values
    functions = _functions_by_draw(model.combination, kernels, posterior, known)

    return lambda block: probabilities_by_draw(functions(block)), stack["obs"]


def probabilities_by_draw(functions: NDArray) -> NDArray:
    """Class probabilities (draw, obs, class) of the regression functions, eq 4."""
    # In the order of the axes in memory.
    return class_probabilities(functions.transpose(1, 0, 2)).transpose(1, 0, 2)


def identified_quantities(result: DataTree, variant: str) -> Dataset:
    """Weights, scale, and contrasts of the regression functions with their mean over classes.

    For kernels with parameters these stand for the functions, which are unknown without the model.
    """
    posterior = result["posterior"].to_dataset()
    data = result["constant_data"]
    learned = [name for name in ("theta", "beta", "upsilon") if name in posterior]
    if "theta" in posterior:
        return posterior[learned]
    rule = COMBINATIONS_BY_NAME.get(variant.partition(",")[0])
    if rule is None or not {"beta"} & {*posterior, *data}:
        return posterior
    stack = compared_rows(result)
    known = None if "beta" in posterior else data["beta"].to_numpy()
    f = _functions_by_draw(rule(), stack.values, posterior, known)(slice(None))
    dims = ("chain", "draw", "obs", "class")
    coords = {dim: (stack if dim == "obs" else posterior)[dim].values for dim in dims}
    contrast = (f - f.mean(-1, keepdims=True)).reshape([len(each) for each in coords.values()])
    contrasts = xr.DataArray(contrast, coords, dims)
    return Dataset({"contrast": contrasts, **{name: posterior[name] for name in learned}})


def predicted_probabilities(quantities: Dataset) -> Dataset:
    """Class probabilities (chain, draw, obs, class), or all quantities without contrasts."""
    if "contrast" not in quantities:
        return quantities
    contrast = quantities["contrast"].transpose(..., "class")
    return judged_probabilities(contrast.copy(data=class_probabilities(contrast)))
