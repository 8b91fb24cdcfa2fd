"""Gibbs steps of the composite-kernel models (Girolami & Rogers 2005, sections 3 and 4)."""

from pymc.step_methods.compound import BlockedStep

from ...custom_steps.composite_kernel import CompositeKernelGibbs
from ...models.composite_kernel import CompositeKernelClassification, CompositeKernelRegression
from ..applicability import setting_of_no_use
from ..engines import Run
from ..mcmc import Gibbs

__all__ = ["composite_kernel_steps"]

MOVES = 2


@Gibbs.register(CompositeKernelRegression)
@Gibbs.register(CompositeKernelClassification)
def composite_kernel_steps(
    model: CompositeKernelRegression | CompositeKernelClassification,
    run: Run,
    *,
    collapsed: bool = True,
    moves: int = MOVES,
) -> list[BlockedStep]:
    """One block for all variables.

    Parameters
    ----------
    model : CompositeKernelRegression or CompositeKernelClassification
        Declaration.
    run : Run
        Unused: the step takes its generators from PyMC.
    collapsed : bool, default=True
        Move the kernels' weights with the regression weights integrated out; False is the sampler
        that the paper sketches, which mixes slowly.
    moves : int, default=2
        Moves of the kernels' weights, and of their concentrations, in a sweep.

    Returns
    -------
    list of BlockedStep
        Steps for ``pm.sample``.

    Raises
    ------
    ValueError
        For settings out of range, and for any where the kernels' weights are known.
    """
    if not model.learned and (not collapsed or moves != MOVES):
        raise setting_of_no_use(
            "moves" if collapsed else "collapsed",
            f"Gibbs on {type(model).__name__}",
            "the kernels' weights are known",
        )
    return [CompositeKernelGibbs(collapsed=collapsed, moves=moves, model=model)]
