"""Draws written to a folder while they are made, for chains that do not fit into memory.

The folder has a file ``posterior/NAME.npy`` (chain, draw, ...) for each variable, for `numpy.load`,
and ``counts.npy`` (chain,), the numbers of draws in them. ``model.nc`` has the model's data and the
labels of the variables, ``attributes.json`` the attributes of the result.
"""

import json
import os
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray

from ...validation import argument_error
from .result import draws_to_keep, draws_to_tree, stamp, with_group

COUNTS, MODEL, ATTRIBUTES, POSTERIOR = "counts.npy", "model.nc", "attributes.json", "posterior"
# Attribute ``note`` until the fit is finished.
UNFINISHED = "unfinished: the fit still runs, or an error or a kill has ended it"


def check_store(path: str | PathLike[str], owner: str) -> Path:
    """Return the path of a store to be made, or raise."""
    if Path(path).exists():
        raise argument_error("store", owner, "a path where nothing is yet", f"{str(path)!r}")
    # The store is made at the first draw, perhaps hours later.
    folder = next(parent for parent in Path(path).absolute().parents if parent.exists())
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise argument_error("store", owner, "in a folder that can be written to", f"{str(path)!r}")
    return Path(path)


def open_store(path: str | PathLike[str]) -> xr.DataTree:
    """Open the draws of a store of `fit`, those of a killed process too, without reading them.

    Parameters
    ----------
    path : path
        Folder that the argument `store` of `fit` has named.

    Returns
    -------
    DataTree
        The group ``posterior``, with the draws that an interrupted `fit` would return, and the
        model's data, by which `predict` and `extend` tell results of other models. Attributes are
        those of the result; until the fit is finished ``converged`` is "no", and ``note`` begins
        with "unfinished".

    Raises
    ------
    ValueError
        When there is no store of `fit`, or no draw in it.

    Examples
    --------
    >>> written = kz.fit(model, "gibbs", draws=20, tune=20, chains=2, store="draws")
    >>> draws = kz.open_store("draws")
    """
    try:
        tree = xr.load_datatree(Path(path) / MODEL)
        tree.attrs = json.loads((Path(path) / ATTRIBUTES).read_bytes())
        labels = tree[POSTERIOR].to_dataset()
        return with_group(tree, POSTERIOR, _counted(Path(path), labels))
    except (OSError, ValueError) as error:
        needed = "the folder of a store that fit has written draws to"
        raise argument_error("path", "open_store", needed, f"{str(path)!r}") from error


def finish_store(path: Path, attributes: Mapping[Any, Any]) -> None:
    """Give a store the attributes of the result."""
    (path / ATTRIBUTES).write_text(json.dumps(dict(attributes)), encoding="utf-8")


def _counted(path: Path, labels: xr.Dataset) -> xr.Dataset:
    """Draws of the chains, cut as PyMC cuts them in memory after an interrupt; ValueError if none.

    `labels` has the coordinates of the variables, and their dims as an attribute.
    """
    counts = np.load(path / COUNTS)
    draws = draws_to_keep(counts.tolist())
    if draws == 0:
        raise ValueError("No draw is in the store.")
    chains = np.flatnonzero(counts >= draws)
    # A range of chains stays on disk; others are copied.
    together = len(chains) == chains[-1] - chains[0] + 1
    chosen: Any = slice(chains[0], chains[-1] + 1) if together else chains
    variables = {}
    for name, dims in json.loads(labels.attrs["dims"]).items():
        values = np.load(path / POSTERIOR / f"{name}.npy", mmap_mode="r")
        variables[name] = (("chain", "draw", *dims), values[chosen, :draws])
    coords = {"chain": np.arange(len(chains)), "draw": np.arange(draws)}
    return xr.Dataset(variables, labels.coords).assign_coords(coords)


class Store:
    """Files of the draws of a fit, which are made at the first draw.

    Draws are written as they come, and counted after that: whatever a full disk, a kill or an
    interrupt leaves in the files, the counted draws are whole.
    """

    def __init__(self, path: Path, model: pm.Model, names: Sequence[str], chains: int, draws: int):
        self._path, self._model, self._names = path, model, tuple(names)
        self._shape = chains, draws
        self.counts = np.zeros(chains, dtype=np.int64)
        # By file: where its array begins.
        self._begins: dict[Path, int] = {}
        self._labels = self._describe()

    def append(self, chain: int, values: Mapping[str, NDArray]) -> None:
        """Add draws (draw, ...) of one chain."""
        if not self._begins:
            self._create(values)
        first = chain * self._shape[1] + self.counts[chain]
        for name in self._names:
            self._write(self._path / POSTERIOR / f"{name}.npy", first, values[name])
        self.counts[chain] += len(values[self._names[0]])
        self._write(self._path / COUNTS, chain, self.counts[chain, None])

    def dataset(self) -> xr.Dataset:
        """Draws that PyMC would keep in memory after an interrupt."""
        return _counted(self._path, self._labels)

    def _describe(self) -> xr.Dataset:
        """Labels of the variables, and their dims as an attribute."""
        shapes = {name: self._model[name].ndim for name in self._names}
        dims = {
            name: list(self._model.named_vars_to_dims.get(name) or ())
            or [f"{name}_dim_{i}" for i in range(ndim)]
            for name, ndim in shapes.items()
        }
        labels = {
            dim: list(values)
            for dim in dict.fromkeys(dim for each in dims.values() for dim in each)
            if (values := self._model.coords.get(dim)) is not None
        }
        return xr.Dataset(coords=labels, attrs={"dims": json.dumps(dims)})

    def _create(self, draws: Mapping[str, NDArray]) -> None:
        try:
            (self._path / POSTERIOR).mkdir(parents=True)
        except FileExistsError as error:
            got = f"{str(self._path)!r}, where another process has begun a store meanwhile"
            raise argument_error("store", "fit", "a path where nothing is yet", got) from error
        tree = with_group(draws_to_tree(self._model, {}), POSTERIOR, self._labels)
        # HDF5 itself would end the process on a full disk.
        (self._path / MODEL).write_bytes(tree.to_netcdf())
        finish_store(self._path, stamp(tree, self._model, converged="no", note=UNFINISHED).attrs)
        arrays = {self._path / COUNTS: self.counts}
        for name in self._names:
            arrays[self._path / POSTERIOR / f"{name}.npy"] = draws[name]
        for file, like in arrays.items():
            shape = self.counts.shape if like is self.counts else (*self._shape, *like.shape[1:])
            array = np.lib.format.open_memmap(file, mode="w+", dtype=like.dtype, shape=shape)
            self._begins[file] = array.offset

    def _write(self, file: Path, row: int, values: NDArray) -> None:
        """Write values into a file, beginning at a row of its flattened first two axes."""
        with file.open("r+b") as opened:
            opened.seek(self._begins[file] + row * values[0].nbytes)
            opened.write(np.ascontiguousarray(values))
