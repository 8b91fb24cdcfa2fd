"""Tables 1 to 3 of Zhang, Yeung and Kwok (2003), mixture model of kernels.

Theta is matched to kernels of the inputs (one alone, or several with equal weights), and the ideal
kernel of the training labels is completed by 100 iterations of EM. The completed *target* kernel is
compared with Theta, the *hyperparameter* kernel, by the alignment of the test block with the ideal
kernel of the test labels, and by the accuracy of a classifier.

The paper calls learning the weights an open problem. `learned_weights` compares learned with equal
weights and with single kernels, by the accuracy of the nearest neighbour in the completed kernel
``E K21 = Theta21 Theta11^-1 K11``, for the kernels of the paper's first experiment, the same scaled
to trace n (which also changes the effect of eps, added afterwards), or those of its second.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, cast

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from scipy.linalg import solve

from kernelzoo import EM, fit
from kernelzoo.inference.completion import learn_weights, match_wishart
from kernelzoo.inference.kernel_completion import OBJECTIVES, leave_one_out_rows
from kernelzoo.inference.kernel_completion.classifiers import (
    KernelNearestMean,
    KernelNearestNeighbour,
)
from kernelzoo.inference.mutual_completion import ideal_kernel, kernel_alignment
from kernelzoo.models import WishartCompletion
from kernelzoo.models.kernels import gaussian, linear, polynomial

from .data import absence, objects
from .study import RECIPES, Study, Task, described, printed

#: Kernels by name, as [form, *arguments].
type Forms = Mapping[str, Sequence[Any]]

#: The four numbers of a kernel in a table, in the paper's order.
MEASURES = ("target alignment", "target accuracy", "input alignment", "input accuracy")
RECIPE = RECIPES["zhang_mixture"]
#: The argument of a Gaussian kernel is the sigma^2 of eq (16).
TYPES: Forms = RECIPE["types"]
WIDTHS: Forms = RECIPE["widths"]
#: Recipe by data set: for Tables 1 and 2, for Table 3, and for learned weights.
DATA_1: dict[str, dict[str, Any]] = RECIPE["data"]
DATA_3 = DATA_1 | RECIPE["table_3"]
WEIGHTED = {column: {**recipe, "jitter_first": True} for column, recipe in DATA_1.items()}
#: Data sets of Table 3.
FIVE_WIDTHS = ("breast_cancer", "ionosphere", "sonar")
#: Sets of kernels with learned weights: three types, the same with trace n, and five variances.
SETS: dict[str, dict[str, Any]] = {
    "types": {"kernels": TYPES, "normalize": []},
    "scaled": {"kernels": TYPES, "normalize": ["trace"]},
    "widths": {"kernels": WIDTHS, "normalize": []},
}
TEST_SIZE = {"test_size": 0.4}
_FORMS: Any = {
    "gaussian": lambda variance: gaussian(0.5 / variance),
    "polynomial": polynomial,
    "linear": linear,
}


def stack_of(
    X: Any, kernels: Forms, jitter: float, jitter_first: bool, normalize: Sequence[str] = ()
) -> xr.DataArray:
    """Compute kernels (kernel, n, n), normalised, with eps on their diagonals if it is first."""
    members = (_FORMS[form](*given).named(name) for name, (form, *given) in kernels.items())
    stack = reduce(or_, members).normalize(*normalize)(X)
    return stack + jitter * np.eye(len(X)) if jitter_first else stack


@dataclass(frozen=True)
class Division:
    """One random division of a data set, training objects first."""

    X: pd.DataFrame
    y_train: NDArray
    y_test: NDArray
    jitter: float
    jitter_first: bool

    @property
    def K11(self) -> NDArray:
        """Target kernel of the training objects."""
        return ideal_kernel(self.y_train) + self.jitter * np.eye(len(self.y_train))

    def stack(self, kernels: Forms, normalize: Sequence[str] = ()) -> xr.DataArray:
        """Kernels of all objects, as by `stack_of`."""
        return stack_of(self.X, kernels, self.jitter, self.jitter_first, normalize)

    def matched(self, stack: xr.DataArray) -> tuple[float, NDArray]:
        """Match eta and Theta (n, n) to kernels of `stack` with equal weights. O(K^2 n^2)."""
        eta, theta = match_wishart(stack)
        return eta, theta if self.jitter_first else theta + self.jitter * np.eye(len(theta))

    def measures(self, stack: xr.DataArray, iterations: int) -> tuple[float, float, float, float]:
        """Compute the ``MEASURES`` of a stack with equal weights, in per cent, in O(n^3)."""
        eta, theta = self.matched(stack)
        model = WishartCompletion(theta, self.K11, eta=eta)  # r = n + 1
        with warnings.catch_warnings():
            # The paper stops before convergence.
            warnings.filterwarnings("ignore", message=f"After {iterations} iterations")
            point = fit(model, EM(max_iterations=iterations), progressbar=False)["point"]
        n1 = len(self.y_train)
        mean = KernelNearestMean().fit(theta[:n1, :n1], self.y_train)
        ideal = ideal_kernel(self.y_test)
        return (
            100.0 * kernel_alignment(point["K22"].to_numpy(), ideal),
            self.accuracy_of_neighbour(point["K21"].to_numpy()),
            100.0 * kernel_alignment(theta[n1:, n1:], ideal),
            self._accuracy(mean.predict(theta[n1:, :n1])),
        )

    def accuracy_of_neighbour(self, K21: NDArray) -> float:
        """Test accuracy of the nearest neighbour in the target kernel, per cent."""
        return self._accuracy(KernelNearestNeighbour().fit(self.K11, self.y_train).predict(K21))

    def completed(self, theta: NDArray) -> float:
        """Accuracy of the nearest neighbour in the kernel completed from `theta`, of any scale."""
        n1 = len(self.y_train)
        K21 = solve(theta[:n1, :n1], theta[:n1, n1:], assume_a="pos").T @ self.K11
        return self.accuracy_of_neighbour(K21)

    def leave_one_out(self, theta: NDArray) -> tuple[float, float]:
        """Accuracy of the nearest neighbour, and minus the mean squared error of the rows."""
        K11 = self.K11
        labels = self.y_train
        rows = leave_one_out_rows(theta[: len(K11), : len(K11)], K11)
        nearest = labels[np.nanargmax(rows - np.diagonal(K11) / 2, axis=1)]
        return float(np.mean(nearest == labels)), -float(np.nanmean((rows - K11) ** 2))

    def _accuracy(self, predicted: NDArray) -> float:
        return 100.0 * float(np.mean(predicted == self.y_test))


def divide(
    column: str, seed: int, *, standardize: bool, test_size: float, **jitter: Any
) -> Division:
    """Divide a data set at random, stratified by class."""
    split = objects(column, standardize).split(test_size, seed=seed, standardize=False)
    X = pd.concat([cast(pd.DataFrame, part) for part in (split.X_train, split.X_test)])
    return Division(X, split.y_train, split.y_test, **jitter)


def kernel_learning(
    column: str, seed: int, *, data: Mapping[str, Any], kernels: Forms, iterations: int
) -> dict[str, float]:
    """Score each kernel alone and their mixture by ``"<kernel>: <measure>"``, in per cent."""
    division = divide(column, seed, **data)
    stack = division.stack(kernels)
    parts = {name: stack.sel(kernel=[name]) for name in kernels} | {"mixture": stack}
    return {
        f"{name}: {measure}": value
        for name, part in parts.items()
        for measure, value in zip(MEASURES, division.measures(part, iterations), strict=True)
    }


def matched_degrees(
    column: str, seed: int, *, row: str, standardize: bool, **settings: Any
) -> dict[str, float]:
    """Compute eta of a mixture on all objects, for any seed; settings are those of `stack_of`."""
    return {row: match_wishart(stack_of(objects(column, standardize).X, **settings))[0]}


def accuracies(
    column: str, seed: int, *, data: Mapping[str, Any], kernels: Forms, normalize: Sequence[str]
) -> dict[str, float]:
    """Compute accuracies with equal weights, each kernel alone, and learned weights."""
    division = divide(column, seed, **data)
    stack = division.stack(kernels, normalize)
    thetas = dict(zip(kernels, stack.to_numpy(), strict=True))
    values = {name: division.completed(theta) for name, theta in thetas.items()}
    best = max(thetas, key=lambda name: division.leave_one_out(thetas[name]))
    values |= {
        "equal weights": division.completed(stack.to_numpy().mean(axis=0)),
        "best single kernel": values[best],
    }
    for objective in OBJECTIVES:
        alpha = learn_weights(stack, division.K11, objective, labels=division.y_train)
        theta = np.tensordot(alpha.to_numpy(), stack.to_numpy(), axes=1)
        values[objective] = division.completed(theta)
    return values


def table_1() -> Study:
    """Table 1: three types of kernel and their mixture on six data sets."""
    return _comparison("zhang-mixture-table1", TYPES, DATA_1)


def table_3() -> Study:
    """Table 3: the Gaussian kernel with five variances and their mixture on three data sets."""
    data = {column: DATA_3[column] for column in FIVE_WIDTHS}
    return _comparison("zhang-mixture-table3", WIDTHS, data)


def _comparison(name: str, kernels: Forms, data: Mapping[str, Mapping[str, Any]]) -> Study:
    rows = tuple(f"{kernel}: {m}" for kernel in (*kernels, "mixture") for m in MEASURES)
    tasks = []
    for column, recipe in data.items():
        settings = {"kernels": kernels, "iterations": 100, "data": {**recipe, **TEST_SIZE}}
        tasks.append(Task(column, rows, kernel_learning, settings, absence(column)))
    return described(name, tasks)


def table_2() -> Study:
    """Table 2: degrees of freedom matched to a mixture of all objects' kernels, so one split."""
    name = "zhang-mixture-table2"
    recipes = {"three types": (TYPES, DATA_1), "five widths": (WIDTHS, DATA_3)}
    tasks = []
    for row, column in printed(name):
        kernels, data = recipes[row]
        settings = {"row": row, "kernels": kernels, **data[column]}
        tasks.append(Task(column, (row,), matched_degrees, settings, absence(column)))
    return described(name, tasks)


def learned_weights(kernels: str) -> Study:
    """Study of equal, single and learned weights of a set of kernels, one of ``SETS``."""
    recipe = SETS[kernels]
    rows = ("equal weights", *recipe["kernels"], "best single kernel", *OBJECTIVES)
    tasks = []
    for column in FIVE_WIDTHS if kernels == "widths" else WEIGHTED:
        settings = {"data": {**WEIGHTED[column], **TEST_SIZE}, **recipe}
        tasks.append(Task(column, rows, accuracies, settings, absence(column)))
    suffix = "" if kernels == "types" else f"-{kernels}"
    return described(f"zhang-mixture-weights{suffix}", tasks)
