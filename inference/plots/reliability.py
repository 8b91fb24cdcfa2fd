"""Reliability of predicted probabilities on labelled objects."""

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from arviz_plots import PlotCollection
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from matplotlib.patches import StepPatch
from scipy import stats
from xarray import Dataset

from ...models.alignment import aligned, ids_along
from ...models.checks import argument_error, check_labels
from .house_style import GREY, MARKERS, PALETTE, cycle, figure_options, open_frame

__all__ = ["plot_reliability"]


def plot_reliability(
    predictions: xr.DataArray | Dataset | Mapping[str, xr.DataArray | Dataset],
    labels: Any,
    *,
    bins: int = 10,
    of_class: Hashable | None = None,
    prob: float = 0.95,
    figure_kwargs: Mapping[str, Any] | None = None,
) -> PlotCollection:
    """Reliability diagram: how often a class occurs among objects given some probability for it.

    Calibrated probabilities lie on the diagonal; below it they are too confident. Each bin shows
    its frequency at its mean probability, with a binomial interval; the histogram below counts
    the objects.

    Parameters
    ----------
    predictions : DataArray (obs, class), Dataset, or dict of them by name
        Class probabilities, or what `predict` returns; several engines are overlaid.
    labels : array_like (obs,)
        True classes, among those of the coordinate "class".
    bins : int, default=10
        Bins of equal width on [0, 1], each with its lower edge (the last with both).
    of_class : optional
        Probability of this class against its frequency. Default: probability of the predicted
        class (confidence) against how often the prediction is right.
    prob : float, default=0.95
        Probability of the intervals: equal-tailed, of a proportion under Jeffreys' prior.
    figure_kwargs : mapping, optional
        Options of ``matplotlib.pyplot.subplots``, such as ``figsize`` (inches).

    Returns
    -------
    PlotCollection
        Its data are ``calibration`` (model, summary, bin); bins without objects are NaN and have
        no point.

    Raises
    ------
    ValueError
        For probabilities that are none, labels of another number or unknown classes, an unknown
        `of_class`, fewer than one bin.

    Notes
    -----
    Intervals: L. D. Brown, T. T. Cai and A. DasGupta (2001), Interval estimation for a binomial
    proportion, Statistical Science 16, section 3.1.3: Beta(k + 1/2, n - k + 1/2) quantiles, with
    the end at 0 for k = 0 and at 1 for k = n.

    Examples
    --------
    >>> predictions = kz.predict(model, vb, kernels(data.X_test, data.X_train))
    >>> kz.plot_reliability(predictions, data.y_test)
    >>> kz.plot_reliability({"VB": predictions, "Gibbs": others}, data.y_test, bins=5)
    """
    owner = "plot_reliability"
    if isinstance(bins, bool) or not isinstance(bins, (int, np.integer)) or bins < 1:
        raise argument_error("bins", owner, "an integer of 1 or more", repr(bins))
    if not 0 < prob < 1:
        raise argument_error("prob", owner, "a probability between 0 and 1", repr(prob))
    named = dict(predictions) if type(predictions) is dict else {"": predictions}
    if not named:
        raise argument_error("predictions", owner, "at least one prediction", "none")
    tables = []
    for entry in named.values():
        probability = _probability(entry, owner)
        assigned, happened = _events(probability, labels, of_class, owner)
        tables.append(_calibration(assigned, happened, int(bins), prob))
    names = list(named)
    table = xr.concat(tables, dim=pd.Index(names, name="model"))
    data = table.to_dataset(name="calibration")

    collection = PlotCollection.grid(
        data.expand_dims(panel=["diagram", "histogram"]),
        rows=["panel"],
        backend="matplotlib",
        aes={"color": ["model"], "marker": ["model"]},
        color=cycle(PALETTE, len(names)),
        marker=cycle(MARKERS, len(names)),
        figure_kwargs=figure_options(
            figure_kwargs, figsize=(4.6, 5.6), sharex=True, height_ratios=[3, 1]
        ),
    )
    collection.data = data
    diagram, histogram = (
        collection.get_target(None, {"panel": panel}) for panel in ("diagram", "histogram")
    )
    diagram.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1, zorder=0)
    above = {"panel": "diagram"}
    collection.map(_interval, "interval", data=data, coords=above)
    collection.map(_frequency, "frequency", data=data, coords=above)
    collection.map(_counts, "count", data=data, coords={"panel": "histogram"})
    what = "predicted class" if of_class is None else f"class {of_class}"
    seen = "frequency of right predictions" if of_class is None else f"frequency of {what}"
    diagram.set(
        ylabel=f"{seen}\n({100 * prob:g} % Jeffreys intervals)",
        xlim=(-0.02, 1.02),
        ylim=(-0.02, 1.02),
        title=f"Reliability on {len(happened)} objects",
    )
    histogram.set(xlabel=f"probability of the {what}", ylabel="objects")
    histogram.yaxis.get_major_locator().set_params(integer=True)
    open_frame(diagram)
    open_frame(histogram)
    handles = [
        Line2D([], [], color=color, marker=marker, label=name)
        for name, color, marker in zip(
            names, cycle(PALETTE, len(names)), cycle(MARKERS, len(names)), strict=True
        )
        if name
    ]
    handles.append(
        Line2D([], [], color=GREY, linestyle="--", linewidth=1, label="perfectly calibrated")
    )
    diagram.legend(handles=handles, frameon=False, loc="upper left", fontsize="small")
    return collection


