"""Where the kernels of a declaration come from, the one question that engines ask them.

Here are kernels in memory, and completed kernels: several draws of each.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType
from typing import Any, ClassVar, override

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from pytensor.tensor import TensorVariable

from ...validation import argument_error
from .base import normalize
from .labels import check_distinct, listed
from .warnings import warn_of_near_identity, warn_of_negligible

DIMS = ("kernel", "obs", "basis")


class KernelSource:
    """Kernels of a declaration: its data ``K``, if it has kernels.

    Subclasses are `CompletedRows`, whose draws replace the data, `ParametricStack`, whose
    parameters are learned, and `DaskStack`, which stays where Dask has it.
    """

    in_memory: ClassVar[bool] = True
    #: Labels of the parameters to learn, and the shapes and rates (P,) of their Gamma priors.
    parameters: Any = ()
    omega: Any = np.empty(0)
    phi: Any = np.empty(0)
    #: Data that stand for what the source holds, by name; ``pm.set_data`` may not change them.
    stand_ins: Any = MappingProxyType({})
    #: Why the kernels are not the data ``K`` of their model; empty if they are.
    not_data: ClassVar[str] = ""

    def declare(self, stack: xr.DataArray) -> TensorVariable | None:
        """Declare the data in the open model; kernels (kernel, obs, basis), None if not in memory.

        ``pm.set_data`` can change the number of objects alone.
        """
        n_kernels, _, n_basis = stack.shape
        return pm.Data("K", stack.values, dims=DIMS, shape=(n_kernels, None, n_basis))

    def stacks(self, stack: xr.DataArray) -> list[xr.DataArray]:
        """Stacks that the model may have as its data."""
        return [stack]

    def learned_parts(self) -> list[Any]:
        """Kernels with parameters, and the slices of their parameters."""
        return []

    def evaluate(self, theta: NDArray) -> NDArray[np.float64]:
        """Kernels (kernel, obs, basis) at parameters (P,)."""
        raise TypeError("Kernels without parameters are the data of their model.")

    def warn(self, stack: xr.DataArray, owner: str, spread: float) -> None:
        """Warn of kernels from which regressors of a spread can learn little."""
        warn_of_negligible(stack, owner, spread)
        warn_of_near_identity(stack, owner)


#: Source of kernels that are data of their model.
IN_MEMORY = KernelSource()


@dataclass(frozen=True, eq=False, repr=False)
class CompletedRows(KernelSource):
    """Completed kernels of some objects (rows) with some objects (columns), normalised.

    `mean` (kernel, obs, basis) serves where one stack is needed, `draws` are (completion, kernel,
    obs, basis). All draws are equal if the kernels are `complete`: these objects had all their
    rows. `key` is the fingerprint of the draws of all objects.
    """

    mean: xr.DataArray
    draws: NDArray
    complete: bool
    key: str

    def __len__(self) -> int:
        """Return the number of completions."""
        return len(self.draws)

    def __getitem__(self, completion: int) -> xr.DataArray:
        """Return one draw as a stack (kernel, obs, basis)."""
        return self.mean.copy(data=self.draws[completion])

    @override
    def stacks(self, stack: xr.DataArray) -> list[xr.DataArray]:
        return [stack, *(self[m] for m in range(len(self)))]


@dataclass(frozen=True, eq=False, repr=False)
class CompletedKernels:
    """Kernels whose missing rows have been completed, with their uncertainty.

    Attributes
    ----------
    mean, sd : DataArray (kernel, obs, basis)
        Mean and standard deviation of each entry, in the units of the kernels given; the latter is
        None for imputations without uncertainty.
    draws : array (completion, kernel, obs, basis)
        Draws of the completed kernels. One draw if nothing is missing, or nothing is uncertain.
    visible : array of bool (obs, kernel)
        Whether an object's rows were given.
    steps : tuple of {"trace", "unit"}
        Normalisation that `of` applies, with constants from the training objects of each draw.

    Examples
    --------
    >>> completion = kz.completion.complete_kernels({"rna": A, "protein": B}, draws=5)
    >>> completion.sd.sel(kernel="rna")
    >>> completion.of(np.arange(9)).mean
    """

    mean: xr.DataArray
    draws: NDArray
    visible: NDArray
    sd: xr.DataArray | None = None
    steps: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return the number of completions."""
        return len(self.draws)

    def __repr__(self) -> str:
        """Describe sizes and what was missing."""
        kernels, n, _ = self.mean.shape
        missing = f"{(~self.visible).mean():.0%} of the rows missing"
        return f"<CompletedKernels of {len(self)} completions, {kernels} x {n} objects, {missing}>"

    @property
    def objects(self) -> NDArray:
        """Ids of the objects (obs,)."""
        return self.mean["obs"].to_numpy()

    @property
    def key(self) -> str:
        """Fingerprint of the draws and of the objects."""
        digest = sha256(np.ascontiguousarray(self.draws))
        labels = [*self.mean["kernel"].values, *self.objects]
        digest.update(repr([str(label) for label in labels]).encode())
        return digest.hexdigest()[:16]

    def of(self, rows: Iterable[Any], columns: Iterable[Any] | None = None) -> CompletedRows:
        """Kernels of some objects, normalised with constants from the training objects.

        `rows` are the ids of the training objects; or of new objects if `columns`, those of
        training, are given. Unknown and repeated ids raise a ValueError.

        Examples
        --------
        >>> completion.of(train)            # for the model
        >>> completion.of(new, train)       # for predict
        """
        chosen = self._positions(rows, "rows")
        trained = chosen if columns is None else self._positions(columns, "columns")
        mean = self.mean.isel(obs=chosen, basis=trained)
        together = np.stack([self._taken(stack, chosen, trained) for stack in self.draws])
        values = self._taken(self.mean.to_numpy(), chosen, trained)
        complete = bool(self.visible[[*chosen, *trained]].all())
        return CompletedRows(mean.copy(data=values), together, complete, self.key)

    def _positions(self, ids: Iterable[Any], argument: str) -> NDArray[np.intp]:
        labels, owner = pd.Index(ids), "CompletedKernels.of"
        if labels.empty:
            raise argument_error(argument, owner, "one id or more", "none")
        check_distinct(labels, argument, owner)
        positions = pd.Index(self.objects).get_indexer(labels)
        if (positions < 0).any():
            got = f"the unknown {listed(labels[positions < 0])}"
            raise argument_error(argument, owner, "ids of completed objects", got)
        return positions

    def _taken(self, stack: NDArray, rows: NDArray, columns: NDArray) -> NDArray:
        """Rows and columns of one stack (kernel, obs, basis), normalised."""
        taken = np.empty((len(stack), len(rows), len(columns)))
        for target, kernel, name in zip(taken, stack, self.mean["kernel"].values, strict=True):
            own, diagonal = kernel[np.ix_(rows, columns)], np.diagonal(kernel)
            target[:] = normalize(own, diagonal[rows], diagonal[columns], self.steps, str(name))
        return taken
