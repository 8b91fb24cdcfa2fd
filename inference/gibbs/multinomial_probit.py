"""Gibbs steps of `MultinomialProbit` (Damoulas & Girolami 2009, section 3.2 and appendix A)."""

from pymc.step_methods.compound import BlockedStep

from ...custom_steps.albert_chib import AlbertChib
from ...custom_steps.kernel_albert_chib import KernelAlbertChib
from ...models.combination import Binary, FixedWeights, Mean
from ...models.multinomial_probit import MultinomialProbit
from ...models.product_combination import FixedProduct, Product
from ..applicability import combination_other_than
from ..engines import Run
from ..mcmc import Gibbs

__all__ = ["multinomial_probit_steps"]


@Gibbs.register(
    MultinomialProbit,
    unless=combination_other_than(Mean, FixedWeights, Binary, Product, FixedProduct),
)
def multinomial_probit_steps(
    model: MultinomialProbit, run: Run, *, moves: int = 5, collapsed: int = 1, block: int = 6
) -> list[BlockedStep]:
    """One Albert-Chib block for all variables.

    Parameters
    ----------
    model : MultinomialProbit
        Declaration.
    run : Run
        Unused: the step takes its generators from PyMC.
    moves : int, default=5
        Metropolis moves of the weights, of their concentrations, of exponents and of kernel
        parameters in a sweep.
    collapsed : int, default=1
        Metropolis moves of exponents and kernel parameters with W integrated out.
    block : int, default=6
        Kernels of a binary selection that are redrawn jointly, over all 2^block states.

    Returns
    -------
    list of BlockedStep
        Steps for ``pm.sample``.
    """
    if model.parametric is None and isinstance(model.combination, (Mean, FixedWeights)):
        return [AlbertChib(moves=moves, model=model)]
    return [KernelAlbertChib(moves=moves, collapsed=collapsed, block=block, model=model)]
