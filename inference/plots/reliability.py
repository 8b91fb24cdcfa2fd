"""Reliability of predicted probabilities on labelled objects."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from arviz_plots import PlotCollection
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from matplotlib.patches import StepPatch
from numpy.typing import NDArray
from scipy import stats
from xarray import DataArray, Dataset

from ...models.kernels.labels import aligned, ids_along
from ...validation import (
    Count,
    argument_error,
    check_arguments,
    check_labels,
    check_probabilities,
)
from .house_style import GREY, MARKERS, PALETTE, cycle, open_frame

__all__ = ["plot_reliability"]

OWNER = "plot_reliability"
#: Least number of objects of a point.
LEAST = 10
#: Tails of the intervals.
TAILS = (0.025, 0.975)
#: Number of columns of the legend.
LEGEND_COLUMNS = 3


def plot_reliability(
    predictions: DataArray | Dataset | Mapping[str, DataArray | Dataset],
    labels: Any,
    *,
    bins: Count = 10,
) -> PlotCollection:
    """Draw a reliability diagram: frequency of correct predictions by predicted probability.

    Calibrated probabilities lie on the diagonal; below it, predictions are overconfident. Each
    point shows the frequency in a bin at the bin's mean probability of the predicted class, with a
    binomial interval. Bins with fewer than ten objects are pooled with the next ones, and the
    remainder on the right joins the last point. The histogram below counts the objects before
    pooling. For the probability of one class,
    ``sklearn.calibration.CalibrationDisplay.from_predictions`` draws
    ``(labels == c, predictions["probability"].sel({"class": c}))``.

    Parameters
    ----------
    predictions : DataArray (obs, class), Dataset, or dict of them by name
        Class probabilities, or outputs of `predict`; several engines are overlaid.
    labels : array_like (obs,)
        True classes, among those of the coordinate "class".
    bins : int, default=10
        Number of bins of equal width on [0, 1], each including its lower edge (the last one both).

    Returns
    -------
    PlotCollection
        Its data are ``calibration`` (model, summary, bin): the pooled bins of each model from left
        to right with their mean probability, frequency, interval, count and edges, padded with NaN;
        and ``histogram`` (model, interval), the counts of the bins of equal width.

    Raises
    ------
    ValueError
        For invalid probabilities, labels that do not match in number or class, and `bins` below
        one.

    Notes
    -----
    Intervals: 95 %, equal-tailed for a proportion under Jeffreys' prior. L. D. Brown, T. T. Cai and
    A. DasGupta (2001), Interval estimation for a binomial proportion, Statistical Science 16,
    section 3.1.3: Beta(k + 1/2, n - k + 1/2) quantiles, with the end at 0 for k = 0 and at 1 for
    k = n.

    Examples
    --------
    >>> predictions = kz.predict(model, vb, kernels(X_test, X_train))
    >>> kz.plots.plot_reliability(predictions, y_test)
    >>> kz.plots.plot_reliability({"VB": predictions, "Gibbs": others}, y_test, bins=5)
    """
    check_arguments(plot_reliability, locals())
    named = dict(predictions) if type(predictions) is dict else {"": predictions}
    if not named:
        raise argument_error("predictions", OWNER, "at least one prediction", "none")
    edges = np.linspace(0, 1, bins + 1)
    tables, counts = [], []
    for entry in named.values():
        confidence, correct = _events(entry, labels)
        counts.append(np.histogram(confidence, edges)[0])
        tables.append(_calibration(confidence, correct, _pooled_edges(counts[-1], edges)))
    names = list(named)
    data = Dataset(
        {
            "calibration": xr.concat(tables, dim="model", join="outer"),
            "histogram": (("model", "interval"), counts),
        },
        coords={"model": names, "interval": (edges[:-1] + edges[1:]) / 2},
    )

    collection = PlotCollection.grid(
        data.expand_dims(panel=["diagram", "histogram"]),
        rows=["panel"],
        backend="matplotlib",
        aes={"color": ["model"], "marker": ["model"]},
        color=cycle(PALETTE, len(names)),
        marker=cycle(MARKERS, len(names)),
        figure_kwargs={
            "layout": "constrained",
            "figsize": (4.6, 5.6),
            "sharex": True,
            "height_ratios": [3, 1],
        },
    )
    collection.data = data
    above, below = {"panel": "diagram"}, {"panel": "histogram"}
    points = data[["calibration"]]
    collection.map(_interval, "interval", data=points, coords=above)
    collection.map(_frequency, "frequency", data=points, coords=above, subset_info=True)
    collection.map(_counts, "count", data=data[["histogram"]], coords=below)
    diagram, histogram = (collection.get_target(None, panel) for panel in (above, below))
    dashed = {"color": GREY, "linestyle": "--", "linewidth": 1, "zorder": 0}
    diagram.plot([0, 1], [0, 1], label="perfectly calibrated", **dashed)
    pooled = any(np.any((n > 0) & (n < LEAST)) for n in counts)
    rule = f"\nbins pooled to hold at least {min(LEAST, len(correct))}" if pooled else ""
    diagram.set(
        ylabel="frequency of correct predictions\n(95 % Jeffreys intervals)",
        xlim=(-0.02, 1.02),
        ylim=(-0.02, 1.02),
        title=f"Reliability on {len(correct)} objects{rule}",
    )
    histogram.set(xlabel="probability of the predicted class", ylabel="objects")
    histogram.yaxis.get_major_locator().set_params(integer=True)
    open_frame(diagram)
    open_frame(histogram)
    # Outside the axes, where the legend cannot hide a curve.
    collection.viz["figure"].item().legend(
        frameon=False,
        loc="outside lower center",
        ncols=min(len(names) + 1, LEGEND_COLUMNS),
        fontsize="small",
    )
    return collection


def _events(entry: Any, labels: Any) -> tuple[NDArray, NDArray]:
    """Probability of the predicted class of each object, and whether it is the true one."""
    probability = entry["probability"] if isinstance(entry, Dataset) else entry
    if not isinstance(probability, DataArray) or set(probability.dims) != {"obs", "class"}:
        got = type(entry).__name__
        raise argument_error("predictions", OWNER, "class probabilities (obs, class)", got)
    objects = ids_along(probability, "obs")
    p = probability.transpose("obs", "class").to_numpy()
    check_probabilities(p, objects, "predictions", OWNER)
    labels = aligned(labels, objects, "labels", OWNER)
    classes = probability["class"].values.tolist()
    codes, _ = check_labels(labels, "labels", OWNER, classes=classes, n_objects=len(p))
    # Rounding may give a probability above 1, beyond the last edge.
    return p.max(1).clip(0.0, 1.0), p.argmax(1) == codes


def _pooled_edges(counts: NDArray, edges: NDArray) -> NDArray:
    """Edges of the bins after pooling neighbours until each holds `LEAST` objects."""
    kept, held = [edges[0]], 0
    for count, upper in zip(counts, edges[1:], strict=True):
        held += count
        if held >= LEAST:
            kept.append(upper)
            held = 0
    # The remainder joins the last bin. If that is the only bin, it may hold fewer objects.
    if len(kept) == 1:
        kept.append(edges[-1])
    kept[-1] = edges[-1]
    return np.array(kept)


def _calibration(confidence: NDArray, correct: NDArray, edges: NDArray) -> DataArray:
    """Calibration by bin (summary, bin)."""
    n = np.histogram(confidence, edges)[0].astype(float)
    k = np.histogram(confidence, edges, weights=correct.astype(float))[0]
    total = np.histogram(confidence, edges, weights=confidence)[0]
    lower, upper = (stats.beta.ppf(tail, k + 0.5, n - k + 0.5) for tail in TAILS)
    summaries = {
        "probability": total / n,
        "frequency": k / n,
        "lower": np.where(k == 0, 0.0, lower),
        "upper": np.where(k == n, 1.0, upper),
        "count": n,
        "left edge": edges[:-1],
        "right edge": edges[1:],
    }
    coords = {"summary": list(summaries), "bin": np.arange(len(n))}
    return DataArray(list(summaries.values()), coords, ("summary", "bin"))


def _interval(da: DataArray, target: Axes, *, color: str, **_: Any) -> LineCollection:
    x, lower, upper = da.dropna("bin").sel(summary=["probability", "lower", "upper"]).values
    return target.vlines(x, lower, upper, color=color, linewidth=1, alpha=0.7)


def _frequency(
    da: DataArray, target: Axes, *, color: str, marker: str, sel: dict, **_: Any
) -> Line2D:
    x, y = da.dropna("bin").sel(summary=["probability", "frequency"]).values
    name = str(sel["model"])
    (line,) = target.plot(x, y, color=color, marker=marker, markersize=5, linewidth=1.2, label=name)
    return line


def _counts(da: DataArray, target: Axes, *, color: str, **_: Any) -> StepPatch:
    edges = np.linspace(0, 1, da.sizes["interval"] + 1)
    return target.stairs(da.values, edges, color=color, linewidth=1.5)
