"""Gibbs steps of `WishartCompletion` (Zhang, Yeung & Kwok 2004, section 3).

`WishartKernelMixture` with an inverse-Wishart prior uses them with the matched parameters.
This file only chooses the steps. The draws are in
``custom_steps/kernel_completion/tanner_wong.py``.
"""

from typing import Literal

from pymc.step_methods.compound import BlockedStep

from ...custom_steps.kernel_completion.tanner_wong import TannerWongImputation, TannerWongPosterior
from ...models.wishart_completion import WishartCompletion
from ...models.wishart_kernel_mixture import WishartKernelMixture
from ..engine.engine import Run

__all__ = ["completion_steps"]


def completion_steps(
    model: WishartCompletion | WishartKernelMixture,
    run: Run,
    *,
    p_step: Literal["joint", "inverse-wishart"] = "joint",
) -> list[BlockedStep]:
    """Run the Tanner-Wong algorithm: I-step (eq 5), then P-step (eq 6); `Gibbs` explains `p_step`.

    Parameters
    ----------
    model : WishartCompletion or WishartKernelMixture
        A mixture with fixed weights and the inverse-Wishart prior.
    run : Run
        Unused: the steps get their generators from PyMC.

    Returns
    -------
    list of BlockedStep
        Steps for ``pm.sample``.
    """
    return [TannerWongImputation(model=model), TannerWongPosterior(model=model, p_step=p_step)]
