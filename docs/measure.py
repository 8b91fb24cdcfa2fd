"""Measure what engines cost and find on four problems; the site shows ``measured/engines.md``.

``python docs/measure.py`` runs for some minutes. Times are of one machine, in one run: compare
those of one table with each other.
"""

import platform
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

import kernelzoo as kz

sys.path.append(str(Path(__file__).parent / "extensions"))
from tables import markdown_table

OUT = Path(__file__).parent / "measured" / "engines.md"
#: How the machine was used.
WHERE = "one core a run, shared with other work"
#: Columns of `kz.compare_engines` in the tables, and how numbers are written.
COLUMNS = {
    "seconds": ".1f",
    "draws": "",
    "converged": "",
    "ess_per_second": ".2g",
    "pareto_k": ".2f",
    "log_score": ".3f",
}

type Runs = dict[str, tuple[Any, dict[str, Any]]]


def _wine() -> tuple[Any, Runs, dict[str, Any]]:
    """Classes of wine, 53 training objects, 3 classes, 3 kernels."""
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
    """Two classes of sonar echoes, 104 training objects, 3 kernels."""
    data = kz.datasets.load("sonar").split(test_size=0.5, seed=1)
    kernels = (kz.gaussian("median") | kz.linear() | kz.polynomial(2)).normalize("trace")
    model = kz.CompositeKernelClassification(kernels(data.X_train), data.y_train)
    runs: Runs = {"VB": (kz.VB(), {}), "Gibbs": (kz.Gibbs(), {})}
    new = kernels(data.X_test, data.X_train)
    return model, runs, {"model": model, "kernels_new": new, "labels_new": data.y_test}


def _completion() -> tuple[Any, Runs, dict[str, Any]]:
    """Ionosphere, a kernel known for 70 objects and completed for 30."""
    data = kz.datasets.load("ionosphere").split(test_size=0.8, seed=1)
    X = np.vstack([np.asarray(data.X_train), np.asarray(data.X_test)[:30]])
    labels = np.asarray(data.y_train)
    theta = kz.gaussian("median")(X)
    ideal = (labels[:, None] == labels).astype(float)
    model = kz.WishartCompletion(theta, (theta.values[0, : len(ideal), : len(ideal)] + ideal) / 2)
    runs: Runs = {"Exact": (kz.Exact(), {}), "Gibbs": (kz.Gibbs(), {}), "VB": (kz.VB(), {})}
    return model, runs, {}


def _mutual() -> tuple[Any, Runs, dict[str, Any]]:
    """50 irises, 3 kernels, each of which lacks some objects."""
    X = np.asarray(kz.datasets.load("iris").X)[::3]
    wide, cosine = kz.kernels.inverse_multiquadric("median"), kz.linear().normalize("unit")
    kernels = (kz.gaussian("median") | wide | cosine)(X)
    hidden = np.random.default_rng(1).random((len(X), 3)) < 0.3
    visible = ~hidden | hidden.all(axis=1, keepdims=True)
    model = kz.MutualKernelCompletion(kernels, visible, jitter=0.05)
    runs: Runs = {"EM": (kz.EM(), {}), "Gibbs": (kz.Gibbs(), {})}
    return model, runs, {}


PROBLEMS = {"wine": _wine, "sonar": _sonar, "completion": _completion, "mutual": _mutual}


def _weights(name: str, result: Any) -> str:
    """Line with the mean and standard deviation of each kernel's weight, if they were drawn."""
    if "beta" not in result["posterior"]:
        return ""
    beta = result["posterior"]["beta"]
    axes = [dim for dim in beta.dims if dim != "kernel"]
    moments = zip(beta["kernel"].values, beta.mean(axes), beta.std(axes), strict=True)
    told = (f"{kernel} {float(mean):.2f} ± {float(sd):.2f}" for kernel, mean, sd in moments)
    return f"- {name}: {', '.join(told)}"


def _measure(name: str, console: Console, source: str) -> str:
    """Table of a problem's engines, and the weights of its kernels, in Markdown."""
    model, runs, scoring = PROBLEMS[name]()
    results = {}
    for label, (engine, options) in runs.items():
        console.print(f"{name}: {label}")
        options = {"cores": 1, "random_seed": 1, "progressbar": False} | options
        results[label] = kz.fit(model, engine, **options)
    engines = kz.compare_engines(results, **scoring).engines
    # Columns that no engine fills say nothing.
    shown = {c: f for c, f in COLUMNS.items() if c in engines and engines[c].notna().any()}
    rows = [
        (engine, *("" if pd.isna(row[c]) else format(row[c], f) for c, f in shown.items()))
        for engine, row in engines.iterrows()
    ]
    heading = f"**`{type(model).__name__}`**. {PROBLEMS[name].__doc__}"
    weights = [line for label, result in results.items() if (line := _weights(label, result))]
    told = "Weights of the kernels, mean ± sd:\n\n" + "\n".join(weights) if weights else ""
    parts = [heading, markdown_table(("engine", *shown), rows), source, told]
    return "\n\n".join(filter(None, parts))


def main() -> None:
    """Measure all problems and write the file."""
    console = Console()
    warnings.simplefilter("ignore")
    # A first fit compiles what later ones find in the cache.
    kz.fit(kz.MultinomialProbit.example(), "vb", progressbar=False)
    versions = ", ".join(f"{name} {version(name)}" for name in ("kernelzoo", "pymc", "numpy"))
    source = (
        "Source: `docs/measured/engines.md`, written by `python docs/measure.py` "
        f"({platform.machine()}, {platform.system()}, {WHERE}; {versions}). Compare times within a "
        "table only."
    )
    told = "\n\n".join(_measure(name, console, source) for name in PROBLEMS)
    OUT.write_text(told + "\n", encoding="utf-8")
    console.print(f"written: {OUT}")


if __name__ == "__main__":
    main()
