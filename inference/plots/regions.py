"""Regions of the predicted class over two features."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from xarray import DataTree

from ...models.kernels import Kernels
from ...models.kernels.labels import aligned, as_frame
from ...validation import Count, argument_error, check_arguments, check_finite, check_unmasked
from ..engine.predict import predict
from ..engine.provenance import check_result
from .house_style import MARKERS, PALETTE, cycle

OWNER = "plot_decision_regions"
#: Largest number of draws over which predictions average.
DRAWS = 200


def plot_decision_regions(
    model: Any, result: DataTree, kernels: Kernels, X_train: Any, *, resolution: Count = 100
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
    resolution : int, default=100
        Number of grid points along each feature. The cost is that of predicting resolution^2
        objects.

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
    # Refuses training objects other than the model's, or in another order without ids.
    predictions = predict(model, thinned, kernels(objects, X_train), progressbar=False)
    classes = predictions["class"].values
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
    fitted = pd.Series(model.label_codes, model.coords["obs"])
    codes = np.asarray(aligned(fitted, points.index, "X_train", OWNER))
    for code, (name, color, marker) in enumerate(
        zip(classes, colors, cycle(MARKERS, len(classes)), strict=True)
    ):
        x, y = values[codes == code].T
        axes.scatter(x, y, s=28, color=color, marker=marker, edgecolor="white", label=str(name))
    axes.set_title(f"Predicted class, {result.attrs.get('engine', 'posterior')}")
    axes.legend(title="training objects", fontsize="small")
    return axes
