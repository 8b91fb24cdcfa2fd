"""Variational Bayes written by hand: one file a paper, and the factors that papers share."""

from . import multinomial_probit
from .answer import VariationalAnswer
from .engine import VB

__all__ = ["VB", "VariationalAnswer", "multinomial_probit"]
