"""Chains by `pm.sample`, in this process or on the workers of a cluster."""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from inspect import signature
from math import inf
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import NDArray
from pytensor.compile.mode import get_mode
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from xarray import Dataset, DataTree

from ...validation import argument_error, check_name
from .convergence import judge_chains
from .engine import Engine, Run, variables_drawn
from .evaluation import compile_at_point, compiled_by, mode_worth
from .progress import (
    Clock,
    end_of_time,
    interruptible,
    noting_interrupt,
    track,
)
from .result import (
    RunningMoments,
    Store,
    draws_to_keep,
    join_chains,
    moments_dataset,
    moments_of_draws,
    with_group,
)
from .shared_settings import quiet_sampler, settings_kept
from .tasks import Record, active_client, outcomes_of
from .workers import context_of_workers, processes


def run_chains(model: pm.Model, run: Run, *, callbacks: bool = True, **options: Any) -> DataTree:
    """Run `pm.sample`; keep the run's variables and the moments of streamed variables."""
    if clash := sorted(options.keys() & run.sampler_options.keys()):
        raise ValueError(f"The engine itself sets {', '.join(map(repr, clash))} of pm.sample.")
    user = dict(run.sampler_options)
    number = run.chains
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
    kept = run.kept(model)
    streamed = run.streamed(model)
    recorded = kept if callbacks else [*dict.fromkeys([*kept, *streamed])]
    moments = MomentsOfChains(streamed) if streamed and callbacks else None
    store = None
    called = []
    if moments is not None:
        called.append(each_draw(model, streamed, moments.update))
    if run.store is not None:
        if not callbacks:
            raise ValueError("Only PyMC's own samplers write draws to a store: use backend='pymc'.")
        store = Store(run.store, model, kept, number, run.draws)
        called.append(each_draw(model, kept, store.append))
        # PyMC records one variable or more: the smallest.
        point = model.initial_point()
        values = model.rvs_to_values
        sizes = {str(rv.name): np.size(point[values[rv].name]) for rv in model.free_RVs}
        recorded = [min(sizes, key=sizes.__getitem__)]
    if {*recorded} != {*variables_drawn(model)}:
        options["var_names"] = recorded
    # `judge_chains` compares the chains by what the data identify.
    user.setdefault("compute_convergence_checks", False)
    if callbacks:
        at_once = processes(run)
        if at_once > 1:
            user["mp_ctx"] = context_of_workers(user.get("mp_ctx"), theirs)
        end = end_of_time(run.clock, number, in_turn=at_once == 1)
        if (callback := user.pop("callback", None)) is not None:
            called.append(noting_interrupt(callback, run.clock))
        called.append(end)
        options["callback"] = lambda trace, draw: [each(trace=trace, draw=draw) for each in called]
    with compiled_by(mode, model):
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


#: Starts that are rounded to two digits are taken, such as three weights of .33.
TWO_DIGITS = 0.01


def check_initvals(model: pm.Model, initvals: Any) -> None:
    """Raise ValueError unless the values at which chains start are inside their supports."""
    starts = [initvals] if isinstance(initvals, Mapping) else initvals
    if not (
        isinstance(starts, list | tuple) and all(isinstance(s, Mapping | None) for s in starts)
    ):
        rule = "a dict of values by variable, or a list of one for each chain"
        raise argument_error("initvals", "fit", rule, repr(initvals))
    known = {str(rv.name): rv for rv in model.free_RVs}
    # PyMC also takes the transformed values.
    known |= {str(model.rvs_to_values[rv].name): rv for rv in model.free_RVs}
    for start in filter(None, starts):
        given = {str(getattr(key, "name", key)): value for key, value in start.items()}
        for name in given:
            check_name(name, known, "initvals", "fit")
        # PyMC also takes variables, and the words for its own starting points.
        numbers = {n: np.asarray(v) for n, v in given.items() if not isinstance(v, str | Variable)}
        _check_supports(model, {name: (known[name], value) for name, value in numbers.items()})


