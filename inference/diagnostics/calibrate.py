"""Simulation-based calibration of any engine on any model, by simultaneous bands of ranks."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, fields
from functools import cached_property, partial
from os import PathLike
from typing import Any

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import NDArray
from pymc.backends.arviz import find_observations
from pymc.pytensorf import compile as compile_graph
from pymc.pytensorf import reseed_rngs
from pytensor.graph.basic import Constant
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Cast
from scipy import stats
from scipy.optimize import brentq
from xarray import DataTree

from ...models.declaration import Declaration
from ...user_warnings import silent
from ...validation import Count, Seed, argument_error, check_arguments, check_count, integer_seed
from ..engine.convergence import effective_draws
from ..engine.engine import Engine, applicable, variables_drawn
from ..engine.evaluation import arrays_in, python_mode
from ..engine.fit import fit
from ..engine.groups import compile_log_likelihood, lacks
from ..engine.paper import identified
from ..engine.provenance import data_of, term_fingerprints, versions
from ..engine.result import draws_to_tree, joined_draws, stamp, with_group
from ..engine.shared_settings import quiet_sampler, settings_kept
from ..engine.tasks import Record, records

type Values = dict[str, NDArray]

OWNER = "calibrate"
# Largest number of points at which an ECDF is compared.
MOST_ECDF_POINTS = 100
# Standard normal numbers that stand for the law of the truth.
NORMAL = stats.norm.ppf((np.arange(400) + 0.5) / 400)
#: Independent posterior draws among which a truth is ranked.
RANKED_DRAWS = 31
# Probability that a calibrated engine's ranks leave any of the bands.
ERROR_RATE = 0.01
# Probability with which the stated errors are found.
POWER = 0.8
QUIET: dict[str, Any] = {"progressbar": False, "log_likelihood": False}


class Band:
    """Bounds between which the ECDF of n uniform numbers stays at all points with a probability.

    ``lower`` and ``upper`` are the smallest and largest number of values up to each of ``points``:
    pointwise binomial intervals, whose common level is chosen so that all hold together (Säilynoja
    et al. 2022, Section 2); exact, as counts of a Poisson process given their total: O(n^2) per
    point.
    """

    def __init__(self, n: int, level: float):
        self.n = n
        parts = min(n, MOST_ECDF_POINTS)
        self.points = np.arange(1, parts) / parts
        low = 0.0
        high = 1.0
        for _ in range(40):
            middle = (low + high) / 2
            self.bound_each(middle)
            low, high = (middle, high) if self.holds(self.points) >= level else (low, middle)
        self.bound_each(low)

    def bound_each(self, pointwise: float) -> None:
        """Let each point alone be left with a probability."""
        self.lower = stats.binom.ppf(pointwise / 2, self.n, self.points).astype(int).clip(0)
        self.upper = stats.binom.isf(pointwise / 2, self.n, self.points).astype(int)

    def holds(self, cdf: NDArray) -> float:
        """Probability that all bounds hold for numbers with the distribution `cdf` (point,)."""
        steps = np.diff(cdf, prepend=0.0, append=1.0)
        added = stats.poisson.pmf(np.arange(self.n + 1), self.n * steps[:, None])
        state = np.eye(1, self.n + 1)[0]
        for more, low, high in zip(
            added, [*self.lower, self.n], [*self.upper, self.n], strict=True
        ):
            state = np.convolve(state, more)[: self.n + 1]
            state[:low] = 0
            state[high + 1 :] = 0
        return float(state[-1] / stats.poisson.pmf(self.n, self.n))

    def left_by(self, values: NDArray) -> bool:
        """Whether the ECDF of `values`, array (n,) of numbers in [0, 1], leaves the band."""
        counts = np.searchsorted(np.sort(values), self.points, side="right")
        return bool(((counts < self.lower) | (counts > self.upper)).any())


def power(band: Band, draws: int, *, bias: float = 0.0, scale: float = 1.0) -> float:
    """Probability that a wrong engine's ranks leave the band, for a normal posterior.

    A truth is ranked among a number of independent draws. `bias` is the error of the mean and
    `scale` the engine's standard deviation, both in standard deviations of the posterior.
    """
    below = stats.norm.cdf((NORMAL - bias) / scale)
    edges = np.arange(draws + 2) / (draws + 1)
    law = stats.binom.cdf(np.arange(draws + 1)[:, None], draws, below).mean(1)
    return 1 - band.holds(np.interp(band.points, edges, [0.0, *law]))


def detectable_bias(band: Band, draws: int, probability: float) -> float:
    """Smallest bias in posterior sds that `power` finds with a probability; infinite for none."""
    if power(band, draws, bias=8.0) < probability:
        return float("inf")
    return brentq(lambda bias: power(band, draws, bias=bias) - probability, 0.0, 8.0, xtol=1e-3)


def detectable_scale(band: Band, draws: int, probability: float) -> float:
    """Largest `scale` below one that `power` finds with a probability; 0 for none."""
    if power(band, draws, scale=0.01) < probability:
        return 0.0
    return brentq(lambda scale: power(band, draws, scale=scale) - probability, 1.0, 0.01, xtol=1e-3)


def calibrate(
    model: pm.Model,
    engine: str | Engine,
    *,
    replicates: int,
    cores: Count | None = None,
    random_seed: Seed = None,
    store: str | PathLike[str] | None = None,
    progressbar: bool = True,
    **options: Any,
) -> DataTree:
    """Check an engine on a model by simulation-based calibration.

    Each replicate draws parameters and data, fits the data, and ranks the true parameters among
    independent draws of the posterior. The ranks are uniform if the engine is right. Ranked are the
    quantities that the data identify (as in `compare_engines`) and, for engines that draw all free
    variables, ``log_likelihood``, the sum over all data.

    Parameters
    ----------
    model : pm.Model
        Its observed variables are simulated. The model itself is not changed.
    engine : Engine or str
        An engine whose result has draws.
    replicates : int
        Number of fits, 20 or more.
    cores : int, default=1
        Number of processes; the workers of an active cluster take their place. The result does not
        depend on it.
    random_seed : int, SeedSequence or Generator, optional
        The seed of a replicate depends on this and on the replicate's number only.
    store : path, optional
        Folder for a file for each finished replicate. The same call (model, data, engine, options,
        seed and versions) does not make them again; more replicates go on from them.
    progressbar : bool, default=True
    **options
        Arguments of `fit`, by default one chain, one core, and draws of all variables; `var_names`
        chooses among them.

    Returns
    -------
    DataTree
        Group ``prior_sbc``: fractional ranks (chain, draw, ...) in (0, 1), with one replicate per
        draw, as ``az.plot_ecdf_pit`` takes them. Attributes: ``verdict``, the text that is printed;
        ``calibrated`` (0 or 1); ``leaves_bands``, the quantities whose ranks leave their bands, and
        by how many of their elements, as JSON; ``bias`` and ``scale``, the smallest bias in
        posterior standard deviations, and the largest ratio of standard deviations below one, that
        are detected with a probability of 80 %; ``draws``, the median number of draws among which a
        truth was ranked; ``failures``, the messages of failed fits by replicate, as JSON;
        ``not_converged``, the number of fits that said so.

    Raises
    ------
    ValueError
        When an argument is out of range, the engine does not apply, data cannot be simulated, or
        no replicate could be fitted.

    Notes
    -----
    Chains are thinned to half their effective number of draws, 31 at most, for each quantity. The
    bands hold for all elements of all quantities together with a probability of 99 % (exact for an
    element, Bonferroni over elements). The stated power is of an error in one element whose
    posterior is normal. Failed fits have no ranks: those of the others are uniform only if failures
    do not depend on the truth.

    Sources: Talts et al. (2018), arXiv:1804.06788, Theorem 1; Modrák et al. (2025), Bayesian
    Analysis 20, for the log likelihood; Säilynoja, Bürkner & Vehtari (2022), Statistics and
    Computing 32, for the bands.

    Examples
    --------
    >>> model = kz.CompositeKernelRegression.example()
    >>> checked = kz.calibrate(model, "vb", replicates=20, draws=50, random_seed=1)
    >>> checked.attrs["calibrated"]
    """
    check_arguments(calibrate, locals())
    check_count(replicates, "replicates", OWNER, least=20)
    engine = applicable(model, engine, OWNER)
    if engine.kind == "point":
        raise argument_error("engine", OWNER, "one whose result has draws", engine.name)
    seed = integer_seed(random_seed, "random_seed", OWNER)
    if "log_likelihood" in options:
        rule = "arguments of fit other than these"
        raise argument_error("options", OWNER, rule, "log_likelihood")
    options = {"chains": 1, "cores": 1, "var_names": variables_drawn(model), **options}
    runs = Replicates(model, engine, seed, options)
    names = {f"{runs.recipe}-{number}": number for number in range(replicates)}
    # A model that cannot be simulated is refused at once.
    _ = runs.simulator
    title = f"Calibration of {engine.name}"
    cores = cores or 1
    found = records(runs, names, title=title, store=store, cores=cores, progressbar=progressbar)
    with closing(found):
        by_number = {names[name]: record for name, record in found}
    tree = _tree(dict(sorted(by_number.items())), model)
    tree.attrs |= {
        "engine": engine.name,
        "settings": json.dumps(engine.settings_on(model), default=repr),
        "random_seed": seed,
        "versions": json.dumps(versions()),
        "verdict": f"{engine.name} on {type(model).__name__}: {tree.attrs['verdict']}",
    }
    if progressbar:
        # An output that is closed or has no reader must not cost the result.
        with suppress(OSError, ValueError):
            print(tree.attrs["verdict"], flush=True)
    return tree


def _tree(replicated: Mapping[int, Record], model: pm.Model) -> DataTree:
    """Collect the replicates by number, and compare their ranks with the bands."""
    failures = {n: record["error"] for n, record in replicated.items() if "error" in record}
    if len(failures) == len(replicated):
        raise ValueError(f"No replicate could be fitted. The first error: {failures[0]}")
    numbers = [n for n in replicated if n not in failures]
    made = [replicated[n] for n in numbers]
    names = list(made[0]["ranks"])
    group = xr.Dataset(coords={"chain": [0], "draw": numbers})
    for name, (dims, *_) in made[0]["ranks"].items():
        values = np.array([record["ranks"][name][1] for record in made])
        known = {
            dim: list(model.coords[dim])
            for dim, size in zip(dims, values.shape[1:], strict=True)
            if len(model.coords.get(dim) or ()) == size
        }
        group[name] = xr.DataArray(values[None], known, ("chain", "draw", *dims))
    draws = int(np.median([record["ranks"][name][2] for record in made for name in names]))
    n_elements = sum(group[name][0, 0].size for name in names)
    band = Band(len(made), 1 - ERROR_RATE / n_elements)
    outside = {
        name: sum(map(band.left_by, group[name].values.reshape(len(made), -1).T)) for name in names
    }
    wrong = {name: number for name, number in outside.items() if number}
    bias, scale = (find(band, draws, POWER) for find in (detectable_bias, detectable_scale))
    tree = DataTree.from_dict({"prior_sbc": group})
    tree.attrs = {
        "calibrated": int(not wrong),
        "leaves_bands": json.dumps(wrong),
        "bias": bias,
        "scale": scale,
        "draws": draws,
        "failures": json.dumps(failures),
        "not_converged": sum(record["converged"] == "no" for record in made),
    }
    listed = ", ".join(f"{name} ({n} of {group[name][0, 0].size})" for name, n in wrong.items())
    kept = f"{', '.join(names)} ({n_elements} elements)"
    within = f"the ranks of {listed} leave" if wrong else f"the ranks of {kept} stay within"
    level = 100 * (1 - ERROR_RATE)
    power = 100 * POWER
    lines = [
        f"{within} their bands ({level:g} % simultaneous, {len(made)} replicates).",
        f"The check detects a bias of {bias:.2g} posterior standard deviations, or standard "
        f"deviations too small by a factor of {scale:.2g}, with a probability of {power:g} %.",
    ]
    if failures:
        lines.append(f"{len(failures)} fits failed: see the attribute 'failures'.")
    if unfinished := tree.attrs["not_converged"]:
        lines.append(f"{unfinished} fits did not converge; their ranks are included.")
    if draws < RANKED_DRAWS:
        lines.append(f"Ranks are among {draws} effective draws: use more 'draws' to detect more.")
    tree.attrs["verdict"] = "\n".join(lines)
    return tree


@dataclass(frozen=True)
class Replicates:
    """Task of one calibration: simulate the data of a replicate, fit them, and rank the truth."""

    model: pm.Model
    engine: Engine
    seed: int
    options: Mapping[str, Any]

    def __getstate__(self) -> dict[str, Any]:
        # Workers get the declaration, and compile it themselves.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def recipe(self) -> str:
        """Fingerprint of all that a replicate's ranks depend on."""
        from joblib import hash as hash_of

        terms = [*self.model.free_RVs, *self.model.observed_RVs, *self.model.potentials]
        arrays = [*arrays_in(terms), *data_of(self.model).values()]
        numbers = [array for array in arrays if array.dtype.kind in "biuf"]
        engine = [self.engine.name, self.engine.settings_on(self.model), dict(self.options)]
        run = [type(self.model).__name__, term_fingerprints(self.model), self.seed, versions()]
        return str(hash_of([numbers, *map(repr, engine), *run]))[:16]

    @cached_property
    def simulator(self) -> "FromPrior":
        """Source of truths and data, compiled once per process."""
        return FromPrior(self.model)

    @cached_property
    def _log_likelihood(self) -> Any:
        return compile_log_likelihood(self.simulator.model)

    def __call__(self, number: int) -> Record:
        """Run the replicate of a number."""
        sequence = np.random.SeedSequence(self.seed, spawn_key=(number,))
        seed, fit_seed, rank_seed = map(int, sequence.generate_state(3))
        model = self.simulator.model
        truth, data = self.simulator.draw(seed)
        # What a fit warns of would come once per replicate; the record says what matters.
        with silent(), quiet_sampler():
            set_observations(model, data)
            result = fit(model, self.engine, random_seed=fit_seed, **QUIET, **self.options)
            if (by := result.attrs.get("ended_by")) == "interrupt":
                raise KeyboardInterrupt
            if by:
                raise RuntimeError(result.attrs["note"])
            likelihood = partial(self._log_likelihood, data=find_observations(model))
            found = ranks(model, result, truth, likelihood, np.random.default_rng(rank_seed))
        return {"converged": result.attrs["converged"], "ranks": found}


