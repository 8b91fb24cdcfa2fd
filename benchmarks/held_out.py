"""Held-out log loss and accuracy, compared with scikit-learn's classifiers, by default settings.

Data with several blocks of features are split at random into 70 % for training and 30 % for
testing, stratified by class. Features are z-scored on the training part. `MultinomialProbit` has
one kernel per block. scikit-learn's classifiers use all blocks side by side, each divided by the
root of its number of features, so that blocks have equal weight (which does not affect a forest).
The SVC's probabilities are calibrated by cross-validation (Platt's sigmoid).
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from rich.console import Console
from sklearn.base import ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from kernelzoo.datasets import Dataset, Split, cohort, load
from kernelzoo.inference import VB, Engine, Gibbs, predict
from kernelzoo.inference.engine import track
from kernelzoo.inference.scores import held_out
from kernelzoo.models import MultinomialProbit
from kernelzoo.models.kernels import Kernels, gaussian

from .record import quiet_fit, table_of

__all__ = ["run"]

#: Best possible predictions on the simulated cohort, from the true factors behind its blocks.
FACTORS = "p(class | factors)"
SPLITS = 5
TEST_SIZE = 0.3


def tara(label: str) -> Dataset:
    """Load samples of ocean water, classified by depth layer or by ocean."""
    data = load("tara_oceans")
    return data if label == "depth" else replace(data, y=data.extras[label])


#: Data sets by name; unavailable ones are left out.
PROBLEMS: dict[str, Callable[[], Dataset]] = {
    "Tara Oceans, depth": lambda: tara("depth"),
    "Tara Oceans, ocean": lambda: tara("ocean"),
    "simulated cohort": cohort,
}


#: Kernel of a block, with the default width: one over the number of features.
KERNEL: Kernels = gaussian()
#: Engines and arguments of `fit`. Gibbs has fewer draws than by default, so that a fit takes at
#: most a minute; its averages over draws are accurate to a few thousandths of the log loss.
ENGINES: dict[str, tuple[Engine, dict[str, Any]]] = {
    "VB": (VB(), {}),
    "Gibbs": (Gibbs(), {"draws": 300, "tune": 300, "chains": 2, "cores": 1}),
}
CLASSIFIERS: dict[str, Callable[[], ClassifierMixin]] = {
    "logistic regression": lambda: LogisticRegression(max_iter=10_000),
    "random forest": lambda: RandomForestClassifier(500, random_state=0),
    # Three folds: some classes have three objects in the training part.
    "SVC": lambda: CalibratedClassifierCV(SVC(), ensemble=False, cv=3),
}


def side_by_side(blocks: dict[str, NDArray]) -> NDArray:
    """All features side by side, with blocks at the same scale."""
    return np.hstack([X / np.sqrt(X.shape[1]) for X in blocks.values()])


def predictions(data: Dataset, split: Split, seed: int) -> Iterator[tuple[str, xr.Dataset, float]]:
    """Yield name, predictions of the test part, and seconds of each classifier."""
    tables: Any = split.X_train, split.X_test
    train, test = ({view: X.to_numpy() for view, X in part.items()} for part in tables)
    kernels = reduce(or_, (KERNEL.on(view).named(view) for view in train))
    model = MultinomialProbit(kernels(train), split.y_train)
    kernels_new = kernels(test, train)
    for name, (engine, options) in ENGINES.items():
        start = time.perf_counter()
        result = quiet_fit(model, engine, seed=seed, **options)
        predicted = predict(model, result, kernels_new)
        yield name, predicted, time.perf_counter() - start
    for name, make in CLASSIFIERS.items():
        start = time.perf_counter()
        classifier: Any = make().fit(side_by_side(train), split.y_train)
        p = classifier.predict_proba(side_by_side(test))
        yield name, _as_dataset(p, classifier.classes_), time.perf_counter() - start
    if "probability" in data.extras:
        objects = tables[1]["clinical"].index
        p = data.extras["probability"][objects]
        yield FACTORS, _as_dataset(p, np.arange(p.shape[1])), np.nan


def _as_dataset(probability: NDArray, classes: NDArray) -> xr.Dataset:
    return xr.Dataset({"probability": (("obs", "class"), probability)}, coords={"class": classes})


def measure(data: Dataset, bar: Any) -> pd.DataFrame:
    """Score every classifier on every split: log loss, accuracy, seconds."""
    rows = []
    for i, split in enumerate(data.splits(SPLITS, test_size=TEST_SIZE, seed=0)):
        for name, predicted, seconds in predictions(data, split, seed=i):
            found = held_out(predicted, split.y_test)
            rows.append((name, -found["log_score"], found["accuracy"], seconds))
        bar.advance()
    return pd.DataFrame(rows, columns=["classifier", "log loss", "accuracy", "s"])


def run(console: Console) -> None:
    """Print log loss and accuracy, mean and standard error over splits."""
    title = f"{SPLITS} splits, {100 * TEST_SIZE:g} % held out"
    columns = ("log loss", "se", "accuracy", "se", "s")
    table = table_of(title, ("data", "classifier"), columns)
    left_out = []
    with track(SPLITS * len(PROBLEMS), "held out") as bar:
        for problem, read in PROBLEMS.items():
            try:
                data = read()
            except FileNotFoundError as error:
                left_out.append(f"{problem} is left out: {error}")
                continue
            by_classifier = measure(data, bar).groupby("classifier", sort=False)
            mean, error_of_mean = by_classifier.mean(), by_classifier.sem()
            for name in mean.index:
                numbers = (
                    f"{figures.loc[name, score]:.3f}"
                    for score in ("log loss", "accuracy")
                    for figures in (mean, error_of_mean)
                )
                seconds = mean.loc[name, "s"]
                table.add_row(
                    problem, name, *numbers, "" if np.isnan(seconds) else f"{seconds:.1f}"
                )
    console.print(table)
    for line in left_out:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
