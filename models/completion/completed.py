"""Completed kernels of all objects, which give those of training and of new objects."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from ...validation import argument_error
from ..kernels.labels import check_distinct, listed
from ..kernels.source import CompletedRows
from ..kernels.specification import normalize


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

    def __array__(self, *_: Any, **__: Any) -> NDArray:
        """Refuse, with the call that gives kernels of some objects."""
        raise TypeError(
            "A model takes completed kernels of its objects, completion.of(train); predict takes "
            "completion.of(new, train)."
        )

    def __repr__(self) -> str:
        """Describe sizes and what was missing."""
        kernels, n, _ = self.mean.shape
        missing = f"{100 * (~self.visible).mean():.0f} % of the rows missing"
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
        owner = "CompletedKernels.of"
        several = isinstance(ids, Iterable) and not isinstance(ids, str | bytes)
        labels = pd.Index(ids if several and getattr(ids, "ndim", 1) == 1 else [ids])
        if not (several and all(isinstance(label, Hashable) for label in labels)):
            raise argument_error(argument, owner, "a list of ids", repr(ids))
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
        taken = []
        for kernel, name in zip(stack, self.mean["kernel"].values, strict=True):
            values = kernel[np.ix_(rows, columns)]
            own = np.diagonal(kernel)
            taken.append(normalize(values, own[rows], own[columns], self.steps, str(name)))
        return np.stack(taken)
