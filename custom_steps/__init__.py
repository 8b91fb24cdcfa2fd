"""PyMC step methods: Gibbs and Metropolis moves written for the models, one file an algorithm."""

from .albert_chib import AlbertChib
from .block import GibbsBlock
from .composite_kernel import CompositeKernelGibbs
from .diagonal_tanner_wong import DiagonalTannerWongImputation, DiagonalTannerWongPosterior
from .kernel_albert_chib import KernelAlbertChib
from .marginal_probit import MarginalProbit
from .mutual_completion import MutualImputation, MutualPosterior
from .tanner_wong import TannerWongImputation, TannerWongPosterior

__all__ = [
    "AlbertChib",
    "CompositeKernelGibbs",
    "DiagonalTannerWongImputation",
    "DiagonalTannerWongPosterior",
    "GibbsBlock",
    "KernelAlbertChib",
    "MarginalProbit",
    "MutualImputation",
    "MutualPosterior",
    "TannerWongImputation",
    "TannerWongPosterior",
]
