"""Composite kernel in NumPy, from a model's weights and kernel parameters."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...numerics.kernel_products import Design
from ..kernels.learned import ParametricStack
from .normal_coordinates import NormalCoordinates
from .sums import Combination, WeightedSum

__all__ = ["Composition"]


@dataclass(frozen=True)
class Composition:
    """Composite kernel as a function of weights and kernel parameters.

    Parameters
    ----------
    rule : Combination
    known : ndarray of shape (S,)
        Weights if they are not random variables.
    stack : ndarray of shape (S, N, M) or None
        Fixed kernels.
    parametric : ParametricStack or None
        Kernels with parameters.
    learned : bool
        Whether the weights are random variables.
    """

    rule: Combination
    known: np.ndarray
    stack: np.ndarray | None = None
    parametric: ParametricStack | None = None
    learned: bool = True

    def kernels(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """Kernels (S, N, M)."""
        if self.parametric is None:
            assert self.stack is not None
            return self.stack
        return self.parametric.evaluate(values["theta"])

    def terms(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """Matrices (S, N, M) that the weights multiply."""
        return self._terms if self.parametric is None else self.rule.terms(self.kernels(values))

    def composite(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """Composite kernel (N, M); O(S N M), plus O(N M D) per kernel with parameters."""
        terms = self.terms(values)
        s, n, m = terms.shape
        beta = np.asarray(values.get("beta", self.known), dtype=float)
        return self.rule.from_terms(beta @ terms.reshape(s, n * m)).reshape(n, m)

    def gram(self, values: Mapping[str, np.ndarray], composite: np.ndarray) -> np.ndarray:
        """K'K (M, M) of the composite K; O(S^2 M^2) with precomputed products, else O(N M^2)."""
        if self._design is None:
            return composite.T @ composite
        return self._design.gram(np.asarray(values.get("beta", self.known), dtype=float), composite)

    @cached_property
    def coordinates(self) -> NormalCoordinates:
        """Normal coordinates of learned exponents and parameters."""
        return NormalCoordinates.of(self.rule, len(self.known), self.parametric)

    @cached_property
    def _design(self) -> Design | None:
        """Kernels of a weighted sum; None for other rules and kernels with parameters."""
        is_sum = self.parametric is None and isinstance(self.rule, WeightedSum)
        return Design.of(self._terms) if is_sum else None

    @cached_property
    def _terms(self) -> np.ndarray:
        assert self.stack is not None
        return self.rule.terms(self.stack)
