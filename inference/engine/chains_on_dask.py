"""Chains as tasks on the workers of a Dask cluster, and the result that joins them."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import pymc as pm
import xarray as xr
from xarray import DataTree

from ...user_warnings import warn_user
from ...validation import argument_error
from .clock import Clock, quiet_sampler, track
from .compilation import compiling_with, python_mode
from .convergence import judge_chains
from .engine import Engine, Run
from .replicate import active_client, completed, count_workers
from .result import joined_turns, with_group

__all__ = ["has_workers", "sample_on_workers"]

MOMENTS = "moments"


def has_workers(run: Run) -> bool:
    """Whether the chains of a run go to the workers of an active Dask client.

    A store is written by one process: with one, chains run on this machine.
    """
    several = run.chains > 1 and run.chain is None and run.store is None
    return several and active_client() is not None


def sample_on_workers(engine: Engine, model: pm.Model, run: Run) -> DataTree:
    """Run an engine's chains on the workers of the active Dask client; join those that finish."""
    client = active_client()
    assert client is not None
    workers = count_workers(client)
    for name in ("callback", "trace"):
        if name in run.sampler_options:
            rule = "left out while a Dask client is active: chains run on its workers"
            raise argument_error(name, "fit", rule, repr(run.sampler_options[name]))
    turns = -(-run.chains // workers)
    seconds = None if run.clock.seconds is None else run.clock.share(turns - 1).seconds
    found, failures = _sampled(_Chain(engine, model, run, seconds), run)
    if not found:
        raise RuntimeError(f"No chain was sampled. The first error: {failures[min(failures)]}")
    run.clock.ended = any(ended for _, ended in found.values())
    trees = {chain: tree for chain, (tree, _) in sorted(found.items())}
    joined = _joined(trees)
    judge_chains(joined, model, run)
    if failures:
        chains_of: dict[str, list[str]] = {}
        for chain, error in sorted(failures.items()):
            chains_of.setdefault(error, []).append(str(chain))
        listed = "; ".join(f"chain {', '.join(by)}: {error}" for error, by in chains_of.items())
        note = f"{len(failures)} of {run.chains} chains failed. {listed}"
        joined.attrs |= {"converged": "no", "note": note}
        warn_user(note)
    return joined


@dataclass(frozen=True)
class _Chain:
    """Task that samples the chain of a number, in so many seconds."""

    engine: Engine
    model: pm.Model
    run: Run
    seconds: float | None

    def __call__(self, number: int) -> Mapping[str, Any]:
        run = replace(self.run, chain=number, cores=1, progressbar=False, clock=Clock(self.seconds))
        with quiet_sampler(), compiling_with(run.mode or python_mode()):
            tree = self.engine.run(self.model, run)
        return {"tree": tree, "ended": run.clock.ended}


type Found = tuple[dict[int, tuple[DataTree, bool]], dict[int, str]]


def _sampled(task: _Chain, run: Run) -> Found:
    """Sample all chains; return results, and whether time ended them, and errors, by chain.

    Ctrl-C, and a cluster that is lost, keep the chains that are finished.
    """
    found: dict[int, tuple[DataTree, bool]] = {}
    failures: dict[int, str] = {}
    try:
        with (
            track(run.chains, "Chains", visible=run.progressbar) as bar,
            closing(completed(task, range(run.chains), 1, "fit")) as outcomes,
        ):
            for chain, outcome in outcomes:
                if "error" in outcome:
                    failures[chain] = outcome["error"]
                else:
                    found[chain] = outcome["tree"], outcome["ended"]
                bar.advance(failed=str(len(failures)))
    except (KeyboardInterrupt, ConnectionError, ChildProcessError) as error:
        if not found:
            raise
        if not isinstance(error, KeyboardInterrupt):
            left = {*range(run.chains)} - found.keys() - failures.keys()
            failures |= dict.fromkeys(left, f"{type(error).__name__}: {error}")
    return found, failures


def _joined(trees: Mapping[int, DataTree]) -> DataTree:
    """Join chains and their moments."""
    moments = [
        tree[MOMENTS].to_dataset().assign_coords(chain=[chain])
        for chain, tree in trees.items()
        if MOMENTS in tree.children
    ]
    joined = joined_turns(
        [tree.filter(lambda node: node.name != MOMENTS) for tree in trees.values()]
    )
    if moments:
        with_group(joined, MOMENTS, xr.concat(moments, "chain", data_vars="minimal"))
    return joined
