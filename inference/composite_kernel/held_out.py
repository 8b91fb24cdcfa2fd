"""Held-out log scores of the composite-kernel models by VB, for the choice of varsigma."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ...models.composite_kernel import (
    Basis,
    CompositeKernelClassification,
    CompositeKernelRegression,
)
from ..engine.engine import Run
from ..engine.paper import Fold
from ..new_objects import log_scores_of_classes, log_scores_of_targets, target_sd
from .predict import probabilities_by_draw, responses_by_draw
from .vb import State, best_of_starts, inputs_on, path_of_scales, sample


def held_out(
    model: CompositeKernelRegression | CompositeKernelClassification,
    fold: Fold,
    scales: Sequence[float],
    run: Run,
    *,
    several_starts: bool,
) -> Iterator[NDArray]:
    """Log scores (new,) of the objects left out, at one varsigma after another; see `Paper`."""
    n_kernels = len(fold.kernels)
    functions = Basis.of(fold.rule, None if fold.learned else np.ones(1), model.bias)
    given = (fold.rule, functions, fold.kernels, fold.responses)
    data = inputs_on(model, *given, varsigma=scales[0])
    design = functions(fold.kernels_new)
    states: Iterable[State]
    if several_starts:
        states = (best_of_starts(data.scaled(each), n_kernels, run).state for each in scales)
    else:
        states = path_of_scales(data, n_kernels, scales)
    for state in states:
        drawn, _ = sample(data, state, run.draws, np.random.default_rng(run.random_seed))
        beta = drawn.get("beta", np.ones((run.draws, 1)))
        y = responses_by_draw(design, functions.weights(beta), drawn["alpha"])
        if isinstance(model, CompositeKernelClassification):
            p = probabilities_by_draw(y).mean(axis=0)
            yield log_scores_of_classes(p, fold.responses_new)
        else:
            sd = target_sd(y.var(axis=0), drawn["gamma"])
            yield log_scores_of_targets(y.mean(axis=0), sd, fold.responses_new)
