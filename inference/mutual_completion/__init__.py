"""Engines of `MutualKernelCompletion`, and its predictions."""

from pymc.step_methods.compound import BlockedStep

from ...custom_steps.mutual_completion.steps import MutualImputation, MutualPosterior
from ...models.mutual_kernel_completion import MutualKernelCompletion
from ..engine.engine import Run
from ..engine.paper import Algorithm, Paper
from .em import fit_mutual_kernel_completion
from .exact import (
    evidence_of_mutual_kernel_completion,
    not_nested,
    sample_mutual_kernel_completion,
    why_no_blocks,
)
from .predict import completed_kernels
from .scores import ideal_kernel, kernel_alignment

__all__ = ["MUTUAL", "ideal_kernel", "kernel_alignment"]


def mutual_kernel_completion_steps(model: MutualKernelCompletion, run: Run) -> list[BlockedStep]:
    """Alternate between the missing blocks and the model matrix. A sweep costs O(K l^3).

    Overrelaxation gives 2 to 5 times as many effective draws per second (K = 6, half of all rows
    missing, lambda = 0.1, nu = l + 1, l = 40 to 200); Hamiltonian Monte Carlo on M with the
    completed kernels integrated out gave a third at l = 40 and a tenth at l = 100.
    """
    steps: list[BlockedStep] = [MutualPosterior(model=model)]
    if len(model.free_RVs) > 1:
        steps.insert(0, MutualImputation(model=model))
    return steps


MUTUAL = Paper(
    MutualKernelCompletion,
    exact=Algorithm(sample_mutual_kernel_completion, unless=not_nested),
    gibbs=Algorithm(mutual_kernel_completion_steps, unless=why_no_blocks),
    em=Algorithm(fit_mutual_kernel_completion),
    predict=completed_kernels,
    log_evidence=evidence_of_mutual_kernel_completion,
)
