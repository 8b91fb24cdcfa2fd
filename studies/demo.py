"""Demonstration: two models, several engines on each, and their comparison."""

import os
import warnings
from pathlib import Path
from typing import Any

import pymc as pm
from matplotlib import pyplot as plt
from rich.console import Console
from xarray import DataTree

from kernelzoo.datasets import load
from kernelzoo.inference import (
    NUTS,
    VB,
    ApproximationWarning,
    Comparison,
    Engine,
    Exact,
    Gibbs,
    compare_engines,
    engines,
    fit,
    predict,
)
from kernelzoo.inference.plots import plot_bound, plot_engines, plot_reliability, plot_weights
from kernelzoo.models import MultinomialProbit, WishartCompletion
from kernelzoo.models.kernels import gaussian, linear, polynomial

type Runs = tuple[tuple[Engine, dict[str, Any]], ...]

CHAINS: dict[str, Any] = {"chains": 4, "cores": min(2, os.cpu_count() or 1)}


def run(out: Path, seed: int, console: Console) -> Comparison:
    """Classify wines with VB and Gibbs; complete a kernel with Exact, Gibbs and NUTS; compare."""
    out.mkdir(parents=True, exist_ok=True)
    comparison = _classify(out, seed, console)
    _complete(out, seed, console)
    console.print(f"\nwritten to {out}/: {', '.join(sorted(p.name for p in out.iterdir()))}")
    console.print("next: make lab opens Jupyter on the tour (notebooks/tour.ipynb)")
    return comparison


def _classify(out: Path, seed: int, console: Console) -> Comparison:
    """Learn which of three kernels separates wines, with its uncertainty."""
    data = load("wine").split(test_size=0.3, seed=seed)
    kernels = (gaussian(1 / 13) | linear() | polynomial(2)).normalize("trace")
    model = MultinomialProbit(kernels(data.X_train), data.y_train)
    test_kernels = kernels(data.X_test, data.X_train)
    console.rule("a classifier on three kernels: MultinomialProbit")
    console.print(
        f"wine: {len(data.y_train)} objects to learn from, {len(data.y_test)} held out, "
        f"{model.n_classes} classes, kernels {', '.join(model.coords['kernel'])}"
    )
    runs: Runs = (VB(), {}), (Gibbs(), CHAINS | {"draws": 2000, "tune": 500})
    results = _fit(model, runs, out / "wine", seed, console)
    comparison = compare_engines(
        results, model=model, kernels_new=test_kernels, labels_new=data.y_test
    )
    for table in ("engines", "variables", "elements"):
        getattr(comparison, table).to_csv(out / f"{table}.csv")
    predictions = {name: predict(model, result, test_kernels) for name, result in results.items()}
    plot_weights(results)
    plt.savefig(out / "weights.png")
    plot_engines(results)
    plt.savefig(out / "engines.png")
    plot_bound(results["VB"])
    plt.savefig(out / "bound.png")
    plot_reliability(predictions, data.y_test)
    plt.savefig(out / "reliability.png")
    plt.close("all")
    console.print(comparison, markup=False, highlight=False, soft_wrap=True)
    return comparison


def _complete(out: Path, seed: int, console: Console) -> None:
    """Draw the missing rows of a small kernel matrix by Exact, Gibbs and NUTS."""
    model = WishartCompletion.example()
    console.rule("a kernel with missing rows: WishartCompletion")
    console.print(
        f"{len(model.coords['train'])} objects seen, {len(model.coords['test'])} missing: few "
        "enough to compare with NUTS, which works on every model but first compiles the density's "
        "gradient, once, for 10 to 30 seconds"
    )
    chains = CHAINS | {"draws": 1000, "tune": 300}
    runs: Runs = (Exact(), {"draws": 4000}), (Gibbs(), chains), (NUTS(), chains)
    results = _fit(model, runs, out / "completion", seed, console)
    console.print(compare_engines(results), markup=False, highlight=False, soft_wrap=True)


def _fit(
    model: pm.Model,
    runs: Runs,
    stem: Path,
    seed: int,
    console: Console,
) -> dict[str, DataTree]:
    """Fit with each engine, and save the results in files that begin with `stem`."""
    names = ", ".join(engines(model).frame.query("applies != 'no'").index)
    more = f"python -m kernelzoo engines {type(model).__name__}"
    console.print(f"engines that apply: {names} ({more} says why others do not)")
    results = {}
    for engine, options in runs:
        with warnings.catch_warnings():
            # The tables and figures mark engines with too large a k-hat.
            warnings.simplefilter("ignore", ApproximationWarning)
            result = fit(model, engine, random_seed=seed, **options)
        result.to_netcdf(f"{stem}-{engine.name.lower()}.nc")
        results[engine.name] = result
    return results
