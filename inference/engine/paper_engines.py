"""Engines that turn the outputs of papers' algorithms into results: Exact, VB, EM and MAP.

Gibbs, whose output is step methods, is in `mcmc`.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Final, Literal, override

import numpy as np
import pymc as pm
from xarray import DataTree

from ...user_warnings import warn_user
from ...validation import Count, CountOrZero, Positive, PositiveOrInf
from .convergence import convergence_of_ascent, pareto_k
from .engine import Kind, Run, why_no_gradients
from .independent import independent_draws
from .mode import Space, search_by_gradients
from .outputs import ExactOutput, ModeOutput, PointOutput, VariationalOutput
from .paper import Algorithm, Paper, PaperEngine
from .result import point_to_tree, trajectory, with_group


class Exact(PaperEngine[ExactOutput]):
    """Independent draws from a posterior of known form.

    The result holds the draws in ``posterior``. Means and standard deviations of variables too
    large to keep are in ``moments``: in closed form where one is known, NaN where they are known to
    be infinite. ``log_evidence`` is in the attributes where it is known.

    Notes
    -----
    The field ``exact`` of a `Paper` is a function (model, run, *, settings) -> ExactOutput.

    Examples
    --------
    >>> exact = kz.fit(completion, kz.Exact(), random_seed=1)
    >>> exact["moments"]["K21_sd"]
    """

    name: ClassVar[str] = "Exact"
    kind: ClassVar[Kind] = "exact"
    limits: ClassVar[str] = "none: the draws are independent"
    stores: ClassVar[bool] = True

    @staticmethod
    @override
    def algorithm_of(paper: Paper) -> Algorithm[ExactOutput] | None:
        return paper.exact

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

    The field ``vb`` of a `Paper` is a function (model, run, *, settings) -> VariationalOutput.

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

    @staticmethod
    @override
    def algorithm_of(paper: Paper) -> Algorithm[VariationalOutput] | None:
        return paper.vb

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


class Default(Enum):
    """Placeholder for the model's default where None is a value."""

    DEFAULT = "the model's default"

    def __repr__(self) -> str:
        return self.name


DEFAULT: Final = Default.DEFAULT


@dataclass(frozen=True, kw_only=True, repr=False)
class EM(PaperEngine[PointOutput]):
    """Expectation-maximisation by the paper's closed-form updates.

    The result holds the point in ``point`` and, as a single draw, in ``posterior``, and the
    objective by iteration in ``trajectory``. The attribute ``converged`` is "no fixed point" where
    the iterations have no fixed point; ``note`` then says what this means for the point.

    Parameters
    ----------
    max_iterations : int or None, optional
        Largest number of iterations; `WishartCompletion` and `WishartKernelMixture` do exactly so
        many, each an E- and an M-step. There None computes the limit, which exists when
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

    Notes
    -----
    The field ``em`` of a `Paper` is a function (model, run, *, settings) -> PointOutput.

    Examples
    --------
    >>> kz.fit(completion, kz.EM(max_iterations=100))["point"]["K21"]
    """

    name: ClassVar[str] = "EM"
    kind: ClassVar[Kind] = "point"
    limits: ClassVar[str] = "no uncertainty"

    max_iterations: Count | Literal[Default.DEFAULT] | None = DEFAULT
    start: Literal["mean", "zero"] | None = None
    tolerance: Positive | None = None
    memory: CountOrZero | None = None

    @staticmethod
    @override
    def algorithm_of(paper: Paper) -> Algorithm[PointOutput] | None:
        return paper.em

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        output = self.implement(model, run)
        tree = point_to_tree(model, output.values)
        with_group(tree, "trajectory", trajectory("objective", [output.objective]))
        tree.attrs["converged"] = output.converged
        if output.note:
            tree.attrs["note"] = output.note
        if output.converged == "no":
            warn_user(output.note or "EM did not converge.")
        return tree


#: For every model without discrete variables.
BY_GRADIENTS = Algorithm(search_by_gradients, unless=why_no_gradients)


@dataclass(frozen=True, kw_only=True, repr=False)
class MAP(PaperEngine[ModeOutput]):
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
    The field ``map`` of a `Paper` is a function (model, run, *, settings) -> ModeOutput. Models
    without it are searched by gradients.

    Examples
    --------
    >>> kz.fit(regression, kz.MAP(method="gradient"))["point"]["alpha"]
    """

    name: ClassVar[str] = "MAP"
    kind: ClassVar[Kind] = "point"
    limits: ClassVar[str] = "no uncertainty"

    method: Literal["gradient"] | None = None
    max_iterations: Count | None = None
    tolerance: Positive | None = None
    starts: Count | None = None
    space: Space | None = None

    @property
    @override
    def given(self) -> dict[str, Any]:
        return {name: value for name, value in super().given.items() if name != "method"}

    @property
    @override
    def settings(self) -> dict[str, Any]:
        return self.given | {"method": self.method}

    @staticmethod
    @override
    def algorithm_of(paper: Paper) -> Algorithm[ModeOutput] | None:
        return paper.map

    @override
    def verdicts(self, model: pm.Model) -> list[tuple[Algorithm[ModeOutput], str | None]]:
        own = [] if self.method == "gradient" else super().verdicts(model)
        return [*own, (BY_GRADIENTS, BY_GRADIENTS.unless(model))]

    @override
    def serves(self, model: pm.Model) -> int | None:
        return 10_000 if self.algorithm(model) is BY_GRADIENTS else None

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        output = self.implement(model, run)
        tree = point_to_tree(model, output.values, {"lp": np.array([output.log_density])})
        climbs = trajectory("objective", output.climbs, output.best)
        for name, values in output.ends.items():
            dims = model.named_vars_to_dims[name]
            climbs[f"{name}_of_start"] = (("start", *dims), values)
            climbs = climbs.assign_coords({dim: list(model.coords[dim]) for dim in dims})
        with_group(tree, "trajectory", climbs)
        tree.attrs.update(output.attributes)
        tree.attrs["converged"] = "yes" if output.converged else "no"
        if output.note:
            tree.attrs["note"] = output.note
            warn_user(output.note)
        return tree
