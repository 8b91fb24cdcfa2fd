"""Engines of `MultinomialProbit`, and its predictions.

Each file imported here registers its implementations.
"""

from . import gibbs, predict  # noqa: F401
from .vb import fit_multinomial_probit

__all__ = [
    "fit_multinomial_probit",
]
