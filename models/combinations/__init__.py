"""Rules that combine kernels with weights, one file per family of rules."""

from .products import FixedProduct, Product
from .sums import Binary, Combination, DirichletWeights, FixedWeights, Mean, WeightedSum

__all__ = [
    "Binary",
    "Combination",
    "DirichletWeights",
    "FixedProduct",
    "FixedWeights",
    "Mean",
    "Product",
    "WeightedSum",
]
