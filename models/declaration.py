"""What every model of the zoo adds to `pm.Model`: what is large, and what was declared."""

from typing import Self

import pymc as pm

__all__ = ["Declaration", "family"]


class Declaration(pm.Model):
    """A paper's model. Everything of PyMC works on it unchanged.

    A subclass checks its input, registers its data as ``pm.Data``, declares its variables in
    ``__init__`` and ends with ``self.seal()``. It knows no engine.

    Attributes
    ----------
    large : frozenset of str
        Variables that a result keeps draws of only when asked (``fit(..., var_names=...)``):
        matrices that grow with the square of the number of objects.
    streamed : tuple of str
        Variables whose posterior mean and standard deviation are accumulated draw by draw, so
        that they are there without the draws.
    """

    large: frozenset[str] = frozenset()
    streamed: tuple[str, ...] = ()

    @classmethod
    def example(cls) -> Self:
        """Smallest instance on which every engine can be tried."""
        raise NotImplementedError(f"{cls.__name__} has no example.")

    @property
    def variant(self) -> str:
        """Which of the model's alternatives this one is, for results that must be told apart."""
        return ""

    def seal(self) -> None:
        """Record what has been declared: engines written for it refuse a model that was amended."""
        self._declared = self._terms()

    def amendments(self) -> list[str]:
        """Names of the terms added to or taken from the declaration since it was sealed."""
        return sorted(self._terms() ^ self._declared)

    def _terms(self) -> frozenset[str]:
        terms = [*self.free_RVs, *self.observed_RVs, *self.potentials]
        return frozenset(str(term.name) for term in terms)


def family(model: pm.Model) -> str:
    """Name of the zoo's model that `model` is or descends from, else of its own class."""
    for ancestor in type(model).__mro__:
        if Declaration in ancestor.__bases__:
            return ancestor.__name__
    return type(model).__name__
