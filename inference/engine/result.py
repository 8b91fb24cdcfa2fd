"""What a paper's algorithm returns, and the layout of every engine's result, an ArviZ DataTree.

Groups: ``posterior`` (dims chain, draw, ...), ``sample_stats``, ``observed_data``,
``constant_data``, ``log_likelihood``; for deterministic engines ``variational`` or ``point`` (the
parameters of the output) and ``trajectory`` (objective by iteration); ``moments`` (means and
standard deviations, ``{name}_mean`` and ``{name}_sd``, of variables whose draws are too large to
keep; the coordinate ``draws`` counts those of each chain). Independent draws form one chain: R-hat
has no meaning for them.

``lp`` in ``sample_stats`` is a log density of the declaration. The attribute ``lp_measure`` says
which one: "constrained", of the variables as declared, or "unconstrained", of their transforms,
Jacobians included.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal

import arviz as az
import numpy as np
import numpy.typing as npt
import pymc as pm
import xarray as xr
from pymc.backends.arviz import coords_and_dims_for_inferencedata, find_observations
from xarray import Dataset, DataTree

from ...models.declaration import Declaration, family
from ...validation import argument_error
from .provenance import constants_of, declaration

Converged = Literal["yes", "no", "unknown", "no fixed point"]

#: File of a store that counts the draws of each chain.
COUNTS = "counts"

type Array = npt.NDArray[np.float64]
# Posterior mean and standard deviation of a variable; None for an infinite standard deviation.
type Moments = tuple[Array, Array | None]


@dataclass(frozen=True)
class VariationalOutput:
    """An approximate posterior q and the history of its bound.

    Attributes
    ----------
    elbo : list of array of shape (iterations,)
        The objective after each iteration, one array per start.
    best : int
        Index of the start with the highest final objective, that of `parameters` and `sample`.
    converged : bool
        Whether that start met the tolerance.
    parameters : Dataset
        Parameters of q with the model's dims and coords.
    sample : callable (draws, rng) -> (dict of array (draw, ...), array (draw,))
        Independent draws of every free random variable, on its constrained space, and their log q,
        with respect to the same measure as PyMC's constrained log density.
    moments : mapping of str to (mean, sd or None), optional
        Those moments under q that have a closed form. None: moments are taken from the draws.
    """

    elbo: list[Array]
    best: int
    converged: bool
    parameters: Dataset
    sample: Callable[[int, np.random.Generator], tuple[Mapping[str, Array], Array]]
    moments: Mapping[str, Moments] | None = None


@dataclass(frozen=True)
class ExactOutput:
    """Independent sampler of the posterior.

    Attributes
    ----------
    sample : callable (draws, rng) -> dict of array (draw, ...)
        Independent draws of every free random variable, on its constrained space.
    moments : mapping of str to (mean, sd or None), optional
        Those posterior moments of free variables or deterministics that have a closed form. None:
        moments are taken from the draws.
    log_evidence : float, optional
    tails : mapping of str to float or array, optional
        Tail index of a variable or of each of its elements: E|x|^p is finite only for p below it.
        Moments from draws are NaN where they are known to be infinite.
    """

    sample: Callable[[int, np.random.Generator], Mapping[str, Array]]
    moments: Mapping[str, Moments] | None = None
    log_evidence: float | None = None
    tails: Mapping[str, float | Array] = field(default_factory=dict)


@dataclass(frozen=True)
class IntegratedOutput:
    """A mixture of conditional approximations over points of the hyperparameters.

    Attributes
    ----------
    sample : callable (draws, rng) -> dict of array (draw, ...)
        Independent draws of every free random variable, on its constrained space, and of the
        deterministic variable f if the run keeps it.
    log_likelihood : callable (dict of array (draw, ...)) -> array (draw, ...)
        Log likelihood of each observation, of draws of f and of the hyperparameters.
    left_out : callable () -> array
        Log predictive density of each observation given all others.
    points : mapping of str to array (point, ...)
        Hyperparameters at the points, on their constrained spaces.
    weights : array (point,)
        Weights of the points, which sum to 1.
    k_hat : float
        Pareto k-hat of these weights before smoothing; NaN of a single point.
    log_evidence : float or None
        Estimate of the log marginal likelihood; None if the only point is the mode.
    converged : bool
        Whether the mode was found.
    """

    sample: Callable[[int, np.random.Generator], Mapping[str, Array]]
    log_likelihood: Callable[[Mapping[str, Array]], Array]
    left_out: Callable[[], Array] | None
    points: Mapping[str, Array]
    weights: Array
    k_hat: float
    log_evidence: float | None
    converged: bool


@dataclass(frozen=True)
class PointOutput:
    """A single point, such as a mode, and the history of the search.

    Attributes
    ----------
    values : mapping of str to array
        Values of free variables and deterministics, without those that are integrated out.
    climbs : list of array of shape (iterations,)
        Objective of the algorithm after each iteration, one array per start.
    converged : {"yes", "no", "no fixed point"}
    note : str
        Remark on the point, for the result.
    best : int
        Index of the start that gave `values`.
    log_density : float, optional
        Log density of the declaration at the point.
    attributes : mapping of str to str or float
        Attributes of the result, such as ``lp_measure``, the measure of `log_density`.
    ends : mapping of str to array of shape (start, ...)
        Final values of every start, for the variables that tell the points apart.
    """

    values: Mapping[str, Array]
    climbs: list[Array]
    converged: Converged
    note: str = ""
    best: int = 0
    log_density: float | None = None
    attributes: Mapping[str, str | float] = field(default_factory=dict)
    ends: Mapping[str, Array] = field(default_factory=dict)


def draws_to_tree(
    model: pm.Model,
    draws: Mapping[str, np.ndarray],
    sample_stats: Mapping[str, np.ndarray] | None = None,
) -> DataTree:
    """Tree of one chain from independent draws (draw, ...) and their ``lp`` and ``lq``."""
    coords, dims = coords_and_dims_for_inferencedata(model)
    groups: dict[str, dict[str, Any]] = {
        "posterior": {name: np.asarray(value)[None] for name, value in draws.items()},
        "observed_data": find_observations(model),
        "constant_data": constants_of(model),
        "sample_stats": {name: np.asarray(x)[None] for name, x in (sample_stats or {}).items()},
    }
    given = {name: group for name, group in groups.items() if group}
    return az.from_dict(given, coords=coords, dims=dims)


def labelled(
    model: pm.Model, arrays: Mapping[str, npt.NDArray], leading: Sequence[str] = ()
) -> Dataset:
    """Dataset of arrays (*leading, ...), by variable, with the model's dims and coords."""
    coords, dims = coords_and_dims_for_inferencedata(model)
    # A variable with vectors or matrices as values has one log density for each.
    return az.dict_to_dataset(
        dict(arrays), coords=coords, dims=dims, sample_dims=[*leading], skip_event_dims=True
    ).drop_attrs()


