"""Engines of the composite-kernel models, and their predictions.

Each file that is imported here registers what it implements.
"""

from . import gibbs, map, predict  # noqa: F401
from .vb import fit_composite_kernel

__all__ = [
    "fit_composite_kernel",
]
