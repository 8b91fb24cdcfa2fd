"""Chains: `pm.sample` for those of this process, and those on a Dask cluster."""

from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import replace
from functools import cache, partial
from math import inf
from multiprocessing.context import BaseContext
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from pymc.sampling.parallel import _cpu_count, _initialize_multiprocessing_context
from pytensor.compile.mode import get_mode
from xarray import DataTree

from ...validation import argument_error
from .clock import Clock, EndOfTime
from .convergence import is_monitored, judge_chains
from .engine import Engine, Run
from .evaluation import compiling_with, mode_worth, python_mode
from .moments import EachDraw, MomentsOfChains, moments_of_draws
from .progress import quiet_sampler, track
from .result import draws_to_keep, with_group
from .store import Store
from .tasks import Record, active_client, outcomes_of


def run_chains(model: pm.Model, run: Run, *, callbacks: bool = True, **options: Any) -> DataTree:
    """Run `pm.sample`; keep the run's variables and the moments of streamed variables.

    Samplers without callbacks keep the streamed variables' draws until their moments are known.
    """
    clash = sorted(options.keys() & run.sampler_options.keys())
    if clash:
        raise ValueError(f"The engine itself sets {', '.join(map(repr, clash))} of pm.sample.")
    user = dict(run.sampler_options)
    if run.chain is not None and isinstance(user.get("initvals"), list | tuple):
        user["initvals"] = [user["initvals"][run.chain]]
    seed: Any = run.random_seed
    number = run.chains if run.chain is None else 1
    if run.chain is not None:
        # PyMC spawns a generator for each chain: those before this chain's are left out.
        seed = np.random.default_rng(seed)
        seed.spawn(run.chain)
    # The graph of the recorded variables is evaluated once per draw.
    theirs = (user.get("compile_kwargs") or {}).get("mode")
    mode = get_mode(theirs) if theirs else mode_worth(run.chains * (run.tune + run.draws))
    kept, streamed = run.kept(model), run.streamed(model)
    recorded = kept if callbacks else [*dict.fromkeys([*kept, *streamed])]
    moments = MomentsOfChains(streamed) if streamed and callbacks else None
    store, each_draw = None, []
    if moments is not None:
        each_draw.append(EachDraw(model, streamed, moments.update))
    if run.store is not None:
        if not callbacks:
            raise ValueError("Only PyMC's own samplers write draws to a store: use backend='pymc'.")
        store = Store(run.store, model, kept, number, run.draws)
        each_draw.append(EachDraw(model, kept, store.append))
        recorded = [_smallest(model)]
    if set(recorded) != {str(v.name) for v in (*model.free_RVs, *model.deterministics)}:
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
        end = EndOfTime(run.clock, number, in_turn=at_once == 1)
        called = [*each_draw, *filter(None, [user.pop("callback", None)]), end]
        options["callback"] = lambda trace, draw: [each(trace=trace, draw=draw) for each in called]
    with (
        model,
        compiling_with(mode),
        run.clock.explained("for at least one draw after tuning: raise it, or lower tune"),
    ):
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
    with quiet_sampler(), compiling_with(python_mode()):
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
