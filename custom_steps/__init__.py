"""PyMC step methods: Gibbs and Metropolis moves written for the models, one file an algorithm."""

from .albert_chib import AlbertChib
from .block import GibbsBlock

__all__ = ["AlbertChib", "GibbsBlock"]
