"""`fit` checks its arguments, runs an engine on a model and stamps the result."""

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from inspect import signature
from math import inf
from multiprocessing import current_process
from os import PathLike
from typing import Any

import pymc as pm
from xarray import DataTree

from ...models.declaration import source_of
from ...models.kernels.source import CompletedRows
from ...user_warnings import numpy_warnings, warn_user
from ...validation import (
    Count,
    CountOrZero,
    Positive,
    Seed,
    argument_error,
    check_arguments,
    check_names,
    integer_seed,
)
from .chains import check_initvals
from .completions import fit_each_completion
from .convergence import (
    is_unreliable,
    k_hat_of,
    note_of_poor_approximation,
    warn_of_poor_approximation,
)
from .engine import Engine, Run, applicable, coordinates, engines_for, variables_drawn
from .groups import densities_of, why_no_log_likelihood
from .paper import paper_with
from .progress import Clock, can_show, interruptible
from .result import check_store, stamp, with_group
from .shared_settings import BlasLimits, settings_kept


def fit(
    model: pm.Model,
    engine: str | Engine | None = None,
    *,
    draws: Count = 1000,
    tune: CountOrZero = 1000,
    chains: Count = 4,
    cores: Count | None = None,
    random_seed: Seed = None,
    progressbar: bool = True,
    var_names: Sequence[str] | None = None,
    moments: Sequence[str] | None = None,
    store: str | PathLike[str] | None = None,
    log_likelihood: bool = True,
    max_seconds: Positive | None = None,
    blas_threads: Count | None = 1,
    **sampler_options: Any,
) -> DataTree:
    """Infer a model with an engine.

    Parameters
    ----------
    model : pm.Model
        A model of this package, or any PyMC model for the generic engines.
    engine : Engine or str, optional
        An engine such as ``VB()`` or ``NUTS(backend="nutpie")``, or its name. Default: the one that
        `recommend` names.
    draws : int, default=1000
        Draws per chain; for engines without chains, number of independent draws.
    tune, chains, cores : int
        As in ``pm.sample``; engines without chains ignore them. While a ``dask.distributed.Client``
        is active in this process, chains of Gibbs and of PyMC's NUTS run on its workers.
    random_seed : int, SeedSequence or Generator, optional
        Seed. The integer used, by default a new one, is the attribute ``random_seed`` of the result
        and repeats it.
    progressbar : bool, default=True
        Show progress, in a terminal or notebook.
    var_names : sequence of str, optional
        Variables whose draws are kept. Default: all but the large ones (attribute ``large`` of the
        model), whose means and standard deviations are in the group ``moments``.
    moments : sequence of str, optional
        Variables whose means and standard deviations are accumulated draw by draw, NaN where they
        are known to be infinite. Default: the model's list; a shorter one saves time.
    store : path, optional
        New folder, for PyMC's NUTS, Gibbs and Exact on this machine, to which kept draws are
        written as they are made, as ``NAME.npy`` (chain, draw, ...). After an error or a kill,
        ``counts`` says how many draws of each chain they hold.
    log_likelihood : bool, default=True
        Add the group ``log_likelihood`` for ``az.loo``, if draws of all free variables are kept in
        memory. ``kz.extend(model, result, "log_likelihood")`` says why it is missing.
    max_seconds : float, optional
        End the engine after this time, and keep its draws or its last iteration, with ``converged``
        "no" and the attributes ``ended_by`` and ``note``. Compilation counts but is not
        interrupted. Not for SMC, Pathfinder, Laplace and NUTS by nutpie or numpyro.
    blas_threads : int or None, default=1
        Threads of BLAS while the engine runs in this process; None leaves them unchanged.
    **sampler_options
        Further arguments of ``pm.sample`` (``initvals``, ``callback``, ``compile_kwargs``, ...) or
        ``pm.sample_smc``, for the engines of kind "mcmc"; unknown arguments raise ValueError.

    Returns
    -------
    DataTree
        ArviZ layout: ``posterior``, ``sample_stats``, ``observed_data``, ``constant_data``,
        ``log_likelihood``; deterministic engines add ``variational`` or ``point``, and
        ``trajectory`` with the objective by iteration. The attributes name the engine, its kind and
        settings, the seed, seconds, convergence ("yes", "no", "unknown") and versions. Of
        approximations the search has converged (the bound, or the mode): whether their draws are
        reliable is what ``pareto_k`` says, and ``note`` where it is above 0.7. Interrupted
        chains are kept as ``pm.sample`` keeps them; ``moments`` use all draws of all chains.

        A model of completed kernels (``complete_kernels``) is fitted on each of their draws, and
        the draws are pooled: the coordinate ``completion`` (chain) of the posterior tells them
        apart, and the group ``completions`` has the means and variances within and between them
        (Rubin's rules).

    Raises
    ------
    ValueError
        When the engine does not apply to the model (the message names those that do), when an
        argument is out of range, and when `max_seconds` ended the engine before it had a result.
    RuntimeError
        When a chain failed on a cluster, and when new processes cannot import the main program
        again: what it does belongs under ``if __name__ == "__main__":``.
    KeyboardInterrupt
        When Ctrl-C ended the engine before it had a result. Later, Ctrl-C gives the result so far,
        with ``converged`` "no" and ``ended_by`` "interrupt".

    Warns
    -----
    UserWarning
        When `max_seconds` or Ctrl-C ended the engine.
    ApproximationWarning
        When the attribute ``pareto_k`` is above 0.7: the draws do not represent the posterior.

    Examples
    --------
    >>> vb = kz.fit(model, kz.VB())
    >>> gibbs = kz.fit(model, "gibbs", chains=4, random_seed=1)
    """
    check_arguments(fit, locals())
    engine = applicable(model, engine, "fit")
    _check_lengths(model)
    seed = integer_seed(random_seed, "random_seed", "fit")
    known = variables_drawn(model)
    if paper := paper_with("identified", model):
        check_names(paper.identified_reads, known, "identified_reads", "Paper")
    if var_names is not None:
        var_names = tuple(check_names(var_names, known, "var_names", "fit"))
        if not var_names:
            raise argument_error("var_names", "fit", "one name or more", "none")
    if moments is not None:
        if engine.kind == "point":
            rule = f"left out for {engine.name}, whose result is a single point"
            raise argument_error("moments", "fit", rule, repr(moments))
        moments = tuple(check_names(moments, known, "moments", "fit"))
    if store is not None:
        if not engine.stores:
            able = ", ".join(cls.__name__ for cls in Engine.registry.values() if cls.stores)
            raise ValueError(f"{engine.name} cannot write a store; these engines can: {able}.")
        store = check_store(store, "fit")
    if max_seconds is not None and (reason := engine.why_no_time_limit()):
        rule = f"left out for {engine.name}: {reason}"
        raise argument_error("max_seconds", "fit", rule, f"{max_seconds:g}")
    if current_process().daemon:
        # A worker of a cluster, which may have no processes of its own.
        cores = 1
    run = Run(
        *(draws, tune, chains, cores, seed, progressbar and can_show()),
        *(var_names, moments, store),
        sampler_options,
        clock=Clock(max_seconds or inf),
        log_likelihood=log_likelihood,
    )
    _check_sampler_options(sampler_options, engine, model)
    fit_one = partial(_fit_one, engine=engine, blas_threads=blas_threads)
    if isinstance(source_of(model), CompletedRows):
        result = fit_each_completion(fit_one, model, run)
    else:
        result = fit_one(model, run)
    if engine.kind == "vb" and is_unreliable(k_hat := k_hat_of(result)):
        note_of_poor_approximation(result, k_hat)
        serving = [e for e in engines_for(model) if coordinates(model) <= (e.largest or inf)]
        samplers = [each.name for each in serving if each.kind in ("exact", "mcmc")]
        warn_of_poor_approximation(engine.name, k_hat, samplers)
    return result


