"""Declarations: one PyMC model a paper, and the kernels they are built on."""

from .combination import Combination, FixedWeights, Mean
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

__all__ = [
    "CategoricalProbit",
    "Combination",
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
