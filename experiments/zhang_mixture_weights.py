"""Learned weights of a mixture of kernels, on the data sets of its paper.

The paper (Zhang, Yeung & Kwok, 2003) weights its kernels equally and calls learning the weights an
open problem. Here every objective of `learn_weights` is set against equal weights and against
single kernels, by the accuracy of the kernel nearest neighbour on the completed kernel
``E K21 = Theta21 Theta11^-1 K11``. K11 is the ideal kernel of the training labels plus eps I.

The kernels are those of the paper's first experiment (a Gaussian, a quadratic and a linear one),
the same scaled to trace n, or those of its second (Gaussians of five widths). Scaling changes more
than the weights' units: eps is added to each kernel after it.

Nothing is chosen by test labels. "best single kernel" is chosen by leave-one-out accuracy in the
training part, ties by leave-one-out squared error. The single kernels' own rows show what choosing
with hindsight would have given.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve

from ..inference.kernel_classifiers import KernelNearestNeighbour, ideal_kernel
from ..inference.kernel_weights import learn_weights
from ..inference.weight_objectives import OBJECTIVES, leave_one_out_rows
from ..models.checks import check_name
from ..models.kernels import Kernels, gaussian, linear, polynomial
from .data import absence, objects
from .study import Study, Task

__all__ = ["KERNELS", "Division", "accuracies", "divide", "learned_weights"]

type _Recipe = Mapping[str, Any]

_STANDARDIZED: _Recipe = {"standardize": True, "jitter": 0.05}
_RAW: _Recipe = {"standardize": False, "jitter": 0.01}
#: The paper's but for eps, which stands on every kernel here: `zhang_mixture` has it as printed.
DATA: dict[str, _Recipe] = {
    "breast_cancer": _STANDARDIZED,
    "ionosphere": _RAW,
    "soybean_small": _RAW,
    "wine": _STANDARDIZED,
    "sonar": _RAW,
    "iris_uci": _STANDARDIZED,
}

TABLE_3 = ("breast_cancer", "ionosphere", "sonar")

_KINDS = (
    gaussian(1 / 1.5).named("Gaussian")
    | polynomial(2).named("quadratic")
    | linear().named("linear")
)
_VARIANCES = (0.5, 0.75, 1.0, 1.25, 1.5)
_WIDTHS = reduce(or_, (gaussian(0.5 / v).named(f"variance {v}") for v in _VARIANCES))

#: Sets of kernels by name: of different kinds, the same of trace n, and of five variances.
KERNELS: dict[str, Kernels] = {
    "kinds": _KINDS,
    "scaled": _KINDS.normalize("trace"),
    "widths": _WIDTHS,
}


@dataclass(frozen=True)
class Division:
    """Kernels of one random division of a data set, training objects first.

    Parameters
    ----------
    theta : ndarray of shape (kernel, n, n)
    names : list of str
        Of the kernels.
    K11 : ndarray of shape (n1, n1)
    y_train, y_test : ndarray
    """

    theta: NDArray
    names: list[str]
    K11: NDArray
    y_train: NDArray
    y_test: NDArray

    def accuracy(self, alpha: NDArray) -> float:
        """Test accuracy of the kernel nearest neighbour with weights alpha, per cent."""
        n1 = len(self.K11)
        theta = np.tensordot(alpha, self.theta, axes=1)
        K21 = solve(theta[:n1, :n1], theta[:n1, n1:], assume_a="pos").T @ self.K11
        classifier = KernelNearestNeighbour().fit(self.K11, self.y_train)
        return 100.0 * float(np.mean(classifier.predict(K21) == self.y_test))

    def best_single(self) -> int:
        """Find the kernel that predicts the training labels best, each from the others."""
        n1 = len(self.K11)
        scores = [self._leave_one_out(kernel[:n1, :n1]) for kernel in self.theta]
        return scores.index(max(scores))

    def _leave_one_out(self, theta11: NDArray) -> tuple[float, float]:
        """Accuracy of the nearest neighbour, and minus the mean squared error of the rows."""
        rows = leave_one_out_rows(theta11, self.K11)
        nearest = self.y_train[np.nanargmax(rows - np.diagonal(self.K11) / 2, axis=1)]
        return float(np.mean(nearest == self.y_train)), -float(np.nanmean((rows - self.K11) ** 2))


def divide(
    column: str, seed: int, *, kernels: str, standardize: bool, jitter: float, test_size: float
) -> Division:
    """Kernels of one division, stratified by class.

    Parameters
    ----------
    column : str
        Data set.
    seed : int
    kernels : str
        One of ``KERNELS``.
    standardize : bool
        Features to mean 0 and standard deviation 1 (divisor n - 1) over all objects.
    jitter : float
        Added to the diagonals of K11 and of every kernel.
    test_size : float

    Raises
    ------
    ValueError
        For an unknown set of kernels.

    Notes
    -----
    Costs O(S n^2 D).
    """
    spec = KERNELS[check_name(kernels, KERNELS, "kernels", "divide")]
    split = objects(column, standardize).split(test_size, seed=seed, standardize=False)
    stack = spec(np.concatenate([np.asarray(split.X_train), np.asarray(split.X_test)]))
    n, n1 = stack.sizes["obs"], len(split.y_train)
    return Division(
        theta=stack.to_numpy() + jitter * np.eye(n),
        names=stack["kernel"].values.tolist(),
        K11=ideal_kernel(split.y_train) + jitter * np.eye(n1),
        y_train=split.y_train,
        y_test=split.y_test,
    )


def accuracies(column: str, seed: int, *, data: Mapping[str, Any]) -> dict[str, float]:
    """Accuracy with equal weights, with each kernel alone, and with learned weights.

    Parameters
    ----------
    column : str
        Data set.
    seed : int
    data : mapping
        Settings of `divide`.
    """
    division = divide(column, seed, **data)
    alone = np.eye(len(division.theta))
    single = [division.accuracy(alpha) for alpha in alone]
    theta = dict(zip(division.names, division.theta, strict=True))
    learned = {
        objective: division.accuracy(
            learn_weights(theta, division.K11, objective, labels=division.y_train).alpha.values
        )
        for objective in OBJECTIVES
    }
    return {
        "equal weights": division.accuracy(alone.mean(axis=0)),
        **dict(zip(division.names, single, strict=True)),
        "best single kernel": single[division.best_single()],
        **learned,
    }


def learned_weights(kernels: str = "kinds") -> Study:
    """Equal, single and learned weights on the paper's data sets.

    Parameters
    ----------
    kernels : {"kinds", "scaled", "widths"}, default="kinds"
        Set of kernels. The five widths have the three data sets of the paper's Table 3.
    """
    members = KERNELS[check_name(kernels, KERNELS, "kernels", "learned_weights")].members
    names = [member.name_on(None) for member in members]
    rows = ("equal weights", *names, "best single kernel", *OBJECTIVES)
    columns = TABLE_3 if kernels == "widths" else tuple(DATA)
    return Study(
        name="zhang-mixture-weights" + ("" if kernels == "kinds" else f"-{kernels}"),
        title=f"Weights of a mixture of kernels ({kernels}): equal, single and learned",
        measure="Test accuracy of the kernel nearest neighbour in per cent",
        tasks=tuple(
            Task(
                column,
                rows,
                accuracies,
                {"data": {"kernels": kernels, "test_size": 0.4, **DATA[column]}},
                absence(column),
            )
            for column in columns
        ),
        splits=30,
        seed=2003,
        notes=(
            "The best single kernel is chosen by leave-one-out accuracy in the training part. The "
            "last rows are weights learned by the objective of that name."
        ),
    )
