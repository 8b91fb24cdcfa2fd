"""Estimators of scikit-learn on the models of this package.

The kernels of every block of features are computed inside of `fit`, with widths, scales and
normalisations from the training objects only, so that cross-validation does not leak.
"""

from .blocks import KernelBlocks
from .classifier import KernelClassifier, KernelProbitClassifier
from .completer import KernelCompleter
from .regressor import CompositeKernelRegressor, KernelRegressor

__all__ = [
    "CompositeKernelRegressor",
    "KernelBlocks",
    "KernelClassifier",
    "KernelCompleter",
    "KernelProbitClassifier",
    "KernelRegressor",
]
