"""Tables 2 and 4 to 10, Figures 8 and 9 of Damoulas and Girolami (2009).

A recipe is a JSON-like mapping: ``engine``, "VB" (the printed Algorithm 1, `damoulas2009_printed`)
or "Gibbs"; ``prior``, tau and upsilon; ``algorithm``, settings of the engine; and ``sampling``, the
draws to make. Choices where the paper is silent: features have mean 0 and standard deviation 1 over
the training part; the Gaussian kernel is exp(-d^2 / D); tau = upsilon = 1; VB replaces variables by
expectations, starts from W = 0 and Z = 1, and stops after 50 iterations or when its printed bound
changes by less than 0.1 %. Class probabilities are averaged over draws, a Monte Carlo version of eq
12. Learned weights start from equal weights, all kernels selected, or all exponents 1.

**Table 2**: seven data sets, three kernels, ten folds stratified by class. The kernels are
unscaled; the polynomial one also has a diagonal of 1, because the prior of the regressors makes the
scale matter. The paper has one division into ten folds and prints mean and sd over the folds. Here
a split is a whole cross-validation: its number is the mean over the ten folds, and the sd over the
folds has its own row. Iris is the UCI file of that time, with its two typing errors.

**Tables 4 to 7, Figure 8**: handwritten digits, 20 training objects and 20 test objects of each
class, in four feature spaces. FR to ZM: one classifier per space. Prod to Maj: these combined; ties
of the vote, which are frequent among four classifiers, go to the class with the highest mean
probability, or to the first class, as perhaps in the paper. Bin to WProd: one classifier on the
combined kernels, with fixed or learned weights or exponents, or selected. WSum and Bin also start
from each space alone, and the highest bound counts. `table_7` is by VB throughout, `table_6` by
Gibbs sampling as in the paper, whose chains of 100,000 sweeps are far from convergence after 1,000
(PX alone: R-hat 1.4 of the log score, 4 effective draws). Here regressors and weights move with the
utilities integrated out where that applies. It does not apply to WProd and Bin: these, and FixProd,
whose kernel is close to the identity, do not converge in the available time, and their rows are not
posterior means. For chains, the rows of a classifier include R-hat and effective draws of the log
score: the mean over test objects of the log probability of the class, draw by draw.

**Tables 8 to 10, Figure 9**: 27 protein folds, six spaces, the division of Ding and Dubchak (2001),
here with 311 and 383 proteins: of the original 313 and 385, the file lacks four without sequence,
as does later work. The kernels are (1 + x'y)^2. The paper does not give their scale: with a
diagonal of 1 most errors of single spaces are the paper's, unscaled (entries up to 5e4) none. Each
scale is a separate study. The product of six unscaled kernels would span 25 orders of magnitude,
too much for a Cholesky factorisation, and is left out. The paper's five trials differ in how the
iterations, here at most 100, start, without details: here from utilities of random regressors, with
scores of variance 1. FixSum has weights 1/6. Bin stays at its start, with all kernels, and so
equals the sum with weights 1, which is closer to the paper's FixSum.

The paper's equations are listed, with their places in the code, in ``docs/equations.md``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

import arviz as az
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from xarray import DataArray, Dataset, DataTree

from kernelzoo.datasets import load
from kernelzoo.datasets.dataset import Split
from kernelzoo.inference import Gibbs, Run, combine_classifiers, fit, predict
from kernelzoo.inference.engine import lean_tree
from kernelzoo.models import MultinomialProbit
from kernelzoo.models.kernels import Kernels, gaussian, linear, polynomial

from .damoulas2009_printed import ascend, draws
from .data import absence, objects
from .study import RECIPES, Study, Task, described

type Recipe = Mapping[str, Any]

SETTINGS = RECIPES["damoulas2009"]
PRIOR, ALGORITHM = SETTINGS["prior"], SETTINGS["algorithm"]
VB = {"engine": "VB", "prior": PRIOR}
RECIPE = VB | {"algorithm": ALGORITHM, "sampling": {"draws": 200}}
#: Names of the rules for classifiers and for kernels, by the paper's.
RULES, COMBINATIONS = SETTINGS["rules"], SETTINGS["combinations"]
#: Majority vote in which ties go to the first class.
FIRST_OF_EQUALS = "Maj, equal votes to the first class"
#: Rules with learned weights, and those whose bound has several maxima.
LEARNED, SEVERAL = ("Bin", "WSum", "WProd"), ("Bin", "WSum")
#: Rows for chains: R-hat and effective draws of the mean log probability of the test classes.
MIXING = ("R-hat of the log score", "effective draws of the log score")

# Table 2.
DATA, FOLDS = SETTINGS["data"], 10
#: Kernels by the table's names.
KERNELS: dict[str, Kernels] = {
    "Gaussian": gaussian(),
    "linear": linear(),
    "polynomial": polynomial(2),
    "polynomial of diagonal 1": polynomial(2).normalize("unit"),
}

# Tables 4 to 10: columns, their feature spaces and kernels.
DIGITS, SCALED, RAW = "digits", "kernels of diagonal 1", "kernels as they are"
DIGIT_SPACES, PROTEIN_SPACES = SETTINGS["digits"], SETTINGS["proteins"]
SPACE_KERNELS = {
    DIGITS: KERNELS["Gaussian"],
    SCALED: KERNELS["polynomial of diagonal 1"],
    RAW: KERNELS["polynomial"],
}
#: Numbers of digits of a class in each of the two parts.
SIZES = {DIGITS: 20}
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


def fitted(
    kernels: Any, labels: NDArray, seed: int, recipe: Recipe, **settings: Any
) -> tuple[MultinomialProbit, DataTree]:
    """Fit the multinomial probit by a recipe; `settings` are those of the model."""
    model = MultinomialProbit(kernels, labels, **recipe["prior"], **settings)
    algorithm, sampling = recipe["algorithm"], recipe["sampling"]
    if recipe["engine"] == "VB":
        run = Run(random_seed=seed, progressbar=False, **sampling)
        state = ascend(model, run, dict(algorithm))
        return model, lean_tree(model, run, draws(model, state, run.draws, run.rng(1)), {})
    options = {"random_seed": seed, "progressbar": False, "log_likelihood": False, **sampling}
    return model, fit(model, Gibbs(**algorithm), **options)


def error(predictions: Dataset, labels: NDArray) -> float:
    """Share of misclassified objects, per cent."""
    return 100.0 * float(np.mean(predictions["label"].to_numpy() != labels))


def mixing(predictions: Dataset, labels: NDArray) -> dict[str, float]:
    """R-hat and effective draws of the log score, by the names in ``MIXING``.

    `predictions` have ``probability_draws`` (chain, draw, obs, class) of at least two chains.
    """
    draws = predictions["probability_draws"].transpose("chain", "draw", "obs", "class")
    codes = np.searchsorted(predictions["class"].to_numpy(), labels)
    own = draws.to_numpy()[..., np.arange(len(codes)), codes]
    scores = np.log(np.maximum(own, np.finfo(float).tiny)).mean(axis=-1)
    score = Dataset({"score": DataArray(scores, dims=("chain", "draw"))})
    values = az.rhat(score)["score"], az.ess(score, method="mean")["score"]
    return dict(zip(MIXING, map(float, values), strict=True))


def cross_validated(
    column: str, seed: int, *, kernel: str, folds: int, recipe: Recipe
) -> dict[str, float]:
    """Mean and standard deviation of the folds' test errors with a kernel, per cent."""
    errors = []
    for fold in objects(DATA[column], standardize=False).folds(folds, seed=seed):
        model, result = fitted(KERNELS[kernel](fold.X_train), fold.y_train, seed, recipe)
        new = KERNELS[kernel](fold.X_test, fold.X_train)
        errors.append(error(predict(model, result, new), fold.y_test))
    return {kernel: float(np.mean(errors)), _sd(kernel): float(np.std(errors, ddof=1))}


