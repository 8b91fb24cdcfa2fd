"""Engines of `MutualKernelCompletion`, and its predictions.

Each file that is imported here registers what it implements.
"""

from . import em, exact, gibbs, predict

__all__ = ["em", "exact", "gibbs", "predict"]
