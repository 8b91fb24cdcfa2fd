"""Engines that work on any PyMC model: NUTS, ADVI, Pathfinder, Laplace and SMC."""

import logging
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import zip_longest
from multiprocessing import current_process
from typing import Any, ClassVar, Literal, override

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.sampling.parallel import _cpu_count
from pymc.step_methods.hmc.base_hmc import BaseHMC
from pytensor.graph.replace import clone_replace
from scipy.linalg import cholesky
from scipy.special import logsumexp
from xarray import Dataset, DataTree

from ..models.initial_point import QUICK
from ..validation import Count, Fraction, Positive
from .engine.chains import (
    has_workers,
    keywords_of,
    make_lean,
    run_chains,
    sample_on_workers,
)
from .engine.convergence import (
    convergence_of_noisy_ascent,
    convergence_of_particles,
    last_acceptance,
    pareto_k,
)
from .engine.engine import Engine, Kind, Run, too_large, why_no_gradients, why_not_in_memory
from .engine.evaluation import compiled_by, mode_worth, python_mode
from .engine.groups import log_density
from .engine.independent import constrained_draws, lean_tree
from .engine.result import trajectory, with_group
from .engine.shared_settings import quiet_libraries
from .engine.workers import context_of_workers
from .mode import find_mode

# Usual number of likelihood evaluations of a particle of SMC: stages times moves.
_MOVES = 100


# Arguments that `pm.sample` passes on to NUTS if it is the only step; it sets the excluded ones.
_OF_NUTS = keywords_of(pm.NUTS.__init__, BaseHMC.__init__) - {
    *("vars", "blocked", "potential", "rng", "initial_point")
}


# Processor seconds by which a first run exceeds a second one on each model's smallest example
# (`benchmarks cold`): from 15 for the composite kernels to 39 for WishartKernelMixture.
COMPILING = "Compiling the gradient: 15 to 40 s for a new structure of model, about 1 s otherwise"


@dataclass(frozen=True)
class NUTS(Engine):
    """No-U-turn sampler on the declaration.

    Parameters
    ----------
    backend : {"pymc", "nutpie", "numpyro"}, default="pymc"
        Implementation. numpyro runs on the device that JAX finds, a GPU before the processor.
    target_accept : float, default=0.9
        Target of the step-size adaptation, between 0 and 1.
    max_treedepth : int, default=10
        Largest number of doublings of a trajectory.

    Examples
    --------
    >>> nuts = kz.fit(model, kz.NUTS(target_accept=0.95), chains=2, random_seed=1)
    """

    name: ClassVar[str] = "NUTS"
    kind: ClassVar[Kind] = "mcmc"
    largest: ClassVar[int | None] = 2_000
    limits: ClassVar[str] = "compiles the gradient for 15 to 40 s first; chains may miss modes"
    stores: ClassVar[bool] = True

    backend: Literal["pymc", "nutpie", "numpyro"] = "pymc"
    target_accept: Fraction = 0.9
    max_treedepth: Count = 10

    @override
    def sampler_arguments(self) -> frozenset[str]:
        known = keywords_of(pm.sample) | {"nuts"}
        return known | _OF_NUTS if self.backend == "pymc" else known

    @override
    def why_no_time_limit(self) -> str | None:
        if self.backend == "pymc":
            return None
        return f"{self.backend} calls nothing between draws: use backend='pymc'"

    @override
    def why_not(self, model: pm.Model) -> str | None:
        if find_spec(self.backend) is None:
            extra = "jax" if self.backend == "numpyro" else self.backend
            return f"the package {self.backend} is not installed (pip install kernelzoo[{extra}])"
        return why_no_gradients(model)

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        own = self.backend == "pymc"
        if own and has_workers(run):
            return sample_on_workers(self, model, run)
        depth = "max_tree_depth" if self.backend == "numpyro" else "max_treedepth"
        options: dict[str, Any] = {"target_accept": self.target_accept, depth: self.max_treedepth}
        if own and run.progressbar and "compile_kwargs" not in run.sampler_options:
            logging.getLogger("pymc").info(COMPILING)
        with quiet_libraries():
            return run_chains(model, run, callbacks=own, nuts_sampler=self.backend, nuts=options)