def _check_supports(model: pm.Model, given: Mapping[str, tuple[Any, NDArray]]) -> None:
    """Raise unless values of some variables, by name, have a density, others at the model's start.

    Names may be those of transformed values.
    """
    constants: dict[Any, Any] = {}
    terms: list[Any] = []
    for name, (rv, value) in given.items():
        transform = model.rvs_to_transforms[rv]
        like = rv if name == rv.name else model.rvs_to_values[rv]
        try:
            exact = np.array_equal(value, value.astype(like.dtype), equal_nan=True)
            number = like.type.filter_variable(pt.as_tensor(value.astype(like.dtype)))
            # A value is in the support if the transform maps it to numbers and back to itself: at
            # an edge the density may be finite, and PyMC rescales simplices without a word.
            start = number
            x = number
            if transform is not None:
                forth = transform.forward
                back = transform.backward
                start = forth(number, *rv.owner.inputs) if like is rv else number
                x = rv.type.filter_variable(back(start, *rv.owner.inputs))
            constants[rv] = number if like is rv else x
            off = pt.max(pt.abs(x - constants[rv]) / (1 + pt.abs(x))) if value.size else 0.0
            terms += [pm.logp(rv, constants[rv]).sum(), start.sum(), off]
        except (TypeError, ValueError):
            exact = False
        if not exact:
            rule = f"numbers of the kind and shape of {name}"
            raise argument_error("initvals", "fit", rule, reprlib.repr(value.tolist()))
    terms = [pt.as_tensor(term) for term in terms]
    terms = model.replace_rvs_by_values(graph_replace(terms, constants, strict=False))
    point = model.initial_point()
    found = compile_at_point(model, model.value_vars, terms)(
        *(point[value.name] for value in model.value_vars)
    )
    for (name, (_, value)), numbers in zip(given.items(), np.reshape(found, (-1, 3)), strict=True):
        if not (np.isfinite(numbers).all() and numbers[2] < TWO_DIGITS):
            rule = f"inside the support of {name}"
            raise argument_error("initvals", "fit", rule, reprlib.repr(value.tolist()))


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
        numbers = sorted(self.chains)
        each = [
            moments_dataset(model, {name: (x.mean, x.sd) for name, x in self.chains[chain].items()})
            for chain in numbers
        ]
        counts = [self.chains[chain][self.names[0]].count for chain in numbers]
        joined = xr.concat(each, "chain", data_vars="all", coords="minimal", compat="override")
        return joined.assign_coords(chain=numbers, draws=("chain", counts))


def make_lean(tree: DataTree, model: pm.Model, run: Run) -> None:
    """Drop the draws that the run does not keep; add the moments of the streamed variables."""
    posterior = tree["posterior"].to_dataset()
    if streamed := run.streamed(model):
        with_group(tree, "moments", moments_of_draws(posterior[streamed]))
    if dropped := set(posterior.data_vars) - set(run.kept(model)):
        with_group(tree, "posterior", posterior.drop_vars(dropped))


def has_workers(run: Run) -> bool:
    """Whether chains go to the workers of an active cluster; one process writes a store."""
    several = run.chains > 1 and run.chain is None and run.store is None
    return several and active_client() is not None


def sample_on_workers(engine: Engine, model: pm.Model, run: Run) -> DataTree:
    """Join chains from the workers of the active cluster; Ctrl-C keeps the finished ones."""
    for name in ("callback", "trace"):
        if name in run.sampler_options:
            rule = "left out while chains run on the workers of a cluster"
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
    with interruptible(engine.name, run.clock), quiet_sampler(), settings_kept():
        tree = engine.run(model, run)
    return {"tree": tree, "ended": run.clock.ended}


def _joined(trees: Mapping[int, DataTree]) -> DataTree:
    """Join chains, cut to `draws_to_keep`, and the moments of all of them, by their numbers."""
    draws = draws_to_keep([tree["posterior"].sizes["draw"] for tree in trees.values()])
    long = [tree for tree in trees.values() if tree["posterior"].sizes["draw"] >= draws]
    joined = DataTree()
    for name in map(str, long[0].children):
        of = trees.values() if name == "moments" else long
        data = join_chains([tree[name].to_dataset() for tree in of])
        if name == "moments":
            data = data.assign_coords(chain=list(trees))
        with_group(joined, name, data)
    return joined


# Arguments of `fit` itself, and arguments with which `fit` could not make a result.
_TAKEN = {
    *("draws", "tune", "chains", "cores", "random_seed", "progressbar", "model", "self"),
    *("return_inferencedata", "nuts_sampler_kwargs", "backend"),
}


def keywords_of(*functions: Callable[..., Any]) -> frozenset[str]:
    """Names of the arguments of functions, without those that `fit` sets itself."""
    every = [p for function in functions for p in signature(function).parameters.values()]
    named = {p.name for p in every if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return frozenset(named - _TAKEN)
