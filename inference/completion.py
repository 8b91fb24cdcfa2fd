"""What users of incomplete kernels call besides engines: simple completions, weights, entries."""

from ..models.completion.moment_matching import match_wishart
from ..models.completion.mutual_blocks import GammaExcess
from ..models.kernels.completed import CompletedKernels
from .kernel_completion.weights import learn_weights
from .mutual_completion.complete import complete_kernels
from .mutual_completion.complete_features import complete_features
from .mutual_completion.imputation import impute_kernels
from .mutual_completion.scores import missing_entries

__all__ = [
    "CompletedKernels",
    "GammaExcess",
    "complete_features",
    "complete_kernels",
    "impute_kernels",
    "learn_weights",
    "match_wishart",
    "missing_entries",
]
