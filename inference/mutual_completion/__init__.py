"""Engines of `MutualKernelCompletion`, and its predictions.

Each file imported here registers its implementations.
"""

from . import exact, predict  # noqa: F401
from .alignment import ideal_kernel, kernel_alignment
from .em import fit_mutual_kernel_completion, minimize
from .gibbs import mutual_kernel_completion_steps
from .objective import MutualObjective

__all__ = [
    "MutualObjective",
    "fit_mutual_kernel_completion",
    "ideal_kernel",
    "kernel_alignment",
    "minimize",
    "mutual_kernel_completion_steps",
]
