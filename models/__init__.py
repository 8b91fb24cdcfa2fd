"""Declarations: one PyMC model a paper, and the kernels they are built on."""

from .combination import Combination, FixedWeights, Mean
from .declaration import Declaration
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
from .multinomial_probit import MultinomialProbit

MODELS = (MultinomialProbit,)

__all__ = [
    "MODELS",
    "CategoricalProbit",
    "Combination",
    "Declaration",
    "FixedWeights",
    "Kernels",
    "Mean",
    "MultinomialProbit",
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