@dataclass(frozen=True)
class ADVI(Engine):
    """Automatic differentiation variational inference (`pm.fit`).

    Parameters
    ----------
    covariance : {"mean-field", "full-rank"}, default="mean-field"
        Gaussian family on the unconstrained space.
    max_iterations : int, default=30000
        Number of stochastic gradient steps. PyMC's own default (10,000 small steps) stops too
        early.
    learning_rate : float, default=0.02
        Step size of windowed AdaGrad.

    Examples
    --------
    >>> result = kz.fit(model, kz.ADVI(max_iterations=5000), random_seed=1)
    >>> kz.pareto_k(result)
    """

    name: ClassVar[str] = "ADVI"
    kind: ClassVar[Kind] = "vb"
    largest: ClassVar[int | None] = 5_000
    limits: ClassVar[str] = "Gaussian by noisy gradients: ignores skewness and other modes"

    covariance: Literal["mean-field", "full-rank"] = "mean-field"
    max_iterations: Count = 30_000
    learning_rate: Positive = 0.02

    @override
    def why_not(self, model: pm.Model) -> str | None:
        full = self.covariance == "full-rank"
        return why_no_gradients(model) or (too_large(model) if full else None)

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        approximation: Any = pm.fit(
            n=self.max_iterations,
            method="advi" if self.covariance == "mean-field" else "fullrank_advi",
            model=model,
            random_seed=run.random_seed,
            progressbar=run.progressbar,
            obj_optimizer=pm.adagrad_window(learning_rate=self.learning_rate),
            callbacks=[lambda *_: run.clock.check()],
            compile_kwargs={"mode": mode_worth(self.max_iterations)},
        )
        if self.covariance == "mean-field":
            factor = approximation.std.eval(mode=python_mode())
        else:
            factor = lower_factor(approximation.cov.eval(mode=python_mode()), self.name)
        mean = approximation.mean.eval(mode=python_mode())
        tree = gaussian_result(model, run, mean, factor)
        elbo = -np.asarray(approximation.hist, dtype=float)
        with_group(tree, "trajectory", trajectory("elbo", [elbo]))
        finished = len(elbo) == self.max_iterations
        tree.attrs["converged"] = convergence_of_noisy_ascent(elbo) if finished else "no"
        return tree


@dataclass(frozen=True)
class Pathfinder(Engine):
    """Multi-path Pathfinder with Pareto-smoothed importance resampling (`pymc_extras`).

    Parameters
    ----------
    paths : int, default=8
        Number of optimisation paths from jittered starts.

    Examples
    --------
    >>> result = kz.fit(model, kz.Pathfinder(paths=4), random_seed=1)
    """

    name: ClassVar[str] = "Pathfinder"
    kind: ClassVar[Kind] = "vb"
    largest: ClassVar[int | None] = 2_000
    limits: ClassVar[str] = (
        "Gaussians along paths to a mode: many draws are copies if pareto_k is high"
    )

    paths: Count = 8

    @override
    def why_no_time_limit(self) -> str | None:
        return "pymc-extras calls nothing between steps"

    @override
    def why_not(self, model: pm.Model) -> str | None:
        if find_spec("pymc_extras") is None:
            return "the package pymc-extras is not installed (pip install kernelzoo[extras])"
        reshaped = [rv.name for rv in model.free_RVs if rv.ndim != model.rvs_to_values[rv].ndim]
        if reshaped:
            # pymc_extras labels the coordinates of a value variable by the variable's dims.
            return f"pymc-extras cannot label a transformed matrix ({', '.join(reshaped)})"
        return why_no_gradients(model)

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        import pymc_extras as pmx

        # A worker of a cluster may have no processes of its own.
        parallel = not current_process().daemon
        fitted = pmx.fit_pathfinder(
            model=model,
            num_paths=self.paths,
            num_draws=run.draws,
            random_seed=run.random_seed,
            progressbar=run.progressbar,
            parallel=parallel,
            mp_ctx=context_of_workers(None, python_mode()) if parallel else None,
            compile_kwargs={"mode": python_mode()},
        )
        names = [v.name for v in model.free_RVs + model.deterministics]
        posterior = fitted["posterior"]
        draws = {name: posterior[name].stack(one=("chain", "draw")).values for name in names}
        draws = {name: np.moveaxis(value, -1, 0) for name, value in draws.items()}
        tree = lean_tree(model, run, draws, {"lp": log_density(model, draws)})
        with_group(tree, "variational", fitted["pathfinder"].to_dataset())
        tree.attrs |= {
            "pareto_k": float(fitted["pathfinder"]["pareto_k"]),
            "lp_measure": "constrained",
            # Draws are resampled with importance weights and may repeat.
            "independent": 0,
        }
        return tree


