"""Gibbs steps of the composite-kernel models."""

from typing import Literal

from pymc.step_methods.compound import BlockedStep

from ...custom_steps.composite_kernel.steps import RULES_OF_SWEEP, CompositeKernelGibbs
from ...models.composite_kernel import CompositeKernelClassification, CompositeKernelRegression
from ...validation import Count
from ..engine.engine import Run, unknown_combination


def unknown_rule(
    model: CompositeKernelRegression | CompositeKernelClassification,
) -> str | None:
    """Why Gibbs does not apply to a model's rule of combination; None when it does."""
    return unknown_combination(model, RULES_OF_SWEEP)


def composite_kernel_steps(
    model: CompositeKernelRegression | CompositeKernelClassification,
    run: Run,
    *,
    scheme: Literal["marginal", "paper"] = "marginal",
    moves: Count = 2,
    block: Count = 2,
) -> list[BlockedStep]:
    """Make one block for all variables.

    Parameters
    ----------
    scheme : {"marginal", "paper"}, default="marginal"
        "marginal" moves beta and varphi with alpha integrated out, by elliptical slice sampling,
        and is needed for selections; "paper" moves them by Metropolis given alpha, and such a chain
        may keep its weights for thousands of sweeps.
    moves : int, default=2
        Number of moves of beta, and of varphi, per sweep.
    block : int, default=2
        Number of kernels of a binary selection that are drawn jointly, from all 2^block states, at
        one Cholesky factorisation each.

    Returns
    -------
    list of step methods
        For ``pm.sample``.
    """
    return [CompositeKernelGibbs(model=model, scheme=scheme, moves=moves, block=block)]
