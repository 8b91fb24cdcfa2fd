"""Engines of the composite-kernel models, and their predictions.

Each file that is imported here registers what it implements.
"""

from . import gibbs, map, predict, vb

__all__ = ["gibbs", "map", "predict", "vb"]
