"""Engines of the models that complete one kernel matrix, and their predictions.

Each file imported here registers its implementations.
"""

from . import (
    diagonal_exact,
    diagonal_gibbs,
    diagonal_vb,
    em,
    exact,
    gibbs,
    predict,
    vb,
)

__all__ = [
    "diagonal_exact",
    "diagonal_gibbs",
    "diagonal_vb",
    "em",
    "exact",
    "gibbs",
    "predict",
    "vb",
]
