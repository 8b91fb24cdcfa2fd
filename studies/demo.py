"""Demonstration: two models, several engines on each, and their comparison."""

import os
import warnings
from pathlib import Path
from typing import Any

import pymc as pm
from matplotlib import pyplot as plt
from rich.console import Console
from xarray import DataTree

import kernelzoo as kz

SEED = 1
CHAINS: dict[str, Any] = {"chains": 4, "cores": min(2, os.cpu_count() or 1)}


def run(out: Path, console: Console) -> None:
    """Classify wines with VB and Gibbs; complete a kernel with Exact, Gibbs and NUTS; compare."""
    out.mkdir(parents=True, exist_ok=True)
    _classify(out, console)
    _complete(out, console)
    console.print(f"\nwritten to {out}/: {', '.join(sorted(p.name for p in out.iterdir()))}")
    console.print("next: make lab opens Jupyter on the tour (notebooks/tour.ipynb)")


def _classify(out: Path, console: Console) -> None:
    """Learn which of three kernels separates wines, with its uncertainty."""
    data = kz.datasets.load("wine").split(test_size=0.3, seed=SEED)
    kernels = (kz.gaussian(1 / 13) | kz.linear() | kz.polynomial(2)).normalize("trace")
    model = kz.MultinomialProbit(kernels(data.X_train), data.y_train)
    new = kernels(data.X_test, data.X_train)
    console.rule("a classifier on three kernels: MultinomialProbit")
    console.print(
        f"wine: {len(data.y_train)} objects to learn from, {len(data.y_test)} held out, "
        f"{model.n_classes} classes, kernels {', '.join(model.coords['kernel'])}"
    )
    runs = {kz.VB(): {}, kz.Gibbs(): CHAINS | {"draws": 1200, "tune": 400}}
    results = _fit(model, runs, out / "wine", console)
    comparison = kz.compare_engines(results, model=model, kernels_new=new, labels_new=data.y_test)
    comparison.engines.to_csv(out / "engines.csv")
    predictions = {name: kz.predict(model, result, new) for name, result in results.items()}
    kz.plots.plot_weights(results)
    plt.savefig(out / "weights.png")
    kz.plots.plot_reliability(predictions, data.y_test)
    plt.savefig(out / "reliability.png")
    plt.close("all")
    console.print(comparison, markup=False, highlight=False, soft_wrap=True)


def _complete(out: Path, console: Console) -> None:
    """Draw the missing rows of a small kernel matrix by Exact, Gibbs and NUTS."""
    model = kz.WishartCompletion.example()
    console.rule("a kernel with missing rows: WishartCompletion")
    console.print(
        f"{len(model.coords['train'])} objects seen, {len(model.coords['test'])} missing: few "
        "enough to compare with NUTS, which first compiles the gradient for 15 to 40 seconds"
    )
    chains = CHAINS | {"draws": 1000, "tune": 300}
    runs = {kz.Exact(): {"draws": 4000}, kz.Gibbs(): chains, kz.NUTS(): chains}
    results = _fit(model, runs, out / "completion", console)
    console.print(kz.compare_engines(results), markup=False, highlight=False, soft_wrap=True)


def _fit(
    model: pm.Model, runs: dict[Any, dict[str, Any]], stem: Path, console: Console
) -> dict[str, DataTree]:
    """Fit with each engine, and save the results in files that begin with `stem`."""
    names = ", ".join(kz.engines(model).frame.query("applies != 'no'").index)
    console.print(f"engines that apply: {names} (kz.engines says why others do not)")
    results = {}
    for engine, options in runs.items():
        with warnings.catch_warnings():
            # The tables and figures mark engines with too large a k-hat.
            warnings.simplefilter("ignore", kz.ApproximationWarning)
            results[engine.name] = kz.fit(model, engine, random_seed=SEED, **options)
        results[engine.name].to_netcdf(f"{stem}-{engine.name.lower()}.nc")
    return results
