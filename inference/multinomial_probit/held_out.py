"""Held-out log scores of the multinomial probit by VB's paper scheme, for the choice of upsilon."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...models.multinomial_probit import Composition, MultinomialProbit
from ..engine.engine import Run
from ..engine.paper import Fold
from ..new_objects import composite_functions, log_scores_of_classes
from .predict import probabilities_by_draw
from .vb import Data, State, best_of_starts, path_of_scales, sample


def held_out(
    model: MultinomialProbit,
    fold: Fold,
    scales: Sequence[float],
    run: Run,
    *,
    several_starts: bool,
) -> Iterator[NDArray]:
    """Log scores (new,) of the objects left out, at one upsilon after another; see `Paper`."""
    n_kernels, _, n_basis = fold.kernels.shape
    known = np.full(n_kernels, np.nan if fold.learned else 1.0)
    composition = Composition(fold.rule, known, fold.kernels, learned=fold.learned)
    data = Data.on(composition, fold.responses, model.n_classes, model.tau, scales[0])
    states: Iterable[State]
    if several_starts:
        each = (replace(data, upsilon=upsilon) for upsilon in scales)
        states = (best_of_starts(one, n_basis, run).state for one in each)
    else:
        states = path_of_scales(data, scales)
    for state in states:
        drawn, _ = sample(data, state, run.draws, np.random.default_rng(run.random_seed))
        beta = drawn.get("beta", np.ones((run.draws, 1)))
        functions = composite_functions(fold.kernels_new, beta, drawn["W"])
        p = probabilities_by_draw(functions).mean(axis=0)
        yield log_scores_of_classes(p, fold.responses_new)
