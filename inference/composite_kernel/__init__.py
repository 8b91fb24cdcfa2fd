"""Engines of the composite-kernel models, and their predictions.

Each file imported here registers its implementations.
"""

from . import gibbs, map, predict, variance  # noqa: F401
from .vb import fit_composite_kernel

__all__ = [
    "fit_composite_kernel",
]
