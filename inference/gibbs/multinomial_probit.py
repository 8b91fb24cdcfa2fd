"""Gibbs steps of `MultinomialProbit` (Damoulas & Girolami 2009, section 3.2 and appendix A)."""

from pymc.step_methods.compound import BlockedStep

from ...custom_steps.albert_chib import AlbertChib
from ...custom_steps.kernel_albert_chib import KernelAlbertChib
from ...custom_steps.marginal_probit import MarginalProbit, serves
from ...models.checks import argument_error, check_count, check_name
from ...models.combination import Binary, FixedWeights, Mean
from ...models.multinomial_probit import MultinomialProbit
from ...models.product_combination import FixedProduct, Product
from ..applicability import combination_other_than
from ..engines import Run
from ..mcmc import Gibbs

__all__ = ["multinomial_probit_steps"]

_SCHEMES = ("auto", "marginal", "paper")


@Gibbs.register(
    MultinomialProbit,
    unless=combination_other_than(Mean, FixedWeights, Binary, Product, FixedProduct),
)
def multinomial_probit_steps(
    model: MultinomialProbit,
    run: Run,
    *,
    scheme: str = "auto",
    length: float = 4.0,
    target_accept: float = 0.75,
    moves: int = 5,
    collapsed: int = 1,
    block: int = 6,
) -> list[BlockedStep]:
    """One block for all variables.

    Parameters
    ----------
    model : MultinomialProbit
        Declaration.
    run : Run
        Unused: the step takes its generators from PyMC.
    scheme : {"auto", "marginal", "paper"}, default="auto"
        "marginal" integrates utilities, variances and concentrations out, and moves regressors and
        weights by Hamiltonian Monte Carlo; for combinations `Mean` and `FixedWeights` of kernels
        without parameters. "paper" is the sampler of Albert and Chib with Metropolis moves
        (appendix A), for all. "auto" takes the former where it applies.
    length : float, default=4
        Marginal scheme: expected length of a trajectory, in standard deviations of the prior.
    target_accept : float, default=0.75
        Marginal scheme: acceptance probability that the leapfrog step is tuned to.
    moves : int, default=5
        Paper's scheme: Metropolis moves of the weights, of their concentrations, of exponents and
        of kernel parameters in a sweep.
    collapsed : int, default=1
        Paper's scheme: Metropolis moves of exponents and kernel parameters with W integrated out.
    block : int, default=6
        Paper's scheme: kernels of a binary selection that are redrawn jointly, over all 2^block
        states.

    Returns
    -------
    list of BlockedStep
        Steps for ``pm.sample``.
    """
    check_name(scheme, _SCHEMES, "scheme", "Gibbs")
    check_count(moves, "moves", "Gibbs")
    known = serves(model)
    if scheme == "marginal" and not known:
        raise argument_error(
            "scheme", "Gibbs", f"'auto' or 'paper' for {model.variant}", repr(scheme)
        )
    if scheme != "paper" and known:
        return [MarginalProbit(length=length, target_accept=target_accept, model=model)]
    if known:
        return [AlbertChib(moves=moves, model=model)]
    return [KernelAlbertChib(moves=moves, collapsed=collapsed, block=block, model=model)]
