"""What a paper's engines call: one `Paper` per model, one table of them, and the engines.

`fit` calls ``engine.run``, and this the function of the model's paper: ``paper.vb.function``,
``paper.gibbs.function``, ... The table `PAPERS` is filled by `add_paper`, ours in
``inference/__init__.py``. Exact, VB, EM and MAP turn the outputs of these functions into results;
Gibbs, whose output is step methods, is in `mcmc`.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, override

import numpy as np
import pymc as pm
from xarray import Dataset, DataTree

from ...models.declaration import Declaration, family
from ...user_warnings import numpy_warnings, warn_user
from ...validation import (
    Count,
    CountOrZero,
    Positive,
    PositiveOrInf,
    argument_error,
    check_arguments,
    check_name,
)
from .engine import Engine, Kind, Run, why_no_gradients, why_not_dask
from .independent import independent_draws
from .k_hat import convergence_of_ascent, pareto_k
from .mode import Space, search_by_gradients
from .outputs import ExactOutput, PointOutput, VariationalOutput
from .result import point_to_tree, trajectory, with_group


@dataclass(frozen=True)
class Algorithm[Output]:
    """A paper's algorithm for an engine.

    Parameters
    ----------
    function : callable
        (model, run, *, settings) -> what the engine turns into a result. Its keyword arguments are
        the settings on that model, and their defaults those on the model.
    unless : callable, optional
        Maps a model to the reason why the algorithm does not apply to it, for instance a prior
        without a closed form, or to None.
    in_blocks : bool, default=False
        Whether the function reads kernels in a Dask array.
    """

    function: Callable[..., Output]
    unless: Callable[[Any], str | None] = lambda model: None
    in_blocks: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the function, with their defaults."""
        parameters = inspect.signature(self.function).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


@dataclass(frozen=True)
class Paper:
    """A model with its paper's algorithms, and what prediction and comparison call.

    A field that a subclass of the model leaves out is that of the model's paper.

    Parameters
    ----------
    model : type
        The model's class.
    exact, gibbs, vb, em, map : Algorithm, optional
        Functions (model, run, *, settings) for the engines. They return an `ExactOutput`, a list of
        PyMC step methods, a `VariationalOutput`, and for EM and MAP a `PointOutput`.
    predict : callable, optional
        (model, result, kernels_new, *, keep_draws, ...) -> Dataset, for `predict`; further keyword
        arguments with defaults are options of `predict` on this model.
        ``stack_of_new_objects(model, kernels_new)`` checks and aligns what the user passed. A
        function that loops over the draws takes `progressbar`. One that takes ``random_seed=None``
        gets a seed with `keep_draws`, and then adds draws of the observed variable of new objects,
        under its name in the model. The moments in `result` are pooled over chains.
    identified : callable, optional
        (result, variant) -> Dataset of the quantities (chain, draw, ...) that the data identify,
        for `identified`. `variant` is the model's attribute of this name, "" unless its class
        overrides the property.
    identified_reads : sequence of str, optional
        Variables whose draws `identified` needs; where a result lacks one, all its variables are
        compared instead. Leave out those that only some models of the type have.
    log_evidence : callable, optional
        (model) -> float, for `log_evidence`; raises ValueError, with the reason, for models of the
        type without a closed form.
    scale : str
        Name of the argument that scales the regressors, for `select`.
    path : callable, optional
        (model, scales) -> iterator of VB's functions (draws, rng) -> draws and log densities, one
        for each scale, for `select`.

    Examples
    --------
    >>> kz.inference.PAPERS[kz.MultinomialProbit].vb.settings
    """

    model: type[pm.Model]
    exact: Algorithm[ExactOutput] | None = None
    gibbs: Algorithm[Sequence[Any]] | None = None
    vb: Algorithm[VariationalOutput] | None = None
    em: Algorithm[PointOutput] | None = None
    map: Algorithm[PointOutput] | None = None
    predict: Callable[..., Dataset] | None = None
    identified: Callable[[DataTree, str], Dataset] | None = None
    identified_reads: Sequence[str] = ()
    log_evidence: Callable[[Any], float] | None = None
    scale: str = ""
    path: Callable[[Any, Sequence[float]], Iterator[Callable[..., Any]]] | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.model, type) and issubclass(self.model, pm.Model)):
            raise argument_error("model", "Paper", "a class of PyMC models", repr(self.model))
        for name in ("exact", "gibbs", "vb", "em", "map"):
            algorithm = getattr(self, name)
            if not isinstance(algorithm, Algorithm | None):
                raise argument_error(name, "Paper", "an Algorithm(function)", repr(algorithm))

    def why_not(self, model: pm.Model) -> str | None:
        """Why no algorithm of the paper applies to a model of its type; None when some may."""
        particular = isinstance(model, Declaration) and issubclass(self.model, Declaration)
        if particular and (amended := ", ".join(map(repr, model.amendments()))):
            return f"not available for {self.model.__name__} with added terms: {amended}"
        return None


