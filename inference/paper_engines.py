"""Engines that call a function of the model's paper: Exact, Gibbs, INLA, VB, EM and MAP.

They turn the outputs of these functions into results.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import Any, ClassVar, Literal, override

import numpy as np
import pymc as pm
from pymc.sampling.mcmc import STEP_METHODS
from xarray import DataTree

from ..user_warnings import warn_user
from ..validation import (
    Count,
    CountOrZero,
    Fraction,
    Positive,
    PositiveOrInf,
    check_arguments,
    check_name,
)
from .engine.chains import has_workers, keywords_of, run_chains, sample_on_workers
from .engine.convergence import convergence_of_ascent, pareto_k
from .engine.engine import Engine, Kind, Run, why_no_gradients, why_not_dask
from .engine.independent import independent_draws
from .engine.paper import PAPERS, Algorithm, models_with, paper_with
from .engine.result import (
    ExactOutput,
    IntegratedOutput,
    PointOutput,
    VariationalOutput,
    draws_to_tree,
    joined_draws,
    labelled,
    trajectory,
    with_group,
)
from .mode import Space, search_by_gradients


@dataclass(frozen=True, kw_only=True, repr=False)
class PaperEngine[Output](Engine):
    """An engine that calls a function of the model's paper, or of its nearest ancestor's.

    The fields of a subclass are the settings of all papers. A setting that is None takes the
    default of the paper's function.
    """

    own: ClassVar[bool] = True
    #: Field of `Paper` that has the algorithm.
    field: ClassVar[str]

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value!r}" for key, value in self.settings.items())
        return f"{type(self).__name__}({arguments})"

    @property
    @override
    def settings(self) -> dict[str, Any]:
        """Settings for the paper's function: those that are not None."""
        return {name: value for name, value in super().settings.items() if value is not None}

    @override
    def default_of(self, setting: str) -> str:
        algorithms = filter(None, (getattr(paper, self.field) for paper in PAPERS.values()))
        values = [each.settings[setting] for each in algorithms if setting in each.settings]
        none = (None, Parameter.empty)
        texts = dict.fromkeys("by the model" if x in none else str(x) for x in values)
        return f"default: {' or '.join(texts) or 'by the model'}"

    def verdict(self, model: pm.Model) -> tuple[Algorithm[Output] | None, str | None]:
        """Algorithm of the model's paper, and why it does not apply, or None."""
        if (paper := paper_with(self.field, model)) is None:
            available = f"available for {models_with(self.field)}"
            return None, f"not available for {type(model).__name__} ({available})"
        algorithm: Algorithm[Output] = getattr(paper, self.field)
        reason = None if algorithm.in_blocks else why_not_dask(model)
        return algorithm, paper.why_not(model) or reason or algorithm.unless(model)

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
        algorithm = self.algorithm(model)
        owner = f"{self.name} on {type(model).__name__}"
        for setting in self.settings:
            check_name(setting, algorithm.settings, "settings", owner)
        check_arguments(algorithm.function, self.settings, owner)
        return algorithm.function(model, run, **self.settings)


