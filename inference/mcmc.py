"""Engines that run inside `pm.sample`, and sequential Monte Carlo."""

from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar, Literal, override

import arviz as az
import numpy as np
import pymc as pm
from pymc.sampling.mcmc import STEP_METHODS
from pymc.sampling.parallel import _cpu_count
from pymc.step_methods.hmc.base_hmc import BaseHMC
from pytensor.compile.mode import get_mode
from pytensor.graph.replace import clone_replace
from scipy.special import logsumexp
from xarray import Dataset, DataTree

from ..models.checks import argument_error, check_count, check_name, check_positive
from .applicability import discrete_variables
from .compilation import compiling_with
from .cost import Cost, peak_of_memory, timed
from .deadline import EndOfTime
from .draws_on_disk import DrawsOnDisk
from .engines import Engine, Kind, Run
from .handwritten import Handwritten
from .identified import identified
from .mode import compile_objective
from .moments import EachDraw, MomentsOfChains, moments_of_draws
from .result import Converged, with_group
from .sampler_options import keywords_of

__all__ = ["NUTS", "SMC", "Gibbs"]

RHAT_BOUND = 1.01

# What is recorded of a draw is computed in about a millisecond by Python; compiling that takes up
# to twenty seconds.
MANY_DRAWS = 20_000
# Doublings of a trajectory that are usual.
USUAL_DEPTH = 5

# Implementations of NUTS, which are packages, and the extras of this one that install them.
_BACKENDS = {"pymc": "", "nutpie": "nutpie", "numpyro": "jax"}

# What `pm.sample` hands to NUTS where that is the only step, but for what it sets itself.
_OF_NUTS = keywords_of(pm.NUTS.__init__, BaseHMC.__init__) - {
    *("vars", "blocked", "potential", "rng", "initial_point")
}


def _converged(tree: DataTree, model: pm.Model, draws: int) -> Converged:
    """Whether all draws were made and all identified quantities have an R-hat within the bound.

    Where they have not, the attribute ``note`` names the one with the largest.
    """
    posterior = tree["posterior"]
    if posterior.sizes["draw"] < draws:
        return "no"
    quantities = identified(tree, model)
    if posterior.sizes["chain"] < 2 or not quantities.data_vars:
        return "unknown"
    # NaN is the R-hat of what never moves: a constant, or a state that no chain has left.
    with np.errstate(invalid="ignore"):
        rhat = az.rhat(quantities)
    largest = {name: rhat[name].max().item() for name in rhat if rhat[name].notnull().any()}
    if not largest:
        return "unknown"
    worst = max(largest, key=lambda name: largest[name])
    if largest[worst] <= RHAT_BOUND:
        return "yes"
    where = rhat[worst].fillna(0).argmax(...)
    labels = ", ".join(str(rhat[worst][dim].values[i]) for dim, i in where.items())
    name = f"{worst}[{labels}]" if labels else worst
    tree.attrs["note"] = f"R-hat is {largest[worst]:.3g} at {name}: it takes more draws."
    return "no"


