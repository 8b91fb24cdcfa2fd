"""Predictions with missing blocks by growing missingness: completion, imputation, complete cases.

Each training and test object lacks each block with the probability given, but never all blocks. All
methods see the same objects and are scored on the same test objects. Kernels are Gaussian, of
z-scored features, and divided by their mean diagonals.

=============== ====================================================================
method          what it does
=============== ====================================================================
draws           `complete_kernels`, and `fit` on every draw
EM              `complete_kernels` by EM, and `fit` on this one completion
mean imputation each missing object is the mean of its kernel's objects
complete cases  training objects that have all blocks; blocks of test objects imputed
best block      the block with most training objects alone; the prior for others
=============== ====================================================================

The differences between methods are paired: all see the same objects. Probabilities are those of VB,
which are too cautious on so few objects; averages over draws are still more cautious than those of
one completion.

Coverage is the share of test objects whose class is in the smallest set of classes of probability
0.9 or more.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from kernelzoo.datasets import load
from kernelzoo.inference import ApproximationWarning, fit, predict
from kernelzoo.inference.completion import CompletedKernels, complete_kernels, impute_kernels
from kernelzoo.inference.engine import track
from kernelzoo.inference.scores import held_out
from kernelzoo.models import MultinomialProbit
from kernelzoo.models.kernels import gaussian

__all__ = ["run"]

MISSING = (0.0, 0.2, 0.4, 0.6)
TRAIN, TEST = 50, 50
DRAWS = 6
LEVEL = 0.9

type Blocks = tuple[list[NDArray], NDArray]


def synthetic(rng: np.random.Generator) -> Blocks:
    """Three blocks of noisy linear maps of four factors; three classes."""
    labels = np.arange(TRAIN + TEST) % 3
    factors = rng.normal(size=(len(labels), 4)) + 1.5 * np.eye(4)[labels]
    blocks = [
        factors @ rng.normal(size=(4, 8)) + rng.normal(size=(len(labels), 8)) for _ in range(3)
    ]
    return blocks, labels


def digits(rng: np.random.Generator) -> Blocks:
    """Three views of the digits 0 to 4 of mfeat."""
    return _sample("mfeat", ("fou", "kar", "zer"), [0, 1, 2, 3, 4], rng)


def proteins(rng: np.random.Generator) -> Blocks:
    """Three views of the four largest folds of proteins."""
    return _sample("protein_fold", ("Composition", "Secondary", "L1"), None, rng)


def _sample(name: str, views: Any, classes: Any, rng: np.random.Generator) -> Blocks:
    data = load(name)
    labels = np.asarray(data.y)
    if classes is None:
        classes = pd.Series(labels).value_counts().index[:4].tolist()
    chosen = np.flatnonzero(np.isin(labels.astype(str), [str(one) for one in classes]))
    chosen = rng.permutation(chosen)[: TRAIN + TEST]
    return [np.asarray(data.views[view])[chosen] for view in views], labels[chosen]


PROBLEMS: dict[str, Callable[[np.random.Generator], Blocks]] = {
    "synthetic": synthetic,
    "mfeat": digits,
    "proteins": proteins,
}


def kernels_of(blocks: list[NDArray], seen: NDArray) -> dict[str, NDArray]:
    """Kernels by block, NaN in rows and columns of objects not seen (object, block)."""
    kernels = {}
    for b, X in enumerate(blocks):
        known = X[seen[:, b]]
        Z = (X - known.mean(0)) / np.maximum(known.std(0), 1e-9)
        K = np.array(gaussian(1 / Z.shape[1])(Z)[0])
        K[~seen[:, b]] = np.nan
        K[:, ~seen[:, b]] = np.nan
        kernels[f"block{b}"] = K
    return kernels


def masks(n: int, blocks: int, missing: float, rng: np.random.Generator) -> NDArray:
    """Which blocks each object has (object, block), at least one each."""
    seen = rng.random((n, blocks)) >= missing
    seen[np.arange(n), rng.integers(blocks, size=n)] = True
    return seen


def classified(model: MultinomialProbit, kernels_new: Any, completions: int | None) -> NDArray:
    """Predicted probabilities by VB."""
    result = fit(
        model,
        "vb",
        draws=200,
        random_seed=1,
        progressbar=False,
        log_likelihood=False,
        completions=completions,
    )
    return predict(model, result, kernels_new, progressbar=False)["probability"].to_numpy()


def predictions(
    kernels: dict[str, NDArray], seen: NDArray, labels: NDArray, seed: int
) -> Iterator[tuple[str, NDArray, float]]:
    """Yield method, probabilities (test object, class) and seconds, for methods that apply."""
    classes = np.unique(labels).tolist()
    train, test = np.arange(TRAIN), np.arange(TRAIN, len(labels))
    # Proteins of equal features make kernels singular.
    settings: dict[str, Any] = {
        "model": {"jitter": 1e-4},
        "random_seed": seed,
        "progressbar": False,
    }
    engines: dict[str, dict[str, Any]] = {
        "draws": {"engine": "gibbs", "draws": DRAWS, "tune": 150},
        "EM": {"engine": "em"},
    }
    for name, engine in engines.items():
        begun = time.perf_counter()
        completion = complete_kernels(kernels, **engine, **settings)
        model = MultinomialProbit(completion.of(train), labels[:TRAIN], classes=classes)
        p = classified(model, completion.of(test, train), None)
        yield name, p, time.perf_counter() - begun
    mean = CompletedKernels(*_imputed(kernels, seen), steps=("trace",))
    cases = {"mean imputation": train, "complete cases": train[seen[:TRAIN].all(1)]}
    for name, used in cases.items():
        begun = time.perf_counter()
        if len(np.unique(labels[used])) < 2:
            continue
        one = MultinomialProbit(mean.of(used), labels[used], classes=classes)
        yield name, classified(one, mean.of(test, used), 0), time.perf_counter() - begun
    begun = time.perf_counter()
    block = seen[:TRAIN].sum(0).argmax()
    used, known = train[seen[:TRAIN, block]], test[seen[test, block]]
    alone = {"block": kernels[f"block{block}"][np.ix_(used, used)]}
    across = {"block": kernels[f"block{block}"][np.ix_(known, used)]}
    p = np.tile([(labels[:TRAIN] == c).mean() for c in classes], (len(test), 1))
    one = MultinomialProbit(alone, labels[used], classes=classes)
    p[seen[test, block]] = classified(one, across, None)
    yield "best block", p, time.perf_counter() - begun


def _imputed(kernels: dict[str, NDArray], seen: NDArray) -> tuple[xr.DataArray, NDArray, NDArray]:
    stack = impute_kernels(kernels)
    return stack, stack.to_numpy()[None], seen


def coverage(p: NDArray, codes: NDArray) -> float:
    """Share of objects whose class is in the smallest set of probability `LEVEL` or more."""
    order = np.argsort(-p, axis=1)
    before = np.cumsum(np.take_along_axis(p, order, 1), 1) - np.take_along_axis(p, order, 1)
    rank = (order == codes[:, None]).argmax(1)
    return float((before[np.arange(len(p)), rank] < LEVEL).mean())


def measure(problem: str, missing: float, seed: int) -> pd.DataFrame:
    """Scores of every method on one sample."""
    rng = np.random.default_rng([seed, 7])
    blocks, labels = PROBLEMS[problem](rng)
    seen = masks(len(labels), len(blocks), missing, rng)
    classes, codes = np.unique(labels, return_inverse=True)
    rows = []
    for name, p, seconds in predictions(kernels_of(blocks, seen), seen, labels, seed):
        predicted = xr.Dataset(
            {"probability": (("obs", "class"), p / p.sum(1, keepdims=True))},
            coords={"class": classes},
        )
        found = held_out(predicted, labels[TRAIN:])
        rows.append(
            {
                "data": problem,
                "missing": missing,
                "method": name,
                **found,
                "coverage": coverage(p, codes[TRAIN:]),
                "s": seconds,
            }
        )
    return pd.DataFrame(rows)


def run(console: Console, samples: int = 3) -> None:
    """Print scores by missingness and method, means over samples."""
    left_out, found = [], []
    with (
        track(len(PROBLEMS) * len(MISSING) * samples, "missing blocks") as bar,
        warnings.catch_warnings(),
    ):
        # Only predictions are compared; few draws are wanted of each completed entry.
        warnings.simplefilter("ignore", ApproximationWarning)
        warnings.filterwarnings("ignore", "(?s).*effective draws")
        for problem in PROBLEMS:
            try:
                for missing in MISSING:
                    for seed in range(samples):
                        found.append(measure(problem, missing, seed))
                        bar.advance()
            except FileNotFoundError as error:
                left_out.append(f"{problem} is left out: {error}")
    scores = ["log_score", "brier", "accuracy", "coverage", "s"]
    means = pd.concat(found).groupby(["data", "missing", "method"], sort=False)[scores].mean()
    table = Table(title=f"{samples} sample(s) of {TRAIN} training and {TEST} test objects")
    for column in ("data", "missing", "method", *scores):
        table.add_column(column)
    for key, row in means.iterrows():
        problem, missing, method = key
        table.add_row(problem, f"{missing:.0%}", method, *(f"{x:.3f}" for x in row))
    console.print(table)
    for line in left_out:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
