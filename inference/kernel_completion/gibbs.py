"""Gibbs steps of the models that complete one kernel matrix: I-steps and P-steps."""

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
    """Make the steps of Tanner and Wong's algorithm: I-step (eq 5), then P-step (eq 6).

    Parameters
    ----------
    p_step : {"joint", "inverse-wishart"}, default="joint"
        How Sigma is drawn: block by block (O(n1^3 + n2 n1^2), cheaper), or the whole matrix at once
        (O(n^3)), from the same distribution.

    Returns
    -------
    list of step methods
        For ``pm.sample``.
    """
    return [TannerWongImputation(model=model), TannerWongPosterior(model=model, p_step=p_step)]


def diagonal_completion_steps(
    model: DiagonalWishartCompletion, run: Run, *, variant: Literal["TW1", "TW2"] | None = None
) -> list[BlockedStep]:
    """Make the steps of Tanner and Wong's algorithm: I-step (eqs 12-15), then P-step.

    Parameters
    ----------
    variant : {"TW1", "TW2"}, optional
        How W22_1 is drawn: as a Wishart matrix, eq (13), or its diagonal by independent Gammas,
        eq (15), and its correlations separately, from the same distribution. By default "TW1"
        unless W22_1 is declared diagonal, which needs "TW2".

    Returns
    -------
    list of step methods
        For ``pm.sample``.
    """
    return [
        DiagonalTannerWongImputation(model=model, variant=variant),
        DiagonalTannerWongPosterior(model=model),
    ]
