"""Engines that call a function of the model's paper: Exact, Gibbs, INLA, VB, EM and MAP.

They turn the outputs of these functions into results.
"""

from collections.abc import Mapping, Sequence
from inspect import Parameter, Signature
from typing import Any, ClassVar, override

import numpy as np
import pymc as pm
from pymc.sampling.mcmc import STEP_METHODS
from xarray import DataTree

from ..user_warnings import warn_user
from ..validation import check_arguments
from .engine.chains import has_workers, keywords_of, run_chains, sample_on_workers
from .engine.convergence import convergence_of_ascent, pareto_k
from .engine.engine import Engine, Kind, Run, why_no_gradients
from .engine.independent import independent_draws
from .engine.paper import Algorithm, models_with, paper_with, papers_with
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
from .mode import search_by_gradients


class SettingsOfAlgorithms:
    """Signature of an engine: the settings that the algorithms of some models take."""

    def __get__(self, engine: object, cls: "type[PaperEngine[Any]]") -> Signature:
        names = dict.fromkeys(name for each in cls.algorithms().values() for name in each.settings)
        return Signature([Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in names])


class PaperEngine[Output](Engine):
    """An engine that calls a function of the model's paper, or of its nearest ancestor's.

    The function's keyword arguments are the settings. A setting that is None has the function's
    default.
    """

    own: ClassVar[bool] = True
    #: Field of `Paper` that has the algorithm.
    field: ClassVar[str]
    __signature__: ClassVar[SettingsOfAlgorithms] = SettingsOfAlgorithms()
    _settings: Mapping[str, Any]

    def __init__(self, **settings: Any) -> None:
        given = {name: value for name, value in settings.items() if value is not None}
        object.__setattr__(self, "_settings", given)

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value!r}" for key, value in self.settings.items())
        return f"{type(self).__name__}({arguments})"

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"An engine does not change: make another, {self.name}({name}=...).")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and repr(other) == repr(self)

    def __hash__(self) -> int:
        return hash(repr(self))

    @property
    @override
    def settings(self) -> dict[str, Any]:
        return dict(self._settings)

    @classmethod
    def algorithms(cls) -> dict[str, Algorithm[Output]]:
        """Algorithms by the names of their models."""
        return {paper.model.__name__: getattr(paper, cls.field) for paper in papers_with(cls.field)}

    def verdict(self, model: pm.Model) -> tuple[Algorithm[Output] | None, str | None]:
        """Algorithm of the model's paper, and why it does not apply, or None."""
        if (paper := paper_with(self.field, model)) is None:
            available = f"available for {models_with(self.field)}"
            return None, f"not available for {type(model).__name__} ({available})"
        algorithm: Algorithm[Output] = getattr(paper, self.field)
        return algorithm, paper.why_not(model) or algorithm.unless(model)

    @override
    def why_not(self, model: pm.Model) -> str | None:
        _, reason = self.verdict(model)
        return reason

    def algorithm(self, model: pm.Model) -> Algorithm[Output]:
        """Algorithm for the model, which must exist."""
        algorithm, reason = self.verdict(model)
        if algorithm is None:
            raise ValueError(f"{self.name} does not apply: {reason}.")
        return algorithm

    @override
    def settings_on(self, model: pm.Model) -> dict[str, Any]:
        algorithm = self.algorithm(model)
        owner = f"{self.name} on {type(model).__name__}"
        for setting in self.settings:
            if setting not in algorithm.settings:
                raise ValueError(self._of_another(setting, model))
        check_arguments(algorithm.function, self.settings, owner)
        return algorithm.settings | self.settings

    def _of_another(self, setting: str, model: pm.Model) -> str:
        """Say which algorithms take a setting that the model's does not."""
        owner = f"{self.name} on {type(model).__name__}"
        taken = ", ".join(self.algorithm(model).settings)
        does = f"It takes {taken}." if taken else "It has no settings."
        own, reason = PaperEngine.verdict(self, model)
        if own is not None and setting in own.settings:
            why = reason or "another one is asked for"
            hint = f"The model's own algorithm does, but {why}."
            return f"{owner} does not take {setting!r}. {does} {hint}"
        others = [name for name, each in self.algorithms().items() if setting in each.settings]
        return f"{owner} does not take {setting!r}, a setting for {' and '.join(others)}. {does}"

    @override
    def explained_by(self, model: pm.Model) -> object:
        return self.algorithm(model).function

    def implement(self, model: pm.Model, run: Run) -> Output:
        """Call the paper's function for the model; ValueError for settings it does not take."""
        return self.algorithm(model).function(model, run, **self.settings_on(model))


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


