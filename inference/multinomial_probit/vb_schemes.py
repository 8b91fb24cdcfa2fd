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
    """Fit q of the scheme, by coordinate ascent from several starts.

    Parameters
    ----------
    scheme : {"auto", "marginal", "paper"}, default="auto"
        "paper" has a mean field over utilities and the regressors of each class. "marginal"
        integrates the utilities out and has one normal distribution of all regressors: its bound is
        tens of nats higher, learns `upsilon` (`LearnedScale`) and compares kernels, but at a given
        large `upsilon` it need not predict better. It takes about O(C (M + N)^3) for C > 2 classes,
        and O(N M^2) for two. "auto" is "marginal" if `upsilon` is learned, else "paper".
    max_iterations : int, default=5000
        Largest number of iterations of a start.
    tolerance : float, default=1e-6
        Relative change of the bound below which a start may end, if `remaining` allows it.
    remaining : float, optional
        A start does not end before the estimated remaining increase of its bound, in nats, is at
        most this, if increases keep shrinking at the present rate. With inf only `tolerance`
        counts. By default 0.01 max(1, N max(C - 1, 2) / 200) for N objects of C classes, and ten
        times this in the marginal scheme.
    starts : int, optional
        Number of starts, which differ in the initial kernel weights: uniform, each kernel alone,
        random. The start with the highest bound wins; known weights need one. By default
        uniform and each kernel alone, at most 8, of which the highest continues alone after a first
        round; uniform only for more than 16 kernels.
    """
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
    return scheme == "marginal" or learned
