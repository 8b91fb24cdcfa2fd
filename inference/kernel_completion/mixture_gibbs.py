"""Gibbs steps of `WishartKernelMixture` through its matched inverse-Wishart prior."""

from pymc.step_methods.compound import BlockedStep

from ...custom_steps.kernel_completion.tanner_wong import TannerWongImputation, TannerWongPosterior
from ...models.wishart_kernel_mixture import WishartKernelMixture
from ..engines.engine import Run
from ..engines.mcmc import Gibbs

__all__ = ["wishart_kernel_mixture_steps"]


@Gibbs.register(WishartKernelMixture, unless=WishartKernelMixture.not_conjugate)
def wishart_kernel_mixture_steps(
    model: WishartKernelMixture, run: Run, *, p_step: str = "joint"
) -> list[BlockedStep]:
    """Run the Tanner-Wong algorithm with the matched parameters.

    Parameters
    ----------
    model : WishartKernelMixture
        With fixed weights and the inverse-Wishart prior.
    run : Run
        Unused: the steps take their generators from PyMC.
    p_step : {"joint", "inverse-wishart"}, default="joint"
        Form of the P-step: block by block, or the whole matrix as printed.

    Returns
    -------
    list of BlockedStep
        Steps for ``pm.sample``.
    """
    return [
        TannerWongImputation(model=model),
        TannerWongPosterior(p_step=p_step, model=model),
    ]
