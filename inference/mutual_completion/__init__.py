"""Engines of `MutualKernelCompletion`, and its predictions."""

from ...models.mutual_kernel_completion import MutualKernelCompletion
from ..engine.paper import Algorithm, Paper
from .alignment import ideal_kernel, kernel_alignment
from .em import fit_mutual_kernel_completion, freedom_has_prior, minimize
from .exact import (
    evidence_of_mutual_kernel_completion,
    not_nested,
    sample_mutual_kernel_completion,
)
from .gibbs import mutual_kernel_completion_steps, why_no_blocks
from .objective import MutualObjective
from .predict import completed_kernels

__all__ = [
    "MUTUAL",
    "MutualObjective",
    "fit_mutual_kernel_completion",
    "ideal_kernel",
    "kernel_alignment",
    "minimize",
    "mutual_kernel_completion_steps",
]

MUTUAL = Paper(
    MutualKernelCompletion,
    exact=Algorithm(sample_mutual_kernel_completion, unless=not_nested),
    gibbs=Algorithm(mutual_kernel_completion_steps, unless=why_no_blocks),
    em=Algorithm(fit_mutual_kernel_completion, unless=freedom_has_prior),
    predict=completed_kernels,
    log_evidence=evidence_of_mutual_kernel_completion,
)
