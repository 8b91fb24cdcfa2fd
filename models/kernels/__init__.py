"""Kernel functions, their normalisation and stacks of kernel matrices."""

from .blocks import KernelsInBlocks
from .eigenvectors import eigenvector_kernels
from .specification import (
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
from .warnings import KernelWarning

__all__ = [
    "KernelWarning",
    "Kernels",
    "KernelsInBlocks",
    "Theta",
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
    "polynomial",
    "precomputed",
]
