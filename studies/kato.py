"""Figures 2 to 4 of Kato and Rivero (2017): completion of kernels, and classifiers on them.

One set of runs serves the three figures: each study shows its part of the same table and reuses the
runs of the others. The paper's seven kernels of yeast proteins are not available; the data sets in
their place, the methods, and choices where the paper is silent are in ``studies.toml``.

Masks follow the paper: entries missing at one ratio are missing at every higher one. Here each
object keeps one kernel, chosen at random. A ratio is a share of all pairs of object and kernel; in
the embryo data, of the known kernel's objects. Labels of the test part are used for scores only.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler, label_binarize
from sklearn.svm import SVC

from kernelzoo import EM, fit, predict
from kernelzoo.datasets import load
from kernelzoo.inference.completion import impute_kernels, missing_entries
from kernelzoo.inference.scores import correlation_distance, entry_coverage
from kernelzoo.models import MutualKernelCompletion
from kernelzoo.models.kernels import as_stack, gaussian

from .data import absence
from .study import QUIET, RECIPES, Study, Task, described

#: Completion methods with their settings.
METHODS: dict[str, dict[str, Any]] = RECIPES["kato"]["methods"]
PLAIN = tuple(name for name, recipe in METHODS.items() if recipe["by"] != "Gibbs")
#: Data sets by column, with the kernels that get classifiers, ratios and repetitions.
COLUMNS: dict[str, dict[str, Any]] = RECIPES["kato"]["columns"]
MATRIX = "M"
PARTS = {"small": 0.2, "large": 0.43}
DISTANCE = "distance"
COVERAGE = "coverage"
SMALLER = "AUC of M, small part"
#: Ratio of Figure 2, per cent.
HALF = 50
#: The paper's own data set, of which the text gives the AUC on M; MKMC is EM.
YEAST = "yeast (2,318 proteins)"
#: Index of the known kernel in each of the embryo data's experiments.
_EMBRYO_KNOWN = (1, 2, 3, 3, 4)


class Problem(NamedTuple):
    """Kernels and their visible part; all entries of the `known` kernels are in the data."""

    kernels: xr.DataArray
    visible: NDArray[np.bool_]
    labels: NDArray | None
    known: tuple[str, ...]


def nested_mask(rng: np.random.Generator, n: int, n_kernels: int, ratio: float) -> NDArray:
    """Hide a share of all pairs of object and kernel (False); each object keeps one kernel.

    With the same generator, pairs hidden at a lower ratio are also hidden at a higher one.
    """
    order = rng.random((n, n_kernels))
    order[np.arange(n), rng.integers(n_kernels, size=n)] = 2.0
    visible = np.ones(n * n_kernels, dtype=bool)
    visible[np.argsort(order, axis=None)[: round(ratio * n * n_kernels)]] = False
    return visible.reshape(n, n_kernels)


def training_part(rng: np.random.Generator, labels: NDArray, share: float) -> NDArray[np.bool_]:
    """Choose a share of each class for training, at least one object but not all.

    With the same generator, objects chosen with a smaller share are also chosen with a larger one.
    """
    train = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        train[members[: min(max(1, round(share * len(members))), len(members) - 1)]] = True
    return train


def problem(column: str, seed: int, ratio: float) -> Problem:
    """Make the kernels of a column of ``COLUMNS``, and hide a share of their rows."""
    if column.startswith("embryo"):
        number = int(column.removeprefix("embryo")) - 1
        extras = load("kernels_embryo").extras
        kernels = {f"K{k}": values for k, values in enumerate(extras[f"exp{number}_K"])}
        visible = extras[f"exp{number}_MID{round(100 * ratio)}"] > 0
        return Problem(as_stack(kernels), visible, None, (f"K{_EMBRYO_KNOWN[number]}",))
    data = load(COLUMNS[column]["data"])
    rng = np.random.default_rng(seed)
    y = np.asarray(data.y)
    chosen = np.arange(data.n_published_train or len(y))
    if column == "mfeat":
        digits = [rng.choice(np.flatnonzero(y == c), 20, replace=False) for c in np.unique(y)]
        chosen = np.concatenate(digits)
    kernels = {}
    for name, table in data.views.items():
        X = table.to_numpy()[chosen]
        if column == "digits200":
            kernels[name] = X
        elif name in data.similarities:
            sizes = np.sqrt(np.diagonal(X))
            kernels[name] = X / np.outer(sizes, sizes)
        else:
            kernels[name] = gaussian()(StandardScaler().fit_transform(X)).to_numpy()[0]
    visible = nested_mask(rng, len(chosen), len(kernels), ratio)
    return Problem(as_stack(kernels), visible, y[chosen], tuple(kernels))


class Completed(NamedTuple):
    """Output of a method: kernels (kernel, object, object), M, coverage if it has intervals."""

    kernels: xr.DataArray
    M: NDArray
    coverage: float | None = None


def _impute(given: Problem, seed: int, recipe: Mapping[str, Any]) -> Completed:
    kernels = impute_kernels(given.kernels, given.visible, method=recipe["method"])
    M = recipe["lam"] * np.eye(len(given.visible))
    for matrix, seen in zip(kernels.to_numpy(), given.visible.T, strict=True):
        M += matrix / np.diagonal(matrix)[seen].mean()
    return Completed(kernels, M / (recipe["lam"] + len(kernels)))


def _em(given: Problem, seed: int, recipe: Mapping[str, Any]) -> Completed:
    model = MutualKernelCompletion(given.kernels, given.visible, lam=recipe["lam"], collapsed=True)
    with warnings.catch_warnings():
        # The printed version stops long before the minimum.
        warnings.filterwarnings("ignore", message="After .* iterations the gradient is")
        result = fit(model, EM(**recipe["engine"]), progressbar=False)
    completed = predict(model, result)
    return Completed(completed["kernel_mean"], completed["model_matrix"].to_numpy())


def _gibbs(given: Problem, seed: int, recipe: Mapping[str, Any]) -> Completed:
    entries = missing_entries(
        given.kernels, given.visible, number=recipe["entries"], random_seed=seed
    )
    entries = {name: pairs for name, pairs in entries.items() if name in given.known}
    model = MutualKernelCompletion(
        given.kernels, given.visible, lam=recipe["lam"], jitter=recipe["jitter"], entries=entries
    )
    names = [f"entries_{name}" for name in entries]
    result = fit(model, "gibbs", random_seed=seed, var_names=names, **QUIET, **recipe["fit"])
    with warnings.catch_warnings():
        # The notes of the studies say that some entries mix slowly.
        warnings.filterwarnings("ignore", message=".* effective draws: standard deviations")
        completed = predict(model, result, ci_prob=recipe["level"])
    coverage = float(entry_coverage(completed, given.kernels, entries).mean())
    return Completed(completed["kernel_mean"], completed["model_matrix"].to_numpy(), coverage)


COMPLETIONS: dict[str, Callable[[Problem, int, Mapping[str, Any]], Completed]] = {
    "imputation": _impute,
    "EM": _em,
    "Gibbs": _gibbs,
}


def completion(
    column: str,
    seed: int,
    *,
    ratio: int,
    methods: Mapping[str, Mapping[str, Any]],
    parts: Mapping[str, float],
    every_kernel: bool,
) -> dict[str, float]:
    """Complete the kernels of one repetition with several methods, and score them, in per cent."""
    given = problem(column, seed, ratio / 100)
    known = {"kernel": list(given.known)}
    values: dict[str, float] = {}
    for name, recipe in methods.items():
        done = COMPLETIONS[recipe["by"]](given, seed, recipe)
        distances = correlation_distance(done.kernels.sel(known), given.kernels.sel(known))
        found = {DISTANCE: float(distances.mean())}
        if done.coverage is not None:
            found[COVERAGE] = done.coverage
        if given.labels is not None:
            matrices = {MATRIX: done.M}
            if every_kernel:
                names = given.kernels["kernel"].values
                matrices |= zip(names, done.kernels.to_numpy(), strict=True)
            for part in parts if every_kernel else list(parts)[:1]:
                train = training_part(np.random.default_rng(seed), given.labels, parts[part])
                for matrix, K in matrices.items():
                    found[_auc(matrix, part)] = svm_auc(K, given.labels, train)
        values |= {_row(name, ratio, measure): 100 * value for measure, value in found.items()}
    return values


def svm_auc(kernel: Any, labels: Any, train: NDArray) -> float:
    """Area under the ROC curve of an SVM on a kernel; of more classes, the mean of one-vs-rest."""
    K = np.asarray(kernel)
    labels = np.asarray(labels)
    machine = OneVsRestClassifier(SVC(kernel="precomputed"))
    machine.fit(K[np.ix_(train, train)], labels[train])
    truth = label_binarize(labels[~train], classes=machine.classes_)
    return float(roc_auc_score(truth, machine.decision_function(K[np.ix_(~train, train)])))


def _row(method: str, ratio: int, measure: str) -> str:
    return f"{method}, {ratio} %: {measure}"


def _auc(matrix: str, part: str) -> str:
    return f"AUC of {matrix}, {part} part"


def _tasks() -> Iterator[Task]:
    skips = {data: absence(data) for data in {column["data"] for column in COLUMNS.values()}}
    for name, column in COLUMNS.items():
        for methods, prefix in ((PLAIN, ""), (("Gibbs",), "gibbs_")):
            for ratio in column[f"{prefix}ratios"]:
                settings = {
                    "ratio": ratio,
                    "methods": {method: METHODS[method] for method in methods},
                    "parts": PARTS,
                    "every_kernel": ratio == HALF,
                }
                measures = [DISTANCE] if methods == PLAIN else [DISTANCE, COVERAGE]
                if column["kernels"] and ratio == HALF:
                    matrices = (MATRIX, *column["kernels"])
                    measures += [_auc(m, part) for part in PARTS for m in matrices]
                elif column["kernels"]:
                    measures.append(SMALLER)
                rows = tuple(_row(method, ratio, m) for method in methods for m in measures)
                skip = skips[column["data"]]
                splits = column[f"{prefix}splits"]
                yield Task(name, rows, completion, settings, skip, splits)


def _study(figure: int, shown: Callable[[str], bool], *others: Task) -> Study:
    tasks = (*others, *_tasks())
    rows = frozenset(row for task in tasks for row in task.rows if shown(row))
    return described(f"kato-figure{figure}", tasks, shown=rows)


def figure_2() -> Study:
    """Figure 2: AUC on M and on each completed kernel, half of all rows missing."""
    methods = ("zero", "mean", "EM as printed")
    rows = tuple(_row(m, HALF, _auc(MATRIX, part)) for part in PARTS for m in methods)
    yeast = Task(YEAST, rows, completion, skip="the paper's kernels are not available")
    return _study(2, lambda row: f", {HALF} %: AUC" in row, yeast)


def figure_3() -> Study:
    """Figure 3: AUC on M by the share of missing rows."""
    return _study(3, lambda row: row.endswith(SMALLER))


def figure_4() -> Study:
    """Figure 4: distance from the truth by the share of missing rows, and coverage."""
    return _study(4, lambda row: row.endswith((DISTANCE, COVERAGE)))
