"""What engines cost and find on four problems: the tables of the page on engines.

Times are of one machine, in one run: compare those of one table with each other.
"""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

import kernelzoo as kz

from .record import markdown_table

#: Columns of `kz.compare_engines` in the tables, and how numbers are written.
COLUMNS = {
    "seconds": ".1f",
    "draws": "",
    "converged": "",
    "ess_per_second": ".2g",
    "pareto_k": ".2f",
    "log_score": ".3f",
}

#: A model, the engines with their options, and what scores them on new objects.
type Problem = tuple[Any, dict[Any, dict[str, Any]], dict[str, Any]]


def wine() -> Problem:
    """Classes of wine, 53 training objects, 3 classes, 3 kernels."""
    data = kz.datasets.load("wine").split(test_size=0.7, seed=1)
    kernels = (kz.gaussian(1 / 13) | kz.linear() | kz.polynomial(2)).normalize("trace")
    model = kz.MultinomialProbit(kernels(data.X_train), data.y_train)
    runs = {kz.VB(): {}, kz.Gibbs(): {}, kz.NUTS(): {"chains": 2, "draws": 300, "tune": 500}}
    new = kernels(data.X_test, data.X_train)
    return model, runs, {"model": model, "kernels_new": new, "labels_new": data.y_test}


def sonar() -> Problem:
    """Two classes of sonar echoes, 104 training objects, 3 kernels."""
    data = kz.datasets.load("sonar").split(test_size=0.5, seed=1)
    kernels = (kz.gaussian("median") | kz.linear() | kz.polynomial(2)).normalize("trace")
    model = kz.CompositeKernelClassification(kernels(data.X_train), data.y_train)
    new = kernels(data.X_test, data.X_train)
    scoring = {"model": model, "kernels_new": new, "labels_new": data.y_test}
    return model, {kz.VB(): {}, kz.Gibbs(): {}}, scoring


def completion() -> Problem:
    """Ionosphere, a kernel known for 70 objects and completed for 30."""
    data = kz.datasets.load("ionosphere").split(test_size=0.8, seed=1)
    X = np.vstack([np.asarray(data.X_train), np.asarray(data.X_test)[:30]])
    labels = np.asarray(data.y_train)
    theta = kz.gaussian("median")(X)
    ideal = (labels[:, None] == labels).astype(float)
    model = kz.WishartCompletion(theta, (theta.values[0, : len(ideal), : len(ideal)] + ideal) / 2)
    return model, {kz.Exact(): {}, kz.Gibbs(): {}, kz.VB(): {}}, {}


def mutual() -> Problem:
    """50 irises, 3 kernels, each of which lacks some objects."""
    X = np.asarray(kz.datasets.load("iris").X)[::3]
    wide = kz.kernels.inverse_multiquadric("median")
    cosine = kz.linear().normalize("unit")
    kernels = (kz.gaussian("median") | wide | cosine)(X)
    hidden = np.random.default_rng(1).random((len(X), 3)) < 0.3
    visible = ~hidden | hidden.all(axis=1, keepdims=True)
    model = kz.MutualKernelCompletion(kernels, visible, jitter=0.05)
    return model, {kz.EM(): {}, kz.Gibbs(): {}}, {}


PROBLEMS = (wine, sonar, completion, mutual)


def run() -> Iterator[str]:
    """Table of each problem's engines, and the weights of its kernels, if they were drawn."""
    # A first fit compiles what later ones find in the cache.
    kz.fit(kz.MultinomialProbit.example(), "vb", progressbar=False)
    for problem in PROBLEMS:
        model, runs, scoring = problem()
        results = {}
        for engine, options in runs.items():
            settings: dict[str, Any] = {"cores": 1, "random_seed": 1, "progressbar": False}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                results[engine.name] = kz.fit(model, engine, **settings | options)
        table = kz.compare_engines(results, **scoring).engines
        # Columns that no engine fills say nothing.
        shown = {c: f for c, f in COLUMNS.items() if c in table and table[c].notna().any()}
        yield f"**`{type(model).__name__}`**. {problem.__doc__}"
        rows = [
            (engine, *("" if pd.isna(row[c]) else format(row[c], f) for c, f in shown.items()))
            for engine, row in table.iterrows()
        ]
        yield markdown_table(("engine", *shown), rows)
        weights = [
            f"- {name}: {_weights(result['posterior']['beta'])}"
            for name, result in results.items()
            if "beta" in result["posterior"]
        ]
        if weights:
            yield "Weights of the kernels, mean ± sd:\n\n" + "\n".join(weights)


def _weights(beta: Any) -> str:
    axes = [dim for dim in beta.dims if dim != "kernel"]
    moments = zip(beta["kernel"].values, beta.mean(axes), beta.std(axes), strict=True)
    return ", ".join(
        f"{kernel} {float(mean):.2f} ± {float(sd):.2f}" for kernel, mean, sd in moments
    )
