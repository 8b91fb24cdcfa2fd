"""Chains: where they begin, `pm.sample` for those of this process, and those on a Dask cluster."""

from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import replace
from functools import cache, partial
from math import inf
from multiprocessing.context import BaseContext
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from pymc.sampling.parallel import _cpu_count, _initialize_multiprocessing_context
from pytensor.tensor import TensorVariable
from xarray import DataArray, Dataset, DataTree

from ...validation import argument_error
from .clock import Clock, EndOfTime
from .compilation import compiling_with, mode_worth, python_mode
from .convergence import is_monitored, judge_chains
from .engine import Engine, Run
from .moments import EachDraw, MomentsOfChains, moments_of_draws
from .progress import quiet_sampler, track
from .result import draws_to_keep, with_group
from .store import Store
from .tasks import Record, active_client, outcomes_of

__all__ = [
    "chains_in_turn",
    "check_main_guard",
    "has_workers",
    "initial_values",
    "make_lean",
    "mean_and_spread",
    "run_chains",
    "sample_on_workers",
]


def run_chains(model: pm.Model, run: Run, *, callbacks: bool = True, **options: Any) -> DataTree:
    """Run `pm.sample`; keep the run's variables and the moments of streamed variables.

    Samplers without callbacks keep the streamed variables' draws until their moments are known.
    """
    if run.start is not None:
        if "initvals" in run.sampler_options:
            raise ValueError("fit takes either 'start' or 'initvals', not both.")
        options["initvals"] = initial_values(run.start, model, run.chains, run.rng(2))
        # PyMC would move the points at random by up to 1 in each unconstrained coordinate.
        own_matrix = options.get("nuts_sampler") == "pymc" and "step" not in options
        if own_matrix and "init" not in run.sampler_options:
            options["init"] = "adapt_diag"
    clash = sorted(options.keys() & run.sampler_options.keys())
    if clash:
        raise ValueError(f"The engine itself sets {', '.join(map(repr, clash))} of pm.sample.")
    user = dict(run.sampler_options)
    for given in (options, user):
        if run.chain is not None and isinstance(given.get("initvals"), list | tuple):
            given["initvals"] = [given["initvals"][run.chain]]
    kept, streamed = run.kept(model), run.streamed(model)
    recorded = kept if callbacks else [*dict.fromkeys([*kept, *streamed])]
    moments = MomentsOfChains(streamed) if streamed and callbacks else None
    store, each_draw = None, []
    if moments is not None:
        each_draw.append(EachDraw(model, streamed, moments.update))
    if run.store is not None:
        if not callbacks:
            raise ValueError("Only PyMC's own samplers write draws to a store: use backend='pymc'.")
        store = Store(run.store, model, kept, len(run.numbers), run.draws)
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
        end = EndOfTime(run.clock, len(run.numbers), in_turn=at_once == 1)
        called = [*each_draw, *filter(None, [user.pop("callback", None)]), end]
        options["callback"] = lambda trace, draw: [each(trace=trace, draw=draw) for each in called]
    with (
        model,
        # The graph of the recorded variables is evaluated once per draw.
        compiling_with(run.mode or mode_worth(run.chains * (run.tune + run.draws))),
        run.clock.explained("for at least one draw after tuning: raise it, or lower tune"),
    ):
        tree = pm.sample(
            run.draws,
            tune=run.tune,
            chains=len(run.numbers),
            cores=run.cores,
            random_seed=run.random_seed if run.chain is None else _generator(run, run.chain),
            progressbar=run.progressbar,
            compile_kwargs=run.compile_kwargs(inf),
            **options,
            **user,
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


def _generator(run: Run, first: int) -> np.random.Generator:
    """Make the generator for chains from this number on: PyMC spawns one for each chain."""
    rng = np.random.default_rng(run.random_seed)
    rng.spawn(first)
    return rng


def _processes(run: Run) -> int:
    """Chains that run at once: `cores`, or PyMC's default."""
    return min(run.cores or min(4, max(1, _cpu_count())), len(run.numbers))


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
        with_group(tree, "moments", moments_of_draws(model, posterior[streamed]))
    if dropped := set(posterior.data_vars) - set(run.kept(model)):
        with_group(tree, "posterior", posterior.drop_vars(dropped))


def initial_values(
    start: DataTree, model: pm.Model, chains: int, rng: np.random.Generator
) -> list[dict[str, NDArray]]:
    """Values of a random draw of a result for each chain, each draw once where there are enough."""
    drawn = _usable(start, model)
    n_usable = len(next(iter(drawn.values())).values)
    chosen = rng.choice(n_usable, size=chains, replace=n_usable < chains)
    return [{name: draws.values[i] for name, draws in drawn.items()} for i in chosen]


def mean_and_spread(start: DataTree, model: pm.Model) -> tuple[NDArray, NDArray]:
    """Mean and standard deviation (D,) of a result's draws, in unconstrained coordinates.

    Variables without draws have their initial value. Deviations of 0 are replaced by 1.
    """
    drawn, point = _usable(start, model), model.initial_point()
    means, deviations = [], []
    for value in model.value_vars:
        draws = drawn.get(str(model.values_to_rvs[value].name))
        moved = point[value.name][None] if draws is None else draws.unconstrained
        means.append(moved.mean(axis=0).ravel())
        deviations.append(moved.std(axis=0).ravel())
    spread = np.concatenate(deviations)
    return np.concatenate(means), np.where(spread > 0, spread, 1.0)


class _Draws(NamedTuple):
    """Draws (draw, ...) of a variable, and the same in unconstrained coordinates."""

    values: NDArray
    unconstrained: NDArray


def _usable(start: DataTree, model: pm.Model) -> dict[str, _Draws]:
    """Draws of the free variables at which all are finite and inside their supports."""
    if not isinstance(start, DataTree):
        raise TypeError(f"The 'start' argument of fit must be a result of fit. Got {type(start)}.")
    own = type(model).__name__
    if (theirs := start.attrs.get("model", own)) != own:
        raise argument_error("start", "fit", f"a result of a {own}", f"one of a {theirs}")
    posterior = start["posterior"].to_dataset() if "posterior" in start.children else Dataset()
    drawn = [rv for rv in model.free_RVs if rv.name in posterior]
    if not drawn:
        names = ", ".join(str(rv.name) for rv in model.free_RVs)
        raise argument_error("start", "fit", f"a result with draws of {names}", "none of them")
    found, usable = {}, np.array(True)
    for rv in drawn:
        values = _aligned(posterior[rv.name], model).to_numpy()
        values = values.reshape(-1, *values.shape[2:]).astype(rv.dtype)
        moved = _unconstrained(rv, model.rvs_to_transforms[rv], values)
        inside = np.isfinite(moved).reshape(len(values), -1).all(axis=1)
        if not inside.any():
            rule = f"a result with finite draws inside the support of {rv.name}"
            raise argument_error("start", "fit", rule, "no such draw")
        found[str(rv.name)], usable = _Draws(values, moved), usable & inside
    if not usable.any():
        raise argument_error("start", "fit", "a result with finite draws", "no such draw")
    return {name: _Draws(*(x[usable] for x in draws)) for name, draws in found.items()}


def _unconstrained(rv: TensorVariable, transform: Any, draws: NDArray) -> NDArray:
    """Unconstrained values of draws (draw, ...); not finite outside the support."""
    if transform is None:
        return draws
    with np.errstate(divide="ignore", invalid="ignore"):
        return transform.forward(draws, *rv.owner.inputs).eval(mode=python_mode())


def _aligned(draws: DataArray, model: pm.Model) -> DataArray:
    """Draws (chain, draw, ...) of a variable, in the order of the model's dims and coordinates."""
    if missing := {"chain", "draw"}.difference(draws.dims):
        got = f"{draws.name} without {' and '.join(sorted(missing))}"
        raise argument_error("start", "fit", "a result with the dims chain and draw", got)
    dims = tuple(model.named_vars_to_dims.get(str(draws.name), ()))
    known = set(dims) == set(draws.dims) - {"chain", "draw"}
    order: tuple[Any, ...] = dims if known else (...,)
    draws = draws.transpose("chain", "draw", *order)
    for dim in dims if known else ():
        labels = model.coords.get(dim)
        theirs = draws.indexes.get(dim)
        if labels is None or theirs is None or list(theirs) == list(labels):
            continue
        rule = f"a result on the model's labels of {dim}"
        if absent := [label for label in labels if label not in theirs]:
            got = f"no {absent[0]!r} in {draws.name}"
            raise argument_error("start", "fit", rule, got)
        if not theirs.is_unique:
            repeated = theirs[theirs.duplicated()][0]
            raise argument_error("start", "fit", rule, f"{repeated!r} more than once")
        draws = draws.sel({dim: list(labels)})
    shape = tuple(map(int, model.eval_rv_shapes()[str(draws.name)]))
    if draws.shape[2:] != shape:
        rule = f"a result with {draws.name} of shape {shape}"
        raise argument_error("start", "fit", rule, f"{draws.name} of shape {draws.shape[2:]}")
    return draws


def has_workers(run: Run) -> bool:
    """Whether the chains of a run go to the workers of an active Dask client.

    A store is written by one process: with one, chains run on this machine.
    """
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
    with quiet_sampler(), compiling_with(run.mode or python_mode()):
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
