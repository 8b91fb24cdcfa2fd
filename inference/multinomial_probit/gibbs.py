"""Gibbs steps of `MultinomialProbit` (Damoulas & Girolami 2009, section 3.2 and appendix A).

The draws are in ``custom_steps/multinomial_probit/albert_chib.py`` and ``marginal_sweep.py``.
"""

from typing import Literal

from pymc.step_methods.compound import BlockedStep

from ...custom_steps.multinomial_probit.albert_chib import AlbertChib
from ...custom_steps.multinomial_probit.marginal import MarginalProbit, serves
from ...models.combinations.sums import Binary
from ...models.multinomial_probit import MultinomialProbit
from ...validation import Fraction, Positive, argument_error
from ..engine.engine import Run, setting_of_no_use

__all__ = ["multinomial_probit_steps", "unknown_rule"]

LENGTH, TARGET_ACCEPT = 4.0, 0.75


def unknown_rule(model: MultinomialProbit) -> str | None:
    """Why Gibbs does not apply to a model's rule of combination; None when it does."""
    if "beta" not in {variable.name for variable in model.deterministics}:
        return None
    name = type(model.combination).__name__
    return f"it reads the weights beta themselves; {name} declares them as a Deterministic"


def multinomial_probit_steps(
    model: MultinomialProbit,
    run: Run,
    *,
    scheme: Literal["auto", "marginal", "paper"] = "auto",
    length: Positive = LENGTH,
    target_accept: Fraction = TARGET_ACCEPT,
) -> list[BlockedStep]:
    r"""One block; NUTS takes variables that it leaves. `Gibbs` explains the settings.

    Effective draws per processor second, without tuning, for tau = upsilon = 1
    (``benchmarks.mixing``):

    ============================ ======== ================ =============== ==============
    problem                      scheme   contrast, median contrast, least weights, least
    ============================ ======== ================ =============== ==============
    60 wines, C = 3, S = 3       marginal 81               52              60
    60 digits, C = 10, S = 4     marginal 82               24              60
    200 digits, C = 10, S = 4    marginal 5.8              0.54            1.4
    30 basis functions of 200    marginal 138              107             given
    objects, C = 3, S = 1        paper    331              116             given
    60 wines, product of 3       marginal 57               31              51
    60 wines, a width, and       marginal                                  32
    weights of 2
    60 wines, selection of 3     marginal                  9               5
    30 features of 3,000         marginal                  1.6             11
    objects, C = 3, S = 2
    ============================ ======== ================ =============== ==============

    Other processes ran at the same time. Tuning took 400 draws.
    """
    known = serves(model)
    if scheme == "marginal" and not known:
        raise argument_error(
            "scheme", "Gibbs", f"'auto' or 'paper' for {model.variant}", repr(scheme)
        )
    if scheme == "paper" and isinstance(model.combination, Binary):
        rule = "'auto' or 'marginal' for a selection, which hardly moves given the regressors"
        raise argument_error("scheme", "Gibbs", rule, repr(scheme))
    random = model.learned or bool(model.kernel_source.parameters)
    if scheme == "marginal" or (scheme == "auto" and known and (random or _is_gram(model))):
        return [MarginalProbit(model=model, length=length, target_accept=target_accept)]
    given = {"length": (length, LENGTH), "target_accept": (target_accept, TARGET_ACCEPT)}
    for name, (value, default) in given.items():
        if value != default:
            reason = f"AlbertChib, which samples {model.variant} here, has no settings"
            raise setting_of_no_use(name, "Gibbs on MultinomialProbit", reason)
    return [AlbertChib(model=model)]


def _is_gram(model: MultinomialProbit) -> bool:
    """Whether there are as many basis functions as objects."""
    return len(model.coords["basis"]) >= len(model.coords["obs"])
