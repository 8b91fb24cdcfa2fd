"""Draws written to a zarr store while they are made, for chains that do not fit into memory.

PyMC's own zarr trace needs zarr 2, whose stores the xarray of today does not open.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray

from ...validation import argument_error
from .result import draws_to_tree, stamp
from .turns import draws_to_keep

__all__ = ["DrawsOnDisk", "add_attributes", "check_store", "open_store"]

# Bytes of a chain's draws that are held in memory before they are written.
CHUNK = 1 << 24
# Least number of chunks of a chain: a killed process loses less than one chunk.
CHUNKS = 50
GROUP = "posterior"


def check_store(path: str | PathLike[str], owner: str) -> Path:
    """Return the path of a store to be made, or raise."""
    if find_spec("zarr") is None:
        raise argument_error(
            "store",
            owner,
            "left out: the package zarr is not installed (pip install kernelzoo[zarr])",
            str(path),
        )
    if Path(path).exists():
        raise argument_error("store", owner, "a path where nothing is yet", f"{str(path)!r}")
    # The store is made at the first draw, perhaps hours later.
    folder = next(parent for parent in Path(path).absolute().parents if parent.exists())
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise argument_error("store", owner, "in a folder that can be written to", f"{str(path)!r}")
    return Path(path)


def open_store(path: str | PathLike[str]) -> xr.DataTree:
    """Open the draws of a store of `fit` lazily, those of a killed process too.

    Parameters
    ----------
    path : path
        Folder that the argument `store` of `fit` has named.

    Returns
    -------
    DataTree
        The group ``posterior``, with the draws that an interrupted fit would return: as many
        chains, cut to the shortest of them, as give the most draws, numbered from 0. The model's
        data, by which `predict` and `extend` tell results of other models, are the groups
        ``observed_data`` and ``constant_data``. Its priors are in the attributes, to which a
        finished fit adds those of its result.

    Raises
    ------
    ValueError
        When there is no store of `fit`, or no draw in it.

    Notes
    -----
    ``xarray.open_datatree(path)`` opens all draws of all chains. Arrays are rectangular: where a
    process was killed while its chains had different lengths, the shorter ones end with NaN (0 for
    integers). The attribute ``draws`` of the group gives the number of draws by chain.

    Examples
    --------
    >>> written = kz.fit(model, "gibbs", draws=20, tune=20, chains=2, store="draws.zarr")
    >>> draws = kz.open_store("draws.zarr")
    """
    try:
        data = xr.open_zarr(path, group=GROUP, consolidated=False, chunks=None)
        written = {int(chain): int(n) for chain, n in data.attrs["draws"].items()}
        tree = xr.open_datatree(path, engine="zarr", consolidated=False, chunks=None)
        # Draws without their model would be taken for a result of any model.
        tree.attrs["declared"]
    except (OSError, KeyError, AttributeError, TypeError, ValueError) as error:
        needed = "the folder of a store that fit has written draws to"
        raise argument_error("path", "open_store", needed, f"{str(path)!r}") from error
    tree[GROUP] = xr.DataTree(_cut(data, written))
    return tree


def add_attributes(path: Path, attributes: Mapping[Any, Any]) -> None:
    """Add the attributes of a result to a store, if it has been made."""
    import zarr

    if path.exists():
        zarr.open_group(path, mode="r+").attrs.update(attributes)


def _cut(data: xr.Dataset, written: Mapping[int, int]) -> xr.Dataset:
    """Cut chains of different lengths to the draws that PyMC would keep."""
    draws = draws_to_keep([*written.values()])
    chains = sorted(chain for chain, length in written.items() if length >= draws)
    numbers = {"chain": np.arange(len(chains)), "draw": np.arange(draws)}
    return data.drop_attrs().isel(chain=chains, draw=slice(draws)).assign_coords(numbers)


class DrawsOnDisk:
    """Store with one array (chain, draw, ...) a variable, chunked by draws.

    Written draws survive the process: the attribute "draws" of the group counts them by chain. A
    chain's last draws are in memory until `close`, which must be called however sampling ends. The
    store holds all draws of all chains. Its arrays grow with the longest chain, so that a plain
    reader meets no draws that were not made unless chains have different lengths.

    Parameters
    ----------
    path : Path
        Folder of the store, which must not exist yet.
    model : pm.Model
        Gives dims and coords.
    names : sequence of str
    chains, draws : int
        Expected numbers of chains and of draws a chain.
    """

    def __init__(self, path: Path, model: pm.Model, names: Sequence[str], chains: int, draws: int):
        self._path, self._model, self._names = path, model, tuple(names)
        self._shape = (chains, draws)
        self._group: Any = None
        self._arrays: dict[str, Any] = {}
        self._pending: dict[int, dict[str, list[NDArray]]] = {}
        self._written: dict[int, int] = {}
        self._room = 1

    def append(self, chain: int, values: Mapping[str, NDArray]) -> None:
        """Add draws (draw, ...) of one chain."""
        with self._explained():
            if not self._arrays:
                self._create(values)
        pending = self._pending.setdefault(chain, {name: [] for name in self._names})
        for name in self._names:
            pending[name].extend(np.array(values[name]))
        while len(pending[self._names[0]]) >= self._room:
            with self._explained():
                self._write(chain, self._room)

    def close(self) -> None:
        """Write the draws that are still in memory."""
        for chain, pending in self._pending.items():
            # An interrupt may have come between two variables of a draw.
            if left := min(map(len, pending.values())):
                with self._explained():
                    self._write(chain, left)

    def dataset(self) -> xr.Dataset:
        """Open the store lazily, with the draws that PyMC would keep in memory.

        After an interrupt these are as many chains, cut to the shortest of them, as give the most
        draws. Chains are numbered from 0.
        """
        data = xr.open_zarr(self._path, group=GROUP, consolidated=False, chunks=None)
        return _cut(data, self._written).assign_coords(self._coords())

    def _coords(self) -> dict[str, list[Any]]:
        """Labels of the dims of the variables."""
        dims = {d for name in self._names for d in self._model.named_vars_to_dims.get(name) or ()}
        return {d: list(names) for d in dims if (names := self._model.coords.get(d)) is not None}

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say what remains when the disk is full."""
        try:
            yield
        except OSError as error:
            kept = (
                "kz.open_store reads the draws written before" if self._written else "it is empty"
            )
            raise OSError(
                error.errno,
                f"Draws could not be written to the store ({error.strerror}); {kept}",
                str(self._path),
            ) from error

    def _create(self, values: Mapping[str, NDArray]) -> None:
        import zarr

        # Made at the first draw, so that a run that fails earlier leaves no folder.
        tree = stamp(draws_to_tree(self._model, {}), self._model)
        tree[GROUP] = xr.DataTree(xr.Dataset(coords=self._coords()))
        tree.to_zarr(self._path, mode="w-", consolidated=False)
        self._group = zarr.open_group(self._path, path=GROUP, mode="r+")
        shapes = {name: np.shape(values[name])[1:] for name in self._names}
        sizes = [np.asarray(values[name])[:1].nbytes for name in self._names]
        self._room = max(1, min(self._shape[1] // CHUNKS, CHUNK // sum(sizes)))
        for name, shape in shapes.items():
            dims = self._model.named_vars_to_dims.get(name)
            self._arrays[name] = self._group.create_array(
                name,
                shape=(0, 0, *shape),
                chunks=(1, self._room, *shape),
                dtype=np.asarray(values[name]).dtype,
                fill_value=np.nan if np.asarray(values[name]).dtype.kind == "f" else 0,
                dimension_names=(
                    *("chain", "draw"),
                    *(dims or [f"{name}_dim_{i}" for i in range(len(shape))]),
                ),
            )

    def _write(self, chain: int, draws: int) -> None:
        start = self._written.get(chain, 0)
        chains = 1 + max(chain, *self._written, 0)
        longest = max(start + draws, *self._written.values(), 0)
        for name, waiting in self._pending[chain].items():
            if self._arrays[name].shape[:2] != (chains, longest):
                self._arrays[name].resize((chains, longest, *self._arrays[name].shape[2:]))
            self._arrays[name][chain, start : start + draws] = np.stack(waiting[:draws])
        # Deleted after the last array is written, so that a failed write can be repeated.
        for waiting in self._pending[chain].values():
            del waiting[:draws]
        self._written[chain] = start + draws
        self._group.attrs["draws"] = {str(number): n for number, n in self._written.items()}
