"""Declarations: one PyMC model a paper, and the kernels they are built on."""

from .combinations.products import FixedProduct, Product
from .combinations.sums import (
    Binary,
    Combination,
    DirichletWeights,
    FixedWeights,
    Mean,
    WeightedSum,
)
from .completion.moment_matching import match_wishart
from .completion.mutual_blocks import GammaExcess
from .composite_kernel import CompositeKernelClassification, CompositeKernelRegression
from .declaration import Declaration
from .diagonal_wishart_completion import DiagonalWishartCompletion
from .distributions.categorical_probit import CategoricalProbit
from .distributions.matrix_normal import MatrixNormal, RegressionMatrix
from .distributions.positive_definite import PositiveDefinite
from .distributions.wishart import InverseWishart, MatrixF, Wishart
from .kernels.eigenvectors import eigenvector_kernels
from .kernels.specification import (
    Kernels,
    Theta,
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
from .kernels.warnings import KernelWarning
from .multinomial_probit import MultinomialProbit
from .mutual_kernel_completion import MutualKernelCompletion
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
    "Binary",
    "CategoricalProbit",
    "Combination",
    "CompositeKernelClassification",
    "CompositeKernelRegression",
    "Declaration",
    "DiagonalWishartCompletion",
    "DirichletWeights",
    "FixedProduct",
    "FixedWeights",
    "GammaExcess",
    "InverseWishart",
    "KernelWarning",
    "Kernels",
    "MatrixF",
    "MatrixNormal",
    "Mean",
    "MultinomialProbit",
    "MutualKernelCompletion",
    "PositiveDefinite",
    "Product",
    "RegressionMatrix",
    "Theta",
    "WeightedSum",
    "Wishart",
    "WishartCompletion",
    "WishartKernelMixture",
    "as_stack",
    "basis_expansion",
    "cosine",
    "covariance",
    "cross_gram",
    "eigenvector_kernels",
    "gaussian",
    "kernel_stack",
    "laplace",
    "linear",
    "match_wishart",
    "polynomial",
    "precomputed",
]