def returned_dataset(found: Any, function: str, of: Any) -> Dataset:
    """Return what a paper's function gave; raise TypeError unless it is a Dataset."""
    if isinstance(found, Dataset):
        return found
    name = of.__name__ if isinstance(of, type) else type(of).__name__
    raise TypeError(
        f"{function!r} of the Paper of {name} must return a Dataset. Got {type(found)}."
    )


def with_group(tree: DataTree, name: str, dataset: Dataset) -> DataTree:
    """Add a group and return the tree."""
    tree[name] = DataTree(dataset)
    return tree


def trajectory(name: str, histories: Sequence[np.ndarray], best: int = 0) -> Dataset:
    """Objective by start and iteration, NaN after a start's last iteration."""
    steps = [*zip_longest(*histories, fillvalue=np.nan)]
    table = np.reshape(np.array(steps, float), (-1, len(histories))).T
    starts, iterations = map(np.arange, table.shape)
    return Dataset(
        {name: (("start", "iteration"), table)},
        coords={"start": starts, "iteration": 1 + iterations},
        attrs={"best_start": best},
    )


def stamp(tree: DataTree, model: pm.Model, **attributes: Any) -> DataTree:
    """Write the attributes of every result."""
    tree.attrs.update(attributes)
    tree.attrs |= {
        "model": type(model).__name__,
        "family": family(model),
        "variant": model.variant if isinstance(model, Declaration) else "",
        **declaration(model),
    }
    tree.attrs.setdefault("converged", "unknown")
    return tree


def constant_variable(tree: DataTree, model: pm.Model) -> str:
    """Name the first variable of which all draws are the same; empty if there is none."""
    posterior = tree["posterior"].to_dataset()
    drawn = (str(rv.name) for rv in model.free_RVs if rv.name in posterior)
    return next((name for name in drawn if (posterior[name] == posterior[name][0, 0]).all()), "")


def join_chains(groups: Sequence[Dataset]) -> Dataset:
    """Join groups along their chains, numbered anew, and cut them to the shortest."""
    if "chain" not in groups[0].dims:
        return groups[0]
    joined = xr.concat(groups, "chain", data_vars="minimal", join="inner", combine_attrs="override")
    return joined.assign_coords(chain=np.arange(joined.sizes["chain"]))