def ranks(
    model: pm.Model,
    result: DataTree,
    truth: Values,
    log_likelihood: Callable[[Values], NDArray],
    rng: np.random.Generator,
) -> dict[str, tuple[list[str], Any, int]]:
    """Fractional ranks of the truth of each identified quantity, and of the log likelihood.

    Those of a quantity are its dims, its ranks in (0, 1), and the number of draws. A truth is
    placed at random among equal draws, and its rank within its interval, so that fractional ranks
    are uniform for discrete quantities and any number of draws.
    """
    posterior = result["posterior"].to_dataset()
    if not _has_chains(result.attrs):
        posterior = posterior.isel(draw=_evenly(posterior.sizes["draw"], RANKED_DRAWS))
        result = with_group(result.copy(), "posterior", posterior)
    drawn = {str(name): truth[str(name)] for name in posterior.data_vars if name in truth}
    point = stamp(draws_to_tree(model, {name: v[None] for name, v in drawn.items()}), model)
    known = identified(point)
    ours = identified(result)
    fitted = {n: (ours[n], known[n].values[0, 0]) for n in map(str, ours) if n in known}
    free = [str(rv.name) for rv in model.free_RVs]
    if not lacks(free, [*drawn]):
        # One call for the draws and the truth, so that rounding makes equal values no different.
        sizes = posterior.sizes["chain"], posterior.sizes["draw"]
        draws = {n: joined_draws(posterior[n]) for n in free}
        *at, true = log_likelihood({n: np.stack([*draws[n], truth[n]]) for n in free})
        values = xr.DataArray(np.reshape(at, sizes), dims=("chain", "draw"))
        fitted["log_likelihood"] = values, true
    found = {}
    for name, (values, true) in fitted.items():
        kept = thinned(values, result.attrs)
        if np.isnan(kept).any() or np.isnan(true).any():
            raise ValueError(f"{name} has draws or a true value that are NaN.")
        equal = (kept == true).sum(0)
        below = (kept < true).sum(0)
        place = below + rng.uniform(size=np.shape(below)) * (equal + 1)
        dims = [str(dim) for dim in values.dims if dim not in ("chain", "draw")]
        found[name] = dims, (place / (len(kept) + 1)).tolist(), len(kept)
    return found


