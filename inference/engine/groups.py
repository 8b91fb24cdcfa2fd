"""Log densities at many draws, and groups of ArviZ's layout that are made from a result's draws."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from pymc.logprob.basic import conditional_logp
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from xarray import Dataset, DataTree

from ...user_warnings import numpy_warnings
from ...validation import Seed, argument_error, check_arguments, check_names, integer_seed
from .completions import COMPLETION, POOLED
from .engine import Kind
from .evaluation import compile_over_draws, python_mode
from .provenance import check_fitted
from .result import joined_draws, labelled, with_group
from .shared_settings import settings_kept

type Draws = Mapping[str, np.ndarray]
type _Terms = tuple[list[Variable], dict[Variable, Any]]


def compile_densities(
    model: pm.Model,
) -> Callable[[Draws], tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Make a function of draws (draw, ...) of every free variable.

    It gives the log joint density (draw,), and the log likelihoods (draw, ...) of the observed
    variables. No Jacobian enters. A density on the simplex is with respect to the first
    coordinates, as in the usual form of the Dirichlet distribution.
    """
    values, terms = _terms(model)
    total = pt.sum([term.sum() for term in terms.values()])
    observed = {str(rv.name): terms[rv] for rv in model.observed_RVs}
    evaluate = compile_over_draws(model, values, [total, *observed.values()])

    def densities(draws: Draws) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        joint, *observations = evaluate(draws)
        return joint, dict(zip(observed, observations, strict=True))

    return densities


def log_density(model: pm.Model, draws: Draws) -> np.ndarray:
    """Log joint density (draw,) of the declaration at constrained draws."""
    joint, _ = compile_densities(model)(draws)
    return joint


def compile_log_likelihood(model: pm.Model) -> Callable[[Draws, Draws], np.ndarray]:
    """Make a function from draws and data to the log likelihood (draw,) of all observations."""
    values = {rv: rv.type(name=rv.name) for rv in (*model.free_RVs, *model.observed_RVs)}
    terms = conditional_logp(values)
    total = pt.sum([terms[values[rv]].sum() for rv in model.observed_RVs])
    evaluate = compile_over_draws(model, list(values.values()), [total])

    def likelihood(draws: Draws, data: Draws) -> np.ndarray:
        number = len(next(iter(draws.values())))
        repeated = {name: np.broadcast_to(x, (number, *np.shape(x))) for name, x in data.items()}
        (found,) = evaluate({**draws, **repeated})
        return found

    return likelihood


def by_observation(model: pm.Model) -> bool:
    """Whether every observed variable has one log likelihood per observation."""
    supports = [(rv, rv.owner.op.ndim_supp) for rv in model.observed_RVs]
    return bool(supports) and all(n == 0 or rv.ndim > n for rv, n in supports)


def why_no_log_likelihood(model: pm.Model, kind: Kind | None, kept: Collection[str]) -> str | None:
    """Why draws of the variables kept give no log likelihood of each observation, or None."""
    if kind == "point":
        return "az.loo needs draws from the posterior, not a point"
    if not model.observed_RVs:
        return "the model has no observed variable"
    if not by_observation(model):
        return "observations are dependent given the variables, so that az.loo has no meaning"
    return lacks((str(rv.name) for rv in model.free_RVs), kept)


def lacks(names: Iterable[str], kept: Collection[str]) -> str | None:
    """Say which variables have no draws; None if all have."""
    missing = sorted({*names} - {*kept})
    if not missing:
        return None
    return f"it needs draws of {', '.join(missing)}, which fit(..., var_names=[...]) keeps"


def densities_of(
    model: pm.Model, posterior: xr.Dataset, variables: Sequence[Variable]
) -> xr.Dataset:
    """Log densities (chain, draw, ...) of variables given their parents, for `extend`."""
    values, terms = _terms(model)
    asked = {str(rv.name): terms[rv] for rv in variables}
    evaluate = compile_over_draws(model, values, list(asked.values()))
    flat = {str(rv.name): joined_draws(posterior[rv.name]) for rv in model.free_RVs}
    return density_dataset(model, dict(zip(asked, evaluate(flat), strict=True)), posterior)


def density_dataset(model: pm.Model, values: Draws, posterior: xr.Dataset) -> xr.Dataset:
    """Dataset of log densities (chain * draw, ...), with the posterior's coordinates."""
    shape = posterior.sizes["chain"], posterior.sizes["draw"]
    arrays = {name: array.reshape(*shape, *array.shape[1:]) for name, array in values.items()}
    found = labelled(model, arrays, ["chain", "draw"])
    return found.assign_coords(chain=posterior["chain"], draw=posterior["draw"])


#: Variables and results of `_terms`, which takes longer than an evaluation.
_TERMS: WeakKeyDictionary[pm.Model, tuple[list[Variable], _Terms]] = WeakKeyDictionary()


