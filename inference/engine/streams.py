"""Draws while they are made: moments without keeping them, and files for those that are kept.

The group ``moments`` of a result holds ``{name}_mean`` and ``{name}_sd`` for the variables that the
model lists in `Declaration.streamed`, and costs two arrays of the variable's size per chain. The
coordinate ``draws`` (chain) counts the draws of each chain: after an interrupt the counts differ
from one another and from the number of draws in ``posterior``.

A store is a folder with a file ``NAME.npy`` (chain, draw, ...) for each variable, for `numpy.load`,
and ``counts.npy`` (chain,), the numbers of draws in them.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from xarray import Dataset, DataTree

from ...validation import argument_error
from .evaluation import compile_at_point
from .result import Moments, draws_to_keep

# Standard deviations below this part of the mean are rounding errors of a constant.
CONSTANT = 1e-12


class RunningMoments:
    """Mean and standard deviation of a stream of arrays (Welford's update, block by block)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: Any = 0.0
        self._squares: Any = 0.0

    def update(self, draws: NDArray) -> None:
        """Add draws (draw, ...)."""
        n = len(draws)
        total = self.count + n
        mean = draws.mean(axis=0)
        shift = mean - self.mean
        squares = np.square(draws - mean).sum(axis=0) if n > 1 else 0.0
        squares = self._squares + squares + shift**2 * (self.count * n / total)
        # One step, which Ctrl-C does not divide.
        self.count, self.mean, self._squares = total, self.mean + shift * (n / total), squares

    @property
    def spread(self) -> NDArray:
        """Standard deviation with divisor n, for expectations over the draws."""
        return np.sqrt(self._squares / self.count)

    @property
    def sd(self) -> NDArray:
        """Sample standard deviation; NaN before the second draw."""
        if self.count < 2:
            return np.full(np.shape(self.mean), np.nan)
        return np.sqrt(self._squares / (self.count - 1))


def each_draw(
    model: pm.Model, names: Sequence[str], consume: Callable[[int, Mapping[str, NDArray]], None]
) -> Callable[..., None]:
    """Make a callback of `pm.sample` that passes draws of some variables on, but not of tuning.

    PyMC calls it in the parent process for every draw of every chain. The consumer gets the chain
    and arrays (1, ...) by name.
    """
    outputs = model.replace_rvs_by_values([model[name] for name in names])
    inputs = [value.name for value in model.value_vars]
    evaluate = compile_at_point(model, model.value_vars, outputs)

    def after(trace: Any, draw: Any) -> None:
        if not draw.tuning:
            values = evaluate(*(draw.point[name] for name in inputs))
            consume(draw.chain, {name: x[None] for name, x in zip(names, values, strict=True)})

    return after


class MomentsOfChains:
    """Moments of variables, accumulated chain by chain."""

    def __init__(self, names: Sequence[str]):
        self.names = tuple(names)
        self.chains: dict[int, dict[str, RunningMoments]] = {}

    def update(self, chain: int, values: Mapping[str, NDArray]) -> None:
        """Add draws (draw, ...) of one chain."""
        running = self.chains.setdefault(chain, {name: RunningMoments() for name in self.names})
        for name, moments in running.items():
            moments.update(values[name])

    def dataset(self, model: pm.Model) -> Dataset:
        """Moments with a leading dimension "chain"."""
        each, counts = [], []
        for _, running in sorted(self.chains.items()):
            moments = {name: (entry.mean, entry.sd) for name, entry in running.items()}
            each.append(moments_dataset(model, moments))
            counts.append(running[self.names[0]].count)
        joined = xr.concat(each, "chain", data_vars="all", coords="minimal", compat="override")
        return joined.assign_coords(chain=sorted(self.chains), draws=("chain", counts))


def moments_of_draws(posterior: Dataset) -> Dataset:
    """Moments, chain by chain, of draws (chain, draw, ...)."""
    means, sds = posterior.mean("draw"), posterior.std("draw", ddof=1)
    moments = xr.merge(
        each.rename({name: f"{name}_{suffix}" for name in posterior})
        for suffix, each in (("mean", means), ("sd", sds))
    )
    counts = np.full(posterior.sizes["chain"], posterior.sizes["draw"])
    return moments.assign_coords(draws=("chain", counts))


def pooled(moments: Dataset) -> Dataset:
    """Moments of the draws of all chains together, weighted by their numbers of draws if known."""
    if "chain" not in moments.dims:
        return moments
    draws = moments.coords.get("draws", xr.ones_like(moments["chain"], dtype=float))
    together = moments.weighted(draws).mean("chain")
    for sd in [str(name) for name in moments.data_vars if str(name).endswith("_sd")]:
        mean = f"{sd.removesuffix('_sd')}_mean"
        squares = moments[sd] ** 2 + (moments[mean] - together[mean]) ** 2
        together[sd] = squares.weighted(draws).mean("chain") ** 0.5
    return together


def rhat_of_moments(moments: Dataset) -> Dataset:
    """R-hat of Gelman and Rubin (1992), from means and standard deviations by chain.

    It does not see chains that drift together or that differ in their tails alone. NaN for
    constants and where no chain has moments; infinite for chains that do not move and stand apart,
    and where some chains have no moments.
    """
    draws = moments["draws"].min().item()
    names = [name.removesuffix("_sd") for name in map(str, moments) if name.endswith("_sd")]
    found = {}
    for name in names:
        means, variances = moments[f"{name}_mean"], moments[f"{name}_sd"] ** 2
        within, between = variances.mean("chain", skipna=False), means.var("chain", ddof=1)
        rounding = (CONSTANT * abs(means).max("chain")) ** 2
        ratio = (draws - 1) / draws + between / within.where(within > rounding)
        lacks = variances.isnull()
        apart = (within <= rounding) & (between > rounding)
        apart |= lacks.any("chain") & ~lacks.all("chain")
        found[name] = xr.where(apart, np.inf, np.sqrt(ratio))
    return Dataset(found)


def moments_dataset(model: pm.Model, moments: Mapping[str, Moments]) -> Dataset:
    """Lay out means and standard deviations, NaN for None, with the model's dims and coords."""
    variables: dict[str, Any] = {}
    for name, (mean, sd) in moments.items():
        unnamed = [f"{name}_dim_{i}" for i in range(np.ndim(mean))]
        dims = model.named_vars_to_dims.get(name) or unnamed
        variables[f"{name}_mean"] = (dims, mean)
        variables[f"{name}_sd"] = (dims, np.full_like(mean, np.nan) if sd is None else sd)
    used = {dim for dims, _ in variables.values() for dim in dims}
    coords = {dim: list(model.coords[dim]) for dim in used if model.coords.get(dim) is not None}
    return Dataset(variables, coords=coords)


def kept_draws(result: DataTree, name: str) -> xr.DataArray | None:
    """Draws of a variable in a result; None if there are fewer than two."""
    draws = result["posterior"].to_dataset().get(name) if "posterior" in result.children else None
    if draws is None or draws.sizes["chain"] * draws.sizes["draw"] < 2:
        return None
    return draws


def kept_moments(
    result: DataTree, name: str, owner: str
) -> tuple[xr.DataArray, xr.DataArray | None]:
    """Mean and standard deviation of a variable in a result with pooled moments, draws or a point.

    The latter is None for a point.
    """
    groups = {group: tree.to_dataset() for group, tree in result.children.items()}
    if f"{name}_mean" in (moments := groups.get("moments", Dataset())):
        return moments[f"{name}_mean"], moments.get(f"{name}_sd")
    if name in groups.get("posterior", ()):
        draws, dims = groups["posterior"][name], ("chain", "draw")
        several = kept_draws(result, name) is not None
        return draws.mean(dims), draws.std(dims, ddof=1) if several else None
    if name in groups.get("point", ()):
        return groups["point"][name], None
    raise argument_error("result", owner, f"a result with moments or draws of {name}", "neither")


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