class Exact(PaperEngine[ExactOutput]):
    """Independent draws from a posterior of known form.

    The result holds the draws in ``posterior``, means and standard deviations of variables too
    large to keep in ``moments`` (in closed form where one is known, NaN where they are infinite),
    and the attribute ``log_evidence`` where it is known.

    Examples
    --------
    >>> exact = kz.fit(completion, kz.Exact(), random_seed=1)
    >>> exact["moments"]["K21_sd"]
    """

    name: ClassVar[str] = "Exact"
    field: ClassVar[str] = "exact"
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
class Gibbs(PaperEngine[Sequence[Any]]):
    """The paper's Gibbs steps inside `pm.sample`, with NUTS on the remaining variables.

    Parameters
    ----------
    scheme : {"auto", "marginal", "paper"}, optional
        `MultinomialProbit`: "marginal" integrates utilities, variances and hyperparameters out, and
        moves the rest by Hamiltonian Monte Carlo, selections by annealing; it takes `length`,
        `target_accept` and, for `Binary`, `stages`. "paper" is the sampler of Albert and Chib with
        Metropolis moves (appendix A), plus moves along directions that the likelihood ignores; it
        hardly ever leaves a selection, and takes `moves` and, where they apply, `marginal_moves`
        (`Product`, kernel parameters) and `block` (`Binary`). "auto" (the default) is "marginal" if
        weights or selections move, or if there are at least as many basis functions as objects.

        Composite kernels: "marginal" (the default) moves beta and varphi with alpha integrated out,
        by elliptical slice sampling, and is needed for selections; "paper" moves them by Metropolis
        given alpha, and such a chain may keep its weights for thousands of sweeps.
    length : float, optional
        Marginal scheme: expected length of a trajectory, in units of the mass matrix, to which its
        cost is proportional; longer ones give less correlated draws. Default: 4.
    target_accept : float, optional
        Marginal scheme: acceptance probability to which the leapfrog step is tuned. Default: 0.75.
    stages : int, optional
        Marginal scheme: number of parts of a move of a selection, to which its cost is
        proportional; more parts accept more moves. Default: 20.
    moves : int, optional
        Paper's scheme of `MultinomialProbit`: number of Metropolis moves per sweep of weights,
        concentrations, exponents and kernel parameters given utilities and regressors. Composite
        kernels: number of moves of beta, and of varphi, per sweep. Default: 5; 2 for composite
        kernels.
    marginal_moves : int, optional
        Paper's scheme of `MultinomialProbit`: number of moves per sweep of exponents and kernel
        parameters with the regressors integrated out, at C Cholesky factorisations each. Default:
        1.
    block : int, optional
        Number of kernels of a binary selection that are drawn jointly, from all 2^block states, at
        C Cholesky factorisations each in the paper's scheme of `MultinomialProbit`, and one for
        composite kernels. Default: 6; 2 for composite kernels.
    p_step : {"joint", "inverse-wishart"}, optional
        `WishartCompletion` and `WishartKernelMixture`: how Sigma is drawn, block by block
        (O(n1^3 + n2 n1^2), cheaper), or the whole matrix at once (O(n^3)), from the same
        distribution. Default: "joint".
    variant : {"TW1", "TW2"}, optional
        `DiagonalWishartCompletion`: how W22_1 is drawn: as a Wishart matrix, eq (13), or its
        diagonal by independent Gammas, eq (15), and its correlations separately, from the same
        distribution. Default: "TW1" unless W22_1 is declared diagonal, which needs "TW2".

    Examples
    --------
    >>> gibbs = kz.fit(model, kz.Gibbs(scheme="paper"), chains=4, random_seed=1)
    >>> gibbs.attrs["converged"]
    """

    name: ClassVar[str] = "Gibbs"
    field: ClassVar[str] = "gibbs"
    kind: ClassVar[Kind] = "mcmc"
    limits: ClassVar[str] = "successive draws are correlated: look at az.ess; chains may miss modes"
    stores: ClassVar[bool] = True

    scheme: Literal["auto", "marginal", "paper"] | None = None
    length: Positive | None = None
    target_accept: Fraction | None = None
    stages: Count | None = None
    moves: CountOrZero | None = None
    marginal_moves: CountOrZero | None = None
    block: Count | None = None
    p_step: Literal["joint", "inverse-wishart"] | None = None
    variant: Literal["TW1", "TW2"] | None = None

    @override
    def sampler_arguments(self) -> frozenset[str]:
        return keywords_of(pm.sample) | {method.name for method in STEP_METHODS}

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        if has_workers(run):
            return sample_on_workers(self, model, run)
        steps = self.implement(model, run)
        if not isinstance(steps, Sequence):
            function = self.algorithm(model).function.__name__
            got = type(steps).__name__
            raise TypeError(f"{function} must return a list of step methods. Got a {got}.")
        return run_chains(model, run, step=list(steps))