#: The paper of each type of model.
PAPERS: dict[type[pm.Model], Paper] = {}


def add_paper(paper: Paper) -> None:
    """Let the engines, prediction and comparison know a paper; it replaces one of the same model.

    Parameters
    ----------
    paper : Paper

    Examples
    --------
    >>> kz.inference.add_paper(kz.inference.PAPERS[kz.MultinomialProbit])
    """
    PAPERS[paper.model] = paper


def papers_of(model_type: type[pm.Model]) -> list[Paper]:
    """Papers of a type of model and of its ancestors, most specific first."""
    return [PAPERS[ancestor] for ancestor in model_type.__mro__ if ancestor in PAPERS]


@dataclass(frozen=True, kw_only=True, repr=False)
class PaperEngine[Output](Engine):
    """An engine that calls a function of the model's paper, or of its nearest ancestor's.

    The fields of a subclass are the settings of all papers. A setting that is None takes the
    default of the paper's function.
    """

    @classmethod
    def algorithm_of(cls, paper: Paper) -> Algorithm[Output] | None:
        """Return the paper's algorithm for this engine: the field of the engine's name."""
        algorithm: Algorithm[Output] | None = getattr(paper, cls.name.lower())
        return algorithm

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value!r}" for key, value in self.settings.items())
        return f"{type(self).__name__}({arguments})"

    @property
    @override
    def settings(self) -> dict[str, Any]:
        """Settings for the paper's function: those that are not None."""
        return {name: value for name, value in super().settings.items() if value is not None}

    def verdict(self, model: pm.Model) -> tuple[Algorithm[Output] | None, str | None]:
        """Algorithm of the model's paper, and why it does not apply, or None."""
        for paper in papers_of(type(model)):
            if (algorithm := self.algorithm_of(paper)) is not None:
                reason = None if algorithm.in_blocks else why_not_dask(model)
                return algorithm, paper.why_not(model) or reason or algorithm.unless(model)
        written = [paper.model.__name__ for paper in PAPERS.values() if self.algorithm_of(paper)]
        types = ", ".join(written) or "no model yet"
        return None, f"not available for {type(model).__name__} (available for {types})"

    @override
    def why_not(self, model: pm.Model) -> str | None:
        _, reason = self.verdict(model)
        return reason

    def algorithm(self, model: pm.Model) -> Algorithm[Output]:
        """Algorithm for the model, which must exist."""
        algorithm, _ = self.verdict(model)
        assert algorithm is not None
        return algorithm

    @override
    def settings_on(self, model: pm.Model) -> dict[str, Any]:
        return self.algorithm(model).settings | self.settings

    def implement(self, model: pm.Model, run: Run) -> Output:
        """Call the paper's function for the model; ValueError for settings it does not take."""
        algorithm, owner = self.algorithm(model), f"{self.name} on {type(model).__name__}"
        for setting in self.settings:
            check_name(setting, algorithm.settings, "settings", owner)
        check_arguments(algorithm.function, self.settings, owner)
        with run.clock.explained(f"for {self.name} to end: it keeps no part of a result here"):
            return algorithm.function(model, run, **self.settings)


