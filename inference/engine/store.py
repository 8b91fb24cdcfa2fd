"""Draws written to a folder while they are made, for chains that do not fit into memory.

The folder has a file ``NAME.npy`` (chain, draw, ...) for each variable, for `numpy.load`, and
``counts.npy`` (chain,), the numbers of draws in them.
"""

import os
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from xarray import Dataset

from ...validation import argument_error
from .result import draws_to_keep


def check_store(path: str | PathLike[str], owner: str) -> Path:
    """Return the path of a store to be made, or raise."""
    if Path(path).exists():
        raise argument_error("store", owner, "a path where nothing is yet", f"{str(path)!r}")
    # The store is made at the first draw, perhaps hours later.
    folder = next(parent for parent in Path(path).absolute().parents if parent.exists())
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise argument_error("store", owner, "in a folder that can be written to", f"{str(path)!r}")
    return Path(path)


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
        self._begins: dict[str, int] = {}

    def append(self, chain: int, values: Mapping[str, NDArray]) -> None:
        """Add draws (draw, ...) of one chain."""
        if not self._begins:
            self._create(values)
        first = chain * self._shape[1] + self.counts[chain]
        for name in self._names:
            self._write(name, first, values[name])
        self.counts[chain] += len(values[self._names[0]])
        self._write("counts", chain, self.counts[chain, None])

    def dataset(self) -> Dataset:
        """Draws on disk of the chains, cut as PyMC cuts them in memory after an interrupt."""
        draws = draws_to_keep(self.counts.tolist())
        chains = np.flatnonzero(self.counts >= draws)
        # A range of chains stays on disk; others are copied.
        together = len(chains) == chains[-1] - chains[0] + 1
        chosen: Any = slice(chains[0], chains[-1] + 1) if together else chains
        variables = {}
        for name in self._names:
            values = np.load(self._path / f"{name}.npy", mmap_mode="r")[chosen, :draws]
            unnamed = [f"{name}_dim_{i}" for i in range(values.ndim - 2)]
            dims = self._model.named_vars_to_dims.get(name) or unnamed
            variables[name] = (("chain", "draw", *dims), values)
        used = {dim for dims, _ in variables.values() for dim in dims} & self._model.coords.keys()
        coords = {dim: list(self._model.coords[dim]) for dim in used if self._model.coords[dim]}
        numbers = {"chain": np.arange(len(chains)), "draw": np.arange(draws)}
        return Dataset(variables, coords | numbers)

    def _create(self, draws: Mapping[str, NDArray]) -> None:
        try:
            self._path.mkdir(parents=True)
        except FileExistsError as error:
            got = f"{str(self._path)!r}, where another process has begun a store meanwhile"
            raise argument_error("store", "fit", "a path where nothing is yet", got) from error
        shapes = {name: (*self._shape, *draws[name].shape[1:]) for name in self._names}
        types = {name: draws[name].dtype for name in self._names}
        for name, shape in {**shapes, "counts": self.counts.shape}.items():
            array = np.lib.format.open_memmap(
                self._path / f"{name}.npy", "w+", types.get(name, self.counts.dtype), shape
            )
            self._begins[name] = array.offset

    def _write(self, name: str, row: int, values: NDArray) -> None:
        """Write values into a file, beginning at a row of its flattened first two axes."""
        with (self._path / f"{name}.npy").open("r+b") as file:
            file.seek(self._begins[name] + row * values[0].nbytes)
            file.write(np.ascontiguousarray(values))
