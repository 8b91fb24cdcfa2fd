"""Gibbs steps of the composite-kernel models (Girolami & Rogers 2005, sections 3 and 4).

This file only chooses the steps. The draws are in
``custom_steps/composite_kernel/steps.py``.
"""

from typing import Literal

from pymc.step_methods.compound import BlockedStep

from ...custom_steps.composite_kernel.steps import RULES, CompositeKernelGibbs
from ...models.composite_kernel import CompositeKernelClassification, CompositeKernelRegression
from ...validation import Count
from ..engine.engine import Run, unknown_combination


def unknown_rule(
    model: CompositeKernelRegression | CompositeKernelClassification,
) -> str | None:
    """Why Gibbs does not apply to a model's rule of combination; None when it does."""
    return unknown_combination(model, RULES)


def composite_kernel_steps(
    model: CompositeKernelRegression | CompositeKernelClassification,
    run: Run,
    *,
    scheme: Literal["marginal", "paper"] = "marginal",
    moves: Count = 2,
    block: Count = 2,
) -> list[BlockedStep]:
    """One block for all variables; `Gibbs` explains the settings."""
    return [CompositeKernelGibbs(model=model, scheme=scheme, moves=moves, block=block)]
