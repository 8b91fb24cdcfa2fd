"""Held-out scores on wine over many splits: VB on all, Gibbs and NUTS on the first three."""

import warnings
from typing import Any

import pandas as pd
from rich.console import Console

from kernelzoo.datasets import load
from kernelzoo.inference import NUTS, VB, ApproximationWarning, Engine, Gibbs, compare_engines, fit
from kernelzoo.inference.engine import track
from kernelzoo.models import MultinomialProbit
from kernelzoo.models.kernels import gaussian, linear, polynomial

__all__ = ["run"]

SPLITS = 30
SAMPLED_SPLITS = 3


def run(console: Console) -> None:
    """Print accuracy, Brier and log score, mean and sd over splits, raw and normalised kernels."""
    specification = gaussian(1 / 13) | linear() | polynomial(2)
    rows = []
    with track(2 * SPLITS, "wine") as bar:
        for name, kernels in (
            ("raw", specification),
            ("trace", specification.normalize("trace")),
        ):
            for i, split in enumerate(load("wine").splits(SPLITS, test_size=0.3, seed=0)):
                model = MultinomialProbit(kernels(split.X_train), split.y_train)
                engines: dict[str, tuple[Engine, dict[str, Any]]] = {"VB": (VB(), {})}
                if i < SAMPLED_SPLITS:
                    engines["Gibbs"] = (Gibbs(), {"draws": 5000, "tune": 2000, "cores": 1})
                    engines["NUTS"] = (NUTS(), {"draws": 300, "tune": 300, "chains": 2})
                with warnings.catch_warnings():
                    # Only predictions are compared.
                    warnings.simplefilter("ignore", ApproximationWarning)
                    results = {
                        key: fit(
                            model,
                            engine,
                            random_seed=i,
                            progressbar=False,
                            log_likelihood=False,
                            **options,
                        )
                        for key, (engine, options) in engines.items()
                    }
                comparison = compare_engines(
                    results,
                    model=model,
                    kernels_new=kernels(split.X_test, split.X_train),
                    labels_new=split.y_test,
                )
                frame = comparison.engines[["seconds", "accuracy", "brier", "log_score"]]
                rows.append(frame.assign(kernels=name, split=i).reset_index())
                bar.advance()
    table = pd.concat(rows)
    figures = ["seconds", "accuracy", "brier", "log_score"]
    first = table[table["split"] < SAMPLED_SPLITS]
    for title, part in (("all splits", table), (f"first {SAMPLED_SPLITS} splits", first)):
        summary = part.groupby(["kernels", "engine"])[figures].agg(["mean", "std", "count"])
        console.print(f"{title}\n{summary.to_string(float_format='{:.4f}'.format)}", soft_wrap=True)
