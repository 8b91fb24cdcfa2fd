"""Engines of the models that complete one kernel matrix, and their predictions."""

from ...models.diagonal_wishart_completion import DiagonalWishartCompletion
from ...models.wishart_completion import WishartCompletion
from ...models.wishart_kernel_mixture import WishartKernelMixture
from ..engine.paper import Algorithm, Paper
from .diagonal import (
    evidence_of_diagonal_completion,
    fit_diagonal_wishart_completion,
    sample_diagonal_completion,
)
from .gibbs import completion_steps, diagonal_completion_steps
from .predict import completed_labels
from .weights import OBJECTIVES, leave_one_out_rows
from .wishart import completion_by_em, completion_by_vb, sample_completion, without_mode

__all__ = ["DIAGONAL_WISHART", "MIXTURE", "OBJECTIVES", "WISHART", "leave_one_out_rows"]


WISHART = Paper(
    WishartCompletion,
    exact=Algorithm(sample_completion),
    gibbs=Algorithm(completion_steps),
    vb=Algorithm(completion_by_vb),
    em=Algorithm(completion_by_em, unless=without_mode),
    predict=completed_labels,
    log_evidence=lambda model: model.parameters.log_evidence(),
)

MIXTURE = Paper(
    WishartKernelMixture,
    exact=Algorithm(sample_completion, unless=WishartKernelMixture.not_conjugate),
    gibbs=Algorithm(completion_steps, unless=WishartKernelMixture.not_conjugate),
    vb=Algorithm(completion_by_vb, unless=WishartKernelMixture.not_conjugate),
    em=Algorithm(completion_by_em, unless=without_mode),
    predict=completed_labels,
    log_evidence=lambda model: model.parameters.log_evidence(),
)

DIAGONAL_WISHART = Paper(
    DiagonalWishartCompletion,
    exact=Algorithm(sample_diagonal_completion),
    gibbs=Algorithm(diagonal_completion_steps),
    vb=Algorithm(fit_diagonal_wishart_completion),
    predict=completed_labels,
    log_evidence=evidence_of_diagonal_completion,
)
