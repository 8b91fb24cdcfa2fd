"""Completion of a kernel of 351 objects: milliseconds of chains, exact draws and EM.

A matrix product of the training block's size is timed in the same process, so that ratios are
stable when the machine's speed drifts. Run it with one BLAS thread.
"""

import time
from collections.abc import Callable
from functools import partial

import arviz as az
import numpy as np
import pymc as pm
from rich.console import Console
from rich.table import Table
from xarray import DataTree

from kernelzoo.inference import Run
from kernelzoo.inference.kernel_completion import (
    completion_steps,
    diagonal_wishart_completion_steps,
    fit_completion,
    log_lambda,
    sample_completion,
    sample_diagonal_completion,
)
from kernelzoo.models import DiagonalWishartCompletion, WishartCompletion
from studies.zhang2004 import SMALL, divide

__all__ = ["run"]

REPEATS = 5
RUN = Run(random_seed=1, progressbar=False)


def milliseconds(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Median time of a call, in milliseconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times))


def chain(model: pm.Model, steps: Callable[..., list], kept: str, sweeps: int = 2000) -> DataTree:
    """Run sweeps inside `pm.sample` that record one small variable."""
    with model:
        return pm.sample(
            sweeps,
            tune=0,
            chains=1,
            cores=1,
            step=steps(model, RUN),
            var_names=[kept],
            random_seed=1,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
        )


def run(console: Console) -> None:
    """Print the table of timings."""
    division = divide("ionosphere", 1, **SMALL)
    A, K11 = division.A, division.K11
    square = K11.copy()
    product = milliseconds(lambda: square @ square, 50)
    table = Table(
        title=f"n = {len(A)}, n1 = {len(K11)}; a product of order n1 takes {product:.2f} ms"
    )
    for column in ("what", "ms", "products"):
        table.add_column(column, justify="left" if column == "what" else "right")

    def row(name: str, ms: float) -> None:
        table.add_row(name, f"{ms:.3g}", f"{ms / product:.2g}")

    basic = WishartCompletion(A, K11, r=len(A) + 1, eta=len(A) + 1)
    full = DiagonalWishartCompletion(A, K11)
    lean = DiagonalWishartCompletion(A, K11, diagonal_W22_1=True)
    effective: dict[str, float] = {}
    for name, model, steps, kept, sweeps in (
        ("TW1 sweep in pm.sample", full, diagonal_wishart_completion_steps, "lambda", 8000),
        ("TW2 sweep in pm.sample", lean, diagonal_wishart_completion_steps, "lambda", 8000),
        (
            "Tanner-Wong sweep of the basic model",
            basic,
            completion_steps,
            "log_det_Sigma22_1",
            200,
        ),
    ):
        chain(model, steps, kept, 20)  # compiles
        trace = chain(model, steps, kept, sweeps)
        seconds = float(trace["posterior"].attrs["sampling_time"])
        row(name, 1e3 * seconds / sweeps)
        if kept == "lambda":
            # The first half is burn-in: from delta = 1 the chain needs hundreds of sweeps.
            late = trace["posterior"][kept].isel(draw=slice(sweeps // 2, None))
            effective[name] = float(az.ess(late.to_dataset())[kept]) / (seconds / 2)
    for name, answer in (
        ("exact draw, simplified model", sample_diagonal_completion(lean, RUN)),
        ("exact draw, basic model", sample_completion(basic, RUN)),
    ):
        row(name, milliseconds(partial(answer.sample, 20, RUN.rng())) / 20)
    row("EM, 100 iterations", milliseconds(lambda: fit_completion(basic, RUN)))
    console.print(table)
    posterior = log_lambda(lean)
    exact = 1e3 / milliseconds(lambda: posterior.sample(1000, RUN.rng())) * 1000
    console.print("effective draws of lambda a second:")
    for name, rate in effective.items():
        console.print(f"  {name.split()[0]:6} {rate:12,.1f}")
    console.print(f"  exact  {exact:12,.0f}")
