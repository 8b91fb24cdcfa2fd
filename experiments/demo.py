"""The demonstration: one model of the wine data, three engines, one comparison."""

import os
import warnings
from pathlib import Path
from typing import Any

from rich.console import Console

from ..datasets import load
from ..inference import (
    NUTS,
    VB,
    ApproximationWarning,
    Comparison,
    Engine,
    Gibbs,
    compare_engines,
    engines,
    fit,
    plot_bound,
    plot_engines,
    plot_reliability,
    plot_weights,
    predict,
)
from ..models import MultinomialProbit, gaussian, linear, polynomial

__all__ = ["run"]


def run(out: Path, seed: int, console: Console) -> Comparison:
    """Fit wine with VB, Gibbs and NUTS; compare them on held-out objects; write what was found.

    Parameters
    ----------
    out : Path
        Folder for the results (``*.nc``), tables (``*.csv``) and figures (``*.png``).
    seed : int
        Of the split and of every engine.
    console : Console
        Where progress and tables go.
    """
    out.mkdir(parents=True, exist_ok=True)
    data = load("wine").split(test_size=0.3, seed=seed)
    kernels = (gaussian(1 / 13) | linear() | polynomial(2)).normalize("trace")
    model = MultinomialProbit(kernels(data.X_train), data.y_train)
    test_kernels = kernels(data.X_test, data.X_train)
    console.print(
        f"wine: {len(data.y_train)} objects to learn from, {len(data.y_test)} held out, "
        f"{model.n_classes} classes, kernels {', '.join(model.coords['kernel'])}"
    )
    console.print(engines(model))
    console.print(
        "The first run compiles the model's density and its gradient, a few minutes in which bars "
        "stand still; later runs take them from a cache."
    )

    cores = min(2, os.cpu_count() or 1)
    results = {}
    runs: tuple[tuple[Engine, dict[str, Any]], ...] = (
        (VB(), {}),
        (Gibbs(), {"chains": 4, "draws": 500, "tune": 300}),
        (NUTS(), {"chains": 2, "draws": 200, "tune": 200, "cores": cores}),
    )
    for engine, options in runs:
        console.rule(engine.name)
        with warnings.catch_warnings():
            # The tables and figures below mark such an engine.
            warnings.simplefilter("ignore", ApproximationWarning)
            result = fit(model, engine, random_seed=seed, **options)
        result.to_netcdf(out / f"wine-{engine.name.lower()}.nc")
        results[engine.name] = result

    console.rule("comparison")
    comparison = compare_engines(
        results, model=model, kernels_new=test_kernels, labels_new=data.y_test
    )
    console.print(comparison, markup=False, highlight=False, soft_wrap=True)
    comparison.engines.to_csv(out / "engines.csv")
    comparison.variables.to_csv(out / "variables.csv")
    comparison.elements.to_csv(out / "elements.csv")

    predictions = {name: predict(model, result, test_kernels) for name, result in results.items()}
    for name, figure in (
        ("weights", plot_weights(results)),
        ("engines", plot_engines(results)),
        ("bound", plot_bound(results["VB"])),
        ("reliability", plot_reliability(predictions, data.y_test)),
    ):
        figure.savefig(out / f"{name}.png")
    console.print(f"\nwritten to {out}/: {', '.join(sorted(p.name for p in out.iterdir()))}")
    return comparison
