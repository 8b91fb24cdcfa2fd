"""Regions of the predicted class over two features."""

from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
from matplotlib.axes import Axes
from xarray import DataTree

from ...models.kernels import Kernels
from ...models.kernels.labels import aligned, as_frame
from ...validation import (
    Count,
    argument_error,
    check_arguments,
    check_finite,
    check_labels,
    check_unmasked,
)
from ..engine.predict import predict
from ..engine.provenance import check_result
from .house_style import MARKERS, PALETTE, cycle

OWNER = "plot_decision_regions"
#: Largest number of draws over which predictions average.
DRAWS = 200


def plot_decision_regions(
    model: pm.Model,
    result: DataTree,
    kernels: Kernels,
    X_train: Any,
    y_train: Any,
    *,
    resolution: Count = 100,
) -> Axes:
    """Plot regions of the predicted class over two features, shaded by its probability.

    Predictions average over 200 evenly spaced draws of the result at most. scikit-learn's
    ``DecisionBoundaryDisplay`` draws them.

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
    y_train : array_like (N,)
        Classes of the training objects.
    resolution : int, default=100
        Number of grid points along each feature.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        For a number of features other than two, labels that do not match in number or class, and
        objects other than the model's.

    Notes
    -----
    The cost is that of predicting resolution^2 objects.

    Examples
    --------
    >>> X = data.X_train[["alcohol", "flavanoids"]]
    >>> kernels = kz.gaussian(1.0)
    >>> model = kz.MultinomialProbit(kernels(X), data.y_train)
    >>> kz.plots.plot_decision_regions(model, kz.fit(model, "vb"), kernels, X, data.y_train)
    """
    check_arguments(plot_decision_regions, locals())
    # Imported late: scikit-learn takes half a second to import.
    from sklearn.inspection import DecisionBoundaryDisplay

    if resolution < 2:
        raise argument_error("resolution", OWNER, "an integer of at least 2", repr(resolution))
    if not isinstance(kernels, Kernels):
        # What a function returns does not say which objects it was computed against.
        rule = "a specification, such as kz.gaussian(1.0); basis_expansion takes a function"
        raise argument_error("kernels", OWNER, rule, type(kernels).__name__)
    check_unmasked(X_train, "X_train", OWNER)
    X_train = as_frame(X_train)
    points = pd.DataFrame(X_train)
    if not isinstance(X_train, pd.DataFrame):
        points = points.set_axis([f"feature {i + 1}" for i in range(points.shape[1])], axis=1)
    if points.shape[1] != 2:
        raise argument_error("X_train", OWNER, "of two features", f"shape {points.shape}")
    values = points.to_numpy(dtype=float)
    check_finite(values, "X_train", OWNER)
    check_result(result, "result", OWNER)
    low, high = values.min(0), values.max(0)
    margin = np.where(high > low, 0.1 * (high - low), 0.5)
    grid = np.meshgrid(*np.linspace(low - margin, high + margin, resolution).T)
    objects = np.stack(grid, axis=-1).reshape(-1, 2)
    every = max(1, result["posterior"].sizes["draw"] * result["posterior"].sizes["chain"] // DRAWS)
    thinned = result.isel(draw=slice(None, None, every))
    predictions = predict(model, thinned, kernels(objects, X_train), progressbar=False)
    classes = predictions["class"].values
    y_train = aligned(y_train, points.index, "y_train", OWNER)
    codes, _ = check_labels(y_train, "y_train", OWNER, classes=classes, n_objects=len(values))
    known = getattr(model, "label_codes", codes)
    fitted = aligned(pd.Series(codes, points.index), model.coords["obs"], "X_train", OWNER)
    if not np.array_equal(fitted, known):
        rule = "the classes that the model was declared with, in the order of X_train"
        raise argument_error("y_train", OWNER, rule, f"{int((fitted != known).sum())} others")
    p = predictions["probability"].transpose("obs", "class").to_numpy()
    colors = cycle(PALETTE, len(classes))
    display = DecisionBoundaryDisplay(
        xx0=grid[0],
        xx1=grid[1],
        n_classes=len(classes),
        response=p.reshape(resolution, resolution, -1),
        multiclass_colors=colors,
        xlabel=str(points.columns[0]),
        ylabel=str(points.columns[1]),
    )
    axes: Axes = display.plot(plot_method="pcolormesh", alpha=0.6).ax_
    for code, (name, color, marker) in enumerate(
        zip(classes, colors, cycle(MARKERS, len(classes)), strict=True)
    ):
        x, y = values[codes == code].T
        axes.scatter(x, y, s=28, color=color, marker=marker, edgecolor="white", label=str(name))
    axes.set_title(f"Predicted class, {result.attrs.get('engine', 'posterior')}")
    axes.legend(title="training objects", fontsize="small")
    return axes
