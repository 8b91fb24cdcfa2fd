"""Effective draws per second of contrasts, weights and parameters, by Gibbs schemes and NUTS.

Weights are those of a mean, exponents of a product, or a selection, for which only kernels that
enter and leave it count. Seconds are processor seconds, so that ratios are stable on a busy
machine, separately for drawing, tuning and the rest (compilation, convergence checks). Run it with
one BLAS thread; it takes about five minutes.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import arviz as az
import numpy as np
import xarray as xr

from kernelzoo.datasets import load
from kernelzoo.inference import NUTS, Engine, Gibbs, identified
from kernelzoo.models import MultinomialProbit
from kernelzoo.models.kernels import Theta, as_stack, gaussian, linear, polynomial

from .record import markdown_table, quiet_fit

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


def wine_groups(combination: str) -> MultinomialProbit:
    """60 wines, a Gaussian kernel for each of three groups of features."""
    data = load("wine").split(test_size=2 / 3, seed=1)
    groups = np.array_split(np.asarray(data.X_train), 3, axis=1)
    stack = {f"group {i}": gaussian()(X).values[0] for i, X in enumerate(groups)}
    return MultinomialProbit(stack, data.y_train, combination=combination)


def wine_widths() -> MultinomialProbit:
    """60 wines, a Gaussian kernel with learned width and a linear one."""
    data = load("wine").split(test_size=2 / 3, seed=1)
    kernels = gaussian(Theta(1.0, 13.0)) | linear().normalize("trace")
    return MultinomialProbit(kernels(data.X_train), data.y_train)


def digits(a_class: int = DIGITS_A_CLASS) -> MultinomialProbit:
    """Digits of ten classes, a Gaussian kernel per view."""
    data = load("mfeat")
    labels = np.asarray(data.y)
    chosen = np.concatenate([np.flatnonzero(labels == c)[:a_class] for c in sorted(set(labels))])
    stack = {}
    for view in VIEWS:
        X = np.asarray(data.views[view])[chosen]
        X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9)
        stack[view] = gaussian(1 / X.shape[1])(X).values[0]
    return MultinomialProbit(stack, labels[chosen])


def landmarks() -> MultinomialProbit:
    """200 points of three overlapping classes, with whitened similarities to the first 30."""
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 3
    X = rng.normal(size=(200, 4)) + 1.2 * rng.normal(size=(3, 4))[labels]
    kernel = gaussian(0.25)
    eigenvalues, axes = np.linalg.eigh(kernel(X[:30]).values[0])
    features = kernel(X, X[:30]).values[0] @ (axes / np.sqrt(eigenvalues))
    return MultinomialProbit(as_stack({"gaussian": features}), labels)


type Problem = tuple[str, Callable[[], MultinomialProbit], tuple[tuple[Engine, int], ...]]

PROBLEMS: tuple[Problem, ...] = (
    ("60 wines, 3 classes, 3 kernels", wines, ((Gibbs(), 1_500), (PAPER, 10_000), (NUTS(), 200))),
    (
        "60 wines, product of 3 kernels",
        lambda: wine_groups("product"),
        ((Gibbs(), 1_500), (PAPER, 6_000), (NUTS(), 200)),
    ),
    (
        "60 wines, selection of 3 kernels",
        lambda: wine_groups("binary"),
        ((Gibbs(), 6_000), (Gibbs(block=1), 6_000)),
    ),
    (
        "60 wines, width of a kernel beside weights of 2",
        wine_widths,
        ((Gibbs(), 1_500), (PAPER, 4_000), (NUTS(), 200)),
    ),
    ("60 digits, 10 classes, 4 kernels", lambda: digits(6), ((Gibbs(), 1_000), (PAPER, 8_000))),
    ("200 digits, 10 classes, 4 kernels", digits, ((Gibbs(), 2_000), (PAPER, 16_000))),
    (
        "200 points, 3 classes, 30 basis functions",
        landmarks,
        ((Gibbs(scheme="marginal"), 1_000), (PAPER, 10_000)),
    ),
)


@dataclass
class Clock:
    """Callback of `pm.sample` that measures processor seconds of drawing and of tuning."""

    drawing: float = 0.0
    tuning: float = 0.0
    _last: float = field(default_factory=time.process_time)
    _chain: int = -1

    def __call__(self, trace: Any, draw: Any) -> None:
        """Add the time since the last call; a chain's first draw is not timed."""
        now = time.process_time()
        if draw.chain == self._chain:
            if draw.tuning:
                self.tuning += now - self._last
            else:
                self.drawing += now - self._last
        self._chain, self._last = draw.chain, now


HEADER = (
    *("engine", "draws", "s else", "s tuning", "s drawing"),
    *("contrast, median", "contrast, least", "weights, least", "parameters, least"),
    "largest R-hat",
)


def run() -> Iterator[str]:
    """Tables of the effective draws per second of each engine, a problem at a time."""
    for title, build, engines in PROBLEMS:
        model = build()
        yield f"**Effective draws per processor second, {title}**"
        yield markdown_table(HEADER, [_row(model, *each) for each in engines])


def _row(model: MultinomialProbit, engine: Engine, draws: int) -> list[str]:
    """Seconds, effective draws (rank-normalised) per second of drawing, and R-hat."""
    clock, start = Clock(), time.process_time()
    chains = {"draws": draws, "tune": TUNE, "chains": CHAINS, "cores": 1}
    result = quiet_fit(model, engine, callback=clock, **chains)
    rest = time.process_time() - start - clock.drawing - clock.tuning
    quantities = identified(result)
    ess, rhat = az.ess(quantities, method="bulk"), az.rhat(quantities)
    # Effective draws have no meaning for a kernel that is in all selections or in none.
    moves = {name: values.std(("chain", "draw")) > 0 for name, values in quantities.items()}
    per_second = []
    for what in ("contrast median", "contrast min", "beta min", "theta min"):
        quantity, of = what.split()
        counts = ess[quantity].where(moves[quantity]) if quantity in ess else xr.DataArray(np.nan)
        count = float(getattr(counts, of)())
        per_second.append("-" if np.isnan(count) else f"{count / clock.drawing:.2f}")
    largest = max(float(rhat[name].where(moves[name]).max()) for name in rhat.data_vars)
    seconds = (rest, clock.tuning, clock.drawing)
    told = (f"{value:.1f}" for value in seconds)
    return [repr(engine), f"{CHAINS * draws:,}", *told, *per_second, f"{largest:.3f}"]
