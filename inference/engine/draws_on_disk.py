"""Draws written to a zarr store while they are made, for chains that do not fit into memory.

PyMC's own zarr trace needs zarr 2, whose stores the xarray of today does not open.
"""

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray

from ...user_warnings import warn_user
from ...validation import argument_error
from .result import draws_to_keep, draws_to_tree, stamp

__all__ = [
    "UNFINISHED",
    "DrawsOnDisk",
    "check_store",
    "finish_store",
    "make_store",
    "open_store",
]

# Bytes of a chain's draws that are held in memory before they are written.
CHUNK = 1 << 24
# Least number of chunks of a chain: a killed process loses less than one chunk.
CHUNKS = 50
GROUP = "posterior"
# Attribute ``note`` of a store until all of it is written.
UNFINISHED = "unfinished: what writes it still runs, or an error or a kill has ended it"


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


def make_store(path: Path, owner: str) -> None:
    """Make the folder of a store, or raise if another process has made it since `check_store`."""
    try:
        path.mkdir(parents=True)
    except FileExistsError as error:
        got = f"{str(path)!r}, where another process has begun a store meanwhile"
        raise argument_error("store", owner, "a path where nothing is yet", got) from error


def open_store(path: str | PathLike[str]) -> xr.DataTree:
    """Open the draws of a store of `fit` lazily, those of a killed process too.

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

    Notes
    -----
    ``xarray.open_datatree(path)`` opens all draws of all chains of a finished fit; shorter chains
    end with NaN (0 for integers). The attribute ``draws`` of the group counts the draws by chain:
    where a process was killed or a disk was full, arrays may hold more.

    Examples
    --------
    >>> written = kz.fit(model, "gibbs", draws=20, tune=20, chains=2, store="draws.zarr")
    >>> draws = kz.open_store("draws.zarr")
    """
    try:
        import zarr

        draws = _counted(path)
        root = zarr.open_group(path, mode="r")
        # Draws without their model would be taken for a result of any model.
        root.attrs["declared"]
        others = {
            name: xr.open_zarr(path, group=name, consolidated=False, chunks=None)
            for name in sorted(root.group_keys())
            if name != GROUP
        }
        tree = xr.DataTree.from_dict({GROUP: draws, **others})
        tree.attrs = dict(root.attrs)
    except (ImportError, OSError, KeyError, AttributeError, TypeError, ValueError) as error:
        needed = "the folder of a store that fit has written draws to"
        raise argument_error("path", "open_store", needed, f"{str(path)!r}") from error
    return tree


def finish_store(path: Path, attributes: Mapping[Any, Any]) -> None:
    """Give a store, if it has been made, the attributes of the result, without the mark."""
    import zarr

    if path.exists():
        try:
            zarr.open_group(path, mode="r+").attrs.put(dict(attributes))
        except OSError as error:
            warn_user(f"The store {path} could not be marked as finished ({error.strerror}).")


def _counted(path: str | PathLike[str]) -> xr.Dataset:
    """Open the counted draws that PyMC would keep, array by array.

    Arrays may have different lengths: a killed process may have resized some of them only.
    """
    import zarr

    group: Any = zarr.open_group(path, path=GROUP, mode="r")
    written = {int(chain): int(n) for chain, n in group.attrs["draws"].items()}
    draws = draws_to_keep([*written.values()])
    chains = sorted(chain for chain, length in written.items() if length >= draws)
    names = set(group.array_keys())
    data = xr.Dataset(coords={"chain": np.arange(len(chains)), "draw": np.arange(draws)})
    for name in sorted(names):
        one = xr.open_zarr(path, group=GROUP, consolidated=False, chunks=None,
                           drop_variables=names - {name})  # fmt: skip
        kept = one[name].isel(chain=chains, draw=slice(draws), missing_dims="ignore")
        data[name] = kept.drop_attrs()
    return data


def _await_writes() -> None:
    """Wait until zarr's thread has nothing left to write."""
    from zarr.core.sync import sync

    async def others() -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*left, return_exceptions=True)

    sync(others())


