"""Predictions of the models that complete a kernel matrix: labels of the test objects."""

from typing import Any

import numpy as np
from xarray import Dataset, DataTree

from ...models.diagonal_wishart_completion import DiagonalWishartCompletion
from ...models.kernels.labels import NUMBERED, aligned, counts_rows
from ...models.wishart_completion import WishartCompletion
from ...models.wishart_kernel_mixture import WishartKernelMixture
from ...validation import argument_error, check_labels, check_name
from ..engine.result import kept_draws, kept_moments

OWNER = "predict"


def completed_labels(
    model: WishartCompletion | DiagonalWishartCompletion | WishartKernelMixture,
    result: DataTree,
    kernels_new: Any = None,
    *,
    keep_draws: bool = False,
    labels: Any = None,
    rule: str = "nearest mean",
) -> Dataset:
    """Labels of the test objects from moments or draws of K21; see `predict`.

    `keep_draws` also keeps the label of every draw of K21.
    """
    # Imported here: scikit-learn takes half a second to import.
    from .classifiers import KernelNearestMean, KernelNearestNeighbour

    if kernels_new is not None:
        rule = f"left out for a {type(model).__name__}: it contains its test objects"
        raise argument_error("kernels_new", OWNER, rule, "kernels")
    if labels is None:
        raise argument_error("labels", OWNER, "the classes of the training objects", "None")
    K11 = np.asarray(model.K11_values)
    labels = aligned(labels, model.coords["train"], "labels", OWNER)
    _, classes = check_labels(labels, "labels", OWNER, n_objects=len(K11))
    rules = {"nearest mean": KernelNearestMean, "nearest neighbour": KernelNearestNeighbour}
    check_name(rule, rules, "rule", OWNER)
    classifier = rules[rule]().fit(K11, np.asarray(labels))

    mean, _ = kept_moments(result, model.completed, OWNER)
    draws = kept_draws(result, "K21")
    numbered = counts_rows(model.coords["object"])
    test = ("test", np.asarray(model.coords["test"]), NUMBERED if numbered else None)
    coords = {"test": test, "class": classes}
    label = classifier.predict(mean.transpose("test", "train").to_numpy())
    predictions = Dataset({"label": ("test", label)}, coords=coords)
    if draws is None:
        if keep_draws:
            rule = "a result with draws of K21 (fit(..., var_names=['K21']))"
            raise argument_error("result", OWNER, rule, "none")
        return predictions
    by_draw = classifier.predict(draws.transpose("chain", "draw", "test", "train").to_numpy())
    shares = [(by_draw == one).mean(axis=(0, 1)) for one in classes]
    predictions["probability"] = (("test", "class"), np.stack(shares, axis=-1))
    if keep_draws:
        predictions["label_draws"] = (("chain", "draw", "test"), by_draw)
    return predictions
