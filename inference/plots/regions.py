"""Regions of the predicted class over two features."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from arviz_plots import PlotCollection
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PathCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgb
from matplotlib.image import AxesImage
from numpy.typing import NDArray
from xarray import Dataset, DataTree

from ...models.kernels.labels import aligned, as_frame
from ...models.kernels.learned import ParametricStack
from ...models.kernels.rows import COMPARED_OBJECTS, evenly_spaced
from ...validation import (
    Count,
    argument_error,
    check_arguments,
    check_finite,
    check_labels,
    check_unmasked,
)
from ..engine.predict import compared_rows, predict, stack_of_new_objects
from ..engine.result import check_result
from .house_style import MARKERS, PALETTE, cycle

__all__ = ["plot_decision_regions"]

OWNER = "plot_decision_regions"
#: Largest difference of kernels, relative to their size, of the same objects: a jitter passes.
ALIKE = 1e-3
#: Largest number of draws over which predictions average.
DRAWS = 200
#: Strength of a region's colour at probability 1; training points are darker.
STRONGEST = 0.75


def plot_decision_regions(
    model: pm.Model,
    result: DataTree,
    kernels: Callable[[Any, Any], xr.DataArray],
    X_train: Any,
    y_train: Any,
    *,
    resolution: Count = 100,
) -> PlotCollection:
    """Plot regions of the predicted class over two features, shaded by its probability.

    Predictions average over 200 evenly spaced draws of the result at most.

    Parameters
    ----------
    model : pm.Model
        Classifier on two features.
    result : DataTree
        Result of `fit` on the model, by any engine.
    kernels : Kernels or callable
        Function such that ``kernels(X_grid, X_train)`` are the kernels between points and training
        objects.
    X_train : DataFrame or array (N, 2)
        Training objects, in the units of the kernels; columns name the axes.
    y_train : array_like (N,)
        Classes of the training objects.
    resolution : int, default=100
        Number of grid points along each feature.

    Returns
    -------
    PlotCollection
        Its data are ``probability`` (y, x, class) and ``label`` (y, x), the grid in the features'
        units.

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
    if resolution < 2:
        raise argument_error("resolution", OWNER, "an integer of at least 2", repr(resolution))
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
    grid = _grid(values, resolution)
    objects = np.stack(np.meshgrid(*grid), axis=-1).reshape(-1, 2)
    predictions = predict(model, result, kernels(objects, X_train), draws=DRAWS, progressbar=False)
    _check_objects(model, result, kernels, X_train)
    classes = predictions["class"].values
    y_train = aligned(y_train, points.index, "y_train", OWNER)
    codes, _ = check_labels(y_train, "y_train", OWNER, classes=classes, n_objects=len(values))
    known = getattr(model, "label_codes", codes)
    fitted = aligned(pd.Series(codes, points.index), model.coords["obs"], "X_train", OWNER)
    if not np.array_equal(fitted, known):
        rule = "the classes that the model was declared with, in the order of X_train"
        raise argument_error("y_train", OWNER, rule, f"{int((fitted != known).sum())} others")
    p = predictions["probability"].transpose("obs", "class").values
    data = Dataset(
        {
            "probability": (("y", "x", "class"), p.reshape(resolution, resolution, -1)),
            "label": (("y", "x"), predictions["label"].values.reshape(resolution, resolution)),
        },
        coords={"y": grid[1], "x": grid[0], "class": classes},
    )
    # NaN for objects of other classes, because each class has its own visual, colour and marker.
    train = xr.DataArray(values, dims=("obs", "feature")).where(
        xr.DataArray(classes[codes], dims="obs") == data["class"]
    )

    colors = cycle(PALETTE, len(classes))
    shades = data[["probability"]]
    # Uses a variable with the dim "class": a variable without it would take the first colour.
    collection = PlotCollection.wrap(
        shades,
        backend="matplotlib",
        aes={"color": ["class"], "marker": ["class"]},
        color=colors,
        marker=cycle(MARKERS, len(classes)),
        figure_kwargs={"layout": "constrained", "figsize": (5.6, 4.4)},
    )
    collection.data = data
    axes = collection.get_target(None, {})
    collection.map(_shade, "regions", data=shades, ignore_aes="all", colors=colors)
    collection.map(_border, "borders", data=shades, ignore_aes="all", store_artist=False)
    collection.map(_objects, "objects", data=train.to_dataset(name="train"), subset_info=True)
    axes.set(
        xlabel=str(points.columns[0]),
        ylabel=str(points.columns[1]),
        xlim=grid[0][[0, -1]],
        ylim=grid[1][[0, -1]],
        title=f"Predicted class, {result.attrs.get('engine', 'posterior')}",
    )
    collection.viz["figure"].item().legend(
        loc="outside right upper", title="training objects", frameon=False, fontsize="small"
    )
    grey = LinearSegmentedColormap.from_list("strength", ["white", str(1 - STRONGEST)])
    scale = ScalarMappable(Normalize(1 / len(classes), 1), grey)
    axes.figure.colorbar(scale, ax=axes, label="probability of the predicted class", fraction=0.05)
    return collection