def _sample(model: pm.Model, run: Run, *, callbacks: bool = True, **options: Any) -> DataTree:
    """Run `pm.sample`; keep the draws that the run asks for and the moments of streamed variables.

    Samplers without callbacks keep the streamed variables' draws until their moments are known.

    Of interrupted chains the result keeps what PyMC does, in memory and in a store: as many, cut to
    the shortest of them, as make the most draws, numbered from 0. The moments are of all draws.
    """
    clash = sorted(options.keys() & run.sampler_options.keys())
    if clash:
        raise ValueError(f"The engine itself sets {', '.join(map(repr, clash))} of pm.sample.")
    user = dict(run.sampler_options)
    kept, streamed = run.kept(model), run.streamed(model)
    everything = [str(v.name) for v in (*model.free_RVs, *model.deterministics)]
    if run.store is not None and not callbacks:
        raise ValueError("Draws go to a store from PyMC's own samplers only: backend='pymc'.")
    recorded = kept if callbacks else [*dict.fromkeys([*kept, *streamed])]
    moments = MomentsOfChains(streamed) if streamed and callbacks else None
    store = None
    if run.store is not None:
        store = DrawsOnDisk(run.store, model, kept, run.chains, run.draws)
        recorded = [_smallest(model)]
    if consumers := [c for c in (moments and moments.update, store and store.append) if c]:
        names = [*dict.fromkeys([*(streamed if moments else ()), *(kept if store else ())])]
        options["callback"] = EachDraw(model, names, consumers, user.pop("callback", None))
    if run.clock.seconds is not None:
        in_turn = _processes(run) == 1
        callback = options.pop("callback", None) or user.pop("callback", None)
        options["callback"] = EndOfTime(run.clock, run.chains, in_turn, callback)
    if set(recorded) != set(everything):
        options["var_names"] = recorded
        # PyMC's own checks look at free variables only, and fail when there are none.
        if not {rv.name for rv in model.free_RVs} & set(recorded):
            user.setdefault("compute_convergence_checks", False)
    with (
        model,
        nullcontext() if store is None else closing(store),
        run.clock.explained("for one draw at least after tuning"),
    ):
        tree = pm.sample(
            run.draws,
            tune=run.tune,
            chains=run.chains,
            cores=run.cores,
            random_seed=run.random_seed,
            progressbar=run.progressbar,
            compile_kwargs=run.compile_kwargs,
            **options,
            **user,
        )
    if store is not None:
        with_group(tree, "posterior", store.dataset())
    if moments is not None and moments.chains:
        with_group(tree, "moments", moments.dataset(model))
    else:
        _make_lean(tree, model, run)
    tree.attrs["converged"] = _converged(tree, model, run.draws)
    tree.attrs["lp_measure"] = "unconstrained"
    return tree


def _processes(run: Run) -> int:
    """Chains that run at once: as many as PyMC chooses where the user did not."""
    return min(run.cores or min(4, max(1, _cpu_count())), run.chains)