class Exact(PaperEngine[ExactOutput]):
    """Independent draws from a posterior of known form.

    The result holds the draws in ``posterior``. Means and standard deviations of variables too
    large to keep are in ``moments``: in closed form where one is known, NaN where they are known to
    be infinite. ``log_evidence`` is in the attributes where it is known.

    Examples
    --------
    >>> exact = kz.fit(completion, kz.Exact(), random_seed=1)
    >>> exact["moments"]["K21_sd"]
    """

    name: ClassVar[str] = "Exact"
    kind: ClassVar[Kind] = "exact"
    limits: ClassVar[str] = "none: the draws are independent"
    stores: ClassVar[bool] = True

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        output = self.implement(model, run)
        tree = independent_draws(
            model, run, output.sample, output.moments, output.tails, exact=True
        )
        if output.log_evidence is not None:
            tree.attrs["log_evidence"] = float(output.log_evidence)
        tree.attrs.setdefault("converged", "yes")
        return tree


@dataclass(frozen=True, kw_only=True, repr=False)
class VB(PaperEngine[VariationalOutput]):
    """Variational Bayes by the paper's closed-form updates.

    The result holds independent draws from q in ``posterior``, their log densities under the
    declaration (``lp``) and under q (``lq``) in ``sample_stats``, the parameters of q in
    ``variational``, and the bound by start and iteration in ``trajectory``.

    Parameters
    ----------
    tolerance : float, optional
        Relative change of the objective below which a start may end (three times in a row where
        iterations are accelerated), if `remaining` allows it. `DiagonalWishartCompletion`: relative
        change of E[lambda] below which the iterations end. Default: 1e-6; 1e-10 for
        `DiagonalWishartCompletion`.
    max_iterations : int, optional
        Largest number of iterations of a start. Default: 5,000; 10,000 for
        `DiagonalWishartCompletion`.
    remaining : float, optional
        `MultinomialProbit` and composite kernels: a start does not end before the estimated
        remaining increase of its objective, in nats, is at most this. The estimate assumes that
        increases keep shrinking at the present rate, and needs 7 iterations. With inf only
        `tolerance` counts. Default: 0.01; for `MultinomialProbit` 0.01 max(1, N max(C - 1, 2) /
        200) for N objects of C classes.
    starts : int, optional
        `MultinomialProbit` and composite kernels: number of starts, which differ in the initial
        kernel weights: uniform, each kernel alone (if there are more kernels than starts, those
        with the highest objective after one iteration), random. The start with the highest
        objective wins; known weights need one. Default: uniform and each kernel alone, at most 8,
        and uniform only for more than 16 kernels; these compete: the highest continues alone after
        24 iterations, in two-class composite kernels after 12, in regressions after 200.

    Notes
    -----
    `WishartCompletion` and `WishartKernelMixture` have a closed form and no settings.

    Do not interpret kernel weights or intervals of VB where the attribute ``pareto_k`` of the
    result is above 0.7 (`fit` warns): q is far narrower than the posterior, and may concentrate on
    one kernel where the data cannot tell kernels apart. Class probabilities suffer less: check them
    on held-out data. For weights, run ``"gibbs"`` or another engine that samples.

    Examples
    --------
    >>> vb = kz.fit(model, kz.VB(starts=3), random_seed=1)
    >>> vb["trajectory"]
    >>> vb.attrs["pareto_k"]
    """

    name: ClassVar[str] = "VB"
    kind: ClassVar[Kind] = "vb"
    limits: ClassVar[str] = (
        "ignores dependence: intervals are too narrow, those of kernel weights most"
    )

    tolerance: Positive | None = None
    max_iterations: Count | None = None
    remaining: PositiveOrInf | None = None
    starts: Count | None = None

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        output = self.implement(model, run)
        tree = independent_draws(model, run, output.sample, output.moments)
        with_group(tree, "variational", output.parameters)
        with_group(tree, "trajectory", trajectory("elbo", output.elbo, output.best))
        tree.attrs["lp_measure"] = "constrained"
        tree.attrs["pareto_k"] = k_hat = pareto_k(tree)
        tree.attrs["converged"] = convergence_of_ascent(tree, model, k_hat, output.converged)
        return tree