def _sd(kernel: str) -> str:
    return f"{kernel}: sd over folds"


def digits(seed: int, size: int) -> Split:
    """Draw `size` training objects and `size` test objects of each class, scaled by the former."""
    data = load("mfeat")
    rng = np.random.default_rng(seed)
    y = np.asarray(data.y)
    drawn = [rng.choice(np.flatnonzero(y == c), 2 * size, replace=False) for c in np.unique(y)]
    chosen = np.concatenate(drawn)
    views = cast(dict[str, pd.DataFrame], data.X)
    some = {name: views[view].iloc[chosen] for name, view in DIGIT_SPACES.items()}
    return replace(data, X=some, y=y[chosen]).split(0.5, seed=seed)


def proteins() -> Split:
    """Load six feature spaces with the published division, scaled by its training part."""
    data = load("protein_fold")
    views = cast(dict[str, pd.DataFrame], data.X)
    some = {name: views[view] for name, view in PROTEIN_SPACES.items()}
    return replace(data, X=some).published_split()


def _divide(seed: int, size: int | None) -> Split:
    return proteins() if size is None else digits(seed, size)


def classifiers(
    column: str, seed: int, *, recipe: Recipe, size: int | None = None
) -> dict[str, float]:
    """Test errors of a classifier per feature space, and of their combinations, per cent."""
    return errors_by_space(_divide(seed, size), SPACE_KERNELS[column], seed, recipe)


def errors_by_space(split: Split, kernels: Kernels, seed: int, recipe: Recipe) -> dict[str, float]:
    """Classify by each feature space, and by the combinations of these classifiers."""
    K, new = kernels(split.X_train), kernels(split.X_test, split.X_train)
    each: dict[str, Dataset] = {}
    values: dict[str, float] = {}
    for number, name in enumerate(split.X_train):
        model, result = fitted(K[[number]], split.y_train, seed, recipe)
        part = new[[number]], split.y_test, recipe, str(name)
        each[name], cells = _classify(model, result, *part)
        values |= cells
    for name, rule in RULES.items():
        combined = combine_classifiers(each, rule)
        values[name] = error(combined, split.y_test)
    # `combined` is that of the last rule, the vote.
    first = combined["probability"].idxmax("class").to_numpy()
    values[FIRST_OF_EQUALS] = 100.0 * float(np.mean(first != split.y_test))
    return values


