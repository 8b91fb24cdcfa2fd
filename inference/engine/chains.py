"""Chains by `pm.sample` in this process or on a Dask cluster, and NUTS."""

import logging
import warnings
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.util import find_spec
from inspect import Parameter, signature
from math import inf
from multiprocessing.context import BaseContext
from typing import Any, ClassVar, Literal, override

import numpy as np
import pymc as pm
import xarray as xr
from pymc.sampling.parallel import _cpu_count, _initialize_multiprocessing_context
from pymc.step_methods.hmc.base_hmc import BaseHMC
from pytensor.compile.mode import get_mode
from xarray import DataTree

from ...validation import Count, Fraction, argument_error
from .convergence import is_monitored, judge_chains
from .engine import Engine, Kind, Run, variables_drawn, why_no_gradients
from .evaluation import compiling_with, mode_worth, python_mode
from .progress import Clock, end_of_time, interruptible, quiet_sampler, track
from .result import draws_to_keep, with_group
from .streams import MomentsOfChains, Store, each_draw, moments_of_draws
from .tasks import Record, active_client, outcomes_of


def run_chains(model: pm.Model, run: Run, *, callbacks: bool = True, **options: Any) -> DataTree:
    """Run `pm.sample`; keep the run's variables and the moments of streamed variables.

    Samplers without callbacks keep the streamed variables' draws until their moments are known.
    """
    if clash := sorted(options.keys() & run.sampler_options.keys()):
        raise ValueError(f"The engine itself sets {', '.join(map(repr, clash))} of pm.sample.")
    user, number = dict(run.sampler_options), run.chains
    seed: Any = run.random_seed
    if run.chain is not None:
        number = 1
        if isinstance(user.get("initvals"), list | tuple):
            user["initvals"] = [user["initvals"][run.chain]]
        # PyMC spawns a generator for each chain: those before this chain's are left out.
        seed = np.random.default_rng(seed)
        seed.spawn(run.chain)
    # The graph of the recorded variables is evaluated once per draw.
    theirs = (user.get("compile_kwargs") or {}).get("mode")
    mode = get_mode(theirs) if theirs else mode_worth(run.chains * (run.tune + run.draws))
    kept, streamed = run.kept(model), run.streamed(model)
    recorded = kept if callbacks else [*dict.fromkeys([*kept, *streamed])]
    moments = MomentsOfChains(streamed) if streamed and callbacks else None
    store, called = None, []
    if moments is not None:
        called.append(each_draw(model, streamed, moments.update))
    if run.store is not None:
        if not callbacks:
            raise ValueError("Only PyMC's own samplers write draws to a store: use backend='pymc'.")
        store = Store(run.store, model, kept, number, run.draws)
        called.append(each_draw(model, kept, store.append))
        recorded = [_smallest(model)]
    if {*recorded} != {*variables_drawn(model)}:
        options["var_names"] = recorded
        # PyMC's convergence checks need a recorded free variable.
        if not {rv.name for rv in model.free_RVs} & set(recorded):
            user.setdefault("compute_convergence_checks", False)
    if is_monitored(run):
        user["compute_convergence_checks"] = False
    if callbacks:
        at_once = _processes(run)
        if at_once > 1:
            check_main_guard(user.get("mp_ctx"))
        end = end_of_time(run.clock, number, in_turn=at_once == 1)
        called += [*filter(None, [user.pop("callback", None)]), end]
        options["callback"] = lambda trace, draw: [each(trace=trace, draw=draw) for each in called]
    with model, compiling_with(mode):
        tree = pm.sample(
            run.draws,
            tune=run.tune,
            chains=number,
            cores=run.cores,
            random_seed=seed,
            progressbar=run.progressbar,
            **options,
            **{"compile_kwargs": {"mode": mode_worth(inf)}, **user},
        )
    if store is not None:
        with_group(tree, "posterior", store.dataset())
    if moments is not None and moments.chains:
        with_group(tree, "moments", moments.dataset(model))
    else:
        make_lean(tree, model, run)
    if run.chain is None:
        judge_chains(tree, model, run)
    return tree


