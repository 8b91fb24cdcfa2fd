"""Weights of kernels of 20,000 objects: VB beside the samplers, on features.

Samplers are slow there, but right: what VB says of the weights can be held against them. They
begin at VB's answer, and NUTS takes the curvature there as its mass matrix; Gibbs, whose
trajectories know no curvature, takes hundreds of gradients per sweep. Two chains run side by side,
one thread each; JAX is ended after 400 s. Errors are Monte Carlo standard errors of the means.
"""

import time
from importlib.util import find_spec
from typing import Any

import arviz as az
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from sklearn.kernel_approximation import Nystroem
from xarray import DataTree

from kernelzoo.inference import NUTS, VB, Engine, Gibbs, identified
from kernelzoo.models import MultinomialProbit
from kernelzoo.models.kernels import as_stack

from .record import quiet_fit, table_of

OBJECTS, CLASSES, DIMENSIONS, FEATURES = 20_000, 3, 4, 20
CHAINS: dict[str, Any] = {"chains": 2, "cores": 2}
LONG = CHAINS | {"tune": 150, "draws": 600}
BY_CURVATURE = NUTS(mass_matrix="curvature")
#: Engines by name, and arguments of `fit`. The samplers begin at VB's answer.
SAMPLERS: dict[str, tuple[Engine, dict[str, Any]]] = {
    "Gibbs": (Gibbs(), CHAINS | {"tune": 30, "draws": 50}),
    "NUTS": (BY_CURVATURE, LONG),
}
if find_spec("numpyro"):
    by_jax = NUTS(backend="numpyro", mass_matrix="curvature")
    SAMPLERS["NUTS by JAX"] = (by_jax, LONG)


def objects() -> tuple[dict[str, NDArray], NDArray]:
    """Simulate two sources: the first tells class 0 from the others, the second class 2."""
    rng = np.random.default_rng(0)
    labels = np.arange(OBJECTS) % CLASSES
    sources = {}
    X = rng.normal(size=(2, OBJECTS, DIMENSIONS))
    for source, values, told in zip("ab", X, (0, 2), strict=True):
        shift = 2 * rng.normal(size=DIMENSIONS) / np.sqrt(DIMENSIONS)
        sources[source] = values + shift * (labels == told)[:, None]
    return sources, labels


def run(console: Console) -> None:
    """Print the table."""
    X, labels = objects()
    features = Nystroem(gamma=0.1, n_components=FEATURES, random_state=0)
    stack = {source: features.fit_transform(values) for source, values in X.items()}
    model = MultinomialProbit(as_stack(stack), labels)
    numbers = ["seconds", "mean", "error", "sd", "draws", "effective draws"]
    numbers += ["R-hat, weight", "R-hat, all", "device"]
    title = f"Weight of the first of two kernels, {OBJECTS:,} objects"
    table = table_of(title, ("engine",), numbers)
    clock = time.perf_counter()
    vb = quiet_fit(model, VB(), draws=500)
    table.add_row("VB", *_cells(vb, time.perf_counter() - clock))
    for name, (engine, options) in SAMPLERS.items():
        clock = time.perf_counter()
        result = quiet_fit(model, engine, start=vb, **options)
        table.add_row(name, *_cells(result, time.perf_counter() - clock))
    console.print(table)


def _cells(result: DataTree, seconds: float) -> list[str]:
    weight = result["posterior"].to_dataset()["beta"].isel(kernel=0)
    sd, chains = float(weight.std()), weight.sizes["chain"] > 1
    effective = float(az.ess(weight)) if chains else float(weight.size)
    cells = [f"{x:.3g}" for x in (seconds, float(weight.mean()), sd / np.sqrt(effective), sd)]
    rhat = [""] * 2
    if chains:
        of_all = az.rhat(identified(result))
        largest = max(float(values.max()) for values in of_all.data_vars.values())
        rhat = [f"{float(az.rhat(weight)):.3f}", f"{largest:.3f}"]
    device = result.attrs.get("device", "processor")
    return [*cells, str(weight.size), f"{effective:.0f}", *rhat, device]
