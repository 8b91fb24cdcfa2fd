"""Declarations: one PyMC model a paper, and the kernels they are built on."""

from .combination import Combination, FixedWeights, Mean
from .declaration import Declaration
from .diagonal_wishart_completion import DiagonalWishartCompletion
from .distributions import CategoricalProbit
from .kernels import (
    Kernels,
    as_stack,
    basis_expansion,
    cosine,
    covariance,
    cross_gram,
    gaussian,
    kernel_stack,
    laplace,
    linear,
    polynomial,
    precomputed,
)
from .matrix_normal import MatrixNormal, RegressionMatrix
from .moment_matching import match_wishart
from .multinomial_probit import MultinomialProbit
from .positive_definite import PositiveDefinite
from .wishart import InverseWishart, MatrixF, Wishart
from .wishart_completion import WishartCompletion
from .wishart_kernel_mixture import WishartKernelMixture

MODELS = (WishartCompletion, DiagonalWishartCompletion, WishartKernelMixture, MultinomialProbit)

__all__ = [
    "MODELS",
    "CategoricalProbit",
    "Combination",
    "Declaration",
    "DiagonalWishartCompletion",
    "FixedWeights",
    "InverseWishart",
    "Kernels",
    "MatrixF",
    "MatrixNormal",
    "Mean",
    "MultinomialProbit",
    "PositiveDefinite",
    "RegressionMatrix",
    "Wishart",
    "WishartCompletion",
    "WishartKernelMixture",
    "as_stack",
    "basis_expansion",
    "cosine",
    "covariance",
    "cross_gram",
    "gaussian",
    "kernel_stack",
    "laplace",
    "linear",
    "match_wishart",
    "polynomial",
    "precomputed",
]
