"""Classifiers of Damoulas and Girolami's studies: by feature space, combined, on combined spaces.

A recipe is a JSON-like mapping: ``engine``, "VB" or "Gibbs"; ``prior``, tau and upsilon;
``algorithm``, settings of the engine; and ``sampling``, the draws to make. The engine "VB" is the
printed Algorithm 1 (`damoulas2009_printed`). For chains, the rows of a classifier include R-hat and
effective draws of the log score: the mean over test objects of the log probability of the class,
draw by draw.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import arviz as az
import numpy as np
from numpy.typing import NDArray
from xarray import DataArray, Dataset, DataTree

from kernelzoo.datasets.dataset import Split
from kernelzoo.inference import Gibbs, Run, combine_classifiers, fit, predict
from kernelzoo.inference.engine import lean_tree
from kernelzoo.models import MultinomialProbit
from kernelzoo.models.kernels import Kernels

from .damoulas2009_printed import ascend, draws
from .study import RECIPES

RECIPE = RECIPES["damoulas2009"]
PRIOR = RECIPE["prior"]
#: Names of the rules for classifiers and for kernels, by the paper's.
RULES, COMBINATIONS = RECIPE["rules"], RECIPE["combinations"]
#: Majority vote in which ties go to the first class.
FIRST_OF_EQUALS = "Maj, equal votes to the first class"
#: Rules with learned weights.
LEARNED = ("Bin", "WSum", "WProd")
#: Rows for chains: R-hat and effective draws of the mean log probability of the test classes.
MIXING = ("R-hat of the log score", "effective draws of the log score")


def fitted(
    kernels: Any, labels: NDArray, seed: int, recipe: Mapping[str, Any], **settings: Any
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


def _classify(
    model: MultinomialProbit,
    result: DataTree,
    kernels: Any,
    labels: NDArray,
    recipe: Mapping[str, Any],
    name: str,
) -> tuple[Dataset, dict[str, float]]:
    """Predict the test objects; also return the cells of `rows_of_classifier`."""
    chains = _has_chains(recipe)
    predictions = predict(model, result, kernels, keep_draws=chains)
    values = [error(predictions, labels)]
    if chains:
        values += mixing(predictions, labels).values()
    return predictions, dict(zip(rows_of_classifier(name, recipe), values, strict=True))


def _has_chains(recipe: Mapping[str, Any]) -> bool:
    return recipe["sampling"].get("chains", 0) > 1


def rows_of_classifier(name: str, recipe: Mapping[str, Any]) -> tuple[str, ...]:
    """Name the cells of a classifier: its error and, for chains, the rows in ``MIXING``."""
    return (name, *(f"{name}: {what}" for what in MIXING if _has_chains(recipe)))


def error(predictions: Dataset, labels: NDArray) -> float:
    """Share of misclassified objects, per cent."""
    return 100.0 * float(np.mean(predictions["label"].to_numpy() != labels))


def errors_by_space(
    split: Split, kernels: Kernels, seed: int, recipe: Mapping[str, Any]
) -> dict[str, float]:
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


def errors_of_combination(
    split: Split, kernels: Kernels, seed: int, recipe: Mapping[str, Any], rule: str, row: str
) -> dict[str, float]:
    """Classify by the feature spaces combined by one of ``COMBINATIONS``."""
    K, new = kernels(split.X_train), kernels(split.X_test, split.X_train)
    model, result = fitted(K, split.y_train, seed, recipe, combination=COMBINATIONS[rule])
    _, values = _classify(model, result, new, split.y_test, recipe, row)
    if rule in LEARNED:
        weights = 100.0 * result["posterior"]["beta"].mean(("chain", "draw")).to_numpy()
        values |= zip(_rows_of_weights(row, split.X_train), weights.tolist(), strict=True)
    return values


def rows_of_combination(
    rule: str, row: str, spaces: Iterable[str], recipe: Mapping[str, Any]
) -> tuple[str, ...]:
    """Name the cells of a combination: those of a classifier, and learned weights."""
    weights = _rows_of_weights(row, spaces) if rule in LEARNED else ()
    return (*rows_of_classifier(row, recipe), *weights)


def _rows_of_weights(row: str, spaces: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{row}: weight of {space}" for space in spaces)
