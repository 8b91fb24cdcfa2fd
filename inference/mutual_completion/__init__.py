"""Engines of `MutualKernelCompletion`, and its predictions.

Each file imported here registers its implementations.
"""

from . import em, exact, gibbs, predict

__all__ = ["em", "exact", "gibbs", "predict"]
