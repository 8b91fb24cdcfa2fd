"""Effective draws a second of contrasts and weights: Gibbs beside NUTS on one problem."""

import arviz as az
from rich.console import Console
from rich.table import Table

from ..datasets import load
from ..inference import NUTS, Gibbs, fit, identified
from ..models import MultinomialProbit, gaussian, linear, polynomial

__all__ = ["run"]


def run(console: Console) -> None:
    """Print effective draws a second on 60 wines with three kernels."""
    data = load("wine").split(test_size=2 / 3, seed=1)
    kernels = (gaussian() | linear() | polynomial(2)).normalize("trace")
    model = MultinomialProbit(kernels(data.X_train), data.y_train)
    table = Table(title=f"effective draws a second, {len(data.y_train)} wines, 3 kernels, one core")
    for column in ("engine", "draws", "seconds", "contrast, median", "contrast, least", "weights"):
        table.add_column(column, justify="left" if column == "engine" else "right")
    for engine, draws in ((Gibbs(), 20_000), (NUTS(), 500)):
        result = fit(
            model,
            engine,
            draws=draws,
            tune=min(draws, 1000),
            chains=2,
            cores=1,
            random_seed=1,
            log_likelihood=False,
        )
        ess = az.ess(identified(result), method="mean")
        seconds = result.attrs["seconds"]
        table.add_row(
            engine.name,
            f"{2 * draws:,}",
            f"{seconds:.1f}",
            f"{float(ess['contrast'].median()) / seconds:.2f}",
            f"{float(ess['contrast'].min()) / seconds:.2f}",
            f"{float(ess['beta'].min()) / seconds:.2f}",
        )
    console.print(table)
