"""Engines of the composite-kernel models, and their predictions."""

from dataclasses import replace
from functools import partial

from ...models.composite_kernel import CompositeKernelClassification, CompositeKernelRegression
from ..engine.paper import Algorithm, Paper
from ..new_objects import predict_classes, predict_targets
from . import map, vb
from .gibbs import composite_kernel_steps, unknown_rule
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


REGRESSION = Paper(
    CompositeKernelRegression,
    gibbs=Algorithm(composite_kernel_steps, unless=unknown_rule),
    vb=Algorithm(fit_composite_kernel, unless=vb.unsupported),
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
