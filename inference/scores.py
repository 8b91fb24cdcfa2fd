"""Scores: of predictions on held-out objects, and of completed kernels."""

from .diagnostics.scores import held_out, loo, variance_explained
from .left_out import loo_kfold
from .mutual_completion.scores import correlation_distance, entry_coverage

__all__ = [
    "correlation_distance",
    "entry_coverage",
    "held_out",
    "loo",
    "loo_kfold",
    "variance_explained",
]
