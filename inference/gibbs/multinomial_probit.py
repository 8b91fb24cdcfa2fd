"""Gibbs steps of `MultinomialProbit` (Damoulas & Girolami 2009, section 3.2 and appendix A)."""

from pymc.step_methods.compound import BlockedStep

from ...custom_steps.albert_chib import AlbertChib
from ...models.combination import FixedWeights, Mean
from ...models.multinomial_probit import MultinomialProbit
from ..applicability import combination_other_than
from ..engines import Run
from ..mcmc import Gibbs

__all__ = ["multinomial_probit_steps"]


@Gibbs.register(MultinomialProbit, unless=combination_other_than(Mean, FixedWeights))
def multinomial_probit_steps(
    model: MultinomialProbit, run: Run, *, moves: int = 5
) -> list[BlockedStep]:
    """One Albert-Chib block for all variables.

    Parameters
    ----------
    model : MultinomialProbit
        Declaration.
    run : Run
        Unused: the step takes its generators from PyMC.
    moves : int, default=5
        Metropolis moves of the weights, and of their concentrations, in a sweep.

    Returns
    -------
    list of BlockedStep
        Steps for ``pm.sample``.
    """
    return [AlbertChib(moves=moves, model=model)]
