"""Predictions of very many objects, made and stored one chunk of a Dask array at a time."""

from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from xarray import Dataset

from .draws_on_disk import UNFINISHED, check_store, finish_store, make_store
from .progress import track

__all__ = ["in_chunks", "joined", "predict_chunks"]


def in_chunks(kernels_new: Any) -> bool:
    """Whether kernels of new objects are a DataArray of a Dask array."""
    return isinstance(kernels_new, xr.DataArray) and kernels_new.chunks is not None


def predict_chunks(
    predict_one: Callable[[Any], Dataset],
    kernels_new: Any,
    store: str | PathLike[str] | None,
    progressbar: bool,
) -> Dataset:
    """Predict chunk by chunk if `kernels_new` have chunks; write to a store if one is named."""
    path = None if store is None else check_store(store, "predict")
    if not in_chunks(kernels_new):
        predictions = predict_one(kernels_new)
        return predictions if path is None else _written(iter([predictions]), path)

    def each() -> Iterator[Dataset]:
        n_obs = kernels_new.sizes["obs"]
        stops = np.cumsum(kernels_new.chunksizes["obs"]).tolist()
        with track(n_obs, "Predictions by object", visible=progressbar) as bar:
            for start, stop in zip([0, *stops], stops, strict=False):
                yield predict_one(kernels_new.isel(obs=slice(start, stop)).compute())
                bar.advance(stop - start)

    if path is not None:
        return _written(each(), path)
    return joined(list(each()))


def joined(predictions: Sequence[Dataset]) -> Dataset:
    """Join predictions of different objects."""
    return xr.concat(
        predictions, "obs", data_vars="minimal", coords="minimal", compat="override",
        join="exact", combine_attrs="override",
    )  # fmt: skip


def _written(predictions: Iterator[Dataset], path: Path) -> Dataset:
    """Append predictions to a new store and open it."""
    for number, chunk in enumerate(predictions):
        marked = chunk.assign_attrs(note=UNFINISHED)
        if number:
            fixed = [name for name, values in chunk.variables.items() if "obs" not in values.dims]
            marked.drop_vars(fixed).to_zarr(path, append_dim="obs", consolidated=False)
        else:
            make_store(path, "predict")
            marked.to_zarr(path, mode="w", consolidated=False)
    finish_store(path, chunk.attrs)
    return xr.open_zarr(path, consolidated=False, chunks=None)