@dataclass(frozen=True, kw_only=True, repr=False)
class PointEngine(PaperEngine[PointOutput]):
    """An engine whose result is a single point."""

    kind: ClassVar[Kind] = "point"
    limits: ClassVar[str] = "no uncertainty"

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        output = self.implement(model, run)
        has_density = output.log_density is not None
        stats = {"lp": np.array([output.log_density])} if has_density else None
        tree = point_to_tree(model, output.values, stats)
        climbs = trajectory("objective", output.climbs, output.best)
        for name, values in output.ends.items():
            dims = model.named_vars_to_dims[name]
            climbs[f"{name}_of_start"] = (("start", *dims), values)
            climbs = climbs.assign_coords({dim: list(model.coords[dim]) for dim in dims})
        with_group(tree, "trajectory", climbs)
        tree.attrs |= {**output.attributes, "converged": output.converged}
        if output.note:
            tree.attrs["note"] = output.note
            if output.converged == "no":
                warn_user(output.note)
        return tree


@dataclass(frozen=True, kw_only=True, repr=False)
class EM(PointEngine):
    """Expectation-maximisation by the paper's closed-form updates.

    The result holds the point in ``point`` and, as a single draw, in ``posterior``, and the
    objective by iteration in ``trajectory``. The attribute ``converged`` is "no fixed point" where
    the iterations have no fixed point; ``note`` then says what this means for the point.

    Parameters
    ----------
    max_iterations : int or "limit", optional
        Largest number of iterations; `WishartCompletion` and `WishartKernelMixture` do exactly so
        many, each an E- and an M-step. There "limit" computes the limit, which exists when
        eta > n + 1. A mixture's matched eta is larger than n + 1 when all eta_k are at least n + 1
        and at least two kernels have positive weights. The papers stop after 100 iterations, often
        far from the limit. Default: 100; 2,000 for `MutualKernelCompletion`.
    start : {"mean", "zero"}, optional
        `MutualKernelCompletion`: missing entries at the start. "mean" (the default) is the mean of
        the kernel's visible entries, "zero" is the paper's. Zeros need many more iterations and can
        end in a saddle point: objects that no kernel relates stay unrelated.
    tolerance : float, optional
        `WishartCompletion` and `WishartKernelMixture`: largest distance of K22.1 from its limit,
        relative to the limit's norm, at which the point counts as converged.
        `MutualKernelCompletion`: the iterations end when the norm of the natural gradient of the
        objective, divided by its norm at the identity and by lambda's curvature, is at most this:
        about the relative distance of M from the mode in its flattest direction. Default: 1e-6;
        1e-3 for `MutualKernelCompletion`.
    memory : int, optional
        `MutualKernelCompletion`: number of past iterations that the quasi-Newton acceleration uses;
        0 gives the paper's plain iterations. ``memory=0, start="zero"`` is the paper's Algorithm 1,
        which has no convergence rule; here `tolerance` and `max_iterations` end it. Default: 5.

    Examples
    --------
    >>> kz.fit(completion, kz.EM(max_iterations=100))["point"]["K21"]
    """

    name: ClassVar[str] = "EM"

    max_iterations: Count | Literal["limit"] | None = None
    start: Literal["mean", "zero"] | None = None
    tolerance: Positive | None = None
    memory: CountOrZero | None = None


#: For every model without discrete variables.
BY_GRADIENTS = Algorithm(search_by_gradients, unless=why_no_gradients)


