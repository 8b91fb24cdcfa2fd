"""Draws that are written to a zarr store as they are made, for chains longer than memory.

PyMC's own zarr trace needs zarr 2, whose stores the xarray of today does not open.
"""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray

from ...validation import argument_error
from .turns import draws_to_keep

__all__ = ["DrawsOnDisk", "check_store"]

# Draws of all variables of a chain that are held before they are written, in bytes.
CHUNK = 1 << 24
# Chunks that a chain is cut into at least: what a killed process loses is less than one of them.
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
    return Path(path)


class DrawsOnDisk:
    """Store of the draws of some variables, array (chain, draw, ...) each, chunked by draws.

    What has been written survives the process: the attribute "draws" of its group says how many
    draws of each chain that is. A chain's last draws are in memory until `close`, which whoever
    samples calls whatever ends the sampling. The store holds all draws of all chains.

    Parameters
    ----------
    path : Path
        Of the store, a folder that does not exist yet.
    model : pm.Model
        Gives dims and coords.
    names : sequence of str
    chains, draws : int
        How many are expected.
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
        """Take in draws (draw, ...) of one chain."""
        if not self._arrays:
            self._create(values)
        pending = self._pending.setdefault(chain, {name: [] for name in self._names})
        for name in self._names:
            pending[name].extend(np.array(values[name]))
        while len(pending[self._names[0]]) >= self._room:
            self._write(chain, self._room)

    def close(self) -> None:
        """Write what is still in memory."""
        for chain, pending in self._pending.items():
            # An interruption may have come between two variables of a draw.
            if left := min(map(len, pending.values())):
                self._write(chain, left)

    def dataset(self) -> xr.Dataset:
        """Read draws from the store as they are used: those that PyMC keeps in memory.

        Of interrupted chains that is as many, cut to the shortest of them, as make the most draws,
        numbered from 0.
        """
        data = xr.open_zarr(self._path, group=GROUP, consolidated=False, chunks=None).drop_attrs()
        draws = draws_to_keep([*self._written.values()])
        chains = sorted(chain for chain, length in self._written.items() if length >= draws)
        coords = {d: list(names) for d, names in self._model.coords.items() if d in data.dims}
        numbers = {"chain": np.arange(len(chains)), "draw": np.arange(draws)}
        return data.isel(chain=chains, draw=slice(draws)).assign_coords(numbers | coords)

    def _create(self, values: Mapping[str, NDArray]) -> None:
        import zarr

        # At the first draw: a run that fails before it leaves nothing behind.
        self._group = zarr.open_group(self._path, mode="w-").create_group(GROUP)
        shapes = {name: np.shape(values[name])[1:] for name in self._names}
        sizes = [np.asarray(values[name])[:1].nbytes for name in self._names]
        self._room = max(1, min(self._shape[1] // CHUNKS, CHUNK // sum(sizes)))
        for name, shape in shapes.items():
            dims = self._model.named_vars_to_dims.get(name)
            self._arrays[name] = self._group.create_array(
                name,
                shape=(*self._shape, *shape),
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
        for name, waiting in self._pending[chain].items():
            self._arrays[name][chain, start : start + draws] = np.stack(waiting[:draws])
        # After the last array: what fails before can be written again.
        for waiting in self._pending[chain].values():
            del waiting[:draws]
        self._written[chain] = start + draws
        self._group.attrs["draws"] = {str(number): n for number, n in self._written.items()}