def _prior_population(
    model: pm.Model, draws: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Draws (draw, ...) from the free variables' prior given the data, unconstrained.

    A variable that depends on an observed one is drawn given the observed value, in agreement with
    the prior density that `pm.sample_smc` tempers. Draws without finite coordinates (a Dirichlet
    weight that underflows) are left out: in PyMC's own population they turn all weights into NaN.
    Draws with likelihood zero stay, because the evidence is the mean over the prior.
    """
    drawn = {
        model.rvs_to_values[rv].name: rv
        if (transform := model.rvs_to_transforms[rv]) is None
        else transform.forward(rv, *rv.owner.inputs)
        for rv in model.free_RVs
    }
    data = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    coordinates = clone_replace(list(drawn.values()), data)
    densities = model.compile_fn(
        [model.logp(vars=model.free_RVs), model.logp()], mode=python_mode()
    )
    kept: list[dict[str, np.ndarray]] = []
    drawn_so_far = 0
    while len(kept) < draws:
        if drawn_so_far > 1000 * (1 + len(kept)):
            raise ValueError(
                f"SMC starts from draws of the prior, but only {len(kept)} of {drawn_so_far} have "
                "a finite prior density and a likelihood that is a number."
            )
        # At least two, because a single draw would lack the leading axis. Thousands of draws in
        # Python take less time than compilation.
        size = max(draws - len(kept), 2)
        values = pm.draw(coordinates, size, random_seed=rng, mode=QUICK)
        drawn_so_far += size
        points = (dict(zip(drawn, row, strict=True)) for row in zip(*values, strict=True))
        with np.errstate(all="ignore"):
            for point in points:
                prior, posterior = densities(point)
                if np.isfinite(prior) and not np.isnan(posterior):
                    kept.append(point)
    return {name: np.array([point[name] for point in kept[:draws]]) for name in drawn}


@dataclass(frozen=True)
class Laplace(Engine):
    """Gaussian at the mode of the unconstrained density, with the curvature there.

    Unlike `pymc_extras.fit_laplace` this keeps the Jacobians of the transforms: without them the
    Gaussian does not approximate the posterior, and hierarchical models often have no mode.

    Parameters
    ----------
    max_iterations : int, default=5000
        Largest number of iterations of the search for the mode.

    Notes
    -----
    The curvature is a central difference of the gradient: O(D) gradients and one Cholesky
    factorisation, O(D^3).

    Examples
    --------
    >>> result = kz.fit(regression, kz.Laplace(), random_seed=1)
    """

    name: ClassVar[str] = "Laplace"
    kind: ClassVar[Kind] = "vb"
    largest: ClassVar[int | None] = 2_000
    limits: ClassVar[str] = "one Gaussian at one mode: ignores skewness and other modes"

    max_iterations: Count = 5000

    @override
    def why_no_time_limit(self) -> str | None:
        return "it has no result before the curvature is complete: lower max_iterations"

    @override
    def why_not(self, model: pm.Model) -> str | None:
        return why_no_gradients(model) or too_large(model)

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        mode = find_mode(model, run, "unconstrained", self.max_iterations)
        root = lower_factor(mode.curvature(run), self.name)
        covariance = np.linalg.solve(root.T, np.linalg.solve(root, np.eye(len(root))))
        tree = gaussian_result(model, run, mode.x, lower_factor(covariance, self.name))
        tree.attrs["converged"] = "yes" if mode.found else "no"
        return tree


def gaussian_result(model: pm.Model, run: Run, mean: NDArray, factor: NDArray) -> DataTree:
    """Turn N(mean, factor factor') into a result, an approximation on the unconstrained space.

    The factor is a lower triangle (D, D), or the standard deviations (D,).
    """
    diagonal = factor if factor.ndim == 1 else np.diagonal(factor)
    noise = run.rng(1).standard_normal((run.draws, len(mean)))
    points = mean + (noise * factor if factor.ndim == 1 else noise @ factor.T)
    log_q = -0.5 * (noise**2 + np.log(2 * np.pi)).sum(1) - np.log(diagonal).sum()

    draws_of, log_p = constrained_draws(model, points)
    tree = lean_tree(model, run, draws_of, {"lp": log_p, "lq": log_q})
    sd = factor if factor.ndim == 1 else np.sqrt((factor**2).sum(1))
    parameters = Dataset(
        {"mean": ("coordinate", mean), "sd": ("coordinate", sd)},
        coords={"coordinate": unconstrained_labels(model)},
    )
    with_group(tree, "variational", parameters)
    tree.attrs |= {"pareto_k": pareto_k(tree), "independent": 1, "lp_measure": "unconstrained"}
    return tree


def unconstrained_labels(model: pm.Model) -> list[str]:
    """Names of the unconstrained coordinates, by value variable in declared order."""
    labels: list[str] = []
    point = model.initial_point()
    for value in model.continuous_value_vars:
        for index in np.ndindex(np.shape(point[value.name])):
            labels.append(f"{value.name}[{', '.join(map(str, index))}]" if index else value.name)
    return labels


def lower_factor(covariance: NDArray, engine: str) -> NDArray:
    """Lower Cholesky factor of an approximation's covariance; raise ValueError if there is none."""
    try:
        return cholesky(covariance, lower=True)
    except np.linalg.LinAlgError:
        smallest = float(np.linalg.eigvalsh(covariance)[0])
        raise ValueError(
            f"{engine} found a covariance that is not positive definite (smallest eigenvalue "
            f"{smallest:.3g}): the point where it stopped is not a mode."
        ) from None


@dataclass(frozen=True)
class SMC(Engine):
    """Sequential Monte Carlo from prior to posterior (`pm.sample_smc`).

    Parameters
    ----------
    kernel : {"IMH", "MH"}, default="IMH"
        Independent or random-walk Metropolis-Hastings moves.

    Notes
    -----
    SMC starts from the prior given the data. `pm.sample_smc` alone simulates observed variables for
    its start, which is wrong where a free variable depends on an observed one, as K21 on K11 in
    `WishartCompletion`.

    Means and spreads are biased by the finite number of particles, and no standard error shows it,
    because particles share ancestors. On ``WishartKernelMixture.example(1)`` with four times 4,000
    particles, means were 0.07 and 0.06 standard deviations from those of `Exact`, and spreads 7 %
    too small. For posteriors of one mode take NUTS.

    Examples
    --------
    >>> result = kz.fit(small_model, kz.SMC(), draws=100, chains=2, random_seed=1)
    >>> result.attrs["log_evidence"]
    """

    name: ClassVar[str] = "SMC"
    kind: ClassVar[Kind] = "mcmc"
    largest: ClassVar[int | None] = 50
    limits: ClassVar[str] = (
        "means and sds are biased with few particles; for few coordinates and several modes"
    )

    kernel: Literal["IMH", "MH"] = "IMH"

    @override
    def sampler_arguments(self) -> frozenset[str]:
        kernel = getattr(pm.smc.kernels, self.kernel)
        initialisers = [cls.__init__ for cls in kernel.__mro__[:-2]]
        return keywords_of(pm.sample_smc, *initialisers) - {"start", "kernel"}

    @override
    def why_no_time_limit(self) -> str | None:
        return "PyMC calls nothing between its stages"

    @override
    def why_not(self, model: pm.Model) -> str | None:
        if reason := why_not_in_memory(model):
            return reason
        return None if model.observed_RVs else "the model has no observed variable"

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        population = _prior_population(model, run.draws * run.chains, run.rng())
        by_chain = zip(*(np.split(each, run.chains) for each in population.values()), strict=True)
        mode = mode_worth(run.chains * run.draws * _MOVES)
        options: dict[str, Any] = {"compile_kwargs": {"mode": mode}}
        options |= run.sampler_options
        if max(1, min(run.cores or _cpu_count(), run.chains)) > 1:
            mode = options["compile_kwargs"].get("mode")
            options["mp_ctx"] = context_of_workers(options.get("mp_ctx"), mode)
        tree = pm.sample_smc(
            run.draws,
            start=[dict(zip(population, values, strict=True)) for values in by_chain],
            kernel=getattr(pm.smc.kernels, self.kernel),
            chains=run.chains,
            cores=run.cores,
            random_seed=run.random_seed,
            progressbar=run.progressbar,
            # The draws are evaluated once.
            model=compiled_by(python_mode(), model),
            **options,
        )
        stats = _rectangular(tree["sample_stats"].to_dataset(), run.chains)
        with_group(tree, "sample_stats", stats)
        evidence = stats["log_marginal_likelihood"].values
        last = [row[np.isfinite(row)][-1] for row in evidence]
        # Each chain's estimate of the evidence is unbiased; its logarithm is not.
        tree.attrs["log_evidence"] = float(logsumexp(last) - np.log(len(last)))
        # Particles share ancestors, in random order: they are neither a chain nor independent.
        tree.attrs["independent"] = 0
        make_lean(tree, model, run)
        acceptance = last_acceptance(stats)
        tree.attrs["converged"] = convergence_of_particles(tree, model, run.draws, acceptance)
        return tree


def _rectangular(stats: Dataset, chains: int) -> Dataset:
    """Statistics by chain and stage, padded with NaN where chains have fewer stages."""
    columns = {}
    for name, values in stats.data_vars.items():
        of_chains = values.values if chains > 1 else [values.values]
        by_stage = np.array([*zip_longest(*of_chains, fillvalue=np.nan)], dtype=float)
        columns[name] = (("chain", "stage"), by_stage.T)
    return Dataset(columns, coords={"chain": np.arange(chains)}, attrs=stats.attrs)
