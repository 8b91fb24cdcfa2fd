"""Weights of kernels of 20,000 objects: VB beside the samplers, on features.

Samplers are slow there, but right: what VB says of the weights can be held against them. Two chains
run side by side, one thread each. Errors are Monte Carlo standard errors of the means.
"""

import time
import warnings
from importlib.util import find_spec
from typing import Any

import arviz as az
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from ..inference import NUTS, VB, ApproximationWarning, Engine, Gibbs, fit
from ..models import MultinomialProbit
from ..models.kernels import gaussian

__all__ = ["run"]

OBJECTS, CLASSES, DIMENSIONS, FEATURES = 20_000, 3, 8, 20
CHAINS: dict[str, Any] = {"draws": 300, "tune": 300, "chains": 2, "cores": 2}
# A draw of NUTS takes seconds.
SHORT: dict[str, Any] = CHAINS | {"draws": 100, "tune": 100}
#: Engines by name, and arguments of `fit`.
FITS: dict[str, tuple[Engine, dict[str, Any]]] = {
    "VB": (VB(), {"draws": 500}),
    "Gibbs": (Gibbs(), CHAINS),
    "NUTS": (NUTS(), SHORT),
}
if find_spec("numpyro"):
    FITS["NUTS by JAX"] = (NUTS(backend="numpyro"), SHORT)


def objects() -> tuple[NDArray, NDArray]:
    """Simulate overlapping normal classes: features and labels."""
    rng = np.random.default_rng(0)
    labels = np.arange(OBJECTS) % CLASSES
    centres = rng.normal(size=(CLASSES, DIMENSIONS))
    return rng.normal(size=(OBJECTS, DIMENSIONS)) + centres[labels], labels


def run(console: Console) -> None:
    """Print the table."""
    X, labels = objects()
    kernels = (gaussian(0.05) | gaussian(0.2)).nystroem(FEATURES)
    model = MultinomialProbit(kernels(X), labels)
    table = Table("engine", title=f"Weight of the first of two kernels, {OBJECTS:,} objects")
    for column in ("seconds", "mean", "error", "sd", "R-hat", "effective draws", "device"):
        table.add_column(column, justify="right")
    for name, (engine, options) in FITS.items():
        clock = time.perf_counter()
        with warnings.catch_warnings():
            # The table says what they say.
            warnings.simplefilter("ignore", ApproximationWarning)
            result = fit(
                model, engine, random_seed=1, progressbar=False, log_likelihood=False, **options
            )
        seconds = time.perf_counter() - clock
        weight = result["posterior"].to_dataset()["beta"].isel(kernel=0)
        sd, chains = float(weight.std()), weight.sizes["chain"] > 1
        effective = float(az.ess(weight)) if chains else float(weight.size)
        cells = [seconds, float(weight.mean()), sd / np.sqrt(effective), sd]
        rhat = f"{float(az.rhat(weight)):.3f}" if chains else ""
        device = result.attrs.get("device", "processor")
        table.add_row(name, *(f"{x:.3g}" for x in cells), rhat, f"{effective:.0f}", device)
    console.print(table)
