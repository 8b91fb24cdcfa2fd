"""Distributions that PyMC lacks or evaluates at a higher cost."""

from .categorical_probit import CategoricalProbit
from .normal import MatrixNormal, RegressionMatrix
from .positive_definite import PositiveDefinite
from .wishart import InverseWishart, MatrixF, Wishart

__all__ = [
    "CategoricalProbit",
    "InverseWishart",
    "MatrixF",
    "MatrixNormal",
    "PositiveDefinite",
    "RegressionMatrix",
    "Wishart",
]
