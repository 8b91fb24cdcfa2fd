"""Predictions and identified quantities of the multinomial probit.

Probabilities are those of eq 4 of Damoulas & Girolami (2009), averaged over draws of all variables,
as in their appendix A. For draws from VB's q this average replaces the integral over W that D.1-D.3
and eq 12 have in closed form at the kernel weights' means; it also integrates over the weights.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray import Dataset, DataTree

from ...models.combinations.sums import RULES, Combination
from ...models.kernels.learned import LearnedKernel, ParametricStack
from ...models.kernels.stack import as_stack
from ...models.multinomial_probit import MultinomialProbit
from ...numerics.probit import class_probabilities
from ...validation import argument_error
from ..engine.predict import (
    ProbabilityDraws,
    check_draws,
    combined_functions,
    compared_rows,
    stack_of_new_objects,
)
from ..engine.result import equal_but_for_rounding


@dataclass(frozen=True)
class _Draws:
    """Weights (draw, kernel), regressors (draw, class, basis), and parameters (draw, parameter)."""

    beta: NDArray
    W: NDArray
    theta: NDArray | None

    @classmethod
    def of(cls, posterior: Dataset, known_weights: NDArray | None) -> Self:
        """Draws of a posterior, with chains joined."""
        joined = posterior.stack(sample=("chain", "draw"))
        W = joined["W"].transpose("sample", "class", "basis").values
        if known_weights is None:
            beta = joined["beta"].transpose("sample", "kernel").values
        else:
            beta = np.broadcast_to(known_weights, (len(W), len(known_weights)))
        theta = joined["theta"].transpose("sample", ...).values if "theta" in joined else None
        return cls(beta, W, theta)

    def __getitem__(self, block: slice) -> Self:
        """Take some of the draws."""
        theta = None if self.theta is None else self.theta[block]
        return replace(self, beta=self.beta[block], W=self.W[block], theta=theta)

    def functions(self, rule: Combination, stack: NDArray) -> NDArray:
        """Functions (draw, obs, class) on kernels (kernel, obs, basis)."""
        return combined_functions(rule, stack, self.beta, self.W)

    def functions_with_parameters(
        self, rule: Combination, kernels: ParametricStack, n_obs: int
    ) -> NDArray:
        """Functions (draw, obs, class) on kernels with parameters, by one stack a draw."""
        assert self.theta is not None
        rows = slice(0, n_obs)
        return np.concatenate(
            [
                combined_functions(rule, kernels.evaluate(theta, rows), beta[None], W[None])
                for theta, beta, W in zip(self.theta, self.beta, self.W, strict=True)
            ]
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
        pairs = zip(kernels_new.learned, source.learned, strict=True)
        other = [f"{what} of {new.name}" for new, own in pairs if (what := _difference(new, own))]
        if other:
            raise argument_error(
                "kernels_new",
                "predict",
                "kernels(X_new, X_train) of the model's specification and training objects",
                ", ".join(other),
            )
        start = kernels_new.start
        stack = as_stack(start, like=source.start, owner="predict", argument="kernels_new")
    model.combination.check(stack)
    return stack


def _difference(new: LearnedKernel, own: LearnedKernel) -> str | None:
    """Describe how two kernels differ, apart from their rows; None if they do not."""
    if new.steps != own.steps:
        return "other normalisations"
    if new.columns.shape != own.columns.shape or not equal_but_for_rounding(
        own.columns, new.columns, axis=0
    ):
        return "other training objects"
    return None


def probabilities_of(
    model: MultinomialProbit, posterior: Dataset, kernels_new: Any
) -> ProbabilityDraws:
    """Return the class probabilities of new objects by draw, for `predict_classes`.

    Reads the draws of W, beta and theta in `posterior`. `kernels_new` is as in `predict`.
    """
    check_draws(model, posterior, "W", "beta", "theta")
    source = model.kernel_source
    if isinstance(source, ParametricStack) and isinstance(kernels_new, ParametricStack):
        kernels_new = kernels_new.in_order_of(source)
    stack = _kernels_of_new_objects(model, kernels_new)
    drawn = _Draws.of(posterior, None if "beta" in posterior else model["beta"].get_value())
    rule, n_obs = model.combination, stack.sizes["obs"]

    def probabilities(block: slice) -> NDArray:
        if source.parameters:
            f = drawn[block].functions_with_parameters(rule, kernels_new, n_obs)
        else:
            f = drawn[block].functions(rule, stack.values)
        # In the order of the axes in memory.
        return class_probabilities(f.transpose(1, 0, 2)).transpose(1, 0, 2)

    return ProbabilityDraws(probabilities, stack["obs"])


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
    contrast = (f - f.mean(-1, keepdims=True)).reshape(
        posterior.sizes["chain"], posterior.sizes["draw"], *f.shape[1:]
    )
    contrasts = xr.DataArray(
        contrast,
        dims=("chain", "draw", "obs", "class"),
        coords={
            "chain": posterior["chain"],
            "draw": posterior["draw"],
            "obs": stack["obs"].values,
            "class": posterior["class"].values,
        },
    )
    return Dataset({"contrast": contrasts, **{name: posterior[name] for name in learned}})
