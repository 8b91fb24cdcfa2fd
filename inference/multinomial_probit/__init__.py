"""Engines of `MultinomialProbit`, and its predictions.

Each file imported here registers its implementations.
"""

from . import gibbs, predict, vb

__all__ = ["gibbs", "predict", "vb"]
