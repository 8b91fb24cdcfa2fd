"""Engines of the composite-kernel models, and their predictions.

Each file imported here registers its implementations.
"""

from . import gibbs, map, predict, vb

__all__ = ["gibbs", "map", "predict", "vb"]
