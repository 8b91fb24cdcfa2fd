"""How chains of different lengths are cut and joined for a result."""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from xarray import Dataset, DataTree

__all__ = ["draws_to_keep", "joined_turns"]

# Chains are kept if this part of the most draws is left: R-hat needs several chains.
LEAST = 0.5


def draws_to_keep(lengths: Sequence[int], least: float = 1.0) -> int:
    """Length to which chains of different lengths are cut.

    Parameters
    ----------
    lengths : sequence of int
    least : float, default=1.0
        With 1.0, as many chains, cut to the shortest of them, are kept as give the most draws, as
        PyMC does with interrupted chains. With less, as many chains as give this part of the most
        draws.
    """
    made = {length: length * sum(n >= length for n in lengths) for length in lengths}
    return min(length for length in made if made[length] >= least * max(made.values()))


def joined_turns(trees: Sequence[DataTree]) -> DataTree:
    """Join the chains of several trees, cut to `draws_to_keep` and numbered from 0.

    Raises
    ------
    ValueError
        When there is no tree.
    """
    if not trees:
        raise ValueError("None of the chains has a draw after tuning.")
    sizes = [tree["posterior"].sizes for tree in trees]
    lengths = [size["draw"] for size in sizes for _ in range(size["chain"])]
    draws = draws_to_keep(lengths, LEAST)
    long = [tree for tree, size in zip(trees, sizes, strict=True) if size["draw"] >= draws]
    joined = DataTree()
    for name in long[0].children:
        parts = [tree[name].to_dataset() for tree in long]
        joined[name] = DataTree(_joined(parts, draws, warmup=name.startswith("warmup")))
    return joined


def _joined(parts: Sequence[Dataset], draws: int, *, warmup: bool) -> Dataset:
    if "chain" not in parts[0].dims:
        return parts[0]
    if not warmup:
        parts = [part.isel(draw=slice(draws)) for part in parts]
    data = xr.concat(parts, "chain", data_vars="minimal", combine_attrs="override")
    return data.assign_coords(chain=np.arange(data.sizes["chain"]))
