"""Kernels between many objects and the training objects, computed one block at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ...validation import argument_error
from .features import Objects
from .kernel_features import ExactFeatures
from .member import FittedMember
from .rows import BLOCK, slices_of

__all__ = ["KernelsInBlocks", "feature_labels"]

# Largest block of a stack by default, in numbers (64 MB).
LARGEST = 4 * BLOCK


def feature_labels(n: int, kernels: Sequence[FittedMember]) -> NDArray:
    """Label n features, so that those of other training objects have other labels.

    Features may depend on the order of the training objects, which nothing else tells.
    """
    # Models take the kernels in any order.
    told = sorted(f"{k.name} {k.fingerprint}" for k in kernels if k.fingerprint)
    code = f" {sha256(' '.join(told).encode()).hexdigest()[:8]}" if told else ""
    return np.array([f"phi{m}{code}" for m in range(n)])


@dataclass(frozen=True, eq=False)
class KernelsInBlocks:
    """Kernels of objects that are computed when they are needed; see `Kernels.in_blocks`.

    Iterating gives stacks (kernel, obs, basis) of successive blocks of objects.  ``len`` is the
    number of objects.

    Parameters
    ----------
    objects : Objects
    kernels : sequence of FittedMember
    basis : ndarray of shape (M,)
        Labels of the columns.
    attrs : dict
        Descriptions of named kernels.
    size : int
        Objects a block.

    Examples
    --------
    >>> blocks = kernels.in_blocks(X_many, X_train, size=5)
    >>> [stack.sizes["obs"] for stack in blocks]
    """

    objects: Objects
    kernels: Sequence[FittedMember]
    basis: NDArray
    attrs: dict[str, str]
    size: int

    @classmethod
    def of(
        cls,
        objects: Objects,
        kernels: Sequence[FittedMember],
        labels: NDArray,
        attrs: dict[str, str],
        size: int | None = None,
    ) -> Self:
        """Label the columns by training objects (N,), or number them if they are features.

        Exact features are fewer than others are: columns of zeros are added, which change no inner
        product.

        Raises
        ------
        ValueError
            If other kernels have different numbers of basis functions.
        """
        widths = {kernel.name: kernel.n_basis for kernel in kernels}
        most = max(widths.values())
        if any(k.n_basis < most and not isinstance(k.base, ExactFeatures) for k in kernels):
            raise argument_error(
                "X", "Kernels", "mapped to as many basis functions by every kernel", str(widths)
            )
        expansion = not all(kernel.base.is_kernel for kernel in kernels)
        basis = feature_labels(most, kernels) if expansion else labels
        if size is None:
            size = max(1, LARGEST // (len(kernels) * most))
        return cls(objects, kernels, basis, attrs, size)

    def __len__(self) -> int:
        return len(self.objects.labels)

    def __iter__(self) -> Iterator[xr.DataArray]:
        for start in range(0, len(self), self.size):
            objects = self.objects.block(slice(start, min(start + self.size, len(self))))
            values = self._empty(len(objects.labels))
            self._fill(values, objects)
            yield self._labelled(values, objects)

    def whole(self) -> xr.DataArray:
        """Stack of all objects; besides it, one block of work arrays is held."""
        values = self._empty(len(self))
        for rows in slices_of(len(self), len(self.basis)):
            self._fill(values[:, rows], self.objects.block(rows))
        return self._labelled(values, self.objects)

    def _empty(self, n_obs: int) -> NDArray:
        return np.zeros((len(self.kernels), n_obs, len(self.basis)))

    def _fill(self, values: NDArray, objects: Objects) -> None:
        for out, kernel in zip(values, self.kernels, strict=True):
            given = kernel(objects)
            out[:, : given.shape[1]] = given

    def _labelled(self, values: NDArray, objects: Objects) -> xr.DataArray:
        return xr.DataArray(
            values,
            dims=("kernel", "obs", "basis"),
            coords={
                "kernel": [kernel.name for kernel in self.kernels],
                "obs": objects.coord,
                "basis": self.basis,
            },
            name="kernels",
            attrs=self.attrs,
        )