def _check_objects(
    model: pm.Model, result: DataTree, kernels: Callable[[Any, Any], Any], X_train: Any
) -> None:
    """Raise unless the model's kernels are those of the objects; few rows are compared.

    Kernels of a specification say what they were computed against; those of a function do not.
    """
    if "constant_data" not in result.children or not {"K", "K_rows"} & {*result["constant_data"]}:
        return
    known = compared_rows(result)
    rows = evenly_spaced(len(model.coords["obs"]), COMPARED_OBJECTS)
    objects = np.asarray(aligned(X_train, model.coords["obs"], "X_train", OWNER), dtype=float)
    own = kernels(objects[rows], X_train)
    if isinstance(own, ParametricStack):
        return
    found = stack_of_new_objects(model, own).transpose(*known.dims).to_numpy()
    if not np.allclose(found, known, rtol=0, atol=ALIKE * np.abs(known).max()):
        rule = "the objects of the model's kernels, in their order"
        off = float(np.abs(found - known.to_numpy()).max())
        raise argument_error("X_train", OWNER, rule, f"others: kernels that differ by {off:.3g}")


def _grid(values: NDArray, resolution: int) -> list[NDArray]:
    """Grid along each feature, with margins of a tenth of the data's range."""
    low, high = values.min(0), values.max(0)
    margin = np.where(high > low, 0.1 * (high - low), 0.5)
    return list(np.linspace(low - margin, high + margin, resolution).T)


def _shade(da: xr.DataArray, target: Axes, *, colors: list[str], **_: Any) -> AxesImage:
    """Mix colours with white: all white where classes are equally likely."""
    p = da.transpose("y", "x", "class").values
    color = np.array([to_rgb(c) for c in colors])[p.argmax(-1)]
    even = 1 / len(colors)
    strength = STRONGEST * (p.max(-1, keepdims=True) - even) / (1 - even)
    x, y = da["x"].values, da["y"].values
    half = (x[1] - x[0]) / 2, (y[1] - y[0]) / 2
    return target.imshow(
        1 - strength * (1 - color),
        origin="lower",
        extent=(x[0] - half[0], x[-1] + half[0], y[0] - half[1], y[-1] + half[1]),
        aspect="auto",
        interpolation="nearest",
    )


def _border(da: xr.DataArray, target: Axes, **_: Any) -> None:
    """Draw lines where the most probable class changes."""
    p = da.transpose("class", "y", "x").values
    for code in range(len(p)):
        lead = p[code] - np.delete(p, code, axis=0).max(0)
        if lead.min() < 0 < lead.max():
            target.contour(da["x"], da["y"], lead, levels=[0.0], colors="0.25", linewidths=0.8)


def _objects(
    da: xr.DataArray, target: Axes, *, color: str, marker: str, sel: dict, **_: Any
) -> PathCollection:
    x, y = da.dropna("obs").transpose("feature", "obs").values
    return target.scatter(
        x,
        y,
        s=28,
        color=color,
        marker=marker,
        edgecolor="white",
        linewidth=0.7,
        label=str(sel["class"]),
        zorder=3,
    )
