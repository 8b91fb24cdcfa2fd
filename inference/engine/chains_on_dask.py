"""Chains as tasks on the workers of a Dask cluster, and the result that joins them."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from typing import Any

import pymc as pm
import xarray as xr
from xarray import Dataset, DataTree

from ...user_warnings import warn_user
from ...validation import argument_error
from .clock import Clock, quiet_sampler, track
from .compilation import compiling_with, python_mode
from .convergence import judge_chains
from .draws_on_disk import CHUNKS, DrawsOnDisk, check_store, open_store
from .engine import Engine, Run
from .replicate import active_client, completed, count_workers
from .result import joined_turns, with_group

__all__ = ["has_workers", "sample_on_workers"]

MOMENTS, POSTERIOR = "moments", "posterior"


def has_workers(run: Run) -> bool:
    """Whether the chains of a run go to the workers of an active Dask client."""
    return run.chains > 1 and run.chain is None and active_client() is not None


def sample_on_workers(engine: Engine, model: pm.Model, run: Run) -> DataTree:
    """Run an engine's chains on the workers of the active Dask client; join those that finish."""
    client = active_client()
    assert client is not None
    workers = count_workers(client)
    for name in ("callback", "trace"):
        if name in run.sampler_options:
            rule = "left out while a Dask client is active: chains run on its workers"
            raise argument_error(name, "fit", rule, repr(run.sampler_options[name]))
    if run.store is not None:
        check_store(_folder(run.store), "fit")
        if run.clock.seconds is not None:
            rule = "left out with a store on a Dask cluster"
            raise argument_error("max_seconds", "fit", rule, f"{run.clock.seconds:g}")
    turns = -(-run.chains // workers)
    seconds = None if run.clock.seconds is None else run.clock.share(turns - 1).seconds
    found, failures = _sampled(_Chain(engine, model, run, seconds), run)
    if not found:
        raise RuntimeError(f"No chain was sampled. The first error: {failures[min(failures)]}")
    run.clock.ended = any(ended for _, ended in found.values())
    trees = {chain: tree for chain, (tree, _) in sorted(found.items())}
    joined = _joined(trees, model, run)
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
        if run.store is not None:
            run = replace(run, store=_part(run.store, number))
        with quiet_sampler(), compiling_with(run.mode or python_mode()):
            tree = self.engine.run(self.model, run)
        if run.store is not None:
            # The draws stay in the store.
            with_group(tree, POSTERIOR, tree[POSTERIOR].to_dataset()[["chain", "draw"]])
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


def _joined(trees: Mapping[int, DataTree], model: pm.Model, run: Run) -> DataTree:
    """Join chains, those of a store by way of a store of all."""
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
    if run.store is not None:
        with_group(joined, POSTERIOR, _one_store([*trees], model, run, run.store))
    return joined


def _one_store(chains: list[int], model: pm.Model, run: Run, path: Path) -> Dataset:
    """Copy the draws of the chains' stores into one, block by block, and remove these stores."""
    store = DrawsOnDisk(path, model, run.kept(model), len(chains), run.draws)
    block = max(1, run.draws // CHUNKS)
    with closing(store):
        for number, chain in enumerate(chains):
            if not (part := _part(path, chain)).exists():
                raise FileNotFoundError(
                    f"The store of chain {chain} is not in {part.parent}: this process and the "
                    "workers must share the folder of a store."
                )
            draws = open_store(part)[POSTERIOR].to_dataset().isel(chain=0)
            for first in range(0, draws.sizes["draw"], block):
                rows = draws.isel(draw=slice(first, first + block))
                store.append(number, {str(name): rows[name].to_numpy() for name in rows})
    for chain in chains:
        rmtree(_part(path, chain))
    # Stores of unfinished chains remain.
    if not any(_folder(path).iterdir()):
        _folder(path).rmdir()
    return store.dataset()


def _folder(store: Path) -> Path:
    """Folder of the chains' stores."""
    return store.with_name(f"{store.name}-chains")


def _part(store: Path, chain: int) -> Path:
    return _folder(store) / f"{chain}.zarr"
