"""Engines of the models that complete one kernel matrix, and their predictions.

Each file imported here registers its implementations.
"""

from . import diagonal_vb, predict, vb  # noqa: F401
from .diagonal_exact import log_lambda, sample_diagonal_completion
from .diagonal_gibbs import diagonal_wishart_completion_steps
from .em import fit_completion
from .exact import sample_completion
from .gibbs import completion_steps
from .weight_objectives import OBJECTIVES, leave_one_out_rows

__all__ = [
    "OBJECTIVES",
    "completion_steps",
    "diagonal_wishart_completion_steps",
    "fit_completion",
    "leave_one_out_rows",
    "log_lambda",
    "sample_completion",
    "sample_diagonal_completion",
]
