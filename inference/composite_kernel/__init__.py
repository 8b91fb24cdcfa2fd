"""Engines of the composite-kernel models, and their predictions."""

from functools import partial
from typing import Literal

from pymc.step_methods.compound import BlockedStep

from ...custom_steps.composite_kernel.steps import RULES, CompositeKernelGibbs
from ...models.composite_kernel import CompositeKernelClassification, CompositeKernelRegression
from ...validation import Count
from ..engine.engine import Run, unknown_combination
from ..engine.paper import Algorithm, Paper
from ..engine.predict import predict_classes
from . import map, vb
from .predict import identified_quantities, predict_targets, probabilities_of
from .vb import fit_composite_kernel, path_of_scales

__all__ = ["CLASSIFICATION", "REGRESSION", "fit_composite_kernel"]


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


REGRESSION = Paper(
    CompositeKernelRegression,
    gibbs=Algorithm(composite_kernel_steps, unless=unknown_rule),
    vb=Algorithm(fit_composite_kernel, unless=vb.unsupported, in_blocks=True),
    map=Algorithm(map.find_composite_kernel_mode, unless=map.not_regression),
    predict=predict_targets,
    identified=identified_quantities,
    identified_reads=["gamma"],
    scale="varsigma",
    path=path_of_scales,
)

CLASSIFICATION = Paper(
    CompositeKernelClassification,
    gibbs=Algorithm(composite_kernel_steps, unless=unknown_rule),
    vb=Algorithm(fit_composite_kernel, unless=vb.other_weights, in_blocks=True),
    map=Algorithm(map.find_composite_kernel_mode, unless=map.uneven_weights),
    predict=partial(predict_classes, probabilities_of),
    identified=identified_quantities,
    identified_reads=["alpha"],
    scale="varsigma",
    path=path_of_scales,
)