def combined_spaces(
    column: str, seed: int, *, rule: str, row: str, recipe: Recipe, size: int | None = None
) -> dict[str, float]:
    """Test error, and learned weights, of a classifier on combined feature spaces, per cent."""
    split = _divide(seed, size)
    return errors_of_combination(split, SPACE_KERNELS[column], seed, recipe, rule, row)


def errors_of_combination(
    split: Split, kernels: Kernels, seed: int, recipe: Recipe, rule: str, row: str
) -> dict[str, float]:
    """Classify by the feature spaces combined by one of ``COMBINATIONS``."""
    K, new = kernels(split.X_train), kernels(split.X_test, split.X_train)
    model, result = fitted(K, split.y_train, seed, recipe, combination=COMBINATIONS[rule])
    _, values = _classify(model, result, new, split.y_test, recipe, row)
    if rule in LEARNED:
        weights = 100.0 * result["posterior"]["beta"].mean(("chain", "draw")).to_numpy()
        values |= zip(_rows_of_weights(row, split.X_train), weights.tolist(), strict=True)
    return values


def _classify(
    model: MultinomialProbit,
    result: DataTree,
    kernels: Any,
    labels: NDArray,
    recipe: Recipe,
    name: str,
) -> tuple[Dataset, dict[str, float]]:
    """Predict the test objects; also return the cells of `_rows_of_classifier`."""
    rows = _rows_of_classifier(name, recipe)
    predictions = predict(model, result, kernels, keep_draws=len(rows) > 1)
    values = [error(predictions, labels)]
    if len(rows) > 1:
        values += mixing(predictions, labels).values()
    return predictions, dict(zip(rows, values, strict=True))


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
            rows = kernel, _sd(kernel)
            tasks.append(Task(column, rows, cross_validated, settings, absence(name)))
    return described("damoulas2009-table2", tasks)


def _classifiers(column: str, spaces: Iterable[str], recipe: Recipe, skip: str | None) -> Task:
    of_spaces = (row for space in spaces for row in _rows_of_classifier(space, recipe))
    rows = (*of_spaces, *RULES, FIRST_OF_EQUALS)
    settings = {"recipe": recipe, "size": SIZES.get(column)}
    return Task(column, rows, classifiers, settings, skip)


def _combined(
    column: str, spaces: Iterable[str], rule: str, row: str, recipe: Recipe, skip: str | None
) -> Task:
    weights = _rows_of_weights(row, spaces) if rule in LEARNED else ()
    rows = (*_rows_of_classifier(row, recipe), *weights)
    settings = {"rule": rule, "row": row, "recipe": recipe, "size": SIZES.get(column)}
    return Task(column, rows, combined_spaces, settings, skip)


def table_7() -> Study:
    """Tables 4, 5 and 7 and Figure 8 by variational Bayes."""
    skip = absence("mfeat")
    tasks = [_classifiers(DIGITS, DIGIT_SPACES, RECIPE, skip)]
    for rule in COMBINATIONS:
        starts = {"": RECIPE}
        if rule in SEVERAL:
            starts = {", from equal weights": RECIPE, ", highest bound": HIGHEST}
        for start, recipe in starts.items():
            tasks.append(_combined(DIGITS, DIGIT_SPACES, rule, rule + start, recipe, skip))
    return described("damoulas2009-mfeat", tasks)


def table_6() -> Study:
    """Tables 4 to 6 by Gibbs sampling."""
    skip = absence("mfeat")
    tasks = [_classifiers(DIGITS, DIGIT_SPACES, GIBBS, skip)]
    for rule in COMBINATIONS:
        recipe = LONG.get(rule, GIBBS)
        tasks.append(_combined(DIGITS, DIGIT_SPACES, rule, rule, recipe, skip))
    return described("damoulas2009-mfeat-gibbs", tasks)


def tables_8_to_10(column: str = SCALED) -> Study:
    """Tables 8 to 10: single spaces, combined classifiers, combined spaces; a scale of kernels."""
    absent = absence("protein_fold")
    too_wide = "the product of these kernels spans 25 orders of magnitude"
    tasks = [_classifiers(column, PROTEIN_SPACES, PROTEIN_RECIPE, absent)]
    for rule in COMBINATIONS:
        skip = absent or (too_wide if column == RAW and rule in ("FixProd", "WProd") else None)
        tasks.append(_combined(column, PROTEIN_SPACES, rule, rule, PROTEIN_RECIPE, skip))
    return described(f"damoulas2009-protein{'-raw' if column == RAW else ''}", tasks)
