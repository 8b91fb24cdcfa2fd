"""Checks of points: the gradient vanishes there, and no search from nearby finds a higher one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.blocking import DictToArrayBijection
from pymc.logprob.transforms import SimplexTransform
from pymc.pytensorf import join_nonshared_inputs
from pytensor.gradient import grad
from scipy.optimize import minimize
from xarray import DataTree

from kernelzoo import EM, MAP, Laplace
from kernelzoo.custom_steps.block import ValueMap
from kernelzoo.inference import Engine
from kernelzoo.inference.engine.evaluation import python_mode
from kernelzoo.inference.generic import unconstrained_labels
from kernelzoo.inference.paper_engines import BY_GRADIENTS
from kernelzoo.models import MutualKernelCompletion, WishartCompletion, WishartKernelMixture

from .case import Case, silent
from .findings import Finding, Outcome, passed_if

__all__ = ["Highest", "Peak", "Stationary", "peak_of", "searched_by_em"]

# Largest gradient at a mode, relative to that at points around it.
_FLAT = 1e-3
# Largest increase of a log density, in nats, that a search may find.
_GAIN = 1e-3
# Weights at a corner of the simplex have no coordinates.
_LEAST_WEIGHT = 1e-10


@dataclass(frozen=True)
class Peak:
    """An engine's answer, and the log density that it should maximise.

    Attributes
    ----------
    x : ndarray (D,)
        Answer in unconstrained coordinates.
    density : callable
        x -> (log density, gradient (D,)).
    told : str
        What the density is.
    converged : bool
        False if the engine itself says that its answer is no mode.
    """

    x: NDArray
    density: Callable[[NDArray], tuple[float, NDArray]]
    told: str
    converged: bool = True

    def outcome(self, right: bool) -> Outcome:
        """Outcome of a check of the answer: an engine that denies it is not wrong."""
        return passed_if(right) if self.converged else "biased"


@singledispatch
def peak_of(engine: Engine, case: Case) -> Peak:
    """Run an engine and return its answer with the density that it should maximise."""
    raise NotImplementedError(f"No density is registered for the answers of {engine.name}.")


@peak_of.register
def _(engine: Laplace, case: Case) -> Peak:
    result = case.fit(draws=25)
    model = case.model
    values = result["variational"]["mean"].sel(coordinate=unconstrained_labels(model)).to_numpy()
    density = _compiled(model, model.free_RVs, model.logp(jacobian=True))
    return Peak(values, density, "unconstrained density")


@peak_of.register
def _(engine: MAP, case: Case) -> Peak:
    model, told = case.model, ""
    result = case.fit()
    if result.attrs["converged"] == "no":
        told = "(the density as declared has no mode, as MAP says)"
        result = case.fit(MAP(method="gradient", space="unconstrained"))
    measure = result.attrs["lp_measure"]
    density = model.logp(jacobian=measure == "unconstrained")
    own = engine.algorithm(model) is not BY_GRADIENTS
    if own and not told:
        # The paper's alternation has phi integrated out, which is the mode over log phi.
        density = density + pt.sum(model.rvs_to_values[model["phi"]])
        measure = "constrained, but for log phi,"
    answer = _answer(model, model.free_RVs, result)
    converged = result.attrs["converged"] != "no"
    if not converged:
        told = "(MAP says that it has found no mode)"
    told = f"{measure} density {told}".strip()
    return Peak(answer, _compiled(model, model.free_RVs, density), told, converged)


@peak_of.register
def _(engine: EM, case: Case) -> Peak:
    rvs, density, told, settings = searched_by_em(case.model)
    result = case.fit(EM(**settings))
    return Peak(_answer(case.model, rvs, result), _compiled(case.model, rvs, density), told)


@singledispatch
def searched_by_em(model: Any) -> tuple[Sequence[Any], Any, str, dict[str, Any]]:
    """Variables, log density and its description that EM maximises, and settings to get there."""
    raise NotImplementedError(f"EM's density on {type(model).__name__} is not registered.")


@searched_by_em.register(WishartCompletion)
@searched_by_em.register(WishartKernelMixture)
def _(model: Any) -> tuple[Sequence[Any], Any, str, dict[str, Any]]:
    """Log p(K11, D) over D = Sigma^-1, with K21 and K22.1 integrated out (zhang_mixture, 3.2)."""
    rvs = [model[name] for name in ("Sigma11", "Sigma22_1", "B")]
    n1, n2 = model.n_train, model.n_test
    density = model.logp(vars=[*rvs, model["K11"]], jacobian=False)
    log_dets = [
        pt.linalg.slogdet(model.rvs_to_transforms[rv].backward(model.rvs_to_values[rv]))[1]
        for rv in rvs[:2]
    ]
    # The density of the blocks is that of Sigma times |Sigma11|^n2; that of Sigma^-1 has
    # |Sigma|^(n+1) more.
    density = density + (n1 + n2 + 1) * sum(log_dets) - n2 * log_dets[0]
    return rvs, density, "density of K11 and the inverse of Sigma", {"max_iterations": "limit"}


@searched_by_em.register
def _(model: MutualKernelCompletion) -> tuple[Sequence[Any], Any, str, dict[str, Any]]:
    """Log density of M^-1 given the visible blocks, with the hidden ones integrated out."""
    M = model["M"]
    backward = model.rvs_to_transforms[M].backward(model.rvs_to_values[M])
    kept = [M, *model.observed_RVs, *model.potentials]
    density = model.logp(vars=kept, jacobian=False)
    density = density + (len(model.coords["object"]) + 1) * pt.linalg.slogdet(backward)[1]
    return [M], density, "density of the inverse of M", {"tolerance": 1e-8}


def _answer(model: pm.Model, rvs: Sequence[Any], result: DataTree) -> NDArray:
    """Unconstrained coordinates of a result's point."""
    point = {str(rv.name): result["point"][str(rv.name)].to_numpy() for rv in rvs}
    for rv in rvs:
        if isinstance(model.rvs_to_transforms[rv], SimplexTransform):
            inside = np.maximum(point[rv.name], _LEAST_WEIGHT)
            point[rv.name] = inside / inside.sum(-1, keepdims=True)
    return _joined(ValueMap(model, rvs).unconstrain(point), model, rvs)


