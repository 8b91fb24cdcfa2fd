"""Mode of any model without discrete variables, by gradients."""

import numpy as np
import pymc as pm

from ...validation import Count
from ..engine.applicability import discrete_variables
from ..engine.engine import Run
from ..engine.gaussian import constrained_draws
from ..engine.map import MAP
from ..engine.mode import Space, find_mode
from ..engine.outputs import ModeOutput

__all__ = ["search_by_gradients"]


@MAP.register(pm.Model, unless=discrete_variables)
def search_by_gradients(
    model: pm.Model, run: Run, *, space: Space = "constrained", max_iterations: Count = 5000
) -> ModeOutput:
    """Search for the mode by L-BFGS from the model's initial point, jittered by the seed.

    `MAP` explains the settings.

    Parameters
    ----------
    model : pm.Model
        Without discrete variables.
    run : Run
        Seed and progress bar.
    """
    mode = find_mode(model, run, space, max_iterations)
    steepest = float(np.abs(mode.gradient).max())
    advice = {
        "constrained": "have no mode. Try MAP(space='unconstrained').",
        "unconstrained": "have no mode, or be too steep for the search: normalize the kernels.",
    }
    note = (
        ""
        if mode.found
        else f"MAP stopped where the gradient is {steepest:.3g}: the {space} density may "
        f"{advice[space]}"
    )
    draws, _ = constrained_draws(model, mode.x[None])
    return ModeOutput(
        values={name: values[0] for name, values in draws.items()},
        log_density=mode.log_density,
        climbs=[mode.history],
        best=0,
        converged=mode.found,
        attributes={"lp_measure": space, "gradient_norm": steepest},
        note=note,
    )
