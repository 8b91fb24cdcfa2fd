"""Effective draws a second of contrasts and weights: both Gibbs schemes beside NUTS."""

import arviz as az
import numpy as np
from rich.console import Console
from rich.table import Table

from ..datasets import load
from ..inference import NUTS, Gibbs, fit, identified
from ..inference.engines import Engine
from ..models import MultinomialProbit, gaussian, linear, polynomial

__all__ = ["run"]

DIGITS_A_CLASS = 20
VIEWS = ("fou", "fac", "kar", "pix", "zer")


def wines() -> MultinomialProbit:
    """60 wines, three classes, three kernels."""
    data = load("wine").split(test_size=2 / 3, seed=1)
    kernels = (gaussian() | linear() | polynomial(2)).normalize("trace")
    return MultinomialProbit(kernels(data.X_train), data.y_train)


def digits() -> MultinomialProbit:
    """200 digits, ten classes, a Gaussian kernel a view."""
    data = load("mfeat")
    labels = np.asarray(data.y)
    chosen = np.concatenate([np.flatnonzero(labels == c)[:DIGITS_A_CLASS] for c in set(labels)])
    stack = {}
    for view in VIEWS:
        X = np.asarray(data.views[view])[chosen]
        X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9)
        stack[view] = gaussian(1 / X.shape[1])(X).values[0]
    return MultinomialProbit(stack, labels[chosen])


def run(console: Console) -> None:
    """Print effective draws a second of each engine on each problem."""
    paper = Gibbs(scheme="paper")
    problems = (
        ("60 wines, 3 kernels", wines(), ((Gibbs(), 2_000), (paper, 20_000), (NUTS(), 500))),
        ("200 digits, 5 kernels", digits(), ((Gibbs(), 1_000), (paper, 4_000))),
    )
    for title, model, engines in problems:
        table = Table(title=f"effective draws a second, {title}, one core")
        for column in (
            "engine",
            "draws",
            "seconds",
            "contrast, median",
            "contrast, least",
            "weights",
            "largest R-hat",
        ):
            table.add_column(column, justify="left" if column == "engine" else "right")
        for engine, draws in engines:
            table.add_row(repr(engine), f"{2 * draws:,}", *_row(model, engine, draws))
        console.print(table)


def _row(model: MultinomialProbit, engine: Engine, draws: int) -> list[str]:
    """Seconds, effective draws a second (rank-normalised), largest R-hat."""
    result = fit(
        model,
        engine,
        draws=draws,
        tune=min(draws, 500),
        chains=2,
        cores=1,
        random_seed=1,
        log_likelihood=False,
    )
    quantities = identified(result)
    ess, rhat = az.ess(quantities, method="bulk"), az.rhat(quantities)
    seconds = result.attrs["seconds"]
    per_second = (
        float(ess["contrast"].median()) / seconds,
        float(ess["contrast"].min()) / seconds,
        float(ess["beta"].min()) / seconds,
    )
    largest = max(float(rhat[name].max()) for name in rhat.data_vars)
    return [f"{seconds:.1f}", *(f"{value:.2f}" for value in per_second), f"{largest:.3f}"]
