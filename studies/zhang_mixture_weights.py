"""Learned weights of a mixture of kernels, on the data sets of its paper.

The paper (Zhang, Yeung & Kwok, 2003) weights its kernels equally and calls learning the weights an
open problem. Here `learn_weights` is compared with equal weights and with single kernels, by the
accuracy of the kernel nearest neighbour on the completed kernel ``E K21 = Theta21 Theta11^-1 K11``.
K11 is the ideal kernel of the training labels plus eps I.

The kernels are those of the paper's first experiment (Gaussian, polynomial and linear), the same
kernels scaled to trace n, or those of its second experiment (Gaussians of five widths). Scaling
changes more than the weights' units, because eps is added to each kernel afterwards.

Test labels are used for scores only. The "best single kernel" is chosen by leave-one-out accuracy
in the training part, with ties broken by leave-one-out squared error. The rows of single kernels
show the result of choosing in hindsight.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.linalg import solve

from kernelzoo.inference.completion import learn_weights
from kernelzoo.inference.kernel_completion import OBJECTIVES, leave_one_out_rows
from kernelzoo.inference.kernel_completion.classifiers import KernelNearestNeighbour
from kernelzoo.validation import check_name

from .data import absence
from .study import Study, Task, described
from .zhang_mixture import DATA_1, FIVE_WIDTHS, TYPES, WIDTHS, Division, divide

#: Recipes of Table 1, but with eps added to the weighted kernels.
DATA = {column: {**recipe, "jitter_first": True} for column, recipe in DATA_1.items()}

#: Sets of kernels by name: three types, the same with trace n, and five variances.
SETS: dict[str, dict[str, Any]] = {
    "types": {"kernels": TYPES, "normalize": []},
    "scaled": {"kernels": TYPES, "normalize": ["trace"]},
    "widths": {"kernels": WIDTHS, "normalize": []},
}


def accuracy(division: Division, theta: NDArray) -> float:
    """Test accuracy of the nearest neighbour in the kernel completed from theta, per cent.

    The scale of the kernel of all objects, `theta` (n, n), does not matter.
    """
    K11 = division.K11
    n1 = len(K11)
    K21 = solve(theta[:n1, :n1], theta[:n1, n1:], assume_a="pos").T @ K11
    return division.accuracy(KernelNearestNeighbour().fit(K11, division.y_train).predict(K21))


def best_single(division: Division, stack: xr.DataArray) -> str:
    """Name of the kernel of a stack with the best leave-one-out predictions of the labels."""
    n1 = len(division.y_train)
    scores = {
        name: _leave_one_out(division, kernel[:n1, :n1])
        for name, kernel in zip(stack["kernel"].values.tolist(), stack.to_numpy(), strict=True)
    }
    return max(scores, key=scores.__getitem__)


def _leave_one_out(division: Division, theta11: NDArray) -> tuple[float, float]:
    """Accuracy of the nearest neighbour, and minus the mean squared error of the rows."""
    K11, labels = division.K11, division.y_train
    rows = leave_one_out_rows(theta11, K11)
    nearest = labels[np.nanargmax(rows - np.diagonal(K11) / 2, axis=1)]
    return float(np.mean(nearest == labels)), -float(np.nanmean((rows - K11) ** 2))


def accuracies(
    column: str,
    seed: int,
    *,
    data: Mapping[str, Any],
    kernels: Mapping[str, Sequence[Any]],
    normalize: Sequence[str],
) -> dict[str, float]:
    """Compute accuracies with equal weights, each kernel alone, and learned weights.

    `data` are settings of `divide`, `kernels` and `normalize` are as in `Division.stack`.
    """
    division = divide(column, seed, **data)
    stack = division.stack(kernels, normalize)
    theta = stack.to_numpy()
    single = {name: accuracy(division, kernel) for name, kernel in zip(kernels, theta, strict=True)}
    learned = {
        objective: learn_weights(stack, division.K11, objective, labels=division.y_train).alpha
        for objective in OBJECTIVES
    }
    return {
        "equal weights": accuracy(division, theta.mean(axis=0)),
        **single,
        "best single kernel": single[best_single(division, stack)],
        **{
            objective: accuracy(division, np.tensordot(alpha.to_numpy(), theta, axes=1))
            for objective, alpha in learned.items()
        },
    }


def learned_weights(kernels: str = "types") -> Study:
    """Study of equal, single and learned weights of a set of kernels, one of ``SETS``."""
    recipe = SETS[check_name(kernels, SETS, "kernels", "learned_weights")]
    rows = ("equal weights", *recipe["kernels"], "best single kernel", *OBJECTIVES)
    columns = FIVE_WIDTHS if kernels == "widths" else DATA
    tasks = []
    for column in columns:
        settings = {"data": {**DATA[column], "test_size": 0.4}, **recipe}
        tasks.append(Task(column, rows, accuracies, settings, absence(column)))
    suffix = "" if kernels == "types" else f"-{kernels}"
    return described(f"zhang-mixture-weights{suffix}", tasks)
