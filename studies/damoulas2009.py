"""Tables 2 and 4 to 10, Figures 8 and 9 of Damoulas and Girolami (2009).

A recipe is a JSON-like mapping: ``engine``, "VB" (the printed Algorithm 1, `damoulas2009_printed`)
or "Gibbs"; ``prior``, tau and upsilon; ``algorithm``, engine settings; ``sampling``, the draws.

**Table 2**: seven data sets, three kernels, ten folds stratified by class. Here a split is a whole
cross-validation: its number is the mean over the ten folds, whose sd has its own row.

**Tables 4 to 7, Figure 8**: handwritten digits, 20 training objects and 20 test objects of each
class, in four feature spaces. FR to ZM: one classifier per space. Prod to Maj: these combined. Bin
to WProd: one classifier on the combined kernels, with fixed or learned weights or exponents, or
selected. `table_7` is by VB throughout, `table_6` by Gibbs sampling as in the paper.

**Tables 8 to 10, Figure 9**: 27 protein folds, six spaces, the division of Ding and Dubchak (2001).
The kernels are (1 + x'y)^2, whose scale the paper does not give: each scale of the kernels, or of
the features, is a separate study.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import arviz as az
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from xarray import DataArray, Dataset, DataTree

from kernelzoo import Gibbs, combine_classifiers, fit, predict
from kernelzoo.datasets import Split, load
from kernelzoo.inference import Run
from kernelzoo.inference.engine import lean_tree
from kernelzoo.models import MultinomialProbit
from kernelzoo.models.combinations import FixedWeights
from kernelzoo.models.kernels import Kernels, gaussian, linear, polynomial

from .damoulas2009_printed import ascend, draws
from .data import absence, objects
from .study import RECIPES, Study, Task, described

type Recipe = Mapping[str, Any]

SETTINGS = RECIPES["damoulas2009"]
PRIOR = SETTINGS["prior"]
ALGORITHM = SETTINGS["algorithm"]
VB = {"engine": "VB", "prior": PRIOR}
RECIPE = VB | {"algorithm": ALGORITHM, "sampling": {"draws": 200}}
#: Recipe that also starts from each space alone.
HIGHEST = RECIPE | {"algorithm": {**ALGORITHM, "starts": 5}}
PROTEIN_ALGORITHM = {**ALGORITHM, "max_iterations": 100, "begin": "random"}
PROTEIN_RECIPE = VB | {"algorithm": PROTEIN_ALGORITHM, "sampling": {"draws": 100}}
GIBBS = {"prior": PRIOR, **SETTINGS["gibbs"]}
#: Longer chains for the rules that mix worst.
LONG = {
    rule: GIBBS | {"sampling": GIBBS["sampling"] | {"tune": n, "draws": n}}
    for rule, n in SETTINGS["longer_chains"].items()
}
#: Names of the rules for classifiers and for kernels, by the paper's.
RULES = SETTINGS["rules"]
COMBINATIONS = SETTINGS["combinations"]
#: Majority vote in which ties go to the first class.
FIRST_OF_EQUALS = "Maj, equal votes to the first class"
#: Rules with learned weights, and those whose bound has several maxima.
LEARNED = ("Bin", "WSum", "WProd")
SEVERAL = ("Bin", "WSum")
#: Rows for chains: R-hat and effective draws of the mean log probability of the test classes.
MIXING = ("R-hat of the log score", "effective draws of the log score")
#: Data sets of Table 2 by column, its folds, and kernels by the table's names.
DATA = SETTINGS["data"]
FOLDS = 10
KERNELS: dict[str, Kernels] = {
    "Gaussian": gaussian(),
    "linear": linear(),
    "polynomial": polynomial(2),
    "polynomial of diagonal 1": polynomial(2).normalize("unit"),
}
# Tables 4 to 10: columns, their feature spaces and kernels.
DIGITS = "digits"
SCALED = "kernels of diagonal 1"
RAW = "kernels as they are"
UNIT = "objects of norm 1"
DIGIT_SPACES = SETTINGS["digits"]
PROTEIN_SPACES = SETTINGS["proteins"]
SPACE_KERNELS = {
    DIGITS: KERNELS["Gaussian"],
    SCALED: KERNELS["polynomial of diagonal 1"],
    RAW: KERNELS["polynomial"],
    UNIT: KERNELS["polynomial of diagonal 1"],
}
#: Sum of the proteins' kernels, beside their mean FixSum.
TOTAL = "FixSum, weights 1"
#: Numbers of digits of a class in each of the two parts.
SIZES = {DIGITS: 20}


def fitted(
    kernels: Any, labels: NDArray, seed: int, recipe: Recipe, **settings: Any
) -> tuple[MultinomialProbit, DataTree]:
    """Fit the multinomial probit by a recipe; `settings` are those of the model."""
    model = MultinomialProbit(kernels, labels, **recipe["prior"], **settings)
    algorithm = recipe["algorithm"]
    sampling = recipe["sampling"]
    if recipe["engine"] == "VB":
        run = Run(random_seed=seed, progressbar=False, **sampling)
        state = ascend(model, run, dict(algorithm))
        return model, lean_tree(model, run, draws(model, state, run.draws, run.rng(1)), {})
    options = {"random_seed": seed, "progressbar": False, "log_likelihood": False, **sampling}
    return model, fit(model, Gibbs(**algorithm), **options)


def error(predicted: NDArray, labels: NDArray) -> float:
    """Share of misclassified objects, per cent."""
    return 100.0 * float(np.mean(predicted != labels))


def mixing(predictions: Dataset, labels: NDArray) -> list[float]:
    """R-hat and effective draws of the log score, as in ``MIXING``, from two chains or more."""
    own: Any = predictions["probability_draws"].sel({"class": DataArray(labels, dims="obs")})
    score = np.log(own.clip(np.finfo(float).tiny)).mean("obs").to_dataset(name="score")
    return [float(az.rhat(score)["score"]), float(az.ess(score, method="mean")["score"])]


def cross_validated(
    column: str, seed: int, *, kernel: str, folds: int, recipe: Recipe
) -> dict[str, float]:
    """Mean and standard deviation of the folds' test errors with a kernel, per cent."""
    errors = []
    for fold in objects(DATA[column], standardize=False).folds(folds, seed=seed):
        model, result = fitted(KERNELS[kernel](fold.X_train), fold.y_train, seed, recipe)
        predictions = predict(model, result, KERNELS[kernel](fold.X_test, fold.X_train))
        errors.append(error(predictions["label"].to_numpy(), fold.y_test))
    sd = float(np.std(errors, ddof=1))
    return {kernel: float(np.mean(errors)), f"{kernel}: sd over folds": sd}