def draws_to_keep(lengths: Sequence[int]) -> int:
    """Length to which chains are cut: as many are kept as give the most draws, as PyMC does."""
    made = {length: length * sum(n >= length for n in lengths) for length in lengths}
    return min(length for length in made if made[length] >= max(made.values()))


class RunningMoments:
    """Mean and standard deviation of a stream of arrays (Welford's update, block by block)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: Any = 0.0
        self._squares: Any = 0.0

    def update(self, draws: npt.NDArray) -> None:
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
    def spread(self) -> npt.NDArray:
        """Standard deviation with divisor n, for expectations over the draws."""
        return np.sqrt(self._squares / self.count)

    @property
    def sd(self) -> npt.NDArray:
        """Sample standard deviation; NaN before the second draw."""
        if self.count < 2:
            return np.full(np.shape(self.mean), np.nan)
        return np.sqrt(self._squares / (self.count - 1))


def moments_dataset(model: pm.Model, moments: Mapping[str, Moments]) -> Dataset:
    """Lay out means and standard deviations, NaN for None, with the model's dims and coords."""
    means = {name: mean for name, (mean, _) in moments.items()}
    sds = {
        name: np.full_like(mean, np.nan) if sd is None else sd
        for name, (mean, sd) in moments.items()
    }
    return suffixed(mean=labelled(model, means), sd=labelled(model, sds))


def moments_of_draws(posterior: Dataset) -> Dataset:
    """Moments, chain by chain, of draws (chain, draw, ...)."""
    moments = suffixed(mean=posterior.mean("draw"), sd=posterior.std("draw", ddof=1))
    counts = np.full(posterior.sizes["chain"], posterior.sizes["draw"])
    return moments.assign_coords(draws=("chain", counts))


def suffixed(**statistics: Dataset) -> Dataset:
    """Statistics of variables in one dataset, by the names ``{variable}_{statistic}``."""
    return xr.merge(
        each.rename({name: f"{name}_{statistic}" for name in each})
        for statistic, each in statistics.items()
    )


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


def joined_draws(draws: xr.DataArray, *dims: Any) -> npt.NDArray:
    """Draws (sample, ...) of all chains together; `dims` are the order of the other dims."""
    values = draws.transpose("chain", "draw", *(dims or [...])).to_numpy()
    return values.reshape(values.shape[0] * values.shape[1], *values.shape[2:])


def check_finite_draws(draws: xr.DataArray, argument: str, owner: str) -> None:
    """Raise unless all draws of a variable are finite."""
    if bad := int((~np.isfinite(draws)).sum()):
        rule = f"a result with finite draws of {draws.name}"
        raise argument_error(argument, owner, rule, f"{bad} NaN or infinite numbers among them")


def kept_draws(result: DataTree, name: str) -> xr.DataArray | None:
    """Draws of a variable in a result; None if there are fewer than two."""
    draws = result["posterior"].to_dataset().get(name) if "posterior" in result.children else None
    return None if draws is None or draws.sizes["chain"] * draws.sizes["draw"] < 2 else draws


def kept_moments(
    result: DataTree, name: str, owner: str
) -> tuple[xr.DataArray, xr.DataArray | None]:
    """Mean and sd of a variable from moments, draws or a point, whose sd is None; or ValueError."""
    groups = {group: tree.to_dataset() for group, tree in result.children.items()}
    if f"{name}_mean" in (moments := groups.get("moments", Dataset())):
        return moments[f"{name}_mean"], moments.get(f"{name}_sd")
    if name in groups.get("posterior", ()):
        draws = groups["posterior"][name]
        dims = ("chain", "draw")
        check_finite_draws(draws, "result", owner)
        several = kept_draws(result, name) is not None
        return draws.mean(dims), draws.std(dims, ddof=1) if several else None
    if name in groups.get("point", ()):
        return groups["point"][name], None
    raise argument_error("result", owner, f"a result with moments or draws of {name}", "neither")


def local_path(path: str | PathLike[str], owner: str) -> Path:
    """Return the absolute path of a store, which stays the same when the current folder changes."""
    given = fspath(path) if isinstance(path, str | PathLike) else None
    if not isinstance(given, str) or "://" in given or "\0" in given:
        raise argument_error("store", owner, "a path of a folder on this machine", repr(path))
    try:
        return Path(given).expanduser().absolute()
    except RuntimeError as error:
        rule = "a path in the folder of a known user"
        raise argument_error("store", owner, rule, repr(given)) from error


