"""One kernel of a specification, and its values on objects."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .base import BaseKernel
from .features import Objects
from .normalization import Similarities, needs_training_gram, normalize

__all__ = ["Member"]


@dataclass(frozen=True)
class Member:
    """One kernel of a specification.

    Parameters
    ----------
    base : BaseKernel
        Kernel function of two sets of objects.
    name : str, optional
        Default: the description of `base` and the feature space.
    space : str, optional
        Feature space of the kernel. Default: all feature spaces.
    steps : tuple of {"trace", "unit", "center"}
        Normalisations, in the order applied.
    """

    base: BaseKernel
    name: str | None = None
    space: str | None = None
    steps: tuple[str, ...] = ()

    def __repr__(self) -> str:
        settings = [
            f"{name}={value!r}"
            for name, value in vars(self.base).items()
            if value is not getattr(type(self.base), name, None)
        ]
        calls = [f"{type(self.base).__name__.lower()}({', '.join(settings)})"]
        calls += [f"on({self.space!r})"] if self.space is not None else []
        calls += [f"normalize({', '.join(map(repr, self.steps))})"] if self.steps else []
        calls += [f"named({self.name!r})"] if self.name is not None else []
        return ".".join(calls)

    def name_on(self, space: str | None) -> str:
        """Name of this kernel on a feature space (None: the only one)."""
        if self.name is not None:
            return self.name if space is None or self.space == space else f"{self.name}[{space}]"
        return self.base.describe(space)

    def evaluate(self, name: str, new: Objects, train: Objects, space: str | None) -> NDArray:
        """Normalised values (n, M) on a feature space; `name` is for messages."""
        X_train = train.features[space]
        if new is train:
            values = self.base.train(X_train, name)
            if not self.steps:
                return values
            part = Similarities(values, np.diagonal(values).copy())
            return normalize(part, part, self.steps, name)
        X_new = new.features[space]
        values = self.base.cross(X_new, X_train, name)
        if not self.steps:
            return values
        gram = self.base.train(X_train, name) if needs_training_gram(self.steps) else None
        return normalize(
            Similarities(values, self.base.new_diagonal(X_new, new.self_similarity.get(space))),
            Similarities(gram, self.base.diagonal(X_train)),
            self.steps,
            name,
        )
