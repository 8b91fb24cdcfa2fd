"""Time and memory of a fit, estimated before it runs."""

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
from threadpoolctl import threadpool_limits

from ...user_warnings import numpy_warnings
from ...validation import check_arguments, check_names, integer_seed
from .compilation import check_compile_kwargs, compiling_with, python_mode
from .completions import number_of_fits
from .engine import Engine, Run, variables_drawn
from .fit import applicable, fit
from .sampler_options import check_sampler_options

__all__ = ["Estimate", "checked_run", "estimate", "span"]


@dataclass(frozen=True)
class Estimate:
    """Seconds and megabytes that a fit is expected to take; prints as one line.

    Attributes
    ----------
    engine, model : str
    seconds : tuple of float
        Usual time, and time if the engine does every iteration that it may do. Compilation, which
        takes up to a minute for gradients, is not included.
    megabytes : float
        Working memory and the draws that are kept, beyond the model. Compilation is included for
        ADVI only.
    measured : str
        What was measured.
    """

    engine: str
    model: str
    seconds: tuple[float, float]
    megabytes: float
    measured: str

    def __str__(self) -> str:
        usual, most = (span(seconds) for seconds in self.seconds)
        time = usual if usual == most else f"{usual}, at most {most}"
        return (
            f"{self.engine} on {self.model}: about {time}; {self.megabytes:,.0f} MB "
            f"(from {self.measured})"
        )


def span(seconds: float) -> str:
    """Seconds in the largest unit of which there are two or more."""
    for unit, size in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"


def estimate(model: pm.Model, engine: str | Engine, **settings: Any) -> Estimate:
    """Estimate time and memory of `fit` on this machine from a few of its own steps.

    The engine is set up and does iterations, sweeps or gradients for a few seconds, but at least
    one. Engines that need gradients are compiled first.

    Parameters
    ----------
    model : pm.Model
    engine : Engine or str
        As in `fit`. SMC and Pathfinder have no estimate.
    **settings
        Arguments of `fit`: ``draws``, ``tune``, ``chains``, ``cores``, ``var_names``, ...

    Returns
    -------
    Estimate
        The number of iterations is not known in advance. The usual time assumes 100 iterations a
        start for variational Bayes, 200 for the search of a mode and 31 gradients a draw for NUTS;
        the largest time assumes all iterations that the engine may do. Gibbs, Exact and ADVI do a
        fixed number. Log densities of variational draws and log likelihoods, which follow the fit,
        are not included.

    Raises
    ------
    ValueError
        When the engine does not apply to the model or has no estimate, and for arguments that
        `fit` refuses.

    Examples
    --------
    >>> kz.estimate(model, "vb")
    >>> kz.estimate(model, kz.Gibbs(), chains=4, draws=2000).seconds
    """
    engine = applicable(model, engine, "estimate")
    run, blas_threads = checked_run(model, engine, settings, "estimate")
    with (
        threadpool_limits(blas_threads, user_api="blas"),
        numpy_warnings(),
        compiling_with(run.mode or python_mode()),
    ):
        cost = engine.calibrate(model, run)
    fits = max(1, number_of_fits(model, settings.get("completions")))
    kept = fits * _numbers_of_a_draw(model, run.kept(model)) * _draws(engine, run)
    return Estimate(
        engine=engine.name,
        model=type(model).__name__,
        seconds=(fits * cost.usual, fits * max(cost.usual, cost.most)),
        megabytes=(cost.bytes + 8 * kept) / 1e6,
        measured=cost.measured + (f", for each of {fits} completions" if fits > 1 else ""),
    )


def checked_run(
    model: pm.Model, engine: Engine, settings: dict[str, Any], owner: str
) -> tuple[Run, int | None]:
    """Run and number of BLAS threads from arguments of `fit`; raise for those that it refuses."""
    defaults = inspect.signature(fit).parameters.values()
    known = {p.name: p.default for p in defaults if p.kind is p.KEYWORD_ONLY}
    check_sampler_options(
        {name: value for name, value in settings.items() if name not in known},
        engine.name,
        known=engine.sampler_arguments(),
        settings=engine.settings_on(model),
        own=known,
        owner=owner,
    )
    given = known | settings
    check_arguments(fit, given, owner)
    names = given["var_names"]
    if names is not None:
        names = tuple(check_names(names, variables_drawn(model), "var_names", owner))
    run = Run(
        *(given["draws"], given["tune"], given["chains"], given["cores"]),
        random_seed=integer_seed(given["random_seed"], "random_seed", owner),
        progressbar=False,
        var_names=names,
        mode=check_compile_kwargs(given["compile_kwargs"], owner),
    )
    return run, given["blas_threads"]


def _draws(engine: Engine, run: Run) -> int:
    """Draws that the result keeps."""
    if engine.kind == "point":
        return 1
    return run.draws * (run.chains if engine.kind == "mcmc" else 1)


def _numbers_of_a_draw(model: pm.Model, names: list[str]) -> int:
    """Numbers in one draw of the variables."""
    total = 0
    for name in names:
        dims = model.named_vars_to_dims.get(name, ())
        if dims and all(model.coords.get(dim) is not None for dim in dims):
            shape = tuple(len(model.coords[dim]) for dim in dims)
        elif None in (shape := model[name].type.shape):
            shape = model[name].shape.eval()
        total += int(np.prod(shape))
    return total
