"""Regret of `recommend`: processor seconds to an answer, recommended engine against the best.

An answer is 400 effective draws of every identified quantity: posterior means to a twentieth of a
posterior standard deviation. A fit that has fewer is extrapolated in proportion; a fit whose R-hat
is above 1.05 gives no answer. Each problem's engines are those that
sample its posterior. Means must agree: the last column is the share of identified quantities whose
means differ from those of a reference by at most two combined Monte Carlo standard errors, which
should be near 95 %. The reference is Exact where it applies, else the chains with the most
effective draws; not SMC, whose particles share ancestors, so that its errors are understated.

Run it with one BLAS thread; it takes half an hour, most of it compilation for NUTS.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial

import arviz as az
import numpy as np
import pymc as pm
from rich.console import Console
from rich.table import Table
from xarray import DataArray, Dataset, DataTree

from kernelzoo.datasets import load
from kernelzoo.inference import Engine, engines, fit, identified, recommend
from kernelzoo.inference.engine import track
from kernelzoo.models import (
    CompositeKernelClassification,
    CompositeKernelRegression,
    DiagonalWishartCompletion,
    MultinomialProbit,
    MutualKernelCompletion,
    WishartCompletion,
    WishartKernelMixture,
)
from kernelzoo.models.kernels import gaussian, linear, polynomial

__all__ = ["run"]

ENOUGH = 400
RHAT_BOUND = 1.05
# Seconds after which a fit is ended: it then gives no answer.
LIMIT = 120
OBJECTS = 50


def stack(name: str, seed: int, *, positive: bool = False) -> tuple[DataArray, np.ndarray]:
    """Two or three kernels of 50 objects of a data set, and their labels."""
    objects = load(name)
    data = objects.split(test_size=1 - OBJECTS / len(np.asarray(objects.y)), seed=seed)
    of_any_sign = linear() | polynomial(2)
    kernels = gaussian("median") | (gaussian("scale") if positive else of_any_sign)
    kernels = kernels.normalize("trace")
    return kernels(data.X_train), np.asarray(data.y_train)


def probit(name: str, seed: int, combination: str = "mean") -> MultinomialProbit:
    """Classification by a combination of kernels; the product needs positive ones."""
    kernels, labels = stack(name, seed, positive=combination == "product")
    return MultinomialProbit(kernels, labels, combination=combination)


def two_classes(name: str, seed: int) -> CompositeKernelClassification:
    """Classification into two classes by three kernels."""
    return CompositeKernelClassification(*stack(name, seed))


def regression(name: str, seed: int, collapsed: bool) -> CompositeKernelRegression:
    """Regression of noisy functions of the composite kernel's first eigenvectors."""
    kernels, _ = stack(name, seed)
    rng = np.random.default_rng(seed)
    _, axes = np.linalg.eigh(np.asarray(kernels).mean(axis=0))
    target = axes[:, -5:] @ rng.normal(size=5)
    target = target / target.std() + 0.3 * rng.normal(size=len(target))
    return CompositeKernelRegression(kernels, target, collapsed=collapsed)


def problems() -> Iterator[tuple[str, Callable[[], pm.Model]]]:
    """Thirty problems: name, and function that makes the model."""
    for name in ("wine", "iris", "glass"):
        for seed in (1, 2):
            yield f"probit, {name}, {seed}", partial(probit, name, seed)
    for combination in ("product", "fixed", "binary"):
        yield (
            f"probit, wine, {combination}",
            partial(probit, "wine", 1, combination),
        )
    for name in ("ionosphere", "heart", "sonar"):
        for seed in (1, 2):
            yield f"two classes, {name}, {seed}", partial(two_classes, name, seed)
    for name in ("ionosphere", "sonar"):
        for collapsed in (False, True):
            yield (
                f"regression, {name}{', collapsed' if collapsed else ''}",
                partial(regression, name, 1, collapsed),
            )
    for model in (
        *(WishartCompletion, DiagonalWishartCompletion, WishartKernelMixture),
        MutualKernelCompletion,
    ):
        for seed in (1, 2):
            yield f"{model.__name__}, {seed}", partial(model.example, seed)
    for prior in ("wishart", "mixture"):
        yield (
            f"WishartKernelMixture, {prior}",
            partial(WishartKernelMixture.example, prior=prior),
        )
    yield (
        "WishartKernelMixture, learned weights",
        partial(WishartKernelMixture.example, concentration=1.0, collapsed=True),
    )


