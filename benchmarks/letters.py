"""Letter recognition: 16,000 real objects of 26 classes, beside scikit-learn's classifiers.

VB of `MultinomialProbit` has kernel columns at landmarks; logistic regression has the same columns.
`upsilon`, the scale of the regressors' variances, is 1, its default, or chosen by the log loss of a
fifth of the training objects on 300 columns. The SVM's probabilities would take a cross-validation
of their own, and are left out.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial, reduce
from operator import or_
from typing import Any

import numpy as np
from numpy.typing import NDArray
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
from kernelzoo.models.kernels import gaussian

from .record import markdown_table, quiet_fit

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


def vb(data: Data, widths: tuple[float, ...], columns: int, upsilon: float = 1.0) -> Predicted:
    """VB on Gaussian kernels of some widths, with columns at landmarks."""
    X, X_new, y, _ = data
    kernels = reduce(or_, map(gaussian, widths)).landmarks(columns)
    model = MultinomialProbit(kernels(X), y, upsilon=upsilon)
    result = quiet_fit(model, ENGINE, draws=30)
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


def run() -> Iterator[str]:
    """Table of the classifiers."""
    data = letters()
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
