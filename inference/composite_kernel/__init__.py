"""Engines of the composite-kernel models, and their predictions."""

from functools import partial

from ...models.composite_kernel import CompositeKernelClassification, CompositeKernelRegression
from ..engine.paper import Algorithm, Paper
from ..engine.predict import predict_classes
from . import gibbs, map, vb
from .predict import identified_quantities, predict_targets, probabilities_of
from .vb import fit_composite_kernel, path_of_scales

__all__ = ["CLASSIFICATION", "REGRESSION", "fit_composite_kernel"]

REGRESSION = Paper(
    CompositeKernelRegression,
    gibbs=Algorithm(gibbs.composite_kernel_steps, unless=gibbs.unknown_rule),
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
    gibbs=Algorithm(gibbs.composite_kernel_steps, unless=gibbs.unknown_rule),
    vb=Algorithm(fit_composite_kernel, unless=vb.other_weights, in_blocks=True),
    map=Algorithm(map.find_composite_kernel_mode, unless=map.uneven_weights),
    predict=partial(predict_classes, probabilities_of),
    identified=identified_quantities,
    identified_reads=["alpha"],
    scale="varsigma",
    path=path_of_scales,
)
