"""Scores of predictions on held-out objects."""

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm
from xarray import DataArray, Dataset

from ...models.kernels.labels import aligned, as_frame, ids_along, order_of
from ...validation import (
    argument_error,
    check_finite,
    check_labels,
    check_probabilities,
    check_real,
)

OWNER = "held_out"


def held_out(predictions: Dataset, truth: Any) -> dict[str, float]:
    """Score predictions of classes or of real values on held-out objects.

    Parameters
    ----------
    predictions : Dataset
        Output of `predict`: ``probability`` (obs, class), ``label`` (obs) or both, with the
        coordinate "class"; or ``mean`` and ``sd``, (obs) or (obs, output).
    truth : array_like, Series or DataArray (obs,); array_like, DataFrame or DataArray (obs, output)
        True classes or true values. A Series or a table is aligned by the ids of the objects if
        both have ids, else by position; the columns of a table by the names of the outputs.

    Returns
    -------
    dict
        For classes: ``accuracy`` of the predicted label; with probabilities also ``log_score``, the
        mean log probability of the true class (higher is better), and ``brier``, the mean squared
        distance to the true class's indicator (0 to 2, lower is better). For values: ``rmse``, and
        ``log_score``, the mean log density of the normal distribution with the predicted mean and
        sd.

    Raises
    ------
    ValueError
        For predictions of neither kind, a truth of another length, a class that the predictions do
        not know, values that are not finite, or probabilities that are negative or do not sum to
        one for each object (up to 1e-5).

    Examples
    --------
    >>> predictions = kz.predict(model, vb, kernels(X_test, X_train))
    >>> kz.scores.held_out(predictions, y_test)
    """
    if not isinstance(predictions, Dataset):
        got = f"a {type(predictions).__name__}"
        raise argument_error("predictions", OWNER, "a Dataset as predict returns it", got)
    if "class" in predictions.coords and {"probability", "label"} & set(predictions.data_vars):
        return _of_classes(predictions, truth)
    if {"mean", "target_sd"} <= set(predictions.data_vars):
        return _of_values(predictions, truth)
    rule = "with 'probability' or 'label' and the coordinate 'class', or 'mean' and 'target_sd'"
    got = f"the variables {', '.join(map(str, predictions.variables))}"
    raise argument_error("predictions", OWNER, rule, got)


def _of_classes(predictions: Dataset, truth: Any) -> dict[str, float]:
    known = predictions["class"].to_numpy()
    if "label" in predictions:
        label = predictions["label"].to_numpy()
    else:
        label = known[predictions["probability"].transpose(..., "class").to_numpy().argmax(-1)]
    truth = _aligned(truth, predictions, "label" if "label" in predictions else "probability")
    codes, _ = check_labels(truth, "labels_new", OWNER, classes=known, n_objects=len(label))
    found = {"accuracy": float((label == known[codes]).mean())}
    if "probability" not in predictions:
        return found
    p = predictions["probability"].transpose(..., "class").to_numpy()
    check_finite(p, "predictions", OWNER)
    check_probabilities(p, _objects(predictions["probability"]), "predictions", OWNER)
    with np.errstate(divide="ignore"):
        log_score = np.log(p[np.arange(len(codes)), codes]).mean()
    squared = (p - np.eye(p.shape[1])[codes]) ** 2
    return found | {"log_score": float(log_score), "brier": float(squared.sum(1).mean())}


def _of_values(predictions: Dataset, truth: Any) -> dict[str, float]:
    mean, sd = (predictions[name].to_numpy() for name in ("mean", "target_sd"))
    check_finite(np.stack([mean, sd]), "predictions", OWNER)
    truth = _by_output(_aligned(as_frame(truth), predictions, "mean"), predictions["mean"])
    values = check_real(truth, "labels_new", OWNER)
    check_finite(values, "labels_new", OWNER)
    if values.shape != mean.shape:
        raise argument_error("labels_new", OWNER, f"shape {mean.shape}", f"shape {values.shape}")
    return {
        "rmse": float(np.sqrt(np.mean((mean - values) ** 2))),
        "log_score": float(norm.logpdf(values, mean, sd).mean()),
    }


def _aligned(truth: Any, predictions: Dataset, name: str) -> Any:
    """Truth in the order of the predicted objects."""
    ids = _objects(predictions[name])
    return truth if ids is None else aligned(truth, ids, "labels_new", OWNER)


def _objects(values: DataArray) -> Any:
    """Ids along the first dim other than "class"; None if there is no other."""
    dims = [dim for dim in values.dims if dim != "class"]
    return ids_along(values, dims[0]) if dims else None


def _by_output(truth: Any, mean: DataArray) -> Any:
    """Columns of a table in the order of the outputs of predictions (obs, output)."""
    if mean.ndim != 2 or not isinstance(truth, pd.DataFrame):
        return truth
    rule = "labelled by the outputs of the model"
    order = order_of(truth.columns, ids_along(mean, mean.dims[1]), "labels_new", OWNER, rule)
    return truth if order is None else truth.iloc[:, order]