def thinned(values: xr.DataArray, attributes: Mapping[Any, Any]) -> NDArray:
    """Draws (draw, ...) of a quantity, evenly spaced in its chains, at most `RANKED_DRAWS`."""
    stacked = joined_draws(values)
    kept = len(stacked)
    if _has_chains(attributes):
        # Chains keep half as many as the least ESS of the elements: hardly correlated ones.
        sizes = effective_draws(values) if values.sizes["draw"] > 3 else 1.0
        kept = int(np.nan_to_num(np.nanmin(sizes), nan=1.0) / 2)
    return stacked[_evenly(len(stacked), max(1, min(kept, RANKED_DRAWS)))]


def _has_chains(attributes: Mapping[Any, Any]) -> bool:
    return "independent" not in attributes and attributes.get("kind", "mcmc") == "mcmc"


def _evenly(number: int, kept: int) -> NDArray:
    return np.linspace(0, number - 1, min(kept, number)).round().astype(int)


class FromPrior:
    """Truths from the prior, and data given them; the model that is fitted is a copy."""

    def __init__(self, model: pm.Model):
        if not (observed := model.observed_RVs):
            raise argument_error("model", OWNER, "one with observed variables", "none")
        values = {_held(model, rv) for rv in observed}
        used = ancestors([*model.free_RVs, *observed, *model.potentials, *model.deterministics])
        if twice := sorted(str(v.name) for v in values.intersection(used)):
            rule = "one whose observed values are used nowhere else, since simulations replace them"
            got = f"a model with priors or terms that depend on {', '.join(twice)}"
            raise argument_error("model", OWNER, rule, got)
        if model.potentials:
            rule = "without pm.Potential: parameters cannot be drawn from its density"
            got = ", ".join(str(term.name) for term in model.potentials)
            raise argument_error("model", OWNER, rule, got)
        # A copy, so that the user's model keeps its data.
        self.model = model = cloudpickle.loads(cloudpickle.dumps(model))
        observed = model.observed_RVs
        needed = {*ancestors(observed)}
        seen = [
            rv for rv in model.free_RVs if rv in needed or {*ancestors([rv])}.isdisjoint(observed)
        ]
        self._first = _compiled(model, [], [*seen, *observed])
        unseen = [rv for rv in model.free_RVs if rv not in seen]
        self._second = _compiled(model, [*seen, *observed], [*unseen, *model.deterministics])

    def draw(self, seed: int) -> tuple[Values, Values]:
        """Draw a truth and its data, which depend on the seed alone."""
        first, second = map(int, np.random.SeedSequence(seed).generate_state(2))
        values = self._first({}, first)
        data = {str(rv.name): values[str(rv.name)] for rv in self.model.observed_RVs}
        if isinstance(self.model, Declaration):
            data = {name: self.model.as_data(name, value) for name, value in data.items()}
        # Variables that depend on the data, such as missing blocks, follow from those fitted.
        values |= data
        values |= self._second(values, second)
        return {name: values[name] for name in values if name not in data}, data


