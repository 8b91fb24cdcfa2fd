"""Figures of predictions: regions of the predicted class, reliability of probabilities."""

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from numpy.typing import NDArray
from xarray import DataArray, Dataset, DataTree

from ...models.kernels import Kernels
from ...models.kernels.labels import aligned, as_frame, ids_along
from ...validation import (
    Count,
    argument_error,
    check_arguments,
    check_finite,
    check_labels,
    check_probabilities,
    check_unmasked,
)
from ..engine.predict import predict
from ..engine.provenance import check_result
from .results import PALETTE, engine_colors

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
ROW = 0.06  # height of a row of counts below the diagram, as a share of the diagram's
#: Largest number of draws over which the predictions of regions average.
MOST_DRAWS = 200


def plot_decision_regions(
    model: Any, result: DataTree, kernels: Kernels, X_train: Any, *, resolution: Count = 100
) -> Axes:
    """Plot regions of the predicted class over two features, shaded by its probability.

    Predictions average over 200 evenly spaced draws of the result at most.

    Parameters
    ----------
    model : pm.Model
        Classifier on two features.
    result : DataTree
        Result of `fit` on the model, by any engine.
    kernels : Kernels
        Specification of the model's kernels.
    X_train : DataFrame or array (N, 2)
        Training objects, in the units of the kernels; columns name the axes.
    resolution : int, default=100
        Number of grid points along each feature. The cost is that of resolution^2 predictions.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        For a number of features other than two, and for objects other than the model's.

    Examples
    --------
    >>> X = data.X_train[["alcohol", "flavanoids"]]
    >>> kernels = kz.gaussian(1.0)
    >>> model = kz.MultinomialProbit(kernels(X), data.y_train)
    >>> kz.plots.plot_decision_regions(model, kz.fit(model, "vb"), kernels, X)
    """
    check_arguments(plot_decision_regions, locals())
    owner = "plot_decision_regions"
    if resolution < 2:
        raise argument_error("resolution", owner, "an integer of at least 2", repr(resolution))
    if not isinstance(kernels, Kernels):
        # What a function returns does not say which objects it was computed against.
        rule = "a specification, such as kz.gaussian(1.0); basis_expansion takes a function"
        raise argument_error("kernels", owner, rule, type(kernels).__name__)
    check_unmasked(X_train, "X_train", owner)
    X_train = as_frame(X_train)
    points = pd.DataFrame(X_train)
    if not isinstance(X_train, pd.DataFrame):
        points = points.set_axis([f"feature {i + 1}" for i in range(points.shape[1])], axis=1)
    if points.shape[1] != 2:
        raise argument_error("X_train", owner, "of two features", f"shape {points.shape}")
    values = points.to_numpy(dtype=float)
    check_finite(values, "X_train", owner)
    check_result(result, "result", owner)
    low = values.min(0)
    high = values.max(0)
    margin = np.where(high > low, 0.1 * (high - low), 0.5)
    grid = np.meshgrid(*np.linspace(low - margin, high + margin, resolution).T)
    objects = np.stack(grid, axis=-1).reshape(-1, 2)
    every = max(
        1, result["posterior"].sizes["draw"] * result["posterior"].sizes["chain"] // MOST_DRAWS
    )
    thinned = result.isel(draw=slice(None, None, every))
    # Refuses training objects other than the model's, or in another order without ids.
    predictions = predict(model, thinned, kernels(objects, X_train), progressbar=False)
    classes = predictions["class"].values
    p = predictions["probability"].transpose("obs", "class").to_numpy()
    figure, axes = plt.subplots(layout="constrained")
    fitted = pd.Series(model.label_codes, model.coords["obs"])
    codes = np.asarray(aligned(fitted, points.index, "X_train", owner))
    styles = zip(classes, cycle(PALETTE), cycle(MARKERS), strict=False)
    for code, (name, color, marker) in enumerate(styles):
        shade = np.ma.masked_array(p[:, code], p.argmax(1) != code).reshape(resolution, resolution)
        hues = LinearSegmentedColormap.from_list("", ["white", color])
        axes.pcolormesh(*grid, shade, cmap=hues, vmin=0, vmax=1, alpha=0.6, zorder=0)
        x, y = values[codes == code].T
        axes.scatter(x, y, s=28, color=color, marker=marker, edgecolor="white", label=str(name))
    title = f"Predicted class, {result.attrs.get('engine', 'posterior')}"
    axes.set(xlabel=str(points.columns[0]), ylabel=str(points.columns[1]), title=title)
    figure.legend(title="training objects", loc="outside right upper", frameon=False)
    return axes


