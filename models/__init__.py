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
from .multinomial_probit import MultinomialProbit
from .wishart import InverseWishart, PositiveDefinite, Wishart
from .wishart_completion import WishartCompletion

MODELS = (WishartCompletion, DiagonalWishartCompletion, MultinomialProbit)

__all__ = [
    "MODELS",
    "CategoricalProbit",
    "Combination",
    "Declaration",
    "DiagonalWishartCompletion",
    "FixedWeights",
    "InverseWishart",
    "Kernels",
    "MatrixNormal",
    "Mean",
    "MultinomialProbit",
    "PositiveDefinite",
    "RegressionMatrix",
    "Wishart",
    "WishartCompletion",
    "as_stack",
    "basis_expansion",
    "cosine",
    "covariance",
    "cross_gram",
    "gaussian",
    "kernel_stack",
    "laplace",
    "linear",
    "polynomial",
    "precomputed",
]
