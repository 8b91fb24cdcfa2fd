"""PyMC step methods: Gibbs and Metropolis moves written for the models, one file an algorithm."""

from .albert_chib import AlbertChib
from .block import GibbsBlock
from .diagonal_tanner_wong import DiagonalTannerWongImputation, DiagonalTannerWongPosterior
from .tanner_wong import TannerWongImputation, TannerWongPosterior

__all__ = [
    "AlbertChib",
    "DiagonalTannerWongImputation",
    "DiagonalTannerWongPosterior",
    "GibbsBlock",
    "TannerWongImputation",
    "TannerWongPosterior",
]
