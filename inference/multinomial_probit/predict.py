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

from ...models.combinations.sums import RULES, Combination
from ...models.kernels.source import LearnedKernel, ParametricStack
from ...models.kernels.stack import as_stack
from ...models.multinomial_probit import MultinomialProbit
from ...numerics.probit import class_probabilities
from ...validation import argument_error
from ..engine.provenance import equal_but_for_rounding
from ..engine.result import joined_draws
from ..new_objects import (
    check_draws,
    combined_functions,
    compared_rows,
    judged_probabilities,
    stack_of_new_objects,
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


def _kernels_of_new_objects(model: MultinomialProbit, kernels_new: Any) -> xr.DataArray:
    """Validate kernels between new and training objects; parameters at their prior means."""
    source, given = model.kernel_source, kernels_new
    if isinstance(source, ParametricStack):
        if getattr(given, "parameters", None) != source.parameters:
            rule = f"kernels(X_new, X_train) with the model's parameters {source.parameters}"
            raise argument_error("kernels_new", "predict", rule, type(given).__name__)
        own, new = (each.start["kernel"].values.tolist() for each in (source, given))
        if new != own:
            rule = f"kernels(X_new, X_train) with the kernels {own}, in this order"
            raise argument_error("kernels_new", "predict", rule, f"{new}")
        pairs = zip(given.learned, source.learned, strict=True)
        if other := [one.name for one, own in pairs if not _same_objects(one, own)]:
            rule = "kernels(X_new, X_train) of the model's specification and training objects"
            got = f"other training objects of {', '.join(other)}"
            raise argument_error("kernels_new", "predict", rule, got)
        given = as_stack(given.start, like=source.start, owner="predict", argument="kernels_new")
    else:
        given = stack_of_new_objects(model, given)
    model.combination.check(given)
    return given


def _same_objects(new: LearnedKernel, own: LearnedKernel) -> bool:
    """Whether two kernels have the same training objects, up to rounding."""
    return new.columns.shape == own.columns.shape and equal_but_for_rounding(
        own.columns, new.columns, axis=0
    )


def probabilities_of(
    model: MultinomialProbit, posterior: Dataset, kernels_new: Any
) -> tuple[Callable[[slice], NDArray], DataArray]:
    """Return the class probabilities of new objects by draw, for `predict_classes`.

    Reads the draws of W, beta and theta in `posterior`. `kernels_new` is as in `predict`.
    """
    check_draws(model, posterior, "W", "beta", "theta")
    source = model.kernel_source
    stack = _kernels_of_new_objects(model, kernels_new)
    known = None if "beta" in posterior else model["beta"].get_value()
    kernels = kernels_new if source.parameters else stack.values
    functions = _functions_by_draw(model.combination, kernels, posterior, known)

    def probabilities(block: slice) -> NDArray:
        # In the order of the axes in memory.
        return class_probabilities(functions(block).transpose(1, 0, 2)).transpose(1, 0, 2)

    return probabilities, stack["obs"]


def identified_quantities(result: DataTree, variant: str) -> Dataset:
    """Weights, scale, and contrasts of the regression functions with their mean over classes.

    For kernels with parameters these stand for the functions, which are unknown without the model.
    """
    posterior = result["posterior"].to_dataset()
    data = result["constant_data"]
    learned = [name for name in ("theta", "beta", "upsilon") if name in posterior]
    if "theta" in posterior:
        return posterior[learned]
    rule = RULES.get(variant.partition(",")[0])
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
