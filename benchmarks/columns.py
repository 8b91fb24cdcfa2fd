"""VB of `MultinomialProbit` on columns of kernels, for many objects, beside scikit-learn.

`growing`: simulated objects in growing numbers. Whole fits (until the bound's relative change is
below 1e-4, with the k-hat of 100 draws) on two kernels of 500 Nystroem features and ten classes,
and `SGDClassifier` on the same features. Each size runs in a process of its own, whose peak memory
includes the objects and their features.

`letters`: 16,000 real objects of 26 classes. Logistic regression has the same columns at landmarks
as VB. `upsilon`, the scale of the regressors' variances, is 1, its default, or chosen by the log
loss of a fifth of the training objects on 300 columns. The SVM's probabilities would take a
cross-validation of their own, and are left out.
"""

import multiprocessing
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial, reduce
from operator import or_
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from kernelzoo.datasets import load
from kernelzoo.inference import VB, predict
from kernelzoo.models import MultinomialProbit
from kernelzoo.models.kernels import basis_expansion, gaussian

from .record import markdown_table, quiet_fit

OBJECTS = (10_000, 30_000, 100_000)
NEW, CLASSES, DIMENSIONS = 2000, 10, 8
FEATURES = 500
WIDTHS, LANDMARKS = (0.03, 0.1), (300, 1000)
UPSILONS = (1.0, 10.0, 100.0, 1000.0, 10_000.0)
ENGINE = VB(tolerance=1e-4, remaining=np.inf)

type Data = tuple[NDArray, NDArray, NDArray, NDArray]
#: Labels or probabilities of the new objects, and a note.
type Predicted = tuple[NDArray, NDArray | None, str]


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
        Nystroem(gamma=gamma, n_components=FEATURES, random_state=0).fit(X[:n])
        for gamma in (0.05, 0.2)
    )
    kernels = basis_expansion(wide.transform).named("wide")
    kernels |= basis_expansion(narrow.transform).named("narrow")
    stack, new = kernels(X[:n]), kernels(X[n:], X[:n])
    features = time.perf_counter() - clock
    clock = time.perf_counter()
    model = MultinomialProbit(stack, labels[:n])
    result = quiet_fit(model, ENGINE, draws=100)
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


def growing() -> Iterator[str]:
    """Table of the whole fits."""
    spawn = multiprocessing.get_context("spawn")
    yield f"**Two kernels of {FEATURES} features, {CLASSES} classes**"
    cells = []
    for n in OBJECTS:
        with ProcessPoolExecutor(1, mp_context=spawn) as pool:
            rows = pool.submit(whole_fits, n).result()
        columns = tuple(rows["VB"])
        for name, row in rows.items():
            numbers = (f"{row[column]:.4g}" if column in row else "" for column in columns)
            cells.append((f"{n:,}", name, *numbers))
    yield markdown_table(("objects", "classifier", *columns), cells)


def letter_data() -> Data:
    """Standardised features and labels of training and new letters."""
    split = load("letter").split(test_size=0.2, seed=1)
    return np.asarray(split.X_train), np.asarray(split.X_test), split.y_train, split.y_test


def vb(data: Data, widths: tuple[float, ...], columns: int, upsilon: float = 1.0) -> Predicted:
    """VB on Gaussian kernels of some widths, with columns at landmarks."""
    X, X_new, y, _ = data
    kernels = reduce(or_, map(gaussian, widths)).landmarks(columns)
    model = MultinomialProbit(kernels(X), y, upsilon=upsilon)
    result = quiet_fit(model, VB(tolerance=1e-4, remaining=np.inf, starts=1), draws=30)
    found = predict(model, result, kernels(X_new, X))
    note = f"{result['trajectory']['elbo'].count().item()} iterations"
    if len(widths) > 1:
        weights = result["posterior"]["beta"].mean(("chain", "draw")).to_numpy()
        note += f"; weights {', '.join(f'{w:.2f}' for w in weights)}"
    return found["label"].to_numpy(), found["probability"].to_numpy(), note


def vb_with_prior_chosen(data: Data, columns: int) -> Predicted:
    """Choose `upsilon` on a part of the training objects, and fit VB."""
    X, _, y, _ = data
    part: Any = tuple(train_test_split(X, y, test_size=0.2, random_state=1, stratify=y))
    losses = {
        upsilon: log_loss(part[3], vb(part, WIDTHS[1:], LANDMARKS[0], upsilon)[1])
        for upsilon in UPSILONS
    }
    best = min(losses, key=losses.__getitem__)
    labels, probability, note = vb(data, WIDTHS[1:], columns, best)
    return labels, probability, f"{note}; upsilon {best:g}"


def on_columns(data: Data) -> Predicted:
    """Logistic regression on the columns of one kernel."""
    X, X_new, y, y_new = data
    kernels = gaussian(WIDTHS[1]).landmarks(LANDMARKS[-1])
    columns = kernels(X).to_numpy()[0], kernels(X_new, X).to_numpy()[0]
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return on_features((*columns, y, y_new), model)


def on_features(data: Data, model: Any) -> Predicted:
    """Classify by one of scikit-learn's classifiers."""
    X, X_new, y, _ = data
    model.fit(X, y)
    probability = model.predict_proba(X_new) if hasattr(model, "predict_proba") else None
    return model.predict(X_new), probability, ""


#: Classifiers by name.
CLASSIFIERS: dict[str, Callable[[Data], Predicted]] = {
    **{f"VB, {m} columns": partial(vb, widths=WIDTHS[1:], columns=m) for m in LANDMARKS},
    f"VB, two widths, {LANDMARKS[0]} columns": partial(vb, widths=WIDTHS, columns=LANDMARKS[0]),
    **{
        f"VB, {m} columns, prior chosen": partial(vb_with_prior_chosen, columns=m)
        for m in LANDMARKS
    },
    f"logistic regression, {LANDMARKS[-1]} columns": on_columns,
    "random forest": partial(on_features, model=RandomForestClassifier(300, random_state=1)),
    "SVM": partial(on_features, model=SVC(gamma=0.1, C=10.0)),
}


def letters() -> Iterator[str]:
    """Table of the classifiers."""
    data = letter_data()
    *_, y, y_new = data
    yield f"**{len(y):,} letters, {len(y_new):,} new ones**"
    rows = []
    for name, classify in CLASSIFIERS.items():
        clock = time.perf_counter()
        labels, probability, note = classify(data)
        seconds = time.perf_counter() - clock
        loss = "" if probability is None else f"{log_loss(y_new, probability):.3f}"
        right = 100 * float(np.mean(labels == y_new))
        rows.append((name, f"{seconds:.1f}", f"{right:.1f}", loss, note))
    yield markdown_table(("classifier", "seconds", "right, %", "log loss", ""), rows)
