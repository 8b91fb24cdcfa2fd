"""Effective draws per second of contrasts and weights, by Gibbs schemes and NUTS.

Seconds are processor seconds of drawing, without tuning, so that ratios are stable on a busy
machine. Run it with one BLAS thread; it takes minutes.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import arviz as az
import numpy as np
from sklearn.preprocessing import StandardScaler

from kernelzoo import NUTS, Gibbs, fit
from kernelzoo.datasets import load
from kernelzoo.inference import Engine, identified
from kernelzoo.models import MultinomialProbit
from kernelzoo.models.kernels import gaussian, linear, polynomial

from .record import markdown_table

DIGITS_A_CLASS = 20
VIEWS = ("fou", "fac", "kar", "pix")
CHAINS = 2
TUNE = 400
PAPER = Gibbs(scheme="paper")


def wines() -> MultinomialProbit:
    """60 wines, three classes, three kernels."""
    data = load("wine").split(test_size=2 / 3, seed=1)
    kernels = (gaussian() | linear() | polynomial(2)).normalize("trace")
    return MultinomialProbit(kernels(data.X_train), data.y_train)


def digits() -> MultinomialProbit:
    """200 digits of ten classes, a Gaussian kernel per view."""
    data = load("mfeat")
    labels = np.asarray(data.y)
    rows = [np.flatnonzero(labels == label)[:DIGITS_A_CLASS] for label in np.unique(labels)]
    chosen = np.concatenate(rows)
    X = {view: StandardScaler().fit_transform(data.views[view].iloc[chosen]) for view in VIEWS}
    return MultinomialProbit(gaussian()(X), labels[chosen])


type Problem = tuple[str, Callable[[], MultinomialProbit], tuple[tuple[Engine, int], ...]]

PROBLEMS: tuple[Problem, ...] = (
    ("60 wines, 3 classes, 3 kernels", wines, ((Gibbs(), 1_500), (PAPER, 10_000), (NUTS(), 200))),
    ("200 digits, 10 classes, 4 kernels", digits, ((Gibbs(), 2_000), (PAPER, 16_000))),
)


@dataclass
class Clock:
    """Callback of `pm.sample` that measures processor seconds of drawing."""

    drawing: float = 0.0
    _last: float = field(default_factory=time.process_time)
    _chain: int = -1

    def __call__(self, trace: Any, draw: Any) -> None:
        """Add the time since the last call; a chain's first draw is not timed."""
        now = time.process_time()
        if draw.chain == self._chain and not draw.tuning:
            self.drawing += now - self._last
        self._chain = draw.chain
        self._last = now


def run() -> Iterator[str]:
    """Tables of the effective draws per second of each engine, a problem at a time."""
    effective = ("contrast, median", "contrast, least", "weights, least")
    header = ("engine", "draws", "seconds", *effective, "largest R-hat")
    for title, build, engines in PROBLEMS:
        model = build()
        yield f"**Effective draws per processor second, {title}**"
        yield markdown_table(header, [_row(model, *each) for each in engines])


def _row(model: MultinomialProbit, engine: Engine, draws: int) -> list[str]:
    """Seconds, effective draws (rank-normalised) per second of drawing, and R-hat."""
    clock = Clock()
    quiet: dict[str, Any] = {"progressbar": False, "log_likelihood": False, "callback": clock}
    chains: dict[str, Any] = {"draws": draws, "tune": TUNE, "chains": CHAINS, "cores": 1}
    quantities = identified(fit(model, engine, random_seed=1, **quiet, **chains))
    counts = az.ess(quantities, method="bulk")
    rhat = az.rhat(quantities)
    found = counts["contrast"].median(), counts["contrast"].min(), counts["beta"].min()
    told = [f"{clock.drawing:.1f}", *(f"{float(count) / clock.drawing:.2f}" for count in found)]
    return [repr(engine), f"{CHAINS * draws:,}", *told, f"{rhat.max().to_array().max().item():.3f}"]