@dataclass(frozen=True, kw_only=True, repr=False)
class INLA(PaperEngine[IntegratedOutput]):
    """Integrated nested Laplace approximation (Rue, Martino & Chopin 2009).

    Given the hyperparameters, latent functions are normal for normal observations, and nearly so
    for others. Laplace's method finds the mode of the hyperparameters. Points around it are
    weighted by importance: the evidence at a point is exact for normal observations, and for
    classes that of expectation propagation, nearly exact for two. At each point functions are drawn
    from their normal approximation; the posterior is the weighted mixture.

    The result holds draws of the mixture in ``posterior``, and the points with their weights in
    ``variational``. The attribute ``pareto_k`` is that of the weights: below 0.7 the points
    represent the posterior of the hyperparameters. ``log_evidence`` is the log of the weights'
    mean, an estimate of the marginal likelihood. The group ``left_out`` has the log
    predictive density of each observation given all others, for `kz.scores.loo`.

    More than ten hyperparameters, such as the weights of many kernels, are drawn around the mode:
    weights near zero from Gamma distributions with the prior's concentration and the slope of the
    evidence, the others from beta prime distributions with the curvature of the posterior. The mode
    is that of variables that are normal a priori. Points whose ``pareto_k`` is above 0.7 have equal
    weights: they are draws of this approximation. Of 100 kernels of 200 objects that is the rule;
    write ``DirichletWeights(varphi=0.05)`` where few of them count, see there.

    With more than 5,000 objects on landmarks, or more than 1,000 weights of classes and landmarks,
    Laplace's approximation stands in place of expectation propagation, and draws of f (obs) are
    made only if ``fit(..., var_names=...)`` asks for them beyond 10,000.

    Parameters
    ----------
    max_points : int, optional
        Points, in up to eight rounds: each round is drawn around the weighted points of those
        before. More than ten hyperparameters have one round. Default: 256.
    integrate : bool, optional
        False: the hyperparameters stay at their mode (empirical Bayes), for large data. Their
        draws are then all equal. Default: True.

    Examples
    --------
    >>> inla = kz.fit(process, kz.INLA(), random_seed=1)
    >>> inla["variational"]["weight"]
    """

    name: ClassVar[str] = "INLA"
    field: ClassVar[str] = "inla"
    kind: ClassVar[Kind] = "vb"
    weighted: ClassVar[bool] = True
    limits: ClassVar[str] = (
        "O(N^3) for each point, O(N M^2) with M landmarks; "
        "read intervals only if pareto_k is below 0.7"
    )
    stores: ClassVar[bool] = True

    max_points: Count | None = None
    integrate: bool | None = None

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        output = self.implement(model, run)
        tree = independent_draws(model, run, output.sample, exact=True, with_draws=["f"])
        posterior = tree["posterior"].to_dataset()
        if run.log_likelihood and "f" in posterior:
            drawn = {str(name): joined_draws(draws) for name, draws in posterior.items()}
            observed = model.observed_RVs[0].name
            densities = {observed: output.log_likelihood(drawn)[None]}
            with_group(tree, "log_likelihood", labelled(model, densities, ["chain", "draw"]))
            if output.left_out is not None:
                with_group(tree, "left_out", labelled(model, {observed: output.left_out()}))
        points = labelled(model, output.points, ["point"])
        with_group(tree, "variational", points.assign(weight=("point", output.weights)))
        tree.attrs["pareto_k"] = output.k_hat
        if output.log_evidence is not None:
            tree.attrs["log_evidence"] = output.log_evidence
        else:
            tree.attrs["note"] = "The hyperparameters are at their mode; their draws are all equal."
        found = "yes" if output.converged else "no"
        tree.attrs.setdefault("converged", found)
        return tree


