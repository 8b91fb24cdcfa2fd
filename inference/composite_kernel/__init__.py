"""Engines of the composite-kernel models, and their predictions."""

from dataclasses import replace
from functools import partial
from typing import Literal

from pymc.step_methods.compound import BlockedStep

from ...custom_steps.composite_kernel.steps import RULES_OF_SWEEP, CompositeKernelGibbs
from ...models.composite_kernel import CompositeKernelClassification, CompositeKernelRegression
from ...validation import Count
from ..engine.engine import Run, unknown_combination
from ..engine.paper import Algorithm, Paper
from ..new_objects import predict_classes, predict_targets
from . import map, vb
from .held_out import held_out
from .predict import (
    identified_quantities,
    predicted_probabilities,
    predicted_responses,
    probabilities_of,
    responses_of,
)
from .vb import fit_composite_kernel

__all__ = ["CLASSIFICATION", "REGRESSION", "fit_composite_kernel"]


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


REGRESSION = Paper(
    CompositeKernelRegression,
    gibbs=Algorithm(
        composite_kernel_steps, unless=partial(unknown_combination, rules=RULES_OF_SWEEP)
    ),
    vb=Algorithm(fit_composite_kernel, unless=vb.unsupported, in_blocks=True),
    map=Algorithm(map.find_composite_kernel_mode, unless=map.unsupported),
    predict=partial(predict_targets, responses_of),
    identified=identified_quantities,
    identified_reads=["gamma"],
    predicted=predicted_responses,
    scale="varsigma",
    held_out=held_out,
)

CLASSIFICATION = replace(
    REGRESSION,
    model=CompositeKernelClassification,
    predict=partial(predict_classes, probabilities_of),
    predicted=predicted_probabilities,
    identified_reads=["alpha"],
)
