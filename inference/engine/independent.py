"""Results of independent draws."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.pytensorf import join_nonshared_inputs
from pymc.util import is_transformed_name
from xarray import DataTree

from .engine import Run, coordinates
from .evaluation import compile_deterministics, python_mode
from .groups import compile_densities, density_dataset
from .result import Moments, RunningMoments, Store, draws_to_tree, moments_dataset, with_group

# Bytes of the draws that are held at once.
BLOCK_BYTES = 1 << 27
# Draws that are evaluated at once: an interrupt loses at most one part.
DRAWS_OF_PART = 1000


def independent_draws(
    model: pm.Model,
    run: Run,
    sample: Callable[[int, np.random.Generator], Any],
    moments: Mapping[str, Moments] | None = None,
    tails: Mapping[str, float | NDArray] | None = None,
    *,
    exact: bool = False,
    with_draws: Collection[str] = (),
) -> DataTree:
    """Draw, keep the variables of the run, and accumulate moments of the streamed variables.

    `sample` gives draws of every free variable and of the deterministic variables `with_draws`, and
    of an approximation their log density with them; log densities of `exact` draws are not
    evaluated. Variables with known `moments` are not accumulated, and accumulated moments that
    `tails` calls infinite are NaN; see `ExactOutput`.
    """
    kept = run.kept(model)
    streamed = run.streamed(model)
    known = dict(moments or {})
    if run.moments is not None:
        known = {name: known[name] for name in run.moments if name in known}
        streamed = [name for name in streamed if name not in known]
    elif moments is not None:
        streamed = []
    deterministics = {str(variable.name) for variable in model.deterministics} - {*with_draws}
    derive = compile_deterministics(model, sorted(deterministics.intersection({*kept, *streamed})))
    densities = None if exact else compile_densities(model)
    running = {name: RunningMoments() for name in streamed}
    store = None if run.store is None else Store(run.store, model, kept, 1, run.draws)
    parts: list[tuple[dict[str, NDArray], ...]] = []
    left = run.draws
    with run.track(run.draws, "Independent draws") as bar:
        try:
            for part, log_q in _parts(model, run, sample, exact=exact):
                part |= derive(part)
                stats = {}
                likelihoods = {}
                if densities is not None:
                    joint, observed = densities(part)
                    stats = {"lp": joint, "lq": log_q}
                    likelihoods = observed if run.log_likelihood else {}
                for name, accumulated in running.items():
                    accumulated.update(part[name])
                # One step: what an interrupt leaves is whole.
                here = {} if store else {name: part[name] for name in kept}
                parts.append((here, stats, likelihoods))
                if store is not None:
                    store.append(0, part)
                number = len(next(iter(part.values())))
                left -= number
                bar.advance(number)
        except KeyboardInterrupt:
            if not parts or (store is not None and not store.counts.any()):
                raise
    posterior, stats, likelihoods = map(_joined, zip(*parts, strict=True))
    tree = draws_to_tree(model, posterior, stats)
    if store is not None:
        with_group(tree, "posterior", store.dataset())
    if likelihoods:
        dataset = density_dataset(model, likelihoods, tree["posterior"].to_dataset())
        with_group(tree, "log_likelihood", dataset)
    for name, entry in running.items():
        exists = np.asarray((tails or {}).get(name, np.inf))
        mean = np.where(exists > 1, entry.mean, np.nan)
        sd = np.where(exists > 2, entry.sd, np.nan)
        known[name] = mean, sd
    if known:
        with_group(tree, "moments", moments_dataset(model, known))
    tree.attrs["independent"] = 1
    if left:
        tree.attrs["converged"] = "no"
    return tree


def _parts(
    model: pm.Model, run: Run, sample: Callable[[int, np.random.Generator], Any], *, exact: bool
) -> Iterator[tuple[dict[str, NDArray], Any]]:
    """Give checked draws of every free variable in parts, and log q of those not `exact`."""
    # The second stream: the algorithm may have used the seed's first one.
    rng = run.rng(1)
    free = [str(rv.name) for rv in model.free_RVs]
    block = max(1, BLOCK_BYTES // (8 * max(1, coordinates(model))))
    for begun in range(0, run.draws, block):
        size = min(run.draws - begun, block)
        drawn = sample(size, rng)
        draws, log_q = (drawn, None) if exact else drawn
        if not isinstance(draws, Mapping):
            got = f"a {type(draws).__name__}"
            raise ValueError(f"'sample' must return a dict of draws, and of VB log q. Got {got}.")
        for name in free:
            given = np.asarray(draws.get(name, ()))
            if given.shape[:1] != (size,) or np.isnan(given).any():
                rule = f"must return {size} draws of {name!r}, without NaN, along the first axis"
                got = "NaN" if np.isnan(given).any() else f"shape {given.shape} among {[*draws]}"
                raise ValueError(f"'sample' {rule}. Got {got}.")
        if log_q is not None and np.shape(log_q) != (size,):
            got = f"shape {np.shape(log_q)}"
            raise ValueError(f"'sample' must return {size} log densities of its draws. Got {got}.")
        for first in range(0, size, DRAWS_OF_PART):
            part = slice(first, first + DRAWS_OF_PART)
            values = {name: array[part] for name, array in draws.items()}
            yield values, None if log_q is None else log_q[part]


def _joined(parts: Sequence[Mapping[str, NDArray]]) -> dict[str, NDArray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def lean_tree(
    model: pm.Model, run: Run, draws: Mapping[str, NDArray], sample_stats: Mapping[str, NDArray]
) -> DataTree:
    """Tree of the kept variables' draws (draw, ...) and the streamed variables' moments."""
    tree = draws_to_tree(model, {name: draws[name] for name in run.kept(model)}, sample_stats)
    moments = {
        name: (draws[name].mean(0), draws[name].std(0, ddof=1)) for name in run.streamed(model)
    }
    return with_group(tree, "moments", moments_dataset(model, moments)) if moments else tree


def constrained_draws(model: pm.Model, points: NDArray) -> tuple[dict[str, NDArray], NDArray]:
    """Free variables, deterministics and log density at unconstrained points (draw, D)."""
    outputs = [v for v in model.unobserved_value_vars if not is_transformed_name(v.name)]
    graph, joined = join_nonshared_inputs(
        model.initial_point(), [*outputs, model.logp(jacobian=True)], model.continuous_value_vars
    )
    evaluate = pm.compile([joined], graph, mode=python_mode(), trust_input=True)
    *columns, log_density = map(np.array, zip(*map(evaluate, points), strict=True))
    return dict(zip([v.name for v in outputs], columns, strict=True)), log_density
