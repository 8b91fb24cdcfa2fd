"""Letter recognition: 16,000 real objects of 26 classes, beside scikit-learn's classifiers.

VB of `MultinomialProbit` has kernel columns at landmarks; logistic regression has the same columns.
`upsilon`, the scale of the regressors' variances, is 1, its default, or chosen by the log loss of a
fifth of the training objects on 300 columns. The SVM's probabilities would take a cross-validation
of their own, and are left out.
"""

import time
import warnings
from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from kernelzoo.datasets import load
from kernelzoo.inference import VB, predict
from kernelzoo.models import MultinomialProbit
from kernelzoo.models.kernels import Kernels, gaussian

from .record import quiet_fit, table_of

NEW, WIDTHS, LANDMARKS = 0.2, (0.03, 0.1), (300, 1000)
UPSILONS = (1.0, 10.0, 100.0, 1000.0, 10_000.0)
ENGINE = VB(tolerance=1e-4, remaining=np.inf, starts=1)

type Data = tuple[NDArray, NDArray, NDArray, NDArray]
#: Labels or probabilities of the new objects, and a note.
type Predicted = tuple[NDArray, NDArray | None, str]


def letters() -> Data:
    """Standardised features and labels of training and new objects."""
    split = load("letter").split(test_size=NEW, seed=1)
    return np.asarray(split.X_train), np.asarray(split.X_test), split.y_train, split.y_test


def kernels_of(widths: tuple[float, ...], landmarks: int) -> Kernels:
    """Gaussian kernels of some widths, at landmarks."""
    return reduce(or_, map(gaussian, widths)).landmarks(landmarks)


def fitted(
    data: Data, widths: tuple[float, ...], landmarks: int, upsilon: float = 1.0
) -> Predicted:
    """Fit VB on columns at landmarks."""
    X, X_new, y, _ = data
    kernels = kernels_of(widths, landmarks)
    model = MultinomialProbit(kernels(X), y, upsilon=upsilon)
    result = quiet_fit(model, ENGINE, draws=30)
    found = predict(model, result, kernels(X_new, X))
    note = f"{result['trajectory']['elbo'].count().item()} iterations"
    if len(widths) > 1:
        weights = result["posterior"]["beta"].mean(("chain", "draw")).to_numpy()
        note += f"; weights {', '.join(f'{w:.2f}' for w in weights)}"
    return found["label"].to_numpy(), found["probability"].to_numpy(), note


def ours(widths: tuple[float, ...], landmarks: int) -> Callable[[Data], Predicted]:
    """Make a function that fits VB under the default prior."""
    return lambda data: fitted(data, widths, landmarks)


def with_prior_chosen(landmarks: int) -> Callable[[Data], Predicted]:
    """Make a function that chooses `upsilon` on a part of the training objects, and fits VB."""

    def chosen(data: Data) -> Predicted:
        X, _, y, _ = data
        inner = train_test_split(X, y, test_size=0.2, random_state=1, stratify=y)
        part: Data = inner[0], inner[1], inner[2], inner[3]
        losses = {}
        for upsilon in UPSILONS:
            _, probability, _ = fitted(part, WIDTHS[1:], LANDMARKS[0], upsilon)
            losses[upsilon] = log_loss(part[3], probability)
        best = min(losses, key=lambda upsilon: losses[upsilon])
        labels, probability, note = fitted(data, WIDTHS[1:], landmarks, best)
        return labels, probability, f"{note}; upsilon {best:g}"

    return chosen


def on_columns(data: Data) -> Predicted:
    """Logistic regression on the columns of one kernel."""
    X, X_new, y, _ = data
    kernels = kernels_of(WIDTHS[1:], LANDMARKS[-1])
    train, new = kernels(X).to_numpy()[0], kernels(X_new, X).to_numpy()[0]
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(train, y)
    return model.predict(new), model.predict_proba(new), ""


def of_scikit_learn(model: Any, probabilities: bool) -> Callable[[Data], Predicted]:
    """Make a function that fits a classifier of scikit-learn on the features."""

    def fitted(data: Data) -> Predicted:
        X, X_new, y, _ = data
        model.fit(X, y)
        return model.predict(X_new), model.predict_proba(X_new) if probabilities else None, ""

    return fitted


#: Classifiers by name.
CLASSIFIERS: dict[str, Callable[[Data], Predicted]] = {
    **{f"VB, {m} columns": ours(WIDTHS[1:], m) for m in LANDMARKS},
    f"VB, two widths, {LANDMARKS[0]} columns": ours(WIDTHS, LANDMARKS[0]),
    **{f"VB, {m} columns, prior chosen": with_prior_chosen(m) for m in LANDMARKS},
    f"logistic regression, {LANDMARKS[-1]} columns": on_columns,
    "random forest": of_scikit_learn(RandomForestClassifier(300, random_state=1), True),
    "SVM": of_scikit_learn(SVC(gamma=0.1, C=10.0), False),
}


def run(console: Console) -> None:
    """Print the table."""
    data = letters()
    *_, y, y_new = data
    title = f"{len(y):,} letters, {len(y_new):,} new ones"
    table = table_of(title, ("classifier",), ("seconds", "right, %", "log loss"))
    table.add_column("")
    for name, classify in CLASSIFIERS.items():
        clock = time.perf_counter()
        labels, probability, note = classify(data)
        seconds = time.perf_counter() - clock
        loss = "" if probability is None else f"{log_loss(y_new, probability):.3f}"
        right = 100 * float(np.mean(labels == y_new))
        table.add_row(name, f"{seconds:.1f}", f"{right:.1f}", loss, note)
    console.print(table)
