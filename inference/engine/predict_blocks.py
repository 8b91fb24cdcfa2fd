"""Predictions of very many objects, made and stored one block of objects at a time."""

from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import xarray as xr
from xarray import Dataset

from ...models.kernels.blocks import KernelsInBlocks
from .draws_on_disk import UNFINISHED, check_store, finish_store, make_store
from .progress import track

__all__ = ["predict_blocks"]


def predict_blocks(
    predict_one: Callable[[Any], Dataset],
    kernels_new: Any,
    store: str | PathLike[str] | None,
    progressbar: bool,
) -> Dataset:
    """Predict by blocks of objects if `kernels_new` come in blocks, and write to a store.

    Parameters
    ----------
    predict_one : callable
        Maps kernels of new objects to their predictions; variables with the dim "obs" differ
        between blocks, others do not.
    kernels_new, store, progressbar
        As in `predict`.

    Returns
    -------
    Dataset
        In memory, or read from the store when it is used.
    """
    path = None if store is None else check_store(store, "predict")
    if not isinstance(kernels_new, KernelsInBlocks):
        predictions = predict_one(kernels_new)
        return predictions if path is None else _written(iter([predictions]), path)

    def each() -> Iterator[Dataset]:
        with track(len(kernels_new), "Predictions by object", visible=progressbar) as bar:
            for stack in kernels_new:
                yield predict_one(stack)
                bar.advance(stack.sizes["obs"])

    if path is not None:
        return _written(each(), path)
    return xr.concat(
        list(each()), "obs", data_vars="minimal", coords="minimal", compat="override",
        join="exact", combine_attrs="override",
    )  # fmt: skip


def _written(predictions: Iterator[Dataset], path: Path) -> Dataset:
    """Append predictions to a new store and open it."""
    for number, block in enumerate(predictions):
        marked = block.assign_attrs(note=UNFINISHED)
        if number:
            fixed = [name for name, values in block.variables.items() if "obs" not in values.dims]
            marked.drop_vars(fixed).to_zarr(path, append_dim="obs", consolidated=False)
        else:
            make_store(path, "predict")
            marked.to_zarr(path, mode="w", consolidated=False)
    finish_store(path, block.attrs)
    return xr.open_zarr(path, consolidated=False, chunks=None)
