"""Predictions of the models that complete a kernel matrix: labels of the test objects."""

from typing import Any

import numpy as np
import xarray as xr
from xarray import Dataset, DataTree

from ...models.diagonal_wishart_completion import DiagonalWishartCompletion
from ...models.kernels.labels import NUMBERED, aligned, counts_rows
from ...models.wishart_completion import WishartCompletion
from ...models.wishart_kernel_mixture import WishartKernelMixture
from ...validation import argument_error, check_labels, check_name

OWNER = "predict"

type Completion = WishartCompletion | DiagonalWishartCompletion | WishartKernelMixture


def completed_labels(
    model: Completion,
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
        raise argument_error(
            "kernels_new",
            OWNER,
            f"left out for a {type(model).__name__}: it contains its test objects",
            "kernels",
        )
    if labels is None:
        raise argument_error("labels", OWNER, "the classes of the training objects", "None")
    K11 = np.asarray(model.K11_values)
    labels = aligned(labels, model.coords["train"], "labels", OWNER)
    _, classes = check_labels(labels, "labels", OWNER, n_objects=len(K11))
    rules = {"nearest mean": KernelNearestMean, "nearest neighbour": KernelNearestNeighbour}
    check_name(rule, rules, "rule", OWNER)
    classifier = rules[rule]().fit(K11, np.asarray(labels))

    draws = _draws(result)
    numbered = counts_rows(model.coords["object"])
    test = ("test", np.asarray(model.coords["test"]), NUMBERED if numbered else None)
    coords = {"test": test, "class": classes}
    predictions = Dataset(
        {"label": ("test", classifier.predict(_mean(result, model.completed)))}, coords=coords
    )
    if draws is None:
        if keep_draws:
            raise argument_error(
                "result", OWNER, "a result with draws of K21 (fit(..., var_names=['K21']))", "none"
            )
        return predictions
    by_draw = classifier.predict(draws.values)
    shares = [(by_draw == one).mean(axis=(0, 1)) for one in classes]
    predictions["probability"] = (("test", "class"), np.stack(shares, axis=-1))
    if keep_draws:
        predictions["label_draws"] = (("chain", "draw", "test"), by_draw)
    return predictions


def _draws(result: DataTree) -> xr.DataArray | None:
    """Draws of K21 (chain, draw, test, train); None if there are fewer than two."""
    if "posterior" not in result.children or "K21" not in result["posterior"]:
        return None
    draws = result["posterior"]["K21"].transpose("chain", "draw", "test", "train")
    return draws if draws.sizes["chain"] * draws.sizes["draw"] > 1 else None


def _mean(result: DataTree, name: str) -> np.ndarray:
    """Posterior mean (test, train) of K21, the variable of this name."""
    groups = {group: tree.to_dataset() for group, tree in result.children.items()}
    for group, variable in (("moments", f"{name}_mean"), ("posterior", name), ("point", name)):
        if variable in groups.get(group, ()):
            mean = groups[group][variable].transpose(..., "test", "train")
            return mean.mean([dim for dim in mean.dims if dim in ("chain", "draw")]).to_numpy()
    raise argument_error("result", OWNER, f"a result with moments or draws of {name}", "neither")
