"""Engines of the models that complete one kernel matrix, and their predictions."""

from ...models.diagonal_wishart_completion import DiagonalWishartCompletion
from ...models.wishart_completion import WishartCompletion
from ...models.wishart_kernel_mixture import WishartKernelMixture
from ..engine.paper import Algorithm, Paper
from . import em, vb
from .diagonal_exact import (
    evidence_of_diagonal_completion,
    log_lambda,
    sample_diagonal_completion,
)
from .diagonal_gibbs import diagonal_wishart_completion_steps
from .diagonal_vb import fit_diagonal_wishart_completion
from .em import completion_by_em
from .exact import evidence_of_completion, sample_completion
from .gibbs import completion_steps
from .predict import completed_labels
from .weight_objectives import OBJECTIVES, leave_one_out_rows

__all__ = [
    "DIAGONAL_WISHART",
    "MIXTURE",
    "OBJECTIVES",
    "WISHART",
    "completion_by_em",
    "completion_steps",
    "diagonal_wishart_completion_steps",
    "leave_one_out_rows",
    "log_lambda",
    "sample_completion",
    "sample_diagonal_completion",
]

WISHART = Paper(
    WishartCompletion,
    exact=Algorithm(sample_completion),
    gibbs=Algorithm(completion_steps),
    vb=Algorithm(vb.completion_by_vb),
    em=Algorithm(em.completion_by_em, unless=em.without_mode),
    predict=completed_labels,
    log_evidence=evidence_of_completion,
)

MIXTURE = Paper(
    WishartKernelMixture,
    exact=Algorithm(sample_completion, unless=WishartKernelMixture.not_conjugate),
    gibbs=Algorithm(completion_steps, unless=WishartKernelMixture.not_conjugate),
    vb=Algorithm(vb.completion_by_vb, unless=WishartKernelMixture.not_conjugate),
    em=Algorithm(em.completion_by_em, unless=em.without_match_or_mode),
    predict=completed_labels,
    log_evidence=evidence_of_completion,
)

DIAGONAL_WISHART = Paper(
    DiagonalWishartCompletion,
    exact=Algorithm(sample_diagonal_completion),
    gibbs=Algorithm(diagonal_wishart_completion_steps),
    vb=Algorithm(fit_diagonal_wishart_completion),
    predict=completed_labels,
    log_evidence=evidence_of_diagonal_completion,
)