def _in_turn(run: Run) -> int:
    """Chains that a process runs one after the other."""
    return -(-run.chains // _processes(run))


def _smallest(model: pm.Model) -> str:
    """Name of the free variable that takes the least memory."""
    point = model.initial_point()
    return min(
        (str(rv.name) for rv in model.free_RVs),
        key=lambda name: np.size(point[model.rvs_to_values[model[name]].name]),
    )


def _make_lean(tree: DataTree, model: pm.Model, run: Run) -> None:
    """Drop the draws that the run does not keep; leave the moments of the streamed variables."""
    posterior = tree["posterior"].to_dataset()
    if streamed := run.streamed(model):
        with_group(tree, "moments", moments_of_draws(model, posterior[streamed]))
    if dropped := set(posterior.data_vars) - set(run.kept(model)):
        with_group(tree, "posterior", posterior.drop_vars(dropped))


@dataclass(frozen=True)
class NUTS(Engine):
    """No-U-turn sampler on the declaration.

    Parameters
    ----------
    backend : {"pymc", "nutpie", "numpyro"}, default="pymc"
        Implementation. Said explicitly: PyMC's own default depends on what is installed.
    target_accept : float, default=0.9
        Target of the step-size adaptation, between 0 and 1.
    max_treedepth : int, default=10
        Largest doubling of a trajectory.

    Notes
    -----
    With a progress bar, a line says so while numba compiles the gradient for PyMC's implementation;
    it vanishes before sampling begins.
    """

    name: ClassVar[str] = "NUTS"
    kind: ClassVar[Kind] = "mcmc"
    stores: ClassVar[bool] = True

    backend: Literal["pymc", "nutpie", "numpyro"] = "pymc"
    target_accept: float = 0.9
    max_treedepth: int = 10

    def __post_init__(self) -> None:
        check_name(self.backend, _BACKENDS, "backend", "NUTS")
        if check_positive(self.target_accept, "target_accept", "NUTS") >= 1:
            got = repr(self.target_accept)
            raise argument_error("target_accept", "NUTS", "between 0 and 1", got)
        check_count(self.max_treedepth, "max_treedepth", "NUTS")

    @override
    def sampler_arguments(self) -> frozenset[str]:
        known = keywords_of(pm.sample) | {"nuts"}
        return known | _OF_NUTS if self.backend == "pymc" else known

    @override
    def serves(self, model: pm.Model) -> int | None:
        return 2_000

    @override
    def why_not(self, model: pm.Model) -> str | None:
        if find_spec(self.backend) is None:
            extra = _BACKENDS[self.backend]
            return f"the package {self.backend} is not installed (pip install kernelzoo[{extra}])"
        return discrete_variables(model)

    @override
    def why_not_ended(self) -> str | None:
        if self.backend == "pymc":
            return None
        return f"PyMC does not see the draws of {self.backend}; backend='pymc' takes it"

    @override
    def calibrate(self, model: pm.Model, run: Run) -> Cost:
        with peak_of_memory() as peak:
            start, objective = compile_objective(model, jacobian=True, **run.compile_kwargs)
            objective(start)
        seconds, calls = timed(lambda: objective(start))
        draws = _in_turn(run) * (run.tune + run.draws)
        usual, most = (2 ** min(d, self.max_treedepth) - 1 for d in (USUAL_DEPTH, 99))
        measured = f"{calls} gradients of {seconds:.2g} s each"
        memory = min(_processes(run), run.chains) * peak[0]
        return Cost(usual * draws * seconds, most * draws * seconds, memory, measured)

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        depth = "max_tree_depth" if self.backend == "numpyro" else "max_treedepth"
        options = {"target_accept": self.target_accept, depth: self.max_treedepth}
        own = self.backend == "pymc"
        # Here, as numba takes a second to import.
        from .compilation_status import compilation_shown

        # In a mode of the user's, numba may compile within PyMC's progress bar, too.
        with compilation_shown(run.progressbar and own and run.mode is None):
            return _sample(model, run, callbacks=own, nuts_sampler=self.backend, nuts=options)


class Gibbs(Handwritten):
    """The paper's Gibbs steps inside `pm.sample`, with NUTS on variables they leave over.

    Parameters
    ----------
    **settings
        Settings of the algorithm on the model at hand, checked when it is run:
        ``kz.describe(model, "gibbs")`` explains them.

    Notes
    -----
    An implementation is a function (model, run, *, settings) -> list of PyMC step methods.
    """

    name: ClassVar[str] = "Gibbs"
    kind: ClassVar[Kind] = "mcmc"
    stores: ClassVar[bool] = True

    @override
    def sampler_arguments(self) -> frozenset[str]:
        return keywords_of(pm.sample) | {method.name for method in STEP_METHODS}

    @override
    def calibrate(self, model: pm.Model, run: Run) -> Cost:
        with peak_of_memory() as peak:
            steps: Sequence[Any] = self.implement(model, run)
            point = model.initial_point()
            for step in steps:
                step.setup_chain(run.rng(), run.tune, run.draws)
            for step in steps:
                point, _ = step.step(point)

        def sweep() -> None:
            nonlocal point
            for step in steps:
                point, _ = step.step(point)

        seconds, sweeps = timed(sweep)
        total = _in_turn(run) * (run.tune + run.draws) * seconds
        measured = f"{sweeps} sweeps of {seconds:.2g} s each"
        return Cost(total, total, min(_processes(run), run.chains) * peak[0], measured)

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        steps: Sequence[Any] = self.implement(model, run)
        many = run.chains * (run.tune + run.draws) > MANY_DRAWS
        with compiling_with(get_mode("NUMBA")) if many and run.mode is None else nullcontext():
            return _sample(model, run, step=list(steps))


def _prior_population(
    model: pm.Model, draws: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Draws (draw, ...) of the free variables' prior given the data, in unconstrained coordinates.

    What depends on an observed variable is drawn given its value, as the prior density that
    `pm.sample_smc` tempers from has it; PyMC's own starting population simulates the observation.

    All have finite coordinates. Draws that underflow (a Dirichlet weight of exactly zero) have
    none; PyMC's own population keeps them and turns all its weights into NaN. Draws that the data
    rule out stay: the evidence is the mean over the prior.
    """
    drawn = {
        model.rvs_to_values[rv].name: rv
        if (transform := model.rvs_to_transforms[rv]) is None
        else transform.forward(rv, *rv.owner.inputs)
        for rv in model.free_RVs
    }
    data = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    coordinates = clone_replace(list(drawn.values()), data)
    densities = model.compile_fn([model.logp(vars=model.free_RVs), model.logp()])
    kept: list[dict[str, np.ndarray]] = []
    while len(kept) < draws:
        # A single draw would come without its leading axis. Thousands of draws by Python take less
        # time than it takes to compile them.
        values = pm.draw(
            coordinates, max(draws - len(kept), 2), random_seed=rng, mode="FAST_COMPILE"
        )
        points = (dict(zip(drawn, row, strict=True)) for row in zip(*values, strict=True))
        with np.errstate(all="ignore"):
            for point in points:
                prior, posterior = densities(point)
                if np.isfinite(prior) and not np.isnan(posterior):
                    kept.append(point)
    return {name: np.array([point[name] for point in kept[:draws]]) for name in drawn}


@dataclass(frozen=True)
class SMC(Engine):
    """Sequential Monte Carlo from prior to posterior (`pm.sample_smc`).

    Parameters
    ----------
    kernel : {"IMH", "MH"}, default="IMH"
        Independent or random-walk Metropolis-Hastings moves.

    Notes
    -----
    It starts from the prior given the data. `pm.sample_smc` by itself simulates observed variables
    for its start, and is wrong where a free variable depends on one, as K21 on K11 in
    `WishartCompletion`.
    """

    name: ClassVar[str] = "SMC"
    kind: ClassVar[Kind] = "mcmc"

    kernel: Literal["IMH", "MH"] = "IMH"

    def __post_init__(self) -> None:
        check_name(self.kernel, ("IMH", "MH"), "kernel", "SMC")

    @override
    def sampler_arguments(self) -> frozenset[str]:
        kernel = getattr(pm.smc.kernels, self.kernel)
        initialisers = [cls.__init__ for cls in kernel.__mro__[:-2]]
        return keywords_of(pm.sample_smc, *initialisers) - {"start", "kernel"}

    @override
    def serves(self, model: pm.Model) -> int | None:
        return 50

    @override
    def why_not(self, model: pm.Model) -> str | None:
        return None if model.observed_RVs else "the model has no observed variable"

    @override
    def why_not_ended(self) -> str | None:
        return "between prior and posterior it has no draws of the posterior"

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        population = _prior_population(model, run.draws * run.chains, run.rng())
        of_chains = {name: np.split(values, run.chains) for name, values in population.items()}
        tree = pm.sample_smc(
            run.draws,
            start=[
                {name: values[chain] for name, values in of_chains.items()}
                for chain in range(run.chains)
            ],
            kernel=getattr(pm.smc.kernels, self.kernel),
            chains=run.chains,
            cores=run.cores,
            random_seed=run.random_seed,
            progressbar=run.progressbar,
            model=model,
            compile_kwargs=run.compile_kwargs,
            **run.sampler_options,
        )
        with_group(
            tree, "sample_stats", _rectangular(tree["sample_stats"].to_dataset(), run.chains)
        )
        evidence = tree["sample_stats"]["log_marginal_likelihood"].values
        last = [row[np.isfinite(row)][-1] for row in evidence]
        # Each chain's estimate of the evidence is unbiased; that of its logarithm is not.
        tree.attrs["log_evidence"] = float(logsumexp(last) - np.log(len(last)))
        # Particles share ancestors in no particular order: they are no chain, nor independent.
        tree.attrs["independent"] = 0
        _make_lean(tree, model, run)
        tree.attrs["converged"] = _converged(tree, model, run.draws)
        return tree


def _rectangular(stats: Dataset, chains: int) -> Dataset:
    """Statistics by chain and stage: chains take different numbers of stages; NaN pads them.

    Those of a single chain come from PyMC without the dimension of chains.
    """
    columns = {}
    for name, values in stats.data_vars.items():
        of_chains = values.values if chains > 1 else [values.values]
        rows = [np.asarray(row, dtype=float) for row in of_chains]
        table = np.full((chains, max(map(len, rows))), np.nan)
        for padded, row in zip(table, rows, strict=True):
            padded[: len(row)] = row
        columns[name] = (("chain", "stage"), table)
    return Dataset(columns, coords={"chain": np.arange(chains)}, attrs=stats.attrs)
