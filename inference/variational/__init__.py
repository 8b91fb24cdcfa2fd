"""Factors and coordinate ascent that several VB fits share."""

from .binary import binary_factor
from .concentration import concentration_factor
from .gamma import Gamma
from .regressors import precision_factor
from .simplex import simplex_factor

__all__ = [
    "Gamma",
    "binary_factor",
    "concentration_factor",
    "precision_factor",
    "simplex_factor",
]