def run(console: Console) -> None:
    """Print each problem's seconds to an answer, by engine, and the regret."""
    table = Table(title=f"processor seconds to {ENOUGH} effective draws; recommended engine first")
    for column in ("problem", "recommended", "others", "regret", "agree"):
        table.add_column(column)
    regrets = []
    every = list(problems())
    with track(len(every), "recommend") as bar:
        for name, make in every:
            bar.advance(problem=name)
            model = make()
            choice = recommend(model, progressbar=False).engine.name
            answers, agree = _answers(model)
            best = min(answers.values())
            regret = answers[choice] / best if np.isfinite(best) else np.nan
            regrets.append(regret)
            others = {engine: s for engine, s in answers.items() if engine != choice}
            table.add_row(
                name,
                f"{choice} {_seconds(answers[choice])}",
                ", ".join(f"{engine} {_seconds(s)}" for engine, s in others.items()),
                f"{regret:.2f}",
                agree,
            )
            console.print(f"{name}: regret {regret:.2f}", highlight=False)
    console.print(table)
    known = [regret for regret in regrets if not np.isnan(regret)]
    console.print(
        f"median regret {np.median(known):.2f}, largest {max(known):.2f}, "
        f"best engine recommended in {np.mean(np.asarray(known) == 1):.0%} of {len(known)} problems"
    )


def _seconds(value: float) -> str:
    return f"{value:.1f}" if np.isfinite(value) else "no answer"


def _answers(model: pm.Model) -> tuple[dict[str, float], str]:
    """Seconds to an answer by engine, and the share of means that agree."""
    seconds, results, effective = {}, {}, {}
    for row in engines(model).rows:
        if row.kind not in ("exact", "mcmc") or row.reason or row.advice:
            continue
        limit = None if Engine.registry[row.engine.lower()]().why_no_time_limit() else LIMIT
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                result = fit(
                    model,
                    row.engine,
                    cores=1,
                    random_seed=1,
                    log_likelihood=False,
                    progressbar=False,
                    max_seconds=limit,
                )
            except ValueError:
                # No chain was tuned in time.
                seconds[row.engine] = np.inf
                continue
        spent = time.process_time() - start
        ess, rhat = _quality(result)
        seconds[row.engine] = spent * max(1, ENOUGH / ess) if rhat <= RHAT_BOUND else np.inf
        results[row.engine], effective[row.engine] = result, ess
    reference = max(
        effective, key=lambda engine: (engine == "Exact", engine != "SMC", effective[engine])
    )
    shares = [
        f"{engine} {_agreement(results[engine], results[reference]):.0%}"
        for engine in results
        if engine != reference and np.isfinite(seconds[engine])
    ]
    return seconds, ", ".join(shares)


def _quality(result: DataTree) -> tuple[float, float]:
    """Smallest number of effective draws and largest R-hat of what moves."""
    quantities = _moving(identified(result))
    ess = min(float(values.min()) for values in az.ess(quantities).data_vars.values())
    if quantities.sizes["chain"] < 2:
        return ess, 1.0
    return ess, max(float(values.max()) for values in az.rhat(quantities).data_vars.values())


def _moving(quantities: Dataset) -> Dataset:
    """Quantities that are not constant."""
    return quantities.where(quantities.std(("chain", "draw")) > 1e-12)


def _agreement(result: DataTree, reference: DataTree) -> float:
    """Share of means within two combined Monte Carlo standard errors."""
    of = [_moving(identified(each)) for each in (result, reference)]
    means = [each.mean(("chain", "draw")) for each in of]
    errors = [az.mcse(each) for each in of]
    agree, count = 0, 0
    for name in set(of[0].data_vars) & set(of[1].data_vars):
        difference = np.abs((means[0][name] - means[1][name]).to_numpy())
        bound = 2 * np.hypot(errors[0][name].to_numpy(), errors[1][name].to_numpy())
        known = np.isfinite(difference) & np.isfinite(bound)
        agree += int((difference <= bound)[known].sum())
        count += int(known.sum())
    return agree / count if count else np.nan
