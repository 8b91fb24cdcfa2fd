"""One kernel of a specification; values of fitted kernels on objects in memory or in Dask."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...validation import argument_error
from .base import BaseKernel, check_columns
from .features import Objects
from .kernel_features import ExactFeatures, KernelFeatures, fingerprint
from .learned import LearnedCovariance
from .normalization import Similarities, around, needs_training_gram, normalize
from .rows import BLOCK, is_dask, slices_of
from .stack import Origin

__all__ = ["FittedMember", "Member", "unequal_widths", "values_by_rows"]

#: Largest chunk of a Dask array of kernels, in numbers (64 MB).
LARGEST = 4 * BLOCK


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


def values_by_rows(kernels: Sequence[FittedMember], objects: Objects) -> Any:
    """Kernels (S, n, M), computed by blocks of rows: an array, or a Dask array of a Dask array.

    Exact features may be fewer than others: columns of zeros are added, which change no inner
    product.
    """
    widths = {kernel.name: kernel.n_basis for kernel in kernels}
    most = max(widths.values())
    if any(k.n_basis < most and not isinstance(k.base, ExactFeatures) for k in kernels):
        raise unequal_widths(widths)
    if objects.are_dask(kernel.space for kernel in kernels):
        return _dask_values(kernels, objects, most)
    values = np.empty((len(kernels), len(objects.labels), most))
    for rows in slices_of(len(objects.labels), most):
        values[:, rows] = _values(kernels, objects.block(rows), most)
    return values


def unequal_widths(widths: Mapping[str, int]) -> ValueError:
    """Error for kernels with different numbers of basis functions."""
    rule = "mapped to as many basis functions by every kernel"
    return argument_error("X", "Kernels", rule, str(widths))


def _values(kernels: Sequence[FittedMember], objects: Objects, width: int) -> NDArray:
    """Kernels (S, n, M) of objects; those with fewer columns than others leave zeros."""
    values = np.zeros((len(kernels), len(objects.labels), width))
    for out, kernel in zip(values, kernels, strict=True):
        columns = kernel(objects)
        out[:, : columns.shape[1]] = columns
    return values


def _dask_values(kernels: Sequence[FittedMember], objects: Objects, width: int) -> Any:
    """Dask array (S, n, M) in the features' chunks of objects, or smaller ones of 64 MB."""
    import dask
    import dask.array as da

    spaces = list(dict.fromkeys(kernel.space for kernel in kernels))
    features = [objects.features[space] for space in spaces]
    rows = next(X.chunks[0] for X in features if is_dask(X))
    most = max(1, LARGEST // (len(kernels) * width))
    features = [da.asarray(X).rechunk((rows if max(rows) <= most else most, -1)) for X in features]
    # One task holds the kernels, which go to each worker once.
    shared = dask.delayed(list, pure=False)(dask.delayed(list(kernels), traverse=False))
    return da.map_blocks(
        _values_of_chunk, *features, kernels=shared, spaces=spaces, width=width,
        new_axis=0, chunks=((len(kernels),), features[0].chunks[0], (width,)), dtype=float,
        meta=np.empty((0, 0, 0)),
    )  # fmt: skip


def _values_of_chunk(
    *features: NDArray, kernels: Sequence[FittedMember], spaces: Sequence[str | None], width: int
) -> NDArray:
    objects = Objects(dict(zip(spaces, features, strict=True)), np.arange(len(features[0])))
    return _values(kernels, objects, width)
