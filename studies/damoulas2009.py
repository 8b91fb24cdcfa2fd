"""Table 2 of Damoulas and Girolami (2009): seven data sets, three kernels, ten folds.

Variational Bayes for the multinomial probit. Choices where the paper is silent: features have mean
0 and standard deviation 1 over the training part of each fold; folds are stratified by class; the
kernels are exp(-d^2 / D), x'y and (1 + x'y)^2, unscaled, and the last also scaled to a diagonal of
1, because the prior of the regressors makes the scale matter (see `damoulas2009_protein`);
tau = upsilon = 1; the algorithm is the printed one (expectations replace variables) from W = 0 and
Z = 1, with at most 50 iterations, and stops when its printed bound changes by less than 0.1 %.
Class probabilities are averaged over draws from the approximation, a Monte Carlo version of eq 12.

The paper has one division into ten folds and prints mean and sd over the folds. Here a split is a
whole cross-validation: its number is the mean over the ten folds, and the sd over the folds has its
own row. Iris is the UCI file of that time, with its two typing errors.

The paper's equations are listed, with their places in the code, in ``docs/equations.md``.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from kernelzoo.inference import predict
from kernelzoo.models.kernels import Kernels, gaussian, linear, polynomial

from .damoulas2009_classifiers import PRIOR, error, fitted
from .data import absence, objects
from .study import RECIPES, Study, Task, described

#: Kernels by the table's names.
KERNELS: dict[str, Kernels] = {
    "Gaussian": gaussian(),
    "linear": linear(),
    "polynomial": polynomial(2),
    "polynomial of diagonal 1": polynomial(2).normalize("unit"),
}
DATA = RECIPES["damoulas2009"]["data"]
ALGORITHM = RECIPES["damoulas2009"]["algorithm"]
RECIPE = {"engine": "VB", "prior": PRIOR, "algorithm": ALGORITHM, "sampling": {"draws": 200}}
FOLDS = 10


def cross_validated(
    column: str, seed: int, *, kernel: str, folds: int, recipe: Mapping[str, Any]
) -> dict[str, float]:
    """Mean and standard deviation of the folds' test errors with a kernel, per cent."""
    errors = []
    for fold in objects(DATA[column], standardize=False).folds(folds, seed=seed):
        K = KERNELS[kernel](fold.X_train)
        model, result = fitted(K, fold.y_train, seed, recipe)
        new = KERNELS[kernel](fold.X_test, fold.X_train)
        errors.append(error(predict(model, result, new), fold.y_test))
    return {kernel: float(np.mean(errors)), _sd(kernel): float(np.std(errors, ddof=1))}


def _sd(kernel: str) -> str:
    return f"{kernel}: sd over folds"


def table_2() -> Study:
    """Table 2: test errors of three kernels on seven data sets."""
    tasks = []
    for column, name in DATA.items():
        for kernel in KERNELS:
            settings = {"kernel": kernel, "folds": FOLDS, "recipe": RECIPE}
            rows = kernel, _sd(kernel)
            tasks.append(Task(column, rows, cross_validated, settings, absence(name)))
    return described("damoulas2009-table2", tasks)
