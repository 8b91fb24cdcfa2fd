"""Engines of `MutualKernelCompletion`, and its predictions."""

from ...models.mutual_kernel_completion import MutualKernelCompletion
from ..engine.paper import Algorithm, Paper
from .em import fit_mutual_kernel_completion
from .exact import (
    evidence_of_mutual_kernel_completion,
    not_nested,
    sample_mutual_kernel_completion,
    why_no_blocks,
)
from .gibbs import mutual_kernel_completion_steps
from .predict import completed_kernels
from .scores import ideal_kernel, kernel_alignment

__all__ = ["MUTUAL", "ideal_kernel", "kernel_alignment"]


MUTUAL = Paper(
    MutualKernelCompletion,
    exact=Algorithm(sample_mutual_kernel_completion, unless=not_nested),
    gibbs=Algorithm(mutual_kernel_completion_steps, unless=why_no_blocks),
    em=Algorithm(fit_mutual_kernel_completion),
    predict=completed_kernels,
    log_evidence=evidence_of_mutual_kernel_completion,
)
