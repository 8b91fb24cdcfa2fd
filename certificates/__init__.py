"""Certificates: what proves each engine on each variant of each model."""

from .cells import Cell, all_cells
from .findings import Finding
from .run import Certificate, certify
from .variants import VARIANTS, Variant, probit_problem

__all__ = [
    "VARIANTS",
    "Cell",
    "Certificate",
    "Finding",
    "Variant",
    "all_cells",
    "certify",
    "probit_problem",
]
