"""Gibbs steps of `MutualKernelCompletion`."""

from pymc.step_methods.compound import BlockedStep

from ...custom_steps.mutual_completion import MutualImputation, MutualPosterior
from ...models.mutual_kernel_completion import MutualKernelCompletion
from ..engines import Run
from ..mcmc import Gibbs

__all__ = ["mutual_kernel_completion_steps"]


def _collapsed(model: MutualKernelCompletion) -> str | None:
    return "it draws the missing blocks, which a collapsed model lacks" if model.collapsed else None


@Gibbs.register(MutualKernelCompletion, unless=_collapsed)
def mutual_kernel_completion_steps(model: MutualKernelCompletion, run: Run) -> list[BlockedStep]:
    """Alternate between the missing blocks and the model matrix.

    Parameters
    ----------
    model : MutualKernelCompletion
        Declaration.
    run : Run
        Unused: the steps take their generators from PyMC.

    Returns
    -------
    list of BlockedStep
        Steps for ``pm.sample``. A sweep costs O(K l^3).
    """
    steps: list[BlockedStep] = [MutualPosterior(model=model)]
    if len(model.free_RVs) > 1:
        steps.insert(0, MutualImputation(model=model))
    return steps