def digits(seed: int, size: int) -> Split:
    """Draw `size` training objects and `size` test objects of each class, scaled by the former."""
    data = load("mfeat")
    rng = np.random.default_rng(seed)
    y = np.asarray(data.y)
    drawn = [rng.choice(np.flatnonzero(y == c), 2 * size, replace=False) for c in np.unique(y)]
    chosen = np.concatenate(drawn)
    some = {name: data.views[view].iloc[chosen] for name, view in DIGIT_SPACES.items()}
    return replace(data, X=some, y=y[chosen]).split(0.5, seed=seed)


def proteins() -> Split:
    """Load six feature spaces with the published division, scaled by its training part."""
    data = load("protein_fold")
    some = {name: data.views[view] for name, view in PROTEIN_SPACES.items()}
    return replace(data, X=some).published_split()


def divide(seed: int, size: int | None) -> Split:
    """Divide the digits, with `size` of each class in both parts, or else the proteins."""
    return proteins() if size is None else digits(seed, size)


def classifiers(
    column: str, seed: int, *, recipe: Recipe, size: int | None = None
) -> dict[str, float]:
    """Test errors of a classifier per feature space, and of their combinations, per cent."""
    split = divide(seed, size)
    each: dict[str, Dataset] = {}
    values: dict[str, float] = {}
    for space in split.X_train:
        each[space], cells, _ = _classify(column, split, [space], space, seed, recipe)
        values |= cells
    for name, rule in RULES.items():
        combined = combine_classifiers(each, rule)
        values[name] = error(combined["label"].to_numpy(), split.y_test)
    # `combined` is that of the last rule, the vote.
    first = combined["probability"].idxmax("class").to_numpy()
    return values | {FIRST_OF_EQUALS: error(first, split.y_test)}


def combined_spaces(
    column: str, seed: int, *, rule: str, row: str, recipe: Recipe, size: int | None = None
) -> dict[str, float]:
    """Test error, and learned weights, of a classifier on combined feature spaces, per cent."""
    split = divide(seed, size)
    spaces = [*split.X_train]
    ones = FixedWeights([1.0] * len(spaces))
    settings = {"combination": ones if rule == TOTAL else COMBINATIONS[rule]}
    _, values, result = _classify(column, split, spaces, row, seed, recipe, **settings)
    if rule in LEARNED:
        weights = 100.0 * result["posterior"]["beta"].mean(("chain", "draw")).to_numpy()
        values |= zip(_rows_of_weights(row, spaces), weights.tolist(), strict=True)
    return values