def _joined(point: Any, model: pm.Model, rvs: Sequence[Any]) -> NDArray:
    names = [str(model.rvs_to_values[rv].name) for rv in rvs]
    return DictToArrayBijection.map({name: np.asarray(point[name]) for name in names}).data


def _compiled(
    model: pm.Model, rvs: Sequence[Any], density: Any
) -> Callable[[NDArray], tuple[float, NDArray]]:
    """Compile a log density of variables, and its gradient, over joined coordinates."""
    values = [model.rvs_to_values[rv] for rv in rvs]
    start = model.initial_point()
    ordered = {str(value.name): start[str(value.name)] for value in values}
    (joint,), joined = join_nonshared_inputs(ordered, [density], values)
    evaluate = pm.compile([joined], [joint, grad(joint, joined)], mode=python_mode())
    evaluate.trust_input = True

    def density_at(x: NDArray) -> tuple[float, NDArray]:
        value, gradient = evaluate(x)
        return float(value), np.asarray(gradient)

    return density_at


@dataclass(frozen=True)
class Stationary:
    """Gradient at the answer, relative to the gradients around it.

    Parameters
    ----------
    around : float, default=0.1
        Standard deviation of the steps to the points around, in unconstrained coordinates.
    """

    around: float = 0.1

    name = "stationary"
    measures = "largest slope at the answer, relative to the slopes around it"

    def __call__(self, case: Case) -> Finding:
        """Evaluate the gradient at the answer and around."""
        assert case.engine is not None
        with silent():
            peak = peak_of(case.engine, case)
        rng = np.random.default_rng(case.seed)
        _, there = peak.density(peak.x)
        steps = rng.normal(scale=self.around, size=(9, len(peak.x)))
        around = [np.abs(peak.density(peak.x + step)[1]).max() for step in steps]
        usual = np.median(around)
        ratio = float(np.abs(there).max() / usual) if np.isfinite(usual) else np.nan
        outcome = peak.outcome(ratio <= _FLAT)
        message = f"{peak.told}: largest slope {np.abs(there).max():.2g}"
        return Finding(self.name, self.measures, outcome, message, ratio, _FLAT)


@dataclass(frozen=True)
class Highest:
    """Increase of the density that searches from perturbed answers find.

    Parameters
    ----------
    starts : int, default=5
    around : float, default=0.3
        Standard deviation of the perturbations, in unconstrained coordinates.
    """

    starts: int = 5
    around: float = 0.3

    name = "highest nearby"
    measures = "increase of the log density, in nats, by searches from perturbed answers"

    def __call__(self, case: Case) -> Finding:
        """Search by L-BFGS from around the answer."""
        assert case.engine is not None
        with silent():
            peak = peak_of(case.engine, case)
        rng = np.random.default_rng(case.seed)
        own, _ = peak.density(peak.x)
        found = []
        for _ in range(self.starts):
            start = peak.x + rng.normal(scale=self.around, size=peak.x.shape)
            search = minimize(
                lambda x: tuple(-part for part in peak.density(x)),
                start,
                jac=True,
                method="L-BFGS-B",
                options={"maxiter": 2_000, "ftol": 0.0, "gtol": 1e-6},
            )
            found.append(-float(search.fun))
        gain = max(found) - own
        outcome = peak.outcome(gain <= _GAIN)
        back = sum(abs(value - own) <= _GAIN for value in found)
        message = f"{back} of {self.starts} searches come back; {peak.told}"
        return Finding(self.name, self.measures, outcome, message, gain, _GAIN, decisive=False)
