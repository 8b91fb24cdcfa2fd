"""Table 1 of Zhang, Yeung and Kwok (2004): accuracy of classifiers on completed kernels.

The kernel of all objects is completed from ``K11 = (A11 + B11) / 2``, with A the Gaussian kernel of
the inputs and B the ideal kernel of the labels; test objects are then assigned to the nearest class
mean in the completed kernel (KNM). The last three methods use A itself.

Features are standardised over all objects, as a transductive method may; the labels of the test
part are used for scores only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, override

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, solve
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

from kernelzoo import EM, Gibbs, fit
from kernelzoo.inference.kernel_completion.classifiers import KernelClassifier, KernelNearestMean
from kernelzoo.inference.mutual_completion import ideal_kernel
from kernelzoo.models import DiagonalWishartCompletion, WishartCompletion
from kernelzoo.validation import argument_error, check_positive

from .data import absence, objects
from .study import QUIET, RECIPES, Study, Task, described, printed

RECIPE = RECIPES["zhang2004"]
DATA: dict[str, dict[str, Any]] = {
    column: {"classes": None} | row for column, row in RECIPE["data"].items()
}
CHAIN = RECIPE["chain"]
BASELINES = RECIPE["baselines"]


@dataclass(frozen=True)
class Division:
    """Kernels of one random division of a data set, training objects first.

    `A` (n, n) is the input kernel, `K11` (n1, n1) the observed block of the kernel to complete.
    """

    A: NDArray
    K11: NDArray
    y_train: NDArray
    y_test: NDArray

    def nearest_mean(self, K11: NDArray, K21: NDArray) -> float:
        """Accuracy of the kernel nearest mean, per cent."""
        return self.accuracy(KernelNearestMean().fit(K11, self.y_train), K21)

    def accuracy(self, classifier: Any, K21: NDArray) -> float:
        """Accuracy of a fitted classifier on the test objects, per cent."""
        return 100.0 * float(np.mean(classifier.predict(K21) == self.y_test))


def divide(
    column: str,
    seed: int,
    *,
    beta: float | str,
    test_size: float,
    standardize: bool,
    classes: Sequence[str] | None,
    jitter: float,
    name: str | None = None,
) -> Division:
    """Make the kernels of one division, stratified by class, in O(n^2 D)."""
    data = objects(name or column, standardize, tuple(classes) if classes else None)
    split = data.split(test_size, seed=seed, standardize=False)
    X = np.concatenate([np.asarray(split.X_train), np.asarray(split.X_test)])
    n1 = len(split.y_train)
    squared = euclidean_distances(X - X.mean(axis=0), squared=True)
    if isinstance(beta, str):
        averaged: Any = {"mean distance": np.sqrt, "mean squared distance": np.asarray}[beta]
        beta = float(averaged(squared[:n1, :n1]).sum() / (n1 * (n1 - 1)))
    A = np.exp(squared / -float(beta))
    A.flat[:: len(A) + 1] += jitter
    return Division(A, (A[:n1, :n1] + ideal_kernel(split.y_train)) / 2, split.y_train, split.y_test)


class KernelFisherDiscriminant(KernelClassifier):
    """Regularised Fisher discriminant in feature space (KFDA), with the nearest class mean.

    Distances are Mahalanobis distances of S = the scatter within classes, divided by n1, plus
    `ridge` times the identity. They differ between classes along the axes that maximise the scatter
    between classes relative to S (Baudat & Anouar 2000, Generalized discriminant analysis using a
    kernel approach), so that these axes need not be computed. With the centred features F, the
    kernel FF' and W = (I - P) / sqrt(n1), P the projection on the classes' indicators,
    ridge S^-1 = I - F'W (ridge I + W FF' W)^-1 W F.
    """

    def __init__(self, ridge: float = 1e-3):
        self.ridge = ridge

    @override
    def _learn(self, K11: NDArray, codes: NDArray) -> None:
        owner = type(self).__name__
        ridge = check_positive(self.ridge, "ridge", owner)
        n1 = len(K11)
        members = np.eye(len(self.classes_))[codes]
        average = members / members.sum(axis=0)
        row_means = K11.mean(axis=0)
        centred = K11 - row_means - row_means[:, None] + row_means.mean()
        within = (np.eye(n1) - members @ average.T) / np.sqrt(n1)
        penalty = ridge * np.eye(n1)
        try:
            np.linalg.cholesky(centred + n1 * penalty)
        except LinAlgError:
            raise argument_error(
                "K11", owner, "positive semidefinite", f"a negative eigenvalue below -{n1 * ridge}"
            ) from None
        scatter = within @ centred @ within + penalty
        solved = solve(scatter, within @ centred @ average, assume_a="pos")
        axes = (average - within @ solved) / ridge
        # With centred coefficients, new rows need not be centred.
        self._axes = axes - axes.mean(axis=0)
        self._norms = np.einsum("ic,ic->c", average, centred @ axes) + 2 * row_means @ self._axes

    @override
    def _score(self, K21: NDArray) -> NDArray:
        return 2.0 * (K21 @ self._axes) - self._norms


def tanner_wong(
    column: str,
    seed: int,
    *,
    data: Mapping[str, Any],
    variant: str,
    draws: int,
    tune: int,
    **prior: float,
) -> dict[str, float]:
    """Classify with the mean of K21 by TW1, or TW2, which draws only the diagonal of W22.1."""
    division = divide(column, seed, **data)
    model = DiagonalWishartCompletion(
        division.A, division.K11, diagonal_W22_1=variant == "TW2", **prior
    )
    chain = QUIET | {"draws": draws, "tune": tune, "chains": 1, "random_seed": seed}
    result = fit(model, Gibbs(), var_names=["lambda"], moments=["K21"], **chain)
    K21 = result["moments"]["K21_mean"].mean("chain").to_numpy()
    return {f"KNM-{variant}": division.nearest_mean(division.K11, K21)}


def expectation_maximization(
    column: str, seed: int, *, data: Mapping[str, Any], iterations: int
) -> dict[str, float]:
    """Complete the kernel by EM on the basic model with r = eta = n + 1, and classify with it."""
    division = divide(column, seed, **data)
    n = len(division.A)
    model = WishartCompletion(division.A, division.K11, r=n + 1, eta=n + 1)
    result = fit(model, EM(max_iterations=iterations), progressbar=False, log_likelihood=False)
    return {"KNM-EM": division.nearest_mean(division.K11, result["point"]["K21"].to_numpy())}


def baselines(
    column: str,
    seed: int,
    *,
    data: Mapping[str, Any],
    C: float,
    ridges: Sequence[float],
    folds: int,
) -> dict[str, float]:
    """Classify with the posterior mean ``A21 A11^-1 K11`` of K21, and with the input kernel."""
    division = divide(column, seed, **data)
    n1 = len(division.K11)
    A11 = division.A[:n1, :n1]
    A21 = division.A[n1:, :n1]
    mean = solve(A11, A21.T, assume_a="pos").T @ division.K11
    search = GridSearchCV(KernelFisherDiscriminant(), {"ridge": ridges}, cv=folds)
    return {
        "closed form": division.nearest_mean(division.K11, mean),
        "KFDA": division.accuracy(search.fit(A11, division.y_train), A21),
        "SVM": division.accuracy(SVC(C=C, kernel="precomputed").fit(A11, division.y_train), A21),
        "KNM": division.nearest_mean(A11, A21),
    }


def table_1() -> Study:
    """Table 1: ionosphere, wine and, if the file is available, digits 1 to 4 of USPS."""
    name = "zhang2004-table1"
    tasks = []
    for column, recipe in DATA.items():
        data = {"data": recipe}
        skip = absence(recipe.get("name", column))
        for variant in ("TW1", "TW2"):
            row = f"KNM-{variant}"
            if (row, column) in printed(name):
                settings = data | CHAIN | {"variant": variant}
                tasks.append(Task(column, (row,), tanner_wong, settings, skip))
        em = data | {"iterations": 100}
        tasks.append(Task(column, ("KNM-EM",), expectation_maximization, em, skip))
        others = ("closed form", "KFDA", "SVM", "KNM")
        tasks.append(Task(column, others, baselines, data | BASELINES, skip))
    return described(name, tasks)