def _classify(
    column: str,
    split: Split,
    spaces: list[str],
    row: str,
    seed: int,
    recipe: Recipe,
    **settings: Any,
) -> tuple[Dataset, dict[str, float], DataTree]:
    """Classify by some feature spaces: predictions, the cells of `_rows_of_classifier`, the fit."""
    train, test = ({space: X[space] for space in spaces} for X in (split.X_train, split.X_test))
    if column == UNIT:
        train, test = ({name: _of_norm_1(X) for name, X in part.items()} for part in (train, test))
    kernels = SPACE_KERNELS[column]
    model, result = fitted(kernels(train), split.y_train, seed, recipe, **settings)
    rows = _rows_of_classifier(row, recipe)
    predictions = predict(model, result, kernels(test, train), keep_draws=len(rows) > 1)
    cells = [error(predictions["label"].to_numpy(), split.y_test)]
    if len(rows) > 1:
        cells += mixing(predictions, split.y_test)
    return predictions, dict(zip(rows, cells, strict=True)), result


def _of_norm_1(X: pd.DataFrame) -> pd.DataFrame:
    return X.div(np.linalg.norm(X, axis=1), axis=0)


def _rows_of_classifier(name: str, recipe: Recipe) -> tuple[str, ...]:
    """Name the cells of a classifier: its error and, for chains, the rows in ``MIXING``."""
    several = recipe["sampling"].get("chains", 0) > 1
    return (name, *(f"{name}: {what}" for what in MIXING if several))


def _rows_of_weights(row: str, spaces: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{row}: weight of {space}" for space in spaces)


def table_2() -> Study:
    """Table 2: test errors of three kernels on seven data sets."""
    tasks = []
    for column, name in DATA.items():
        for kernel in KERNELS:
            settings = {"kernel": kernel, "folds": FOLDS, "recipe": RECIPE}
            rows = kernel, f"{kernel}: sd over folds"
            tasks.append(Task(column, rows, cross_validated, settings, absence(name)))
    return described("damoulas2009-table2", tasks)


def _of_spaces(
    name: str,
    column: str,
    spaces: Iterable[str],
    recipe: Recipe,
    combined: Mapping[str, tuple[str, Recipe]],
    absent: str | None,
) -> Study:
    """Classifiers by space with `recipe`; by row, the rule and recipe of combined spaces."""
    of_spaces = (row for space in spaces for row in _rows_of_classifier(space, recipe))
    rows = (*of_spaces, *RULES, FIRST_OF_EQUALS)
    size = {"size": SIZES.get(column)}
    tasks = [Task(column, rows, classifiers, {"recipe": recipe, **size}, absent)]
    for row, (rule, own) in combined.items():
        weights = _rows_of_weights(row, spaces) if rule in LEARNED else ()
        rows = (*_rows_of_classifier(row, own), *weights)
        settings = {"rule": rule, "row": row, "recipe": own, **size}
        skip = "the exponents go to zero" if column == RAW and rule == "WProd" else absent
        tasks.append(Task(column, rows, combined_spaces, settings, skip))
    return described(name, tasks)


def table_7() -> Study:
    """Tables 4, 5 and 7 and Figure 8 by variational Bayes."""
    combined: dict[str, tuple[str, Recipe]] = {}
    for rule in COMBINATIONS:
        if rule in SEVERAL:
            combined[f"{rule}, from equal weights"] = rule, RECIPE
            combined[f"{rule}, highest bound"] = rule, HIGHEST
        else:
            combined[rule] = rule, RECIPE
    name = "damoulas2009-mfeat"
    return _of_spaces(name, DIGITS, DIGIT_SPACES, RECIPE, combined, absence("mfeat"))


def table_6() -> Study:
    """Tables 4 to 6 by Gibbs sampling."""
    combined = {rule: (rule, LONG.get(rule, GIBBS)) for rule in COMBINATIONS}
    name = "damoulas2009-mfeat-gibbs"
    return _of_spaces(name, DIGITS, DIGIT_SPACES, GIBBS, combined, absence("mfeat"))


def tables_8_to_10(column: str) -> Study:
    """Tables 8 to 10: single spaces, combined classifiers, combined spaces; on one scale."""
    combined = {rule: (rule, PROTEIN_RECIPE) for rule in (*COMBINATIONS, TOTAL)}
    suffix = {RAW: "-raw", UNIT: "-unit"}.get(column, "")
    absent = absence("protein_fold")
    name = f"damoulas2009-protein{suffix}"
    return _of_spaces(name, column, PROTEIN_SPACES, PROTEIN_RECIPE, combined, absent)
