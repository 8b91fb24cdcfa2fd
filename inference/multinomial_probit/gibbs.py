"""Gibbs steps of `MultinomialProbit` (Damoulas & Girolami 2009, section 3.2 and appendix A).

This file only chooses the steps. The draws are in
``custom_steps/multinomial_probit/sweep.py`` and ``marginal_sweep.py``.
"""

from inspect import signature
from typing import Any, Literal

from pymc.step_methods.compound import BlockedStep

from ...custom_steps.multinomial_probit.albert_chib import AlbertChib
from ...custom_steps.multinomial_probit.marginal import MarginalProbit, serves
from ...custom_steps.multinomial_probit.marginal_sweep import STAGES
from ...custom_steps.multinomial_probit.sweep import MOVES, RuleMoves
from ...models.combinations.sums import Binary
from ...models.multinomial_probit import MultinomialProbit
from ...validation import Count, CountOrZero, Fraction, Positive, argument_error
from ..engine.engine import Run, setting_of_no_use, unknown_combination

__all__ = ["multinomial_probit_steps", "unknown_rule"]


def unknown_rule(model: MultinomialProbit) -> str | None:
    """Why Gibbs does not apply to a model's rule of combination; None when it does."""
    return unknown_combination(model, MOVES, f" and what is added to {RuleMoves.__module__}.MOVES")


def multinomial_probit_steps(
    model: MultinomialProbit,
    run: Run,
    *,
    scheme: Literal["auto", "marginal", "paper"] = "auto",
    length: Positive = 4.0,
    target_accept: Fraction = 0.75,
    stages: Count = STAGES,
    moves: CountOrZero = 5,
    marginal_moves: CountOrZero = 1,
    block: Count = 6,
) -> list[BlockedStep]:
    r"""One block for all variables; `Gibbs` explains the settings.

    Parameters
    ----------
    model : MultinomialProbit
        Declaration.
    run : Run
        Unused: the step gets its generators from PyMC.

    Returns
    -------
    list of BlockedStep
        Steps for ``pm.sample``.

    Raises
    ------
    ValueError
        For settings out of range, and for settings of the other scheme.

    Notes
    -----
    Effective draws a processor second, without tuning, for tau = upsilon = 1
    (``benchmarks.mixing``):

    ============================ ======== ================ =============== ==============
    problem                      scheme   contrast, median contrast, least weights, least
    ============================ ======== ================ =============== ==============
    60 wines, C = 3, S = 3       marginal 81               52              60
    \                            paper    3.9              0.59            0.29
    60 digits, C = 10, S = 4     marginal 82               24              60
    \                            paper    9.6              2.5             0.54
    200 digits, C = 10, S = 4    marginal 5.8              0.54            1.4
    \                            paper    0.28             0.03            0.08
    30 basis functions of 200    marginal 138              107             given
    objects, C = 3, S = 1        paper    331              116             given
    60 wines, product of 3       marginal 57               31              51
    \                            paper    4.3              0.9             1.1
    60 wines, a width, and       marginal                                  32
    weights of 2                 paper                                     0.12
    60 wines, selection of 3     marginal                  9               5
    \                            paper                     0.5             never moved
    30 features of 3,000         marginal                  1.6             11
    objects, C = 3, S = 2        paper                     0.1             3.1
    ============================ ======== ================ =============== ==============

    Other processes ran at the same time. The figures of the paper's scheme on wines and digits are
    rough, because its chains had not converged (R-hat 1.1 to 1.9), those on features after 12,000
    draws. On the selection all four of its
    chains stayed where they began, with all three kernels; those of the marginal scheme gave the
    kernels the probabilities .57, .05 and 1.00 (R-hat 1.008). Tuning took 400 draws.
    """
    settings: dict[str, Any] = {
        **{"length": length, "target_accept": target_accept, "stages": stages},
        **{"moves": moves, "marginal_moves": marginal_moves, "block": block},
    }
    known = serves(model)
    if scheme == "marginal" and not known:
        raise argument_error(
            "scheme", "Gibbs", f"'auto' or 'paper' for {model.variant}", repr(scheme)
        )
    selects = isinstance(model.combination, Binary)
    walked = model.composition.coordinates
    step: type[BlockedStep] = AlbertChib
    # A rule from elsewhere may use every setting.
    applies = {
        "moves": True,
        "marginal_moves": bool(walked) or not known,
        "block": selects or not known,
    }
    if scheme == "marginal" or (scheme == "auto" and known and (model.learned or _is_gram(model))):
        step = MarginalProbit
        applies = {"length": True, "target_accept": True, "stages": selects}
    taken = [name for name, does in applies.items() if does]
    defaults = signature(multinomial_probit_steps).parameters
    for name, value in settings.items():
        if name not in taken and value != defaults[name].default:
            raise setting_of_no_use(
                name,
                "Gibbs on MultinomialProbit",
                f"{step.__name__}, which samples {model.variant} here, takes {', '.join(taken)}; "
                "scheme='paper' and scheme='marginal' choose between the samplers",
            )
    return [step(model=model, **{name: settings[name] for name in taken})]


def _is_gram(model: MultinomialProbit) -> bool:
    """Whether there are as many basis functions as objects."""
    return len(model.coords["basis"]) >= len(model.coords["obs"])