def _terms(model: pm.Model) -> _Terms:
    """Values of the free variables, and the log density of every variable and potential."""
    observed = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    variables = [*model.free_RVs, *observed, *observed.values(), *model.potentials]
    known, terms = _TERMS.get(model, ([], ([], {})))
    if known != variables:
        free = {rv: rv.type(name=rv.name) for rv in model.free_RVs}
        values = {**free, **observed}
        variable_of = {value: rv for rv, value in values.items()}
        densities = {variable_of[value]: term for value, term in conditional_logp(values).items()}
        potentials = graph_replace(model.potentials, values, strict=False)
        densities |= zip(model.potentials, potentials, strict=True)
        terms = [*free.values()], densities
        _TERMS[model] = variables, terms
    return terms


type Group = Literal["posterior_predictive", "log_likelihood", "log_prior"]
GROUPS: tuple[Group, ...] = Group.__value__.__args__
#: Groups that follow from the draws and the model without chance.
DETERMINED = frozenset({"log_likelihood", "log_prior"})


def extend(
    model: pm.Model,
    result: DataTree,
    groups: Group | Sequence[Group] | None = None,
    *,
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
        ``posterior_predictive``: new observations of the training objects, one for each draw.
        ``log_likelihood``: log p of each observation at each draw. ``log_prior``: log density of
        each free variable given its parents at each draw, without Jacobians. Default: all that can
        be made and that the result lacks. Draws of the prior are ``pm.sample_prior_predictive``'s.
    random_seed : int, SeedSequence or Generator, optional
        Seed of ``posterior_predictive``, as in `fit`; the integer used is the group's attribute
        ``random_seed``.
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
        is named cannot be made (the message says why), or exists and does not follow from draws.

    Notes
    -----
    ArviZ takes draws of an approximation for draws of the posterior; see docs/howto/compare.md.

    Examples
    --------
    >>> gibbs = kz.extend(model, gibbs, ["posterior_predictive", "log_prior"])
    >>> az.plot_ppc_pava(gibbs, data_type="categorical")
    >>> az.psense_summary(gibbs)
    """
    check_arguments(extend, locals())
    check_fitted(model, result, "extend")
    seed = integer_seed(random_seed, "random_seed", "extend")
    reasons = {group: _why_not(group, model, result) for group in GROUPS}
    present = set(result.children)
    if groups is None:
        wanted = [group for group in GROUPS if not reasons[group] and group not in present]
    else:
        named = check_names(groups, GROUPS, "groups", "extend")
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
    # A copy of the tree, which shares its arrays with the caller's.
    tree = result.copy()
    with settings_kept(), numpy_warnings():
        if "posterior_predictive" in wanted:
            drawn = _posterior_predictive(model, posterior, seed, progressbar)
            with_group(tree, "posterior_predictive", drawn.assign_attrs(random_seed=seed))
        if "log_likelihood" in wanted:
            with_group(tree, "log_likelihood", densities_of(model, posterior, model.observed_RVs))
        if "log_prior" in wanted:
            with_group(tree, "log_prior", densities_of(model, posterior, model.free_RVs))
    return tree


def _why_not(group: Group, model: pm.Model, result: DataTree) -> str | None:
    if group == "posterior_predictive" and not model.observed_RVs:
        return "the model has no observed variable"
    if "posterior" not in result.children:
        return "the result has no posterior"
    if COMPLETION in result["posterior"].coords:
        return POOLED
    kind = result.attrs.get("kind")
    kept = set(map(str, result["posterior"].data_vars))
    if group == "log_likelihood":
        return why_no_log_likelihood(model, kind, kept)
    if kind == "point":
        return "it needs draws from the posterior, not a point"
    if group == "log_prior":
        return lacks((str(rv.name) for rv in model.free_RVs), kept)
    # Those that observed variables depend on directly.
    parents = {*model.free_RVs} & {*ancestors(model.observed_RVs, blockers=model.free_RVs)}
    return lacks((str(rv.name) for rv in parents), kept)


def _posterior_predictive(
    model: pm.Model, posterior: Dataset, seed: int, progressbar: bool
) -> Dataset:
    drawn = [str(rv.name) for rv in model.free_RVs if rv.name in posterior]
    # PyMC warns of variables whose parents have no draws unless they are named as frozen.
    tree = pm.sample_posterior_predictive(
        posterior[drawn],
        model=model,
        var_names=[rv.name for rv in model.observed_RVs],
        freeze_vars=drawn,
        random_seed=np.random.default_rng([seed, 1]),
        progressbar=progressbar,
        compile_kwargs={"mode": python_mode()},
    )
    return tree["posterior_predictive"].to_dataset()