class Gibbs(PaperEngine[Sequence[Any]]):
    """The paper's Gibbs steps inside `pm.sample`, with NUTS on the remaining variables.

    The settings are those of the model's algorithm: ``kz.engines(model)`` lists them with their
    defaults, and ``kz.engines(model).help("Gibbs")`` explains them.

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


class INLA(PaperEngine[IntegratedOutput]):
    """Integrated nested Laplace approximation (Rue, Martino & Chopin 2009).

    Given the hyperparameters, latent functions are normal for normal observations, and nearly so
    for others. Laplace's method finds the mode of the hyperparameters. Points around it are
    weighted by importance. At each point functions are drawn from their normal approximation; the
    posterior is the weighted mixture.

    The result holds draws of the mixture in ``posterior``, and the points with their weights in
    ``variational``. The attribute ``pareto_k`` is that of the weights: below 0.7 the points
    represent the posterior of the hyperparameters. ``log_evidence`` is the log of the weights'
    mean, an estimate of the marginal likelihood. With the group ``log_likelihood`` comes the group
    ``left_out``: the log predictive density of each observation given all others, for
    `kz.scores.loo`.

    The settings are those of the model's algorithm: ``kz.engines(model)`` lists them with their
    defaults, and ``kz.engines(model).help("INLA")`` explains them.

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


class VB(PaperEngine[VariationalOutput]):
    """Variational Bayes by the paper's closed-form updates, or with less mean field.

    The result holds independent draws from q in ``posterior``, their log densities under the
    declaration (``lp``) and under q (``lq``) in ``sample_stats``, the parameters of q in
    ``variational``, and the bound by start and iteration in ``trajectory``.

    The settings are those of the model's algorithm: ``kz.engines(model)`` lists them with their
    defaults, and ``kz.engines(model).help("VB")`` explains them.

    Notes
    -----
    Do not interpret kernel weights or intervals of VB where the attribute ``pareto_k`` of the
    result is above 0.7 (`fit` warns): q is far narrower than the posterior. Class probabilities
    suffer less.

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


class PointEngine(PaperEngine[PointOutput]):
    """An engine whose result is a single point."""

    kind: ClassVar[Kind] = "point"
    limits: ClassVar[str] = "no uncertainty"

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        output = self.implement(model, run)
        has_density = output.log_density is not None
        stats = {"lp": np.array([output.log_density])} if has_density else None
        asked = [*output.values] if run.var_names is None else run.var_names
        draws = {name: np.asarray(output.values[name])[None] for name in asked}
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


class EM(PointEngine):
    """Expectation-maximisation by the paper's closed-form updates.

    The result holds the point in ``point`` and, as a single draw, in ``posterior``, and the
    objective by iteration in ``trajectory``. The attribute ``converged`` is "no fixed point" where
    the iterations have no fixed point; ``note`` then says what this means for the point.

    The settings are those of the model's algorithm: ``kz.engines(model)`` lists them with their
    defaults, and ``kz.engines(model).help("EM")`` explains them.

    Examples
    --------
    >>> kz.fit(completion, kz.EM(max_iterations=100))["point"]["K21"]
    """

    name: ClassVar[str] = "EM"
    field: ClassVar[str] = "em"


#: For every model without discrete variables.
BY_GRADIENTS = Algorithm(search_by_gradients, unless=why_no_gradients)


class MAP(PointEngine):
    """Mode of a density of the declaration: the paper's own algorithm, or a search by gradients.

    The search serves models whose paper has no algorithm, or one that does not apply, and with
    ``method="gradient"`` all others. The result holds the point in ``point`` and, as a single draw,
    in ``posterior``, its log density in ``sample_stats``, and the objective by start and iteration
    in ``trajectory``, with the final weights of each start (``beta_of_start``) for models with
    learned weights.

    The settings are those of the model's algorithm: ``kz.engines(model)`` lists them with their
    defaults, and ``kz.engines(model).help("MAP")`` explains them.

    Examples
    --------
    >>> kz.fit(regression, kz.MAP(method="gradient"))["point"]["alpha"]
    """

    name: ClassVar[str] = "MAP"
    field: ClassVar[str] = "map"
    largest: ClassVar[int | None] = 10_000

    @classmethod
    @override
    def algorithms(cls) -> dict[str, Algorithm[PointOutput]]:
        return super().algorithms() | {"MAP(method='gradient')": BY_GRADIENTS}

    @override
    def verdict(self, model: pm.Model) -> tuple[Algorithm[PointOutput] | None, str | None]:
        own, reason = super().verdict(model)
        if own is not None and reason is None and "method" not in self.settings:
            return own, None
        return BY_GRADIENTS, BY_GRADIENTS.unless(model)