def _probability(entry: Any, owner: str) -> xr.DataArray:
    probability = entry["probability"] if isinstance(entry, Dataset) else entry
    if not isinstance(probability, xr.DataArray) or set(probability.dims) != {"obs", "class"}:
        raise argument_error(
            "predictions", owner, "class probabilities (obs, class)", type(entry).__name__
        )
    probability = probability.transpose("obs", "class")
    worst = float(np.abs(probability.sum("class") - 1).max())
    if not (worst < 1e-6 and float(probability.min()) >= 0):
        raise argument_error(
            "predictions",
            owner,
            "probabilities that sum to one for each object",
            f"a sum off by {worst:.3g}, a smallest entry of {float(probability.min()):.3g}",
        )
    return probability


def _events(
    probability: xr.DataArray, labels: Any, of_class: Hashable | None, owner: str
) -> tuple[np.ndarray, np.ndarray]:
    """Probability given to an event for each object, and whether it happened."""
    classes = probability["class"].values.tolist()
    labels = aligned(labels, ids_along(probability, "obs"), "labels", owner)
    codes, _ = check_labels(
        labels, "labels", owner, classes=classes, n_objects=probability.sizes["obs"]
    )
    p = probability.values
    if of_class is None:
        return p.max(1), p.argmax(1) == codes
    if of_class not in classes:
        raise argument_error("of_class", owner, f"among the classes {classes}", repr(of_class))
    code = classes.index(of_class)
    return p[:, code], codes == code


def _calibration(
    assigned: np.ndarray, happened: np.ndarray, bins: int, prob: float
) -> xr.DataArray:
    """Calibration by bin (summary, bin)."""
    edges = np.linspace(0, 1, bins + 1)
    bin_of = np.clip(np.digitize(assigned, edges) - 1, 0, bins - 1)
    n = np.bincount(bin_of, minlength=bins).astype(float)
    k = np.bincount(bin_of, weights=happened, minlength=bins)
    total = np.bincount(bin_of, weights=assigned, minlength=bins)
    with np.errstate(invalid="ignore"):
        mean, frequency = total / n, k / n
    tails = stats.beta.ppf([[(1 - prob) / 2], [(1 + prob) / 2]], k + 0.5, n - k + 0.5)
    lower = np.where(k == 0, 0.0, tails[0])
    upper = np.where(k == n, 1.0, tails[1])
    empty = n == 0
    lower[empty] = upper[empty] = np.nan
    return xr.DataArray(
        np.stack([mean, frequency, lower, upper, n]),
        dims=("summary", "bin"),
        coords={
            "summary": ["probability", "frequency", "lower", "upper", "count"],
            "bin": (edges[:-1] + edges[1:]) / 2,
        },
    )


def _interval(da: xr.DataArray, target: Axes, *, color: str, **_: Any) -> LineCollection:
    filled = da.dropna("bin")
    x, lower, upper = (filled.sel(summary=s).values for s in ("probability", "lower", "upper"))
    return target.vlines(
        x,
        lower,
        upper,
        color=color,
        linewidth=1,
        alpha=0.7,
    )


def _frequency(da: xr.DataArray, target: Axes, *, color: str, marker: str, **_: Any) -> Line2D:
    filled = da.dropna("bin")
    (line,) = target.plot(
        filled.sel(summary="probability"),
        filled.sel(summary="frequency"),
        color=color,
        marker=marker,
        markersize=5,
        linewidth=1.2,
    )
    return line


def _counts(da: xr.DataArray, target: Axes, *, color: str, **_: Any) -> StepPatch:
    edges = np.linspace(0, 1, da.sizes["bin"] + 1)
    return target.stairs(da.sel(summary="count").values, edges, color=color, linewidth=1.5)
