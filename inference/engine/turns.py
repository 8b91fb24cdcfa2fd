"""Chains that run in turns, and how chains of different lengths are cut for a result."""

from collections.abc import Callable, Sequence

import numpy as np
import xarray as xr
from xarray import Dataset, DataTree

__all__ = ["cut_to_draws", "draws_to_keep", "joined_turns", "sample_in_turns"]

# Chains are kept if this part of the most draws is left: R-hat needs several chains.
LEAST = 0.5


def sample_in_turns(
    sample: Callable[[range], DataTree],
    chains: int,
    draws: int,
    processes: int,
    has_ended: Callable[[int], bool],
) -> DataTree:
    """Sample chains in groups, one after the other, each for its share of the time.

    `pm.sample` begins a chain when a process is free, and an interrupt also ends the chains that
    still wait. So each group is a separate call.

    Parameters
    ----------
    sample : callable (range) -> DataTree
        Samples the chains with these numbers.
    chains, draws, processes : int
    has_ended : callable (turn) -> bool
        Whether a turn was ended because its time was over.

    Returns
    -------
    DataTree
        The groups that have draws, joined.

    Raises
    ------
    ValueError
        When no group has draws.
    """
    trees = []
    for turn, first in enumerate(range(0, chains, processes)):
        try:
            tree = sample(range(first, min(first + processes, chains)))
        except ValueError:
            if not has_ended(turn):
                raise
            # No chain of the group was tuned in time.
            continue
        trees.append(tree)
        if tree["posterior"].sizes["draw"] < draws and not has_ended(turn):
            # The user pressed Ctrl-C, which ends all groups.
            break
    return joined_turns(trees)


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


def cut_to_draws(tree: DataTree, statistic: str) -> DataTree:
    """Cut chains that are padded with NaN to `draws_to_keep`, and number them from 0.

    Parameters
    ----------
    tree : DataTree
    statistic : str
        Name of a variable in ``sample_stats`` that is not NaN for every draw made.

    Raises
    ------
    ValueError
        When no draw was made.
    """
    lengths = tree["sample_stats"][statistic].notnull().sum("draw").values
    draws = draws_to_keep(lengths.tolist(), LEAST)
    if not draws:
        raise ValueError("None of the chains has a draw after tuning.")
    chains = np.flatnonzero(lengths >= draws)
    for name, group in tree.children.items():
        data = group.to_dataset()
        if "chain" in data.dims:
            kept = data.isel(chain=chains)
            if not name.startswith("warmup"):
                kept = kept.isel(draw=slice(draws))
            tree[name] = DataTree(kept.assign_coords(chain=np.arange(len(chains))))
    return tree
