"""Checks of a declaration: two evaluations of its density, and its gradient by differences."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.blocking import DictToArrayBijection

from kernelzoo.custom_steps.block import ValueMap
from kernelzoo.inference.diagnostics.calibrate import FromPrior
from kernelzoo.inference.engine.evaluation import python_mode
from kernelzoo.inference.engine.groups import log_density
from kernelzoo.inference.mode import compile_objective

from .case import Case, NotRunError, reference, silent
from .findings import Finding, passed_if

__all__ = ["Density", "Gradient", "coordinates_of"]

type Objective = Callable[[NDArray], tuple[float, NDArray]]

# Largest relative differences that rounding and the differences' own errors explain.
_SAME = 1e-6
_SLOPE = 1e-5


def points(case: Case, number: int) -> list[dict[str, NDArray]]:
    """Values of the free variables: draws of the prior, or of the reference without data."""
    names = [str(rv.name) for rv in case.model.free_RVs]
    with silent():
        if case.model.observed_RVs:
            simulator = FromPrior(case.model)
            draws = [simulator.draw(case.seed + i)[0] for i in range(number)]
        else:
            posterior = reference(case)["posterior"].to_dataset()
            stacked = posterior.stack(sample=("chain", "draw")).transpose("sample", ...)
            places = np.linspace(0, stacked.sizes["sample"] - 1, number).astype(int)
            draws = [
                {str(name): values.to_numpy()[i] for name, values in stacked.items()}
                for i in places
            ]
    if lacking := [name for name in names if name not in draws[0]]:
        raise NotRunError(f"there are no draws of {', '.join(lacking)}")
    return [{name: np.asarray(draw[name]) for name in names} for draw in draws]


def coordinates_of(model: pm.Model, values: Mapping[str, NDArray]) -> NDArray:
    """Unconstrained coordinates (D,) of values of the free variables."""
    point = ValueMap(model, model.free_RVs).unconstrain(values)
    start = model.initial_point()
    return DictToArrayBijection.map({name: np.asarray(point[name]) for name in start}).data


@dataclass(frozen=True)
class Density:
    """Density at constrained draws against PyMC's compiled density of the value variables.

    Parameters
    ----------
    points : int, default=5
    """

    points: int = 5

    name = "density"
    measures = "largest relative difference of two evaluations of the log density"

    def __call__(self, case: Case) -> Finding:
        """Evaluate both."""
        model, where = case.model, points(case, self.points)
        ours = log_density(model, {name: np.stack([p[name] for p in where]) for name in where[0]})
        compiled = model.compile_logp(jacobian=False, mode=python_mode())
        to_point = ValueMap(model, model.free_RVs)
        theirs = np.array([compiled(to_point.unconstrain(p)) for p in where])
        gap = np.abs(ours - theirs) / np.maximum(1.0, np.abs(theirs))
        worst = float(gap.max()) if np.isfinite(gap).all() else np.inf
        outcome = passed_if(worst <= _SAME)
        message = f"at {len(where)} draws, from {theirs.min():.4g} to {theirs.max():.4g}"
        return Finding(self.name, self.measures, outcome, message, worst, _SAME)


@dataclass(frozen=True)
class Gradient:
    """Gradient against central differences along random directions.

    Parameters
    ----------
    points, directions : int
        Number of points, and of directions at each.
    """

    points: int = 5
    directions: int = 5

    name = "gradient"
    measures = "largest difference of slopes from central differences, relative to the gradient"

    def __call__(self, case: Case) -> Finding:
        """Compare slopes of the unconstrained density."""
        model = case.model
        if model.discrete_value_vars:
            raise NotRunError("a discrete variable has no gradient")
        with silent():
            _, objective = compile_objective(model, jacobian=True, mode=python_mode())
        where = [coordinates_of(model, p) for p in points(case, self.points)]
        rng = np.random.default_rng(case.seed)
        gaps = list(self._gaps(objective, where, rng))
        worst = float(np.max(gaps)) if np.isfinite(gaps).all() else np.inf
        outcome = passed_if(worst <= _SLOPE)
        message = f"{self.directions} directions at each of {len(where)} draws"
        return Finding(self.name, self.measures, outcome, message, worst, _SLOPE)

    def _gaps(
        self, objective: Objective, where: Sequence[NDArray], rng: np.random.Generator
    ) -> Iterator[float]:
        for x in where:
            _, gradient = objective(x)
            for _ in range(self.directions):
                direction = rng.normal(size=x.shape)
                direction /= np.linalg.norm(direction)
                gap = float(_slope(objective, x, direction) - gradient @ direction)
                yield abs(gap) / max(1.0, float(np.linalg.norm(gradient)))


def _slope(objective: Objective, x: NDArray, direction: NDArray) -> float:
    """Slope by central differences of two steps, extrapolated to a step of zero."""
    coarse, fine = (
        (objective(x + h * direction)[0] - objective(x - h * direction)[0]) / (2 * h)
        for h in (2e-4, 1e-4)
    )
    return (4 * fine - coarse) / 3
