"""Engines of `MultinomialProbit`, and its predictions.

Each file that is imported here registers what it implements.
"""

from . import gibbs, predict  # noqa: F401
from .vb import fit_multinomial_probit

__all__ = [
    "fit_multinomial_probit",
]