@dataclass(frozen=True, kw_only=True, repr=False)
class MAP(PointEngine):
    """Mode of a density of the declaration: the paper's own algorithm, or a search by gradients.

    The result holds the point in ``point`` and, as a single draw, in ``posterior``, its log density
    in ``sample_stats``, and the objective by start and iteration in ``trajectory``, with the final
    weights of each start (``beta_of_start``) for models with learned weights.

    Parameters
    ----------
    method : {"gradient"}, optional
        "gradient": search by gradients even where the model's paper has its own algorithm.
    max_iterations : int, optional
        Largest number of iterations of a start. Default: 2,000; 5,000 of L-BFGS for a search by
        gradients.
    tolerance : float, optional
        Composite kernels: a start ends when an iteration has at most this to gain, in nats.
        Default: 1e-6.
    starts : int, optional
        Composite kernels: number of initial weights, as in `VB`. From each of them the algorithm
        climbs four times: alpha starts at ridge regressions with penalties of 1 to 0.001 times the
        mean diagonal of K_beta' W K_beta. The highest mode wins; sparse priors (sigma and varsigma
        far below 1) have many, and a higher one may exist. Default: uniform and each kernel alone,
        8 at most.
    space : {"constrained", "unconstrained"}, optional
        Search by gradients: the density to maximise. "constrained" (the default) is that of the
        variables as declared, as in ``pm.find_MAP``, "unconstrained" that of their transforms,
        Jacobians included. Where the first is unbounded (a Dirichlet with learned concentrations, a
        variance that can shrink together with the variables that it scales), the second often has a
        mode.

    Notes
    -----
    Models whose paper has no algorithm for the mode are searched by gradients.

    Examples
    --------
    >>> kz.fit(regression, kz.MAP(method="gradient"))["point"]["alpha"]
    """

    name: ClassVar[str] = "MAP"

    method: Literal["gradient"] | None = None
    max_iterations: Count | None = None
    tolerance: Positive | None = None
    starts: Count | None = None
    space: Space | None = None

    @override
    def verdict(self, model: pm.Model) -> tuple[Algorithm[PointOutput] | None, str | None]:
        own, reason = super().verdict(model)
        if own is not None and reason is None and self.method is None:
            return own, None
        return BY_GRADIENTS, BY_GRADIENTS.unless(model)

    @override
    def serves(self, model: pm.Model) -> int | None:
        return 10_000 if self.algorithm(model) is BY_GRADIENTS else None


def log_evidence(model: pm.Model) -> float:
    """Log of the marginal likelihood of a model's observed data, all variables integrated out.

    Parameters
    ----------
    model : pm.Model
        A model whose evidence has a closed form.

    Returns
    -------
    float

    Raises
    ------
    TypeError
        When no closed form is known for the model. ``fit(model, "smc")`` estimates the log evidence
        (``result.attrs["log_evidence"]``); the bound of ``VB`` lies below it.
    ValueError
        When terms were added to the declaration.

    Examples
    --------
    >>> kz.log_evidence(completion)
    """
    for paper in papers_of(type(model)):
        if paper.log_evidence is not None:
            if reason := paper.why_not(model):
                raise ValueError(f"The closed form of log_evidence is {reason}.")
            return paper.log_evidence(model)
    written = ", ".join(p.model.__name__ for p in PAPERS.values() if p.log_evidence)
    raise TypeError(
        f"log_evidence has a closed form for {written or 'no model yet'}; this is a "
        f"{type(model).__name__}. fit(model, 'smc') estimates it: result.attrs['log_evidence']."
    )


@numpy_warnings()
def identified(result: DataTree, model: pm.Model | None = None) -> Dataset:
    """Quantities (chain, draw, ...) of a result on which its model's engines must agree.

    Without a paper's function, or without the draws that it reads, these are all posterior
    variables.

    Parameters
    ----------
    result : DataTree
        Result of `fit`.
    model : pm.Model, optional
        Model of a result whose attributes do not name it yet.
    """
    if "posterior" not in result.children:
        return Dataset()
    posterior = result["posterior"].to_dataset()
    if model is None:
        name, variant = result.attrs.get("family", ""), result.attrs.get("variant", "")
    else:
        name, variant = family(model), getattr(model, "variant", "")
    for paper in PAPERS.values():
        if paper.model.__name__ != name or paper.identified is None:
            continue
        if set(paper.identified_reads) <= set(posterior.data_vars):
            return paper.identified(result, variant)
    return posterior
