"""PyMC step methods: Gibbs and Metropolis moves for the models, one file an algorithm."""

from .block import GibbsBlock
from .composite_kernel.steps import CompositeKernelGibbs
from .kernel_completion.diagonal_tanner_wong import (
    DiagonalTannerWongImputation,
    DiagonalTannerWongPosterior,
)
from .kernel_completion.tanner_wong import TannerWongImputation, TannerWongPosterior
from .multinomial_probit.albert_chib import AlbertChib
from .multinomial_probit.marginal import MarginalProbit
from .mutual_completion.steps import MutualImputation, MutualPosterior

__all__ = [
    "AlbertChib",
    "CompositeKernelGibbs",
    "DiagonalTannerWongImputation",
    "DiagonalTannerWongPosterior",
    "GibbsBlock",
    "MarginalProbit",
    "MutualImputation",
    "MutualPosterior",
    "TannerWongImputation",
    "TannerWongPosterior",
]
