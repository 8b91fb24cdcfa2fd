"""VB of `MultinomialProbit` on features, as the objects grow in number, and a linear classifier.

Whole fits (until the bound's relative change is below 1e-4, with the k-hat of 100 draws) on two
kernels of 500 Nystroem features and ten classes, and scikit-learn's `SGDClassifier` on the same
features. Each size runs in a process of its own, whose peak memory includes the objects and their
features.
"""

import multiprocessing
import resource
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from numpy.typing import NDArray
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelzoo.inference import VB, predict
from kernelzoo.models import MultinomialProbit
from kernelzoo.models.kernels import basis_expansion

from .record import markdown_table, quiet_fit

OBJECTS = (10_000, 30_000, 100_000)
NEW, CLASSES, DIMENSIONS = 2000, 10, 8
LANDMARKS = 500


def objects(n: int) -> tuple[NDArray, NDArray]:
    """Simulate overlapping normal classes: features and labels, new objects last."""
    rng = np.random.default_rng(0)
    labels = np.arange(n + NEW) % CLASSES
    centres = 1.2 * rng.normal(size=(CLASSES, DIMENSIONS))
    return rng.normal(size=(len(labels), DIMENSIONS)) + centres[labels], labels


def megabytes() -> float:
    """Peak resident memory of this process so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def whole_fits(n: int) -> dict[str, dict[str, float]]:
    """Seconds, memory and held-out scores of VB and of the linear classifier on n objects."""
    X, labels = objects(n)
    clock = time.perf_counter()
    wide, narrow = (
        Nystroem(gamma=gamma, n_components=LANDMARKS, random_state=0).fit(X[:n])
        for gamma in (0.05, 0.2)
    )
    kernels = basis_expansion(wide.transform).named("wide")
    kernels |= basis_expansion(narrow.transform).named("narrow")
    stack, new = kernels(X[:n]), kernels(X[n:], X[:n])
    features = time.perf_counter() - clock
    clock = time.perf_counter()
    model = MultinomialProbit(stack, labels[:n])
    result = quiet_fit(model, VB(tolerance=1e-4, remaining=np.inf), draws=100)
    seconds = time.perf_counter() - clock
    probability = predict(model, result, new)["probability"].to_numpy()
    ours = {
        "features, s": features,
        "fit, s": seconds,
        "iterations, all starts": float(result["trajectory"]["elbo"].count()),
        "MB at the peak": megabytes(),
        **_scores(probability, labels[n:]),
    }
    train, test = (np.concatenate([*each.to_numpy()], axis=1) for each in (stack, new))
    clock = time.perf_counter()
    linear = make_pipeline(StandardScaler(), SGDClassifier(loss="log_loss", random_state=1))
    linear.fit(train, labels[:n])
    theirs = {"fit, s": time.perf_counter() - clock}
    return {"VB": ours, "SGDClassifier": theirs | _scores(linear.predict_proba(test), labels[n:])}


def _scores(probability: NDArray, labels: NDArray) -> dict[str, float]:
    return {
        "right, %": 100 * float(np.mean(probability.argmax(axis=1) == labels)),
        "log loss": float(log_loss(labels, probability, labels=range(CLASSES))),
    }


def run() -> Iterator[str]:
    """Table of the whole fits."""
    spawn = multiprocessing.get_context("spawn")
    yield f"**Two kernels of {LANDMARKS} features, {CLASSES} classes**"
    cells = []
    for n in OBJECTS:
        with ProcessPoolExecutor(1, mp_context=spawn) as pool:
            rows = pool.submit(whole_fits, n).result()
        columns = tuple(rows["VB"])
        for name, row in rows.items():
            numbers = (f"{row[column]:.4g}" if column in row else "" for column in columns)
            cells.append((f"{n:,}", name, *numbers))
    yield markdown_table(("objects", "classifier", *columns), cells)
