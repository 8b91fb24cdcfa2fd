"""Predictions and identified quantities of the multinomial probit.

Probabilities are those of eq 4 of Damoulas & Girolami (2009), averaged over draws of all variables,
as in their appendix A. For draws from VB's q this average replaces the integral over W that D.1-D.3
and eq 12 have in closed form at the kernel weights' means; it also integrates over the weights.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Self

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
from ..engine.predict import (
    check_draws,
    combined_functions,
    compared_rows,
    stack_of_new_objects,
)
from ..engine.provenance import equal_but_for_rounding


class _Draws(NamedTuple):
    """Weights (draw, kernel), regressors (draw, class, basis), and parameters (draw, parameter)."""

    beta: NDArray
    W: NDArray
    theta: NDArray | None

    @classmethod
    def of(cls, posterior: Dataset, known_weights: NDArray | None) -> Self:
        """Draws of a posterior, with chains joined."""
        joined = posterior.stack(sample=("chain", "draw"), create_index=False)
        W = joined["W"].transpose("sample", "class", "basis").values
        if known_weights is None:
            beta = joined["beta"].transpose("sample", "kernel").values
        else:
            beta = np.broadcast_to(known_weights, (len(W), len(known_weights)))
        theta = joined["theta"].transpose("sample", ...).values if "theta" in joined else None
        return cls(beta, W, theta)

    def functions(
        self, rule: Combination, kernels: NDArray | ParametricStack, draws: slice = slice(None)
    ) -> NDArray:
        """Functions (draw, obs, class) of some draws on kernels (kernel, obs, basis).

        Kernels with parameters are evaluated once per draw.
        """
        beta, W = self.beta[draws], self.W[draws]
        if not isinstance(kernels, ParametricStack):
            return combined_functions(rule, kernels, beta, W)
        assert self.theta is not None
        each = zip(self.theta[draws], beta, W, strict=True)
        return np.concatenate(
            [combined_functions(rule, kernels.evaluate(t), b[None], w[None]) for t, b, w in each]
        )


def _kernels_of_new_objects(model: MultinomialProbit, kernels_new: Any) -> xr.DataArray:
    """Validate kernels between new and training objects; parameters at their prior means."""
    source = model.kernel_source
    if not isinstance(source, ParametricStack):
        stack = stack_of_new_objects(model, kernels_new)
    else:
        known = source.parameters
        if getattr(kernels_new, "parameters", None) != known:
            raise argument_error(
                "kernels_new",
                "predict",
                f"kernels(X_new, X_train) of the specification with the parameters {known}",
                type(kernels_new).__name__,
            )
        own, given = (each.start["kernel"].values.tolist() for each in (source, kernels_new))
        if given != own:
            rule = f"kernels(X_new, X_train) with the kernels {own}, in this order"
            raise argument_error("kernels_new", "predict", rule, f"{given}")
        pairs = zip(kernels_new.learned, source.learned, strict=True)
        other = [new.name for new, own in pairs if not _same_objects(new, own)]
        if other:
            raise argument_error(
                "kernels_new",
                "predict",
                "kernels(X_new, X_train) of the model's specification and training objects",
                f"other training objects of {', '.join(other)}",
            )
        start = kernels_new.start
        stack = as_stack(start, like=source.start, owner="predict", argument="kernels_new")
    model.combination.check(stack)
    return stack


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
    drawn = _Draws.of(posterior, None if "beta" in posterior else model["beta"].get_value())
    kernels = kernels_new if source.parameters else stack.values

    def probabilities(block: slice) -> NDArray:
        f = drawn.functions(model.combination, kernels, block)
        # In the order of the axes in memory.
        return class_probabilities(f.transpose(1, 0, 2)).transpose(1, 0, 2)

    return probabilities, stack["obs"]


def identified_quantities(result: DataTree, variant: str) -> Dataset:
    """Weights, scale, and contrasts of the regression functions with their mean over classes.

    Without the model, the functions of kernels with parameters are unknown; their parameters are
    compared instead.
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
    drawn = _Draws.of(posterior, None if "beta" in posterior else data["beta"].to_numpy())
    f = drawn.functions(rule(), stack.values)
    coords: dict[str, Any] = {
        "chain": posterior["chain"],
        "draw": posterior["draw"],
        "obs": stack["obs"].values,
        "class": posterior["class"].values,
    }
    contrast = (f - f.mean(-1, keepdims=True)).reshape([len(each) for each in coords.values()])
    contrasts = xr.DataArray(contrast, coords, [*coords])
    return Dataset({"contrast": contrasts, **{name: posterior[name] for name in learned}})
