"""Engines of `MultinomialProbit`, and its predictions.

Each file that is imported here registers what it implements.
"""

from . import gibbs, predict, vb

__all__ = ["gibbs", "predict", "vb"]
