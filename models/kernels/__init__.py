"""Kernel functions, their normalisation and stacks of kernel matrices."""

from .functions import (
    basis_expansion,
    covariance,
    function,
    gaussian,
    inverse_multiquadric,
    linear,
    polynomial,
    precomputed,
    same,
    tanimoto,
)
from .source import Theta
from .specification import Kernels
from .stack import as_stack, nearest_psd
from .warnings import KernelWarning

__all__ = [
    "KernelWarning",
    "Kernels",
    "Theta",
    "as_stack",
    "basis_expansion",
    "covariance",
    "function",
    "gaussian",
    "inverse_multiquadric",
    "linear",
    "nearest_psd",
    "polynomial",
    "precomputed",
    "same",
    "tanimoto",
]
