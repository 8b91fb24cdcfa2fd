"""What users of incomplete kernels call besides engines: simple completions, weights, entries."""

from ..models.completion.completed import CompletedKernels
from ..models.completion.moment_matching import match_wishart
from .kernel_completion.weights import learn_weights
from .mutual_completion.complete import complete_kernels, impute_kernels
from .mutual_completion.scores import missing_entries

__all__ = [
    "CompletedKernels",
    "complete_kernels",
    "impute_kernels",
    "learn_weights",
    "match_wishart",
    "missing_entries",
]
