"""Variational engines of PyMC and pymc-extras: ADVI and Pathfinder."""

from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import current_process
from typing import Any, ClassVar, Literal, override

import numpy as np
import pymc as pm
from xarray import DataTree

from ...validation import Count, Positive
from ..engine.chains import check_main_guard
from ..engine.convergence import convergence_of_noisy_ascent
from ..engine.engine import Engine, Kind, Run, too_large, why_no_gradients
from ..engine.evaluation import mode_worth
from ..engine.groups import log_density
from ..engine.independent import gaussian_result, lean_tree, lower_factor
from ..engine.result import trajectory, with_group

__all__ = ["ADVI", "Pathfinder"]


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
            factor = approximation.std.eval()
        else:
            factor = lower_factor(approximation.cov.eval(), self.name)
        tree = gaussian_result(model, run, approximation.mean.eval(), factor)
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
        "Gaussians along paths to a mode: few of its draws differ if pareto_k is high"
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
        if parallel:
            check_main_guard()
        fitted = pmx.fit_pathfinder(
            model=model,
            num_paths=self.paths,
            num_draws=run.draws,
            random_seed=run.random_seed,
            progressbar=run.progressbar,
            parallel=parallel,
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
