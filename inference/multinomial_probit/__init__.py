"""Engines of `MultinomialProbit`, its Gibbs steps (section 3.2 and appendix A), and predictions."""

from functools import partial
from inspect import signature
from typing import Literal

from pymc.step_methods.compound import BlockedStep

from ...custom_steps.multinomial_probit.albert_chib import MOVES, AlbertChib, RuleMoves
from ...custom_steps.multinomial_probit.marginal import STAGES, MarginalProbit, serves
from ...models.combinations.sums import Binary
from ...models.multinomial_probit import MultinomialProbit
from ...validation import Count, CountOrZero, Fraction, Positive, argument_error
from ..engine.engine import Run, unknown_combination
from ..engine.paper import Algorithm, Paper
from ..new_objects import predict_classes
from .held_out import held_out
from .predict import identified_quantities, predicted_probabilities, probabilities_of
from .vb import fit_multinomial_probit, unsupported
from .vb_schemes import variational_probit

__all__ = ["PROBIT", "fit_multinomial_probit"]


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
    """One block for all variables; `Gibbs` explains the settings.

    In effective draws per processor second (``benchmarks.mixing``) the marginal scheme is 10 to 100
    times better with Gram matrices and learned weights; the paper's scheme is better for one kernel
    of fewer basis functions than objects. ValueError for settings of the other scheme.
    """
    given = locals()
    known = serves(model)
    selects = isinstance(model.combination, Binary)
    if scheme == "marginal" and not known:
        raise argument_error(
            "scheme", "Gibbs", f"'auto' or 'paper' for {model.variant}", repr(scheme)
        )
    is_gram = len(model.coords["basis"]) >= len(model.coords["obs"])
    step: type[BlockedStep]
    if scheme == "marginal" or (scheme == "auto" and known and (model.learned or is_gram)):
        step = MarginalProbit
        applies = {"length": True, "target_accept": True, "stages": selects}
        others = "moves", "marginal_moves", "block"
    else:
        step = AlbertChib
        # A rule from elsewhere may use every setting.
        walks = bool(model.composition.coordinates) or not known
        applies = {"moves": True, "marginal_moves": walks, "block": selects or not known}
        others = "length", "target_accept", "stages"
    taken = [name for name, does in applies.items() if does]
    defaults = signature(multinomial_probit_steps).parameters
    for name in (*applies, *others):
        if name not in taken and given[name] != defaults[name].default:
            raise ValueError(
                f"The setting {name!r} of Gibbs on MultinomialProbit does not apply: "
                f"{step.__name__}, which samples {model.variant} here, takes {', '.join(taken)}; "
                "scheme='paper' and scheme='marginal' choose between the samplers."
            )
    return [step(model=model, **{name: given[name] for name in taken})]


PROBIT = Paper(
    MultinomialProbit,
    gibbs=Algorithm(multinomial_probit_steps, unless=unknown_rule),
    vb=Algorithm(variational_probit, unless=unsupported, in_blocks=True),
    predict=partial(predict_classes, probabilities_of),
    identified=identified_quantities,
    identified_reads=["W"],
    predicted=predicted_probabilities,
    scale="upsilon",
    held_out=held_out,
)
