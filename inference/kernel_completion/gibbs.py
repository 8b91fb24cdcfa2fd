"""Gibbs steps of the models of one kernel (Zhang, Yeung & Kwok 2004, sections 3 and 4).

The draws are in ``custom_steps/kernel_completion``.
"""

from typing import Literal

from pymc.step_methods.compound import BlockedStep

from ...custom_steps.kernel_completion.diagonal_tanner_wong import (
    DiagonalTannerWongImputation,
    DiagonalTannerWongPosterior,
)
from ...custom_steps.kernel_completion.tanner_wong import TannerWongImputation, TannerWongPosterior
from ...models.diagonal_wishart_completion import DiagonalWishartCompletion
from ...models.wishart_completion import WishartCompletion
from ...models.wishart_kernel_mixture import WishartKernelMixture
from ..engine.engine import Run


def completion_steps(
    model: WishartCompletion | WishartKernelMixture,
    run: Run,
    *,
    p_step: Literal["joint", "inverse-wishart"] = "joint",
) -> list[BlockedStep]:
    """Tanner-Wong algorithm: I-step (eq 5), then P-step (eq 6); `Gibbs` explains `p_step`."""
    return [TannerWongImputation(model=model), TannerWongPosterior(model=model, p_step=p_step)]


def diagonal_completion_steps(
    model: DiagonalWishartCompletion, run: Run, *, variant: Literal["TW1", "TW2"] | None = None
) -> list[BlockedStep]:
    """Tanner-Wong algorithm: I-step (eqs 12-15), then P-step; `Gibbs` explains `variant`."""
    return [
        DiagonalTannerWongImputation(model=model, variant=variant),
        DiagonalTannerWongPosterior(model=model),
    ]
