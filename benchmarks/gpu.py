"""One gradient of a composite kernel classification, on a processor and on a GPU.

NUTS spends its time on gradients of the log density. Three Gaussian kernels of simulated objects
are compiled by numba (the engine's default, one thread) and by JAX (``NUTS(backend="numpyro")``) on
every device that JAX finds.
"""

from collections.abc import Callable, Iterator
from timeit import repeat
from typing import Any

import jax
import numpy as np
import pymc as pm
from pymc.sampling.jax import get_jaxified_logp

from kernelzoo.models import CompositeKernelClassification
from kernelzoo.models.kernels import gaussian

from .record import markdown_table

OBJECTS = (500, 2_000, 5_000)


def problem(n: int) -> CompositeKernelClassification:
    """Simulate objects of two classes, with kernels of three widths."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 8))
    labels = (np.sin(2 * X[:, 0]) + 0.5 * rng.normal(size=n) > 0).astype(int)
    kernels = gaussian(0.02).named("wide") | gaussian(0.1) | gaussian(0.5).named("narrow")
    return CompositeKernelClassification(kernels(X), labels)


def milliseconds(call: Callable[[], object]) -> float:
    """Median time of nine calls after a first one, which compiles."""
    call()
    return 1e3 * float(np.median(repeat(call, number=1, repeat=9)))


def by_numba(model: pm.Model) -> float:
    """Milliseconds of a gradient by the function that PyMC's own NUTS calls."""
    function = model.logp_dlogp_function(ravel_inputs=True, mode="NUMBA")
    function.set_extra_values({})
    point = pm.blocking.DictToArrayBijection.map(model.initial_point()).data
    return milliseconds(lambda: function(point))


def by_jax(model: pm.Model, device: jax.Device) -> float:
    """Milliseconds of a gradient on a device."""
    with jax.default_device(device):
        gradient = jax.jit(jax.value_and_grad(get_jaxified_logp(model)))
        point: Any = [*map(jax.numpy.asarray, model.initial_point().values())]
        return milliseconds(lambda: jax.block_until_ready(gradient(point)))


def run() -> Iterator[str]:
    """Table of the gradients by compiler and device."""
    yield "**Milliseconds per gradient**"
    models = [problem(n) for n in OBJECTS]
    rows = [("numba", *(f"{by_numba(model):.3g}" for model in models))]
    # The first device of every kind that JAX finds, the processor first.
    devices = {each.device_kind: each for each in (jax.devices("cpu")[0], jax.devices()[0])}
    for name, device in devices.items():
        rows.append((f"JAX, {name}", *(f"{by_jax(model, device):.3g}" for model in models)))
    yield markdown_table(("by", *(f"{n:,} objects" for n in OBJECTS)), rows)
