"""Factors and coordinate ascent that several VB fits share."""

from .concentration import concentration_factor
from .factors import Gamma, binary_factor, precision_factor
from .simplex import simplex_factor

__all__ = [
    "Gamma",
    "binary_factor",
    "concentration_factor",
    "precision_factor",
    "simplex_factor",
]
