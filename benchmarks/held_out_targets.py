"""Held-out predictive density of the regression estimator's defaults and of scikit-learn's.

Objects are split at random into 70 % for training and 30 % for testing. scikit-learn's estimators
use all blocks side by side, scaled as for `heldout`; the Gaussian process maximises its evidence
over a scale, a width and the noise. The density and the intervals are of normal distributions.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.base import RegressorMixin
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import train_test_split

from kernelzoo.datasets import load
from kernelzoo.estimators import CompositeKernelRegressor

from .held_out import OURS, SPLITS, TEST_SIZE, side_by_side
from .record import markdown_table

type Problem = tuple[dict[str, pd.DataFrame], NDArray]
COVERAGE = 0.9


def oxygen() -> Problem:
    """Load the oxygen of sea water, and which species and genes live in it."""
    views: Any = load("tara_oceans").X
    target = views["phychem"]["Mean_Oxygen"].to_numpy()
    return {name: views[name] for name in ("pro_phylo", "pro_NOGs")}, target


def diabetes() -> Problem:
    """Load the progression of diabetes a year after ten measurements."""
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    return {"x": X}, y.to_numpy()


def friedman() -> Problem:
    """Simulate Friedman's function of five of ten features."""
    X, y = make_friedman1(300, noise=1.0, random_state=0)
    return {"x": pd.DataFrame(X)}, y


#: Data sets by name; unavailable ones are left out.
PROBLEMS: dict[str, Callable[[], Problem]] = {
    "diabetes": diabetes,
    "Friedman": friedman,
    "Tara Oceans, oxygen": oxygen,
}
REGRESSORS: dict[str, Callable[[], RegressorMixin]] = {
    "Bayesian ridge": BayesianRidge,
    "random forest": lambda: RandomForestRegressor(500, random_state=0),
    "boosting": lambda: HistGradientBoostingRegressor(random_state=0),
    "Gaussian process": lambda: GaussianProcessRegressor(
        ConstantKernel() * RBF() + WhiteKernel(),
        normalize_y=True,
        n_restarts_optimizer=2,
        random_state=0,
    ),
}


def scores(blocks: Mapping[str, pd.DataFrame], y: NDArray, seed: int) -> list[tuple[Any, ...]]:
    """Score every regressor on a split: density, root mean square error, coverage, CPU seconds."""
    rows_of = train_test_split(np.arange(len(y)), test_size=TEST_SIZE, random_state=seed)
    (train, test), (y, truth) = (
        [{name: X.iloc[rows] for name, X in blocks.items()} for rows in rows_of],
        [y[rows] for rows in rows_of],
    )
    inputs = side_by_side(train, train), side_by_side(train, test)
    found = []
    ours = {OURS: lambda: CompositeKernelRegressor(random_state=seed)}
    for name, make in (ours | REGRESSORS).items():
        start = time.process_time()
        fitted: Any = make().fit(train if name == OURS else inputs[0], y)
        new = test if name == OURS else inputs[1]
        density = coverage = np.nan
        if name in (OURS, "Bayesian ridge", "Gaussian process"):
            mean, sd = fitted.predict(new, return_std=True)
            density = -float(norm.logpdf(truth, mean, sd).mean())
            half = norm.ppf((1 + COVERAGE) / 2) * sd
            coverage = float((np.abs(truth - mean) <= half).mean())
        else:
            mean = fitted.predict(new)
        error = float(np.sqrt(np.mean((mean - truth) ** 2)))
        found.append((name, density, error, coverage, time.process_time() - start))
    return found


def run() -> Iterator[str]:
    """Scores, mean and standard error over splits."""
    yield f"**{SPLITS} splits, {100 * TEST_SIZE:g} % held out**"
    rows, left_out = [], []
    for problem, read in PROBLEMS.items():
        try:
            blocks, y = read()
        except FileNotFoundError as error:
            left_out.append(f"{problem} is left out: {error}")
            continue
        with warnings.catch_warnings():
            # Only predictions are compared.
            warnings.simplefilter("ignore", UserWarning)
            found = [row for seed in range(SPLITS) for row in scores(blocks, y, seed)]
        columns = ["regressor", "density", "error", "coverage", "CPU s"]
        by_regressor = pd.DataFrame(found, columns=columns).groupby("regressor", sort=False)
        mean, error_of_mean = by_regressor.mean(), by_regressor.sem()
        for name, row in mean.iterrows():
            numbers = [row["density"], error_of_mean.loc[name, "density"], row["error"]]
            cells = ["" if np.isnan(number) else f"{number:.3f}" for number in numbers]
            covered = "" if np.isnan(row["coverage"]) else f"{100 * row['coverage']:.0f} %"
            rows.append((problem, str(name), *cells, covered, f"{row['CPU s']:.2f}"))
    intervals = f"in its {100 * COVERAGE:g} % interval"
    scored = ("-log density", "se", "root mean square error", intervals)
    yield markdown_table(("data", "regressor", *scored, "CPU s"), rows)
    yield from left_out