class DrawsOnDisk:
    """Store with one array (chain, draw, ...) per variable, chunked by draws.

    Written draws survive the process: the attribute "draws" of the group counts them by chain. A
    chain's last draws are in memory until the context ends. Arrays grow with the longest chain.
    """

    def __init__(self, path: Path, model: pm.Model, names: Sequence[str], chains: int, draws: int):
        self._path, self._model, self._names = path, model, tuple(names)
        self._shape = (chains, draws)
        self._group: Any = None
        self._arrays: dict[str, Any] = {}
        # By chain: the number of draws on disk, and the draws in memory. Both change in one step,
        # so that draws stay whole and in order wherever an interrupt comes.
        self._chains: dict[int, tuple[int, list[dict[str, NDArray]]]] = {}
        self._claimed = False
        self._room = 1

    def __enter__(self) -> Self:
        """Return the store."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Close; a note on an error names `open_store`."""
        try:
            self.close()
        finally:
            if error is not None and self.on_disk:
                error.add_note(f"kz.open_store({str(self._path)!r}) reads the draws made.")

    @property
    def on_disk(self) -> int:
        """Number of draws on disk, of all chains."""
        return sum(written for written, _ in self._chains.values())

    def append(self, chain: int, values: Mapping[str, NDArray]) -> None:
        """Add draws (draw, ...) of one chain."""
        copies = [np.array(values[name]) for name in self._names]
        waiting = self._chains.setdefault(chain, (0, []))[1]
        waiting.extend(
            dict(zip(self._names, draw, strict=True)) for draw in zip(*copies, strict=True)
        )
        with self._explained():
            if self._group is None:
                self._create(waiting[0])
            while len(self._chains[chain][1]) >= self._room:
                self._write(chain, self._room)

    def close(self) -> None:
        """Write the draws that are still in memory."""
        for chain, (_, waiting) in self._chains.items():
            if waiting:
                with self._explained():
                    if self._group is None:
                        self._create(waiting[0])
                    self._write(chain, len(waiting))

    def dataset(self) -> xr.Dataset:
        """Open lazily the draws that PyMC would keep in memory after an interrupt."""
        return _counted(self._path).assign_coords(self._coords())

    def _coords(self) -> dict[str, list[Any]]:
        """Labels of the dims of the variables."""
        dims = {d for name in self._names for d in self._model.named_vars_to_dims.get(name) or ()}
        return {d: list(names) for d in dims if (names := self._model.coords.get(d)) is not None}

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say what remains when the disk is full; after an interrupt, wait for what zarr writes."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            # An old write would otherwise come after those of `close`, and undo them.
            _await_writes()
            raise
        except OSError as error:
            kept = "kz.open_store reads the draws written before" if self.on_disk else "it is empty"
            raise OSError(
                error.errno,
                f"Draws could not be written to the store ({error.strerror}); {kept}",
                str(self._path),
            ) from error

    def _create(self, draw: Mapping[str, NDArray]) -> None:
        import zarr

        # Made at the first draw, so that a run that fails earlier leaves no folder.
        if not self._claimed:
            make_store(self._path, "fit")
            self._claimed = True
        tree = draws_to_tree(self._model, {})
        stamp(tree, self._model, converged="no", note=UNFINISHED)
        tree[GROUP] = xr.DataTree(xr.Dataset(coords=self._coords()))
        tree.to_zarr(self._path, mode="w", consolidated=False)
        group = zarr.open_group(self._path, path=GROUP, mode="r+")
        row = sum(np.asarray(value).nbytes for value in draw.values())
        self._room = max(1, min(self._shape[1] // CHUNKS, CHUNK // row))
        for name, value in draw.items():
            shape, dtype = np.shape(value), np.asarray(value).dtype
            dims = self._model.named_vars_to_dims.get(name)
            self._arrays[name] = group.create_array(
                name,
                shape=(0, 0, *shape),
                chunks=(1, self._room, *shape),
                dtype=dtype,
                fill_value=np.nan if dtype.kind == "f" else 0,
                dimension_names=(
                    *("chain", "draw"),
                    *(dims or [f"{name}_dim_{i}" for i in range(len(shape))]),
                ),
            )
        self._group = group

    def _write(self, chain: int, draws: int) -> None:
        start, waiting = self._chains[chain]
        written = {number: n for number, (n, _) in self._chains.items() if n}
        written[chain] = start + draws
        shape = (1 + max(written), max(written.values()))
        for name, array in self._arrays.items():
            if array.shape[:2] != shape:
                array.resize((*shape, *array.shape[2:]))
            array[chain, start : start + draws] = np.stack([draw[name] for draw in waiting[:draws]])
        # Last: readers trust this count, whatever a full disk or a kill leaves in the arrays.
        self._group.attrs["draws"] = {str(number): n for number, n in written.items()}
        self._chains[chain] = (start + draws, waiting[draws:])