def set_observations(model: pm.Model, data: Mapping[str, NDArray]) -> None:
    """Give observed variables new values."""
    for name, value in data.items():
        rv = model[name]
        held = _held(model, rv)
        if held in model.data_vars:
            pm.set_data({str(held.name): value}, model=model)
            continue
        new = pt.as_tensor_variable(np.asarray(value, dtype=rv.dtype), name=held.name)
        del model.values_to_rvs[held]
        model.rvs_to_values[rv], model.values_to_rvs[new] = new, rv
        rv.tag.observations = new


def _held(model: pm.Model, rv: Any) -> Any:
    """Find the data or the constant that holds the value of an observed variable."""
    value = held = model.rvs_to_values[rv]
    # PyMC casts whole numbers of pm.Data.
    while held.owner and isinstance(getattr(held.owner.op, "scalar_op", None), Cast):
        (held,) = held.owner.inputs
    if held in model.data_vars or isinstance(value, Constant):
        return held
    required = "one whose observed values are arrays or pm.Data, which simulations can replace"
    raise argument_error("model", OWNER, required, f"another term as the values of {rv.name}")


def _compiled(
    model: pm.Model, given: Sequence[Any], outputs: Sequence[Any]
) -> Callable[[Mapping[str, NDArray], int], Values]:
    """Make a function of values by name and a seed: draws of variables given those of others."""
    inputs = [rv.type(name=rv.name) for rv in given]
    replaced = graph_replace(list(outputs), dict(zip(given, inputs, strict=True)), strict=False)
    options: Any = {"random_seed": False, "return_updates": True, "on_unused_input": "ignore"}
    with settings_kept():
        function, updates = compile_graph(inputs, replaced, mode=python_mode(), **options)
    names = [str(rv.name) for rv in outputs]
    generators = list(updates)

    def draw(values: Mapping[str, NDArray], seed: int) -> Values:
        reseed_rngs(generators, seed)
        found = function(*(values[str(rv.name)] for rv in given))
        return dict(zip(names, map(np.array, found), strict=True))

    return draw