def check_store(path: str | PathLike[str], owner: str) -> Path:
    """Return the absolute path of a store to be made, or raise with the reason why it cannot be."""
    store = local_path(path, owner)
    try:
        if store.exists():
            raise argument_error("store", owner, "a path where nothing is yet", f"{str(path)!r}")
        # The store is made at the first draw, perhaps hours later, so that it is tried here.
        missing = [folder for folder in (store, *store.parents) if not folder.exists()]
        try:
            store.mkdir(parents=True)
        finally:
            for folder in missing:
                with suppress(OSError):
                    folder.rmdir()
    except OSError as error:
        rule = "the path of a folder that can be made"
        raise argument_error("store", owner, rule, f"{str(path)!r}: {error.strerror}") from error
    return store


class Store:
    """Folder with a file ``NAME.npy`` (chain, draw, ...) for each variable of a fit.

    It is made at the first draw. Draws are written as they come, and counted after that in the file
    ``counts`` (chain,), a name that no variable's file can have: whatever a full disk, a kill or an
    interrupt leaves in the files, the counted draws are whole.
    """

    def __init__(self, path: Path, model: pm.Model, names: Sequence[str], chains: int, draws: int):
        self._path = path
        self._model = model
        self._names = tuple(names)
        self._shape = chains, draws
        self.counts = np.zeros(chains, dtype=np.int64)
        # By file: where its array begins, and which file of which size it is.
        self._begins: dict[Path, int] = {}
        self._files: dict[Path, tuple[int, ...]] = {}

    def append(self, chain: int, values: Mapping[str, npt.NDArray]) -> None:
        """Add draws (draw, ...) of one chain."""
        with self._explained():
            if not self._begins:
                self._create(values)
            first = chain * self._shape[1] + self.counts[chain]
            for name in self._names:
                self._write(self._of_variable(name), first, values[name])
            counted = self.counts[chain] + len(values[self._names[0]])
            self._write(self._path / COUNTS, chain, np.array([counted]))
            self.counts[chain] = counted

    def dataset(self) -> Dataset:
        """Draws on disk of the chains, cut as PyMC cuts them in memory after an interrupt."""
        draws = draws_to_keep(self.counts.tolist())
        chains = np.flatnonzero(self.counts >= draws)
        # A range of chains stays on disk; others are copied.
        together = len(chains) == chains[-1] - chains[0] + 1
        chosen: Any = slice(chains[0], chains[-1] + 1) if together else chains
        arrays = {}
        with self._explained():
            for name in self._names:
                file = self._of_variable(name)
                self._check(file, file.stat())
                arrays[name] = np.load(file, mmap_mode="r")[chosen, :draws]
        return labelled(self._model, arrays, ["chain", "draw"])

    def _of_variable(self, name: str) -> Path:
        return self._path / f"{name}.npy"

    def _create(self, draws: Mapping[str, npt.NDArray]) -> None:
        try:
            self._path.mkdir(parents=True)
        except FileExistsError as error:
            got = f"{str(self._path)!r}, where another process has begun a store meanwhile"
            raise argument_error("store", "fit", "a path where nothing is yet", got) from error
        shapes = {self._of_variable(n): (draws[n].dtype, draws[n].shape[1:]) for n in self._names}
        files = {file: (dtype, (*self._shape, *each)) for file, (dtype, each) in shapes.items()}
        files[self._path / COUNTS] = self.counts.dtype, self.counts.shape
        for file, layout in files.items():
            array = np.lib.format.open_memmap(file, "w+", *layout)
            self._begins[file] = array.offset
            self._files[file] = _identity(file.stat())

    def _write(self, file: Path, row: int, values: npt.NDArray) -> None:
        """Write values into a file, beginning at a row of its flattened first two axes."""
        with file.open("r+b") as opened:
            self._check(file, os.fstat(opened.fileno()))
            opened.seek(self._begins[file] + row * values[0].nbytes)
            opened.write(np.ascontiguousarray(values))

    def _check(self, file: Path, found: os.stat_result) -> None:
        """Raise OSError if a file is not as this store made it."""
        if _identity(found) != self._files[file]:
            raise OSError(f"{file.name} was cut or replaced while the fit ran")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Name the store in an error of its files, and the draws that it holds."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            held = ", ".join(map(str, self.counts))
            raise OSError(
                f"The store {str(self._path)!r} failed: {reason}. By its counts it holds {held} "
                "whole draws of the chains."
            ) from error


def _identity(status: os.stat_result) -> tuple[int, ...]:
    """Tell a file, and its size, from others."""
    return status.st_dev, status.st_ino, status.st_size
