"""Held-out scores of the estimators' defaults and of scikit-learn's estimators.

Objects are split at random into 70 % for training and 30 % for testing, classes stratified. Our
estimators have their default parameters; beside them are those of the papers' models.
scikit-learn's use all blocks side by side, z-scored on the training part and divided by the root of
their number of features, so that blocks have equal weight (which does not affect trees). The SVC's
probabilities are calibrated by cross-validation (Platt's sigmoid). The regression by a Gaussian
process maximises its evidence over a scale, a width and the noise; the density and the intervals of
regressions are of normal distributions.

The defaults were chosen on 70/30 splits of the training parts alone, by rules written before: one
family of kernels rather than two, equal weights, and predictions at the mode of the scores.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn import ensemble
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from kernelzoo.datasets import Dataset, load
from kernelzoo.estimators import (
    CompositeKernelRegressor,
    KernelClassifier,
    KernelProbitClassifier,
    KernelRegressor,
)

from .record import markdown_table

SPLITS = 5
TEST_SIZE = 0.3
COVERAGE = 0.9
OURS = "kernelzoo"
PROBIT = "kernelzoo, multinomial probit"
COMPOSITE = "kernelzoo, composite kernel"
#: Estimators of this package, which read blocks of features.
OWN = (OURS, PROBIT, COMPOSITE)

#: Blocks of features, and real targets.
type Targets = tuple[dict[str, pd.DataFrame], NDArray]
type Makers = dict[str, Callable[[], Any]]


def other_labels(name: str, labels: str) -> Dataset:
    """Load a data set with another of its labels."""
    data = load(name)
    return replace(data, y=data.extras[labels])


def part(data: Dataset, rows: NDArray, views: Sequence[str]) -> Dataset:
    """Take some objects and some feature spaces."""
    tables = {view: data.views[view].iloc[rows] for view in views}
    return Dataset(data.name, tables, np.asarray(data.y)[rows], data.card)


def digits() -> Dataset:
    """Load thirty handwritten digits per class, in six feature spaces."""
    data = load("mfeat")
    y = pd.Series(data.y)
    return part(data, np.sort(y.groupby(y).sample(30, random_state=0).index), list(data.views))


def proteins() -> Dataset:
    """Load the paper's 311 training proteins, without scores against one another."""
    data = load("protein_fold")
    return part(data, np.arange(311), [view for view in data.views if not view.startswith("SW")])


def oxygen() -> Targets:
    """Load the oxygen of sea water, and which species and genes live in it."""
    views = load("tara_oceans").views
    target = views["phychem"]["Mean_Oxygen"].to_numpy()
    return {name: views[name] for name in ("pro_phylo", "pro_NOGs")}, target


def diabetes() -> Targets:
    """Load the progression of diabetes a year after ten measurements."""
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    return {"x": X}, y.to_numpy()


def friedman() -> Targets:
    """Simulate Friedman's function of five of ten features."""
    X, y = make_friedman1(300, noise=1.0, random_state=0)
    return {"x": pd.DataFrame(X)}, y


#: Data sets by name; unavailable ones are left out.
CLASSES: dict[str, Callable[[], Dataset]] = {
    **{
        name: partial(load, name)
        for name in ("wine", "sonar", "ionosphere", "heart", "glass", "vehicle")
    },
    "nutrimouse": partial(other_labels, "nutrimouse", "diet"),
    "Tara Oceans, depth": partial(load, "tara_oceans"),
    "Tara Oceans, ocean": partial(other_labels, "tara_oceans", "ocean"),
    "mfeat, 300": digits,
    "protein fold": proteins,
}
TARGETS: dict[str, Callable[[], Targets]] = {
    "diabetes": diabetes,
    "Friedman": friedman,
    "Tara Oceans, oxygen": oxygen,
}
CLASSIFIERS: Makers = {
    "logistic regression": lambda: LogisticRegression(max_iter=10_000),
    "random forest": lambda: ensemble.RandomForestClassifier(500, random_state=0),
    "boosting": lambda: ensemble.HistGradientBoostingClassifier(random_state=0),
    # Three folds: some classes have three objects in the training part.
    "SVC": lambda: CalibratedClassifierCV(SVC(), ensemble=False, cv=3),
    "Gaussian process": lambda: GaussianProcessClassifier(ConstantKernel() * RBF(), random_state=0),
}
REGRESSORS: Makers = {
    "Bayesian ridge": BayesianRidge,
    "random forest": lambda: ensemble.RandomForestRegressor(500, random_state=0),
    "boosting": lambda: ensemble.HistGradientBoostingRegressor(random_state=0),
    "Gaussian process": lambda: GaussianProcessRegressor(
        ConstantKernel() * RBF() + WhiteKernel(),
        normalize_y=True,
        n_restarts_optimizer=2,
        random_state=0,
    ),
}


def side_by_side(train: Mapping[str, Any], blocks: Mapping[str, Any]) -> NDArray:
    """All features side by side, z-scored on the training part, with blocks at the same scale."""
    scaled = (
        StandardScaler().fit(np.asarray(X)).transform(np.asarray(blocks[view]))
        / np.sqrt(X.shape[1])
        for view, X in train.items()
    )
    return np.hstack(list(scaled))


def each_fitted(
    makers: Makers, train: Mapping[str, Any], test: Mapping[str, Any], y: NDArray
) -> Iterator[tuple[str, Any, Any, float]]:
    """Fit each estimator: its name, itself, new objects as it takes them, CPU time at its start."""
    inputs = side_by_side(train, train), side_by_side(train, test)
    for name, make in makers.items():
        start = time.process_time()
        known, new = (train, test) if name in OWN else inputs
        yield name, make().fit(known, y), new, start