def plot_reliability(
    predictions: DataArray | Dataset | Mapping[str, DataArray | Dataset],
    labels: Any,
    *,
    bins: Count = 10,
) -> Axes:
    """Draw a reliability diagram: frequency of correct predictions by predicted probability.

    Calibrated probabilities lie on the diagonal; below it, predictions are overconfident. Each
    point shows the frequency in a bin at the bin's mean probability of the predicted class, drawn
    by scikit-learn's ``CalibrationDisplay``, and below it the bin's number of objects. A bin of few
    objects says little: take fewer bins.

    Parameters
    ----------
    predictions : DataArray (obs, class), Dataset, or dict of them by name
        Class probabilities, or outputs of `predict`; several engines are overlaid.
    labels : array_like (obs,)
        True classes, among those of the coordinate "class".
    bins : int, default=10
        Number of bins of equal width on [0, 1].

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        For invalid probabilities, labels that do not match in number or class, and `bins` below 1.

    Examples
    --------
    >>> predictions = kz.predict(model, vb, kernels(X_test, X_train))
    >>> kz.plots.plot_reliability({"VB": predictions, "Gibbs": others}, y_test, bins=5)
    """
    check_arguments(plot_reliability, locals())
    # Imported late: scikit-learn takes half a second to import.
    from sklearn.calibration import CalibrationDisplay

    named = dict(predictions) if type(predictions) is dict else {"predictions": predictions}
    if not named:
        raise argument_error("predictions", "plot_reliability", "at least one prediction", "none")
    events = [_events(entry, labels) for entry in named.values()]
    figure, axes = plt.subplots(figsize=(4.6, 4.9), layout="constrained")
    colors = engine_colors(named)
    curves = zip(colors.items(), events, cycle(MARKERS), strict=False)
    for row, ((name, color), (confidence, correct), marker) in enumerate(curves, 1):
        display = CalibrationDisplay.from_predictions(
            correct, confidence, n_bins=bins, name=name, ax=axes, color=color, marker=marker
        )
        sizes = np.bincount(np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], confidence))
        for x, n in zip(display.prob_pred, sizes[sizes > 0], strict=True):
            axes.text(x, -ROW * row, n, color=color, ha="center", va="center", size=8)
    axes.legend().remove()
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    axes.set(xlabel="probability of the predicted class", ylabel="frequency of correct predictions")
    axes.set_title(f"Reliability on {len(correct)} objects (below: in each bin)")
    axes.set(ylim=(-ROW * (row + 1), 1.05), yticks=np.linspace(0, 1, 6))
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _events(entry: Any, labels: Any) -> tuple[NDArray, NDArray]:
    """Probability of each object's predicted class, and 1 where it is the true one, else 0."""
    owner = "plot_reliability"
    probability = entry.get("probability") if isinstance(entry, Dataset) else entry
    if not isinstance(probability, DataArray) or set(probability.dims) != {"obs", "class"}:
        got = type(entry).__name__
        raise argument_error("predictions", owner, "class probabilities (obs, class)", got)
    objects = ids_along(probability, "obs")
    p = probability.transpose("obs", "class").to_numpy()
    check_probabilities(p, objects, "predictions", owner)
    labels = aligned(labels, objects, "labels", owner)
    classes = probability["class"].values.tolist()
    codes, _ = check_labels(labels, "labels", owner, classes=classes, n_objects=len(p))
    # Rounding may give a probability above 1, beyond the last edge.
    return p.max(1).clip(0.0, 1.0), (p.argmax(1) == codes).astype(int)