@dataclass(frozen=True, kw_only=True, repr=False)
class VB(PaperEngine[VariationalOutput]):
    """Variational Bayes by the paper's closed-form updates, or with less mean field.

    The result holds independent draws from q in ``posterior``, their log densities under the
    declaration (``lp``) and under q (``lq``) in ``sample_stats``, the parameters of q in
    ``variational``, and the bound by start and iteration in ``trajectory``.

    Parameters
    ----------
    scheme : {"auto", "marginal", "paper"}, optional
        `MultinomialProbit`: "paper" has a mean field over utilities and the regressors of each
        class. "marginal" integrates the utilities out and has one normal distribution of all
        regressors: its bound is tens of nats higher, learns `upsilon` (`LearnedScale`) and compares
        kernels, but at a given large `upsilon` it need not predict better. It takes about O(C (M +
        N)^3) for C > 2 classes, O(N M^2) for two, and kernels in memory. "auto" (the default) is
        "marginal" if `upsilon` is learned, else "paper".
    tolerance : float, optional
        Relative change of the objective below which a start may end, if `remaining` allows it.
        `DiagonalWishartCompletion`: relative change of E[lambda] below which the iterations end.
        Default: 1e-6; 1e-10 for `DiagonalWishartCompletion`.
    max_iterations : int, optional
        Largest number of iterations of a start. Default: 5,000; 10,000 for
        `DiagonalWishartCompletion`.
    remaining : float, optional
        `MultinomialProbit` and composite kernels: a start does not end before the estimated
        remaining increase of its objective, in nats, is at most this, if increases keep shrinking
        at the present rate. With inf only `tolerance` counts. Default: 0.01; for
        `MultinomialProbit` 0.01 max(1, N max(C - 1, 2) / 200) for N objects of C classes, and ten
        times this in the marginal scheme.
    starts : int, optional
        `MultinomialProbit` and composite kernels: number of starts, which differ in the initial
        kernel weights: uniform, each kernel alone, random. The start with the highest objective
        wins; known weights need one. Default: uniform and each kernel alone, at most 8, of which
        the highest continues alone after a first round; uniform only for more than 16 kernels.

    Notes
    -----
    `WishartCompletion` and `WishartKernelMixture` have a closed form and no settings. Do not
    interpret kernel weights or intervals of VB where the attribute ``pareto_k`` of the result is
    above 0.7 (`fit` warns): q is far narrower than the posterior. Class probabilities suffer less.

    Unless `starts` are given, sums of up to 16 kernels with 200 basis functions or more iterate in
    single precision in classification. The best start ends in double precision, and ``trajectory``
    has its bounds from there on. Kernels that are not normalised need double precision throughout.

    Examples
    --------
    >>> vb = kz.fit(model, kz.VB(starts=3), random_seed=1)
    >>> vb["trajectory"]
    >>> vb.attrs["pareto_k"]
    """

    name: ClassVar[str] = "VB"
    field: ClassVar[str] = "vb"
    kind: ClassVar[Kind] = "vb"
    limits: ClassVar[str] = (
        "ignores dependence: intervals are too narrow, those of kernel weights most"
    )

    scheme: Literal["auto", "marginal", "paper"] | None = None
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
        bound = np.asarray(output.elbo[output.best])
        tree.attrs["converged"] = convergence_of_ascent(tree, model, k_hat, output.converged, bound)
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
        draws = {name: np.asarray(value)[None] for name, value in output.values.items()}
        tree = draws_to_tree(model, draws, stats)
        with_group(tree, "point", tree["posterior"].to_dataset().isel(chain=0, draw=0, drop=True))
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
        eta > n + 1, as for a mixture's matched eta when all eta_k are at least n + 1 and at least
        two kernels have positive weights. The papers' 100 iterations are often far from it.
        Default: 100; 2,000 for `MutualKernelCompletion`.
    start : {"mean", "zero"}, optional
        `MutualKernelCompletion`: missing entries at the start. "mean" (the default) is the mean of
        the kernel's visible entries, "zero" the paper's, which needs many more iterations and can
        end in a saddle point.
    tolerance : float, optional
        `WishartCompletion` and `WishartKernelMixture`: largest distance of K22.1 from its limit,
        relative to the limit's norm, at which the point counts as converged.
        `MutualKernelCompletion`: about the relative distance of M from the mode in its flattest
        direction at which the iterations end. Default: 1e-6; 1e-3 for `MutualKernelCompletion`.
    memory : int, optional
        `MutualKernelCompletion`: number of past iterations that the quasi-Newton acceleration uses;
        ``memory=0, start="zero"`` is the paper's Algorithm 1. Default: 5.

    Examples
    --------
    >>> kz.fit(completion, kz.EM(max_iterations=100))["point"]["K21"]
    """

    name: ClassVar[str] = "EM"
    field: ClassVar[str] = "em"

    max_iterations: Count | Literal["limit"] | None = None
    start: Literal["mean", "zero"] | None = None
    tolerance: Positive | None = None
    memory: CountOrZero | None = None


#: For every model without discrete variables.
BY_GRADIENTS = Algorithm(search_by_gradients, unless=why_no_gradients)


@dataclass(frozen=True, kw_only=True, repr=False)
class MAP(PointEngine):
    """Mode of a density of the declaration: the paper's own algorithm, or a search by gradients.

    The search serves models whose paper has no algorithm. The result holds the point in ``point``
    and, as a single draw, in ``posterior``, its log density in ``sample_stats``, and the objective
    by start and iteration in ``trajectory``, with the final weights of each start
    (``beta_of_start``) for models with learned weights.

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
        Composite kernels: number of initial weights, as in `VB`, each with four ridge regressions
        as starts of alpha. The highest mode wins; sparse priors (sigma and varsigma far below 1)
        have many, and a higher one may exist. Default: uniform and each kernel alone, 8 at most.
    space : {"constrained", "unconstrained"}, optional
        Search by gradients: the density to maximise. "constrained" (the default) is that of the
        variables as declared, as in ``pm.find_MAP``, "unconstrained" that of their transforms,
        Jacobians included, which often has a mode where the first is unbounded.

    Examples
    --------
    >>> kz.fit(regression, kz.MAP(method="gradient"))["point"]["alpha"]
    """

    name: ClassVar[str] = "MAP"
    field: ClassVar[str] = "map"
    largest: ClassVar[int | None] = 10_000

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
