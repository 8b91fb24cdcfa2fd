"""Gibbs steps of `MultinomialProbit` (section 3.2 and appendix A)."""

from inspect import signature
from typing import Literal

from pymc.step_methods.compound import BlockedStep

from ...custom_steps.multinomial_probit.albert_chib import MOVES, AlbertChib, RuleMoves
from ...custom_steps.multinomial_probit.marginal import STAGES, MarginalProbit, serves
from ...models.combinations.sums import Binary
from ...models.multinomial_probit import MultinomialProbit
from ...validation import Count, CountOrZero, Fraction, Positive, argument_error
from ..engine.engine import Run, unknown_combination


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
    """Make one block for all variables.

    In effective draws per processor second (``benchmarks.mixing``) the marginal scheme is 10 to 100
    times better with Gram matrices and learned weights; the paper's scheme is better for one kernel
    of fewer basis functions than objects.

    Parameters
    ----------
    scheme : {"auto", "marginal", "paper"}, default="auto"
        "marginal" integrates utilities, variances and hyperparameters out, and moves the rest by
        Hamiltonian Monte Carlo, selections by annealing. "paper" is the sampler of Albert and Chib
        with Metropolis moves (appendix A), plus moves along directions that the likelihood ignores;
        it hardly ever leaves a selection. "auto" is "marginal" if weights or selections move, or if
        there are at least as many basis functions as objects.
    length : float, default=4
        Marginal scheme: expected length of a trajectory, in units of the mass matrix, to which its
        cost is proportional; longer ones give less correlated draws.
    target_accept : float, default=0.75
        Marginal scheme: acceptance probability to which the leapfrog step is tuned.
    stages : int, default=20
        Marginal scheme with `Binary`: number of parts of a move of a selection, to which its cost
        is proportional; more parts accept more moves.
    moves : int, default=5
        Paper's scheme: number of Metropolis moves per sweep of weights, concentrations, exponents
        and kernel parameters given utilities and regressors.
    marginal_moves : int, default=1
        Paper's scheme with `Product` or kernel parameters: number of moves per sweep of exponents
        and kernel parameters with the regressors integrated out, at C Cholesky factorisations each.
    block : int, default=6
        Paper's scheme with `Binary`: number of kernels of a selection that are drawn jointly, from
        all 2^block states, at C Cholesky factorisations each.

    Returns
    -------
    list of step methods
        For ``pm.sample``.

    Raises
    ------
    ValueError
        For settings of the other scheme.
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
