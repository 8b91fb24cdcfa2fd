"""One kernel of a specification, and its values on objects."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .base import BaseKernel, check_columns
from .features import Objects
from .kernel_features import KernelFeatures, fingerprint
from .learned import LearnedCovariance
from .normalization import Similarities, around, needs_training_gram, normalize
from .stack import Origin

__all__ = ["FittedMember", "Member"]


@dataclass(frozen=True)
class Member:
    """One kernel of a specification, with its normalisations in the order applied.

    The default name describes `base` and the feature space; without a space it is on all of them.
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

    def train(self, name: str, train: Objects, space: str | None) -> NDArray:
        """Normalised values (N, M) of the training objects; `name` is for messages."""
        base, steps = around(self.base, train.features[space], self.steps)
        values = base.train(train.features[space], name)
        if not steps:
            return values
        part = Similarities(values, np.diagonal(values).copy())
        return normalize(part, part, steps, name)

    def origin(self, train: Objects, space: str | None) -> Origin:
        """Return what identifies the kernel's normalisation and training objects."""
        steps = " ".join(self.steps)
        # Kernels with parameters hold the training objects themselves.
        if not self.base.is_kernel or isinstance(self.base, LearnedCovariance):
            return Origin(steps)
        return Origin(steps, len(train.labels), train.fingerprint(space))

    def fitted(self, name: str, train: Objects, space: str | None) -> "FittedMember":
        """Kernel with all that it takes from the training objects."""
        X_train = train.features[space]
        if isinstance(self.base, KernelFeatures):
            features = self.base.normalized(X_train, self.steps, name)
            # The function goes to the workers of a cluster, without the training objects.
            n_features = X_train.shape[1]

            def phi(X: NDArray) -> NDArray:
                check_columns(X, n_features, name)
                return features(X)

            told = fingerprint(features.constants)
            return FittedMember(name, self.base, space, phi, features.n_features, told)
        base, steps = around(self.base, X_train, self.steps)
        gram = base.train(X_train, name) if needs_training_gram(steps) else None
        part = Similarities(gram, base.diagonal(X_train)) if steps else None

        def similarities(X: NDArray) -> NDArray:
            values = base.cross(X, X_train, name)
            if part is None:
                return values
            new = Similarities(values, base.new_diagonal(X))
            return normalize(new, part, steps, name)

        return FittedMember(name, self.base, space, similarities, len(X_train))


@dataclass(frozen=True, eq=False)
class FittedMember:
    """A kernel of new objects with the training objects, or their features.

    `function` maps features (n, D) to values (n, M); `n_basis` is M, without meaning for basis
    expansions. The fingerprint tells features of other training objects, or of another order.
    """

    name: str
    base: BaseKernel
    space: str | None
    function: Callable[[NDArray], NDArray]
    n_basis: int
    fingerprint: str = ""

    def __call__(self, objects: Objects) -> NDArray:
        """Normalised values (n, M) of new objects."""
        return self.function(objects.features[self.space])
