"""Schemes of VB for the multinomial probit: which one a model takes."""

from typing import Literal

from ...models.learned_scale import LearnedScale
from ...models.multinomial_probit import MultinomialProbit
from ...validation import Count, Positive, PositiveOrInf, argument_error
from ..engine.engine import Run
from ..engine.result import VariationalOutput
from .vb import fit_multinomial_probit
from .vb_marginal import fit_marginal_probit


def variational_probit(
    model: MultinomialProbit,
    run: Run,
    *,
    scheme: Literal["auto", "marginal", "paper"] = "auto",
    max_iterations: Count = 5000,
    tolerance: Positive = 1e-6,
    remaining: PositiveOrInf | None = None,
    starts: Count | None = None,
) -> VariationalOutput:
    """Fit q of the scheme; `VB` explains the settings."""
    fit = fit_marginal_probit if takes_marginal(model, scheme) else fit_multinomial_probit
    return fit(
        model,
        run,
        max_iterations=max_iterations,
        tolerance=tolerance,
        remaining=remaining,
        starts=starts,
    )


def takes_marginal(model: MultinomialProbit, scheme: str) -> bool:
    """Whether VB integrates utilities out; ValueError where the scheme does not apply."""
    learned = isinstance(model.upsilon, LearnedScale)
    if scheme == "paper" and learned:
        rule = "'auto' or 'marginal', which learn upsilon"
        raise argument_error("scheme", "VB", rule, repr(scheme))
    if scheme == "marginal" and not model.kernel_source.in_memory:
        rule = "'auto' or 'paper' for kernels in a Dask array"
        raise argument_error("scheme", "VB", rule, repr(scheme))
    return scheme == "marginal" or learned