@cache
def check_main_guard(mp_ctx: BaseContext | str | None = None) -> None:
    """Raise RuntimeError unless new processes, where they do not fork, can import the main program.

    PyMC would wait for ever for a process that fails to do so to read the model.
    """
    context = _initialize_multiprocessing_context(mp_ctx, quiet=True)
    if context.get_start_method() == "fork":
        return
    trial = context.Process(daemon=True)
    # Within such a program's second run, multiprocessing itself refuses to begin a process.
    with suppress(RuntimeError):
        trial.start()
        trial.join()
    if trial.exitcode != 0:
        raise RuntimeError(
            "This fit runs in processes that import the main program again, which fails. Put what "
            'the program does under if __name__ == "__main__":, or, for engines with chains, pass '
            "cores=1."
        )


def _processes(run: Run) -> int:
    """Chains that run at once: `cores`, or PyMC's default."""
    return min(run.cores or min(4, max(1, _cpu_count())), run.chains)


def chains_in_turn(run: Run) -> int:
    """Chains that one process runs, one after the other."""
    return -(-run.chains // _processes(run))


def _smallest(model: pm.Model) -> str:
    """Name of the free variable that takes the least memory."""
    point = model.initial_point()
    return min(
        (str(rv.name) for rv in model.free_RVs),
        key=lambda name: np.size(point[model.rvs_to_values[model[name]].name]),
    )


def make_lean(tree: DataTree, model: pm.Model, run: Run) -> None:
    """Drop the draws that the run does not keep; add the moments of the streamed variables."""
    posterior = tree["posterior"].to_dataset()
    if streamed := run.streamed(model):
        with_group(tree, "moments", moments_of_draws(posterior[streamed]))
    if dropped := set(posterior.data_vars) - set(run.kept(model)):
        with_group(tree, "posterior", posterior.drop_vars(dropped))


def has_workers(run: Run) -> bool:
    """Whether chains go to the workers of an active Dask client; one process writes a store."""
    several = run.chains > 1 and run.chain is None and run.store is None
    return several and active_client() is not None


def sample_on_workers(engine: Engine, model: pm.Model, run: Run) -> DataTree:
    """Run an engine's chains on the workers of the active Dask client, and join them.

    Ctrl-C keeps the chains that are finished.
    """
    for name in ("callback", "trace"):
        if name in run.sampler_options:
            rule = "left out while a Dask client is active: chains run on its workers"
            raise argument_error(name, "fit", rule, repr(run.sampler_options[name]))
    client = active_client()
    assert client is not None
    turns = -(-run.chains // max(len(client.nthreads()), 1))
    task = partial(_sample_chain, engine, model, run, run.clock.share(turns - 1).seconds)
    found: dict[int, Record] = {}
    try:
        with (
            track(run.chains, "Chains", visible=run.progressbar) as bar,
            closing(outcomes_of(task, range(run.chains), cores=1)) as outcomes,
        ):
            for chain, outcome in outcomes:
                if "error" in outcome:
                    raise RuntimeError(f"Chain {chain} failed: {outcome['error']}")
                found[chain] = outcome
                bar.advance()
    except KeyboardInterrupt:
        if not found:
            raise
    run.clock.ended = any(outcome["ended"] for outcome in found.values())
    joined = _joined({chain: found[chain]["tree"] for chain in sorted(found)})
    judge_chains(joined, model, run)
    return joined


def _sample_chain(engine: Engine, model: pm.Model, run: Run, seconds: float, number: int) -> Record:
    """Sample the chain with a given number, and end it after `seconds`."""
    run = replace(run, chain=number, cores=1, progressbar=False, clock=Clock(seconds))
    with interruptible(engine.name, run.clock), quiet_sampler(), compiling_with(python_mode()):
        tree = engine.run(model, run)
    return {"tree": tree, "ended": run.clock.ended}


def _joined(trees: Mapping[int, DataTree]) -> DataTree:
    """Join chains, cut to `draws_to_keep` and numbered from 0, and the moments of all of them."""
    draws = draws_to_keep([tree["posterior"].sizes["draw"] for tree in trees.values()])
    long = [tree for tree in trees.values() if tree["posterior"].sizes["draw"] >= draws]
    joined = DataTree()
    for name in long[0].children:
        parts = [tree[name].to_dataset() for tree in long]
        if name == "moments":
            parts = [
                tree[name].to_dataset().assign_coords(chain=[chain])
                for chain, tree in trees.items()
            ]
            data = xr.concat(parts, "chain", data_vars="minimal")
        elif "chain" not in parts[0].dims:
            data = parts[0]
        else:
            if not name.startswith("warmup"):
                parts = [part.isel(draw=slice(draws)) for part in parts]
            data = xr.concat(parts, "chain", data_vars="minimal", combine_attrs="override")
            data = data.assign_coords(chain=np.arange(data.sizes["chain"]))
        with_group(joined, name, data)
    return joined


# Arguments of `fit` itself, and arguments with which `fit` could not make a result.
_TAKEN = frozenset(
    {
        *("draws", "tune", "chains", "cores", "random_seed", "progressbar", "model", "self"),
        *("return_inferencedata", "nuts_sampler_kwargs", "backend"),
    }
)


def keywords_of(*functions: Callable[..., Any]) -> frozenset[str]:
    """Names of the arguments of functions, without those that `fit` sets itself."""
    named = {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}
    return frozenset(
        parameter.name
        for function in functions
        for parameter in signature(function).parameters.values()
        if parameter.kind in named and parameter.name not in _TAKEN
    )


# Arguments that `pm.sample` passes on to NUTS if it is the only step; it sets the excluded ones.
_OF_NUTS = keywords_of(pm.NUTS.__init__, BaseHMC.__init__) - {
    *("vars", "blocked", "potential", "rng", "initial_point")
}


# Processor seconds by which a first run exceeds a second one on each model's smallest example
# (`benchmarks cold`): from 8 for the composite kernels to 24 for WishartKernelMixture.
COMPILING = "Compiling the gradient: 10 to 30 s for a new structure of model, about 1 s otherwise"


@dataclass(frozen=True)
class NUTS(Engine):
    """No-U-turn sampler on the declaration.

    Parameters
    ----------
    backend : {"pymc", "nutpie", "numpyro"}, default="pymc"
        Implementation. numpyro runs on the device that JAX finds, a GPU before the processor.
    target_accept : float, default=0.9
        Target of the step-size adaptation, between 0 and 1.
    max_treedepth : int, default=10
        Largest number of doublings of a trajectory.

    Examples
    --------
    >>> nuts = kz.fit(model, kz.NUTS(target_accept=0.95), chains=2, random_seed=1)
    """

    name: ClassVar[str] = "NUTS"
    kind: ClassVar[Kind] = "mcmc"
    largest: ClassVar[int | None] = 2_000
    limits: ClassVar[str] = "compiles the gradient for 10 to 30 s first; chains may miss modes"
    stores: ClassVar[bool] = True

    backend: Literal["pymc", "nutpie", "numpyro"] = "pymc"
    target_accept: Fraction = 0.9
    max_treedepth: Count = 10

    @override
    def sampler_arguments(self) -> frozenset[str]:
        known = keywords_of(pm.sample) | {"nuts"}
        return known | _OF_NUTS if self.backend == "pymc" else known

    @override
    def why_no_time_limit(self) -> str | None:
        if self.backend == "pymc":
            return None
        return f"{self.backend} calls nothing between draws: use backend='pymc'"

    @override
    def why_not(self, model: pm.Model) -> str | None:
        if find_spec(self.backend) is None:
            extra = "jax" if self.backend == "numpyro" else self.backend
            return f"the package {self.backend} is not installed (pip install kernelzoo[{extra}])"
        return why_no_gradients(model)

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        own = self.backend == "pymc"
        if own and has_workers(run):
            return sample_on_workers(self, model, run)
        depth = "max_tree_depth" if self.backend == "numpyro" else "max_treedepth"
        options: dict[str, Any] = {"target_accept": self.target_accept, depth: self.max_treedepth}
        if own and run.progressbar and "compile_kwargs" not in run.sampler_options:
            logging.getLogger("pymc").info(COMPILING)
        with warnings.catch_warnings():
            # PyTensor then keeps two loops, because one would take too many arguments.
            warnings.filterwarnings("ignore", "Loop fusion failed")
            return run_chains(model, run, callbacks=own, nuts_sampler=self.backend, nuts=options)
