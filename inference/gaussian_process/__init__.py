"""Engines of Gaussian processes, and their predictions."""

from dataclasses import replace
from functools import partial

from ...models.combinations.sums import DirichletWeights
from ...models.gaussian_process import GaussianProcessClassification, GaussianProcessRegression
from ..engine.paper import Algorithm, Paper
from ..new_objects import predict_classes, predict_targets
from .chunks import why_not_by_chunks
from .inla import integrate_gaussian_process
from .mode import find_mode_of_scores, why_no_mode
from .predict import (
    identified_quantities,
    predicted_probabilities,
    predicted_scores,
    probabilities_of,
    responses_of,
)

__all__ = ["GAUSSIAN_CLASSIFICATION", "GAUSSIAN_REGRESSION", "integrate_gaussian_process"]


def unsupported(model: GaussianProcessRegression | GaussianProcessClassification) -> str | None:
    """Why INLA does not apply to a model; None when it does."""
    rule = model.combination
    if isinstance(rule, DirichletWeights) and rule.varphi is None:
        return "it needs known concentrations of the weights: DirichletWeights(varphi=1)"
    return why_not_by_chunks(model)


GAUSSIAN_REGRESSION = Paper(
    GaussianProcessRegression,
    inla=Algorithm(integrate_gaussian_process, unless=unsupported),
    predict=partial(predict_targets, responses_of),
    identified=identified_quantities,
    identified_reads=["f"],
    predicted=predicted_scores,
)

GAUSSIAN_CLASSIFICATION = replace(
    GAUSSIAN_REGRESSION,
    model=GaussianProcessClassification,
    map=Algorithm(find_mode_of_scores, unless=why_no_mode),
    predict=partial(predict_classes, probabilities_of),
    predicted=predicted_probabilities,
)
