"""Kernels between many objects and the training objects, computed one block at a time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from typing import Any, Literal, Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ...validation import argument_error, check_name
from .features import Objects
from .kernel_features import ExactFeatures
from .member import FittedMember
from .memory import check_fits
from .rows import BLOCK, Rows, slices_of
from .stack import with_origin

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
        for rows in self._slices:
            objects = self.objects.block(rows)
            values = self._empty(len(objects.labels))
            _fill(values, self.kernels, objects)
            yield self._labelled(values, objects)

    def whole(self) -> xr.DataArray:
        """Stack of all objects; besides it, one block of work arrays is held.

        Raises
        ------
        ValueError
            For more than the memory that there is.
        """
        check_fits((len(self.kernels), len(self), len(self.basis)), "X", "Kernels")
        values = self._empty(len(self))
        for rows in slices_of(len(self), len(self.basis)):
            _fill(values[:, rows], self.kernels, self.objects.block(rows))
        return self._labelled(values, self.objects)

    def to_dask(self, dtype: Literal["float64", "float32"] = "float64") -> xr.DataArray:
        """Stack whose blocks Dask computes when they are needed, where the workers are.

        A model of it reads the blocks in each pass over the data: for kernels that do not fit into
        memory, and for clusters. ``persist()`` keeps the blocks in the memory of the workers; the
        model can then be fitted while their client is open.

        Parameters
        ----------
        dtype : {"float64", "float32"}
            Type of the blocks; float32 takes half the memory. Sums are float64.

        Returns
        -------
        DataArray of shape (S, N, M)
            Dims "kernel", "obs", "basis"; a Dask array in blocks of `size` objects.

        Raises
        ------
        ValueError
            When Dask is not installed.

        Notes
        -----
        Workers read zarr arrays and Dask arrays themselves. The rows of other arrays are sent to
        them in each pass, unless the blocks are persisted. NaN raises when its block is read.

        Examples
        --------
        >>> from distributed import Client  # doctest: +SKIP
        >>> with Client(n_workers=4, threads_per_worker=1):  # doctest: +SKIP
        ...     stack = kernels.landmarks(500).in_blocks(X_train).to_dask().persist()
        ...     result = kz.fit(kz.MultinomialProbit(stack, y_train), "vb")
        """
        if find_spec("dask") is None:
            raise ValueError(
                "to_dask needs Dask, which is not installed: pip install kernelzoo[dask]."
            )
        check_name(dtype, ("float64", "float32"), "dtype", "to_dask")
        import dask
        import dask.array as da

        # One task holds the kernels, which go to each worker once.
        kernels = dask.delayed(_same, pure=False)(dask.delayed(list(self.kernels), traverse=False))
        compute = dask.delayed(_computed, pure=False)
        blocks = []
        for rows in self._slices:
            shape = (len(self.kernels), rows.stop - rows.start, len(self.basis))
            features = [_in_task(values, rows) for values in self.objects.features.values()]
            own = {s: values[rows] for s, values in self.objects.self_similarity.items()}
            spaces = list(self.objects.features)
            block = compute(kernels, spaces, features, own, shape, dtype)
            blocks.append(da.from_delayed(block, shape, dtype=dtype))
        return self._labelled(da.concatenate(blocks, axis=1), self.objects)

    @property
    def _slices(self) -> list[slice]:
        starts = range(0, len(self), self.size)
        return [slice(start, min(start + self.size, len(self))) for start in starts]

    def _empty(self, n_obs: int) -> NDArray:
        return np.zeros((len(self.kernels), n_obs, len(self.basis)))

    def _labelled(self, values: Any, objects: Objects) -> xr.DataArray:
        stack = xr.DataArray(
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
        return with_origin(stack, {kernel.name: kernel.origin for kernel in self.kernels})


def _same[T](value: T) -> T:
    return value


def _in_task(features: NDArray | Rows, rows: slice) -> Any:
    """Features of some objects as an argument of a task, which reads them if it can."""
    import dask

    if not isinstance(features, Rows):
        return features[rows]
    source = features.source
    if isinstance(source, np.ndarray) or dask.is_dask_collection(source):
        first = features.first + rows.start
        return dask.delayed(_checked, pure=False)(source[rows], features.argument, first)
    return dask.delayed(_read, pure=False)(dask.delayed(features, traverse=False), rows)


def _checked(values: NDArray, argument: str, first: int) -> NDArray:
    return Rows(values, argument, first)[:]


def _read(features: Rows, rows: slice) -> NDArray:
    return features[rows]


def _computed(
    kernels: Sequence[FittedMember],
    spaces: Sequence[str | None],
    features: Sequence[NDArray],
    self_similarity: Mapping[str | None, NDArray],
    shape: tuple[int, int, int],
    dtype: str,
) -> NDArray:
    """Block of a stack."""
    by_space = dict(zip(spaces, features, strict=True))
    objects = Objects(by_space, np.arange(shape[1]), dict(self_similarity))
    values = np.zeros(shape, dtype)
    _fill(values, kernels, objects)
    return values


def _fill(values: NDArray, kernels: Sequence[FittedMember], objects: Objects) -> None:
    """Write kernels (S, n, M); those with fewer columns than others leave zeros."""
    for out, kernel in zip(values, kernels, strict=True):
        given = kernel(objects)
        out[:, : given.shape[1]] = given
