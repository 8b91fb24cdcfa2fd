"""Groups of ArviZ's layout that are made from a result's draws."""

from collections.abc import Collection, Sequence
from typing import Literal

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import walk
from xarray import Dataset, DataTree

from ...user_warnings import numpy_warnings
from ...validation import Count, Seed, argument_error, check_arguments, check_names, integer_seed
from .completions import COMPLETION, POOLED
from .density import lacks, log_likelihood, log_prior, why_no_log_likelihood
from .evaluation import compiling_with, python_mode
from .provenance import check_fitted
from .result import with_group

type Group = Literal[
    "prior", "prior_predictive", "posterior_predictive", "log_likelihood", "log_prior"
]
GROUPS: tuple[Group, ...] = Group.__value__.__args__
#: Groups that follow from the draws and the model without chance.
DETERMINED = frozenset({"log_likelihood", "log_prior"})


def extend(
    model: pm.Model,
    result: DataTree,
    groups: Group | Sequence[Group] | None = None,
    *,
    draws: Count = 500,
    random_seed: Seed = None,
    progressbar: bool = True,
) -> DataTree:
    """Add groups that ArviZ's checks and comparisons read, from any engine's draws.

    Parameters
    ----------
    model : pm.Model
        The model that was fitted.
    result : DataTree
        Result of `fit` on it, by any engine. It is not changed.
    groups : str or sequence of str, optional
        ``prior`` and ``prior_predictive``: draws of the variables that the posterior has, and of
        the observed variables, without data. ``posterior_predictive``: new observations of the
        training objects, one for each draw. ``log_likelihood``: log p of each observation at each
        draw. ``log_prior``: log density of each free variable given its parents at each draw,
        without Jacobians. Default: all that can be made and that the result lacks.
    draws : int, default=500
        Draws of the prior. The other groups have one entry for each draw of the posterior.
    random_seed : int, SeedSequence or Generator, optional
        Seed, as in `fit`; the integer used is the attribute ``random_seed`` of each random group.
    progressbar : bool, default=True
        Show the progress of the posterior predictive draws.

    Returns
    -------
    DataTree
        The groups of the result and the new ones, with the model's dims, coords and names of
        variables. Classes are codes as in ``observed_data``: positions in the coordinate "class".

    Raises
    ------
    ValueError
        When the result is not of the model's current data, priors and likelihood; when a group that
        is named cannot be made (the message says why), or exists and is not determined by the
        draws.

    Notes
    -----
    ArviZ takes draws of an approximation (VB, ADVI, Pathfinder, Laplace) for draws of the
    posterior: ``az.loo`` then has an error that its Pareto k does not show. As long as the
    attribute ``pareto_k`` of the result is below 0.7, ``az.loo_approximate_posterior`` corrects it
    (Magnusson et al. 2019, Bayesian leave-one-out cross-validation for large data).

    >>> stats = vb["sample_stats"]
    >>> az.loo_approximate_posterior(vb, log_p=stats["lp"], log_q=stats["lq"])

    Examples
    --------
    >>> gibbs = kz.extend(model, gibbs, ["prior", "posterior_predictive", "log_prior"])
    >>> az.plot_ppc_pava(gibbs, data_type="categorical")
    >>> az.psense_summary(gibbs)
    """
    check_arguments(extend, locals())
    check_fitted(model, result, "extend")
    seed = integer_seed(random_seed, "random_seed", "extend")
    named = None if groups is None else check_names(groups, GROUPS, "groups", "extend")
    reasons = {group: _why_not(group, model, result) for group in GROUPS}
    present = set(result.children)
    if named is None:
        wanted = [group for group in GROUPS if not reasons[group] and group not in present]
    else:
        wanted = [group for group in GROUPS if group in {*named} - (present & DETERMINED)]
    for group in wanted:
        if reason := reasons[group]:
            made_by = result.attrs.get("engine", "this engine")
            rule = f"groups that a result of {made_by} on a {type(model).__name__} can have"
            raise argument_error("groups", "extend", rule, f"{group!r}: {reason}")
    if doubled := sorted({*wanted} & present):
        got = f"one with {', '.join(doubled)} (result.drop_nodes({doubled}) leaves them out)"
        raise argument_error("result", "extend", "a result without the groups to be added", got)

    posterior = result["posterior"].to_dataset() if "posterior" in present else Dataset()
    made: dict[str, Dataset] = {}
    with compiling_with(python_mode()), numpy_warnings():
        if of_prior := {"prior", "prior_predictive"}.intersection(wanted):
            made |= _prior(model, posterior, of_prior, draws, seed)
        if "posterior_predictive" in wanted:
            made |= _posterior_predictive(model, posterior, seed, progressbar)
        for group, density in (("log_likelihood", log_likelihood), ("log_prior", log_prior)):
            if group in wanted:
                made[group] = density(model, posterior)
    # A copy of the tree, which shares its arrays with the caller's.
    tree = result.copy()
    for name, dataset in made.items():
        with_group(tree, name, dataset)
    return tree


def _why_not(group: Group, model: pm.Model, result: DataTree) -> str | None:
    """Why a group cannot be made; None if it can."""
    if group.endswith("predictive") and not model.observed_RVs:
        return "the model has no observed variable"
    if group.startswith("prior"):
        return None
    if "posterior" not in result.children:
        return "the result has no posterior"
    if COMPLETION in result["posterior"].coords:
        return POOLED
    kind, kept = result.attrs.get("kind"), set(map(str, result["posterior"].data_vars))
    if group == "log_likelihood":
        return why_no_log_likelihood(model, kind, kept)
    if kind == "point":
        return "it needs draws from the posterior, not a point"
    if group == "log_prior":
        return lacks((str(rv.name) for rv in model.free_RVs), kept)
    return lacks(_parents(model), kept)


def _parents(model: pm.Model) -> set[str]:
    """Names of the free variables that observed variables depend on directly."""
    free = {*model.free_RVs}

    def inputs(variable: Variable) -> list[Variable]:
        return [] if variable in free or variable.owner is None else variable.owner.inputs

    return {str(variable.name) for variable in walk(model.observed_RVs, inputs) if variable in free}


def _prior(
    model: pm.Model, posterior: Dataset, groups: Collection[str], draws: int, seed: int
) -> dict[str, Dataset]:
    """Draws of the prior of the variables that the result has, and of observations."""
    variables = [*model.free_RVs, *model.deterministics] if "prior" in groups else []
    names = [v.name for v in variables if v.name in posterior]
    if "prior_predictive" in groups:
        names += [rv.name for rv in model.observed_RVs]
    tree = pm.sample_prior_predictive(
        draws, model=model, var_names=names, random_seed=np.random.default_rng([seed, 0])
    )
    return {group: tree[group].to_dataset().assign_attrs(random_seed=seed) for group in groups}


def _posterior_predictive(
    model: pm.Model, posterior: Dataset, seed: int, progressbar: bool
) -> dict[str, Dataset]:
    """Draws of the observed variables, one for each draw of the posterior."""
    drawn = [str(rv.name) for rv in model.free_RVs if rv.name in posterior]
    # PyMC warns of variables whose parents have no draws unless they are named as frozen.
    tree = pm.sample_posterior_predictive(
        posterior[drawn],
        model=model,
        var_names=[rv.name for rv in model.observed_RVs],
        freeze_vars=drawn,
        random_seed=np.random.default_rng([seed, 1]),
        progressbar=progressbar,
    )
    group = "posterior_predictive"
    return {group: tree[group].to_dataset().assign_attrs(random_seed=seed)}