def scores_of_classes(data: Dataset, seed: int) -> Iterator[tuple[Any, ...]]:
    """Score every classifier on a split: log loss, Brier score, accuracy, CPU seconds."""
    split = data.split(TEST_SIZE, seed=seed)
    parts: Any = split.X_train, split.X_test
    train, test = (part if isinstance(part, Mapping) else {"x": part} for part in parts)
    y = np.asarray(split.y_train)
    truth = np.asarray(split.y_test)
    makers: Makers = {
        OURS: lambda: KernelClassifier(random_state=seed),
        PROBIT: lambda: KernelProbitClassifier(random_state=seed),
        **CLASSIFIERS,
    }
    for name, fitted, new, start in each_fitted(makers, train, test, y):
        p = fitted.predict_proba(new)
        seconds = time.process_time() - start
        codes = np.searchsorted(fitted.classes_, truth)
        own = np.maximum(p[np.arange(len(truth)), codes], 1e-12)
        brier = ((p - np.eye(p.shape[1])[codes]) ** 2).sum(axis=1).mean()
        yield name, -np.log(own).mean(), brier, (p.argmax(axis=1) == codes).mean(), seconds


def scores_of_targets(data: Targets, seed: int) -> Iterator[tuple[Any, ...]]:
    """Score every regressor on a split: density, root mean square error, coverage, CPU seconds."""
    blocks, y = data
    known, held = train_test_split(np.arange(len(y)), test_size=TEST_SIZE, random_state=seed)
    train, test = ({name: X.iloc[rows] for name, X in blocks.items()} for rows in (known, held))
    truth = y[held]
    makers: Makers = {
        OURS: lambda: KernelRegressor(random_state=seed),
        COMPOSITE: lambda: CompositeKernelRegressor(random_state=seed),
        **REGRESSORS,
    }
    for name, fitted, new, start in each_fitted(makers, train, test, y[known]):
        density = coverage = np.nan
        if name in (*OWN, "Bayesian ridge", "Gaussian process"):
            mean, sd = fitted.predict(new, return_std=True)
            density = -norm.logpdf(truth, mean, sd).mean()
            coverage = (np.abs(truth - mean) <= norm.ppf((1 + COVERAGE) / 2) * sd).mean()
        else:
            mean = fitted.predict(new)
        error = np.sqrt(np.mean((mean - truth) ** 2))
        yield name, density, error, coverage, time.process_time() - start


def measured(
    problems: Mapping[str, Callable[[], Any]],
    scores: Callable[[Any, int], Iterator[tuple[Any, ...]]],
    columns: Sequence[str],
    left_out: list[str],
) -> Iterator[tuple[str, pd.DataFrame, pd.Series]]:
    """Mean scores by estimator, and standard errors of the first, over the splits of each set.

    `left_out` gets a line for each set that is not available.
    """
    for problem, read in problems.items():
        try:
            data = read()
        except FileNotFoundError as error:
            left_out.append(f"{problem} is left out: {error}")
            continue
        with warnings.catch_warnings():
            # Only predictions are compared.
            warnings.simplefilter("ignore", UserWarning)
            rows = [row for seed in range(SPLITS) for row in scores(data, seed)]
        found = pd.DataFrame(rows, columns=["name", *columns]).groupby("name", sort=False)
        yield problem, found.mean(), found[columns[0]].sem()


def classifiers() -> Iterator[str]:
    """Scores, mean and standard error over splits, and our log loss over the best peer's."""
    yield f"**{SPLITS} splits, {100 * TEST_SIZE:g} % held out**"
    rows = []
    left_out = list[str]()
    ratios = []
    within = 0
    seconds = pd.Series(dtype=float)
    columns = ("log loss", "Brier", "accuracy", "CPU s")
    for problem, mean, error in measured(CLASSES, scores_of_classes, columns, left_out):
        for name, (loss, brier, accuracy, cpu) in mean.iterrows():
            cells = [f"{number:.3f}" for number in (loss, error[name], brier, accuracy)]
            rows.append((problem, str(name), *cells, f"{cpu:.2f}"))
        losses = mean["log loss"]
        best = losses.drop([OURS, PROBIT]).min()
        ratios.append(losses[OURS] / best)
        within += bool(losses[OURS] <= best + error[OURS])
        seconds = seconds.add(mean["CPU s"], fill_value=0)
    header = ("data", "classifier", "log loss", "se", "Brier", "accuracy", "CPU s")
    yield markdown_table(header, rows)
    if ratios:
        yield (
            f"Log loss by default over that of the best other classifier: "
            f"{np.exp(np.log(ratios).mean()):.3f} (geometric mean); first, or within one standard "
            f"error of the first, on {within} of {len(ratios)} sets; CPU seconds over those of the "
            f"Gaussian process: {seconds[OURS] / seconds['Gaussian process']:.1f}."
        )
    yield from left_out


def regressors() -> Iterator[str]:
    """Scores, mean and standard error over splits."""
    yield f"**{SPLITS} splits, {100 * TEST_SIZE:g} % held out**"
    rows = []
    left_out = list[str]()
    columns = ("density", "error", "coverage", "CPU s")
    for problem, mean, error in measured(TARGETS, scores_of_targets, columns, left_out):
        for name, (density, rmse, coverage, cpu) in mean.iterrows():
            numbers = (density, error[name], rmse)
            cells = ["" if np.isnan(number) else f"{number:.3f}" for number in numbers]
            covered = "" if np.isnan(coverage) else f"{100 * coverage:.0f} %"
            rows.append((problem, str(name), *cells, covered, f"{cpu:.2f}"))
    intervals = f"in its {100 * COVERAGE:g} % interval"
    scored = ("-log density", "se", "root mean square error", intervals)
    yield markdown_table(("data", "regressor", *scored, "CPU s"), rows)
    yield from left_out
