"""Estimators and transformers for scikit-learn."""

from .completer import KernelCompleter

__all__ = ["KernelCompleter"]
