"""The papers' models as PyMC models, with their kernels, combinations and distributions."""

from . import combinations, distributions, kernels
from .composite_function import composite_function
from .composite_kernel import CompositeKernelClassification, CompositeKernelRegression
from .declaration import Declaration
from .diagonal_wishart_completion import DiagonalWishartCompletion
from .learned_scale import LearnedScale
from .multinomial_probit import MultinomialProbit
from .mutual_kernel_completion import CompletionProblem, MutualKernelCompletion
from .wishart_completion import WishartCompletion
from .wishart_kernel_mixture import WishartKernelMixture

MODELS = (
    WishartCompletion,
    DiagonalWishartCompletion,
    WishartKernelMixture,
    CompositeKernelRegression,
    CompositeKernelClassification,
    MultinomialProbit,
    MutualKernelCompletion,
)

__all__ = [
    "MODELS",
    "CompletionProblem",
    "CompositeKernelClassification",
    "CompositeKernelRegression",
    "Declaration",
    "DiagonalWishartCompletion",
    "LearnedScale",
    "MultinomialProbit",
    "MutualKernelCompletion",
    "WishartCompletion",
    "WishartKernelMixture",
    "combinations",
    "composite_function",
    "distributions",
    "kernels",
]
