"""PyMC step methods: Gibbs and Metropolis moves written for the models, one file an algorithm."""

from .albert_chib import AlbertChib
from .block import GibbsBlock
from .tanner_wong import TannerWongImputation, TannerWongPosterior

__all__ = ["AlbertChib", "GibbsBlock", "TannerWongImputation", "TannerWongPosterior"]