def _check_lengths(model: pm.Model) -> None:
    """Raise ValueError if `pm.set_data` has set data of different lengths along one dim."""
    known: dict[Any, tuple[str, int]] = {}
    for data in model.data_vars:
        # Data of a user's model may have no dims.
        dims = model.named_vars_to_dims.get(data.name, ())
        for dim, length in zip(dims, data.get_value(borrow=True).shape, strict=False):
            first, other = known.setdefault(dim, (str(data.name), length))
            if other != length and dim is not None:
                raise ValueError(
                    f"The data {first!r} have length {other} along {dim!r}, and {data.name!r} have "
                    f"length {length}. Set both by pm.set_data."
                )


def _check_sampler_options(options: Mapping[str, Any], engine: Engine, model: pm.Model) -> None:
    """Raise ValueError unless the engine's sampler takes every option; PyMC's NUTS ignores some."""
    settings = [*engine.settings_on(model)]
    known = engine.sampler_arguments()
    own = signature(fit).parameters.keys() - {"model", "engine", "sampler_options"}
    for name in options.keys() - (known - {*settings}):
        names = [*settings, *own, *known]
        near = "random_seed" if name == "seed" else "".join(get_close_matches(name, names, n=1))
        nearest = f"the setting {engine.name}({near}=...)" if near in settings else repr(near)
        hint = f" Did you mean {nearest}?" if near else ""
        raise ValueError(f"fit() got an unexpected argument {name!r} for {engine.name}.{hint}")
    if options.get("initvals") is not None:
        check_initvals(model, options["initvals"])


def _fit_one(model: pm.Model, run: Run, engine: Engine, blas_threads: int | None) -> DataTree:
    """Run an engine on a model, and add the log likelihood if `run` asks for it."""
    wanted = run.log_likelihood and run.store is None
    wanted = wanted and not why_no_log_likelihood(model, engine.kind, run.kept(model))
    begun = time.perf_counter()
    with (
        interruptible(engine.name, run.clock),
        BlasLimits(blas_threads),
        numpy_warnings(),
        settings_kept(),
    ):
        tree = engine.run(model, replace(run, log_likelihood=wanted))
    seconds = time.perf_counter() - begun
    if not (isinstance(tree, DataTree) and "posterior" in tree.children):
        raise TypeError(f"{engine.name} must return a DataTree with 'posterior'. Got {type(tree)}.")
    if run.clock.ended or run.clock.pressed:
        _mark_as_ended(tree, engine, run.clock)
    if wanted and "log_likelihood" not in tree.children:
        # Ctrl-C in its evaluation keeps the fit.
        with suppress(KeyboardInterrupt), numpy_warnings():
            posterior = tree["posterior"].to_dataset()
            with_group(tree, "log_likelihood", densities_of(model, posterior, model.observed_RVs))
    return stamp(
        tree,
        model,
        engine=engine.name,
        kind=engine.kind,
        settings=json.dumps(engine.settings_on(model), default=repr),
        random_seed=run.random_seed,
        seconds=seconds,
    )


def _mark_as_ended(tree: DataTree, engine: Engine, clock: Clock) -> None:
    how = f"ended by max_seconds={clock.seconds:g}" if clock.ended else "interrupted"
    note = f"{engine.name} was {how}: the result is incomplete."
    warn_user(note)
    note = f"{note} {tree.attrs.get('note', '')}".rstrip()
    by = "max_seconds" if clock.ended else "interrupt"
    tree.attrs |= {"converged": "no", "ended_by": by, "note": note}
