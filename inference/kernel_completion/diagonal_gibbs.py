"""Gibbs steps of `DiagonalWishartCompletion` (Zhang, Yeung & Kwok 2004, section 4)."""

from pymc.step_methods.compound import BlockedStep

from ...custom_steps.kernel_completion.diagonal_tanner_wong import (
    DiagonalTannerWongImputation,
    DiagonalTannerWongPosterior,
)
from ...models.diagonal_wishart_completion import DiagonalWishartCompletion
from ..engine.engine import Run
from ..engine.mcmc import Gibbs

__all__ = ["diagonal_wishart_completion_steps"]


@Gibbs.register(DiagonalWishartCompletion)
def diagonal_wishart_completion_steps(
    model: DiagonalWishartCompletion, run: Run, *, variant: str | None = None
) -> list[BlockedStep]:
    """Run the Tanner-Wong algorithm: I-step (eqs 12-15), then P-step.

    Parameters
    ----------
    model : DiagonalWishartCompletion
        Declaration.
    run : Run
        Unused: the steps get their generators from PyMC.
    variant : {"TW1", "TW2"}, optional
        How the I-step draws W22_1: as a Wishart matrix (eq 13), or its diagonal (eq 15) and its
        correlations separately. Both give the same distribution. A W22_1 that is declared diagonal
        has no correlations and needs "TW2". Default: "TW1" unless W22_1 is diagonal.

    Returns
    -------
    list of BlockedStep
        Steps for ``pm.sample``.
    """
    return [
        DiagonalTannerWongImputation(variant=variant, model=model),
        DiagonalTannerWongPosterior(model=model),
    ]
