"""Measure what engines cost and find on four problems; the site shows ``measured/engines.json``.

``python docs/measure.py`` runs for some minutes. Times are of one machine, in one run: compare
those of one table with each other.
"""

import json
import platform
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import kernelzoo as kz

OUT = Path(__file__).parent / "measured" / "engines.json"
#: How the machine was used.
WHERE = "one core a run, shared with other work"
#: Figures of `kz.compare_engines` that the tables show.
COLUMNS = ("seconds", "converged", "ess_per_second", "pareto_k", "accuracy", "log_score")

type Runs = dict[str, tuple[Any, dict[str, Any]]]


def _wine() -> tuple[Any, Runs, dict[str, Any]]:
    data = kz.datasets.load("wine").split(test_size=0.7, seed=1)
    kernels = (kz.gaussian(1 / 13) | kz.linear() | kz.polynomial(2)).normalize("trace")
    model = kz.MultinomialProbit(kernels(data.X_train), data.y_train)
    runs: Runs = {
        "VB": (kz.VB(), {}),
        "Gibbs": (kz.Gibbs(), {}),
        "NUTS": (kz.NUTS(), {"chains": 2, "draws": 300, "tune": 500}),
    }
    new = kernels(data.X_test, data.X_train)
    return model, runs, {"model": model, "kernels_new": new, "labels_new": data.y_test}


def _sonar() -> tuple[Any, Runs, dict[str, Any]]:
    data = kz.datasets.load("sonar").split(test_size=0.5, seed=1)
    kernels = (kz.gaussian("median") | kz.linear() | kz.polynomial(2)).normalize("trace")
    model = kz.CompositeKernelClassification(kernels(data.X_train), data.y_train)
    runs: Runs = {"VB": (kz.VB(), {}), "Gibbs": (kz.Gibbs(), {})}
    new = kernels(data.X_test, data.X_train)
    return model, runs, {"model": model, "kernels_new": new, "labels_new": data.y_test}


def _completion() -> tuple[Any, Runs, dict[str, Any]]:
    data = kz.datasets.load("ionosphere").split(test_size=0.8, seed=1)
    X = np.vstack([np.asarray(data.X_train), np.asarray(data.X_test)[:30]])
    labels = np.asarray(data.y_train)
    theta = kz.gaussian("median")(X)
    ideal = (labels[:, None] == labels).astype(float)
    model = kz.WishartCompletion(theta, (theta.values[0, : len(ideal), : len(ideal)] + ideal) / 2)
    runs: Runs = {"Exact": (kz.Exact(), {}), "Gibbs": (kz.Gibbs(), {}), "VB": (kz.VB(), {})}
    return model, runs, {}


def _mutual() -> tuple[Any, Runs, dict[str, Any]]:
    X = np.asarray(kz.datasets.load("iris").X)[::3]
    kernels = (kz.gaussian("median") | kz.kernels.laplace("median") | kz.kernels.cosine())(X)
    hidden = np.random.default_rng(1).random((len(X), 3)) < 0.3
    visible = ~hidden | hidden.all(axis=1, keepdims=True)
    model = kz.MutualKernelCompletion(kernels, visible, jitter=0.05)
    runs: Runs = {"EM": (kz.EM(), {}), "Gibbs": (kz.Gibbs(), {})}
    return model, runs, {}


PROBLEMS = {"wine": _wine, "sonar": _sonar, "completion": _completion, "mutual": _mutual}


def _weights(result: Any) -> Iterator[tuple[str, float, float]]:
    """Mean and standard deviation of each kernel's weight."""
    if "beta" not in result["posterior"]:
        return
    beta = result["posterior"]["beta"]
    axes = [dim for dim in beta.dims if dim != "kernel"]
    for kernel in beta["kernel"].values:
        draws = beta.sel(kernel=kernel)
        yield str(kernel), float(draws.mean(axes)), float(draws.std(axes))


def _measure(name: str, console: Console) -> dict[str, Any]:
    model, runs, scoring = PROBLEMS[name]()
    results = {}
    for label, (engine, options) in runs.items():
        console.print(f"{name}: {label}")
        options = {"cores": 1, "random_seed": 1, "progressbar": False} | options
        results[label] = kz.fit(model, engine, **options)
    engines = kz.compare_engines(results, **scoring).engines
    rows = {
        label: {column: row[column] for column in COLUMNS if column in row}
        | {"draws": int(row["draws"]), "weights": list(_weights(results[label]))}
        for label, row in engines.to_dict("index").items()
    }
    sizes = {dim: len(labels) for dim, labels in model.coords.items()}
    return {"model": type(model).__name__, "sizes": sizes, "engines": rows}


def main() -> None:
    """Measure all problems and write the file."""
    console = Console()
    warnings.simplefilter("ignore")
    # A first fit compiles what later ones find in the cache.
    kz.fit(kz.MultinomialProbit.example(), "vb", progressbar=False)
    measured = {
        "machine": ", ".join((platform.machine(), platform.system(), WHERE)),
        "versions": {name: version(name) for name in ("kernelzoo", "pymc", "numpy")},
        "problems": {name: _measure(name, console) for name in PROBLEMS},
    }
    OUT.parent.mkdir(exist_ok=True)
    text = json.dumps(measured, indent=1, default=float)
    OUT.write_text(text.replace("NaN", "null") + "\n", encoding="utf-8")
    console.print(f"written: {OUT}")


if __name__ == "__main__":
    main()
