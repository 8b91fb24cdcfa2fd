"""Search for a mode of a declaration by gradients, and the curvature there."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.blocking import DictToArrayBijection
from pymc.pytensorf import join_nonshared_inputs
from pytensor.gradient import grad
from pytensor.tensor import TensorVariable
from scipy.optimize import OptimizeResult, minimize

from ..validation import Count
from .engine.engine import Run
from .engine.evaluation import python_mode
from .engine.independent import constrained_draws
from .engine.result import PointOutput

Space = Literal["constrained", "unconstrained"]

# Largest gradient at a point that counts as a mode found in double precision.
GRADIENT_BOUND = 1e-2
# Number of steps from which L-BFGS approximates the curvature.
MEMORY = 30


class Mode(NamedTuple):
    """Last point of a search for a mode, in unconstrained coordinates.

    `steepest` is the largest gradient there, `objective` the function x -> (minus log density,
    gradient).
    """

    x: NDArray
    log_density: float
    history: NDArray
    steepest: float
    objective: Callable[[NDArray], tuple[float, NDArray]]

    @property
    def found(self) -> bool:
        """Whether the gradient vanishes at the point."""
        return self.steepest <= GRADIENT_BOUND

    def curvature(self, run: Run) -> NDArray:
        """Hessian (D, D) of minus the log density, by central differences: 2 D gradients."""
        step = np.finfo(float).eps ** (1 / 3) * np.maximum(1.0, np.abs(self.x))
        hessian = np.empty((len(step), len(step)))
        with run.track(len(step), "Curvature") as bar:
            for i, h in enumerate(step):
                offset = np.zeros_like(self.x)
                offset[i] = h
                hessian[i] = self.objective(self.x + offset)[1]
                hessian[i] -= self.objective(self.x - offset)[1]
                hessian[i] /= 2 * h
                bar.advance()
        return 0.5 * (hessian + hessian.T)


def find_mode(model: pm.Model, run: Run, space: Space, max_iterations: int) -> Mode:
    """Search for a mode by L-BFGS from the model's initial point, jittered by the seed.

    Coordinates are unconstrained in both spaces; the constrained density has no Jacobians.
    """
    start, objective = compile_objective(
        model, jacobian=space == "unconstrained", random_seed=run.random_seed, mode=python_mode()
    )
    last = start + run.rng().uniform(-0.5, 0.5, size=start.shape)
    history: list[float] = []
    limits = {"maxiter": max_iterations, "maxfun": 2 * max_iterations}
    with suppress(KeyboardInterrupt), run.track(None, "Mode") as bar:

        def report(intermediate_result: OptimizeResult) -> None:
            nonlocal last
            last = intermediate_result.x
            history.append(-float(intermediate_result.fun))
            bar.advance(log_density=history[-1])

        last = minimize(
            objective,
            last,
            jac=True,
            method="L-BFGS-B",
            callback=report,
            options=limits | {"maxcor": MEMORY, "ftol": 0.0, "gtol": 1e-5},
        ).x
    value, gradient = objective(last)
    log_density = -float(value)
    steepest = float(np.abs(gradient).max())
    return Mode(last, log_density, np.array(history or [log_density]), steepest, objective)


def compile_objective(
    model: pm.Model, *, jacobian: bool, random_seed: int | None = None, **compile_kwargs: Any
) -> tuple[NDArray, Callable[[NDArray], tuple[float, NDArray]]]:
    """Compile x -> (minus log density, gradient), unconstrained; return the start as well."""
    start = DictToArrayBijection.map(model.initial_point(random_seed)).data
    (log_density,), joined = join_nonshared_inputs(
        model.initial_point(), [model.logp(jacobian=jacobian)], model.continuous_value_vars
    )
    (slope,) = cast(Sequence[TensorVariable], grad(-log_density, [joined]))
    objective = pm.compile([joined], [-log_density, slope], **compile_kwargs)
    objective.trust_input = True
    return start, objective


def search_by_gradients(
    model: pm.Model,
    run: Run,
    *,
    space: Space = "constrained",
    max_iterations: Count = 5000,
    method: Literal["gradient"] = "gradient",
) -> PointOutput:
    """Search for the mode by L-BFGS.

    Parameters
    ----------
    space : {"constrained", "unconstrained"}, default="constrained"
        The density to maximise. "constrained" is that of the variables as declared, as in
        ``pm.find_MAP``, "unconstrained" that of their transforms, Jacobians included, which often
        has a mode where the first is unbounded.
    max_iterations : int, default=5000
        Largest number of iterations of L-BFGS.
    method : {"gradient"}, default="gradient"
        Asks for this search where the model's paper has an algorithm of its own.
    """
    mode = find_mode(model, run, space, max_iterations)
    advice = {
        "constrained": "have no mode. Try MAP(space='unconstrained').",
        "unconstrained": "have no mode, or be too steep for the search: normalize the kernels.",
    }
    steep = f"MAP stopped where the gradient is {mode.steepest:.3g}: the {space} density may "
    draws, _ = constrained_draws(model, mode.x[None])
    return PointOutput(
        values={name: values[0] for name, values in draws.items()},
        log_density=mode.log_density,
        climbs=[mode.history],
        converged="yes" if mode.found else "no",
        attributes={"lp_measure": space, "gradient_norm": mode.steepest},
        note="" if mode.found else steep + advice[space],
    )
