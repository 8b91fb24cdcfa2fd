"""Gibbs steps of `DiagonalWishartCompletion` (Zhang, Yeung & Kwok 2004, section 4).

This file only chooses the steps. The draws are in
``custom_steps/kernel_completion/diagonal_tanner_wong.py``.
"""

from typing import Literal

from pymc.step_methods.compound import BlockedStep

from ...custom_steps.kernel_completion.diagonal_tanner_wong import (
    DiagonalTannerWongImputation,
    DiagonalTannerWongPosterior,
)
from ...models.diagonal_wishart_completion import DiagonalWishartCompletion
from ..engine.engine import Run

__all__ = ["diagonal_wishart_completion_steps"]


def diagonal_wishart_completion_steps(
    model: DiagonalWishartCompletion, run: Run, *, variant: Literal["TW1", "TW2"] | None = None
) -> list[BlockedStep]:
    """Run the Tanner-Wong algorithm: I-step (eqs 12-15), then P-step; `Gibbs` explains `variant`.

    Parameters
    ----------
    model : DiagonalWishartCompletion
        Declaration.
    run : Run
        Unused: the steps get their generators from PyMC.

    Returns
    -------
    list of BlockedStep
        Steps for ``pm.sample``.
    """
    return [
        DiagonalTannerWongImputation(model=model, variant=variant),
        DiagonalTannerWongPosterior(model=model),
    ]
