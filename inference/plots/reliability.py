"""Reliability of predicted probabilities on labelled objects."""

from collections.abc import Hashable, Mapping
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
from xarray import Dataset

from ...models.kernels.alignment import aligned, ids_along
from ...validation import (
    Count,
    Fraction,
    argument_error,
    check_arguments,
    check_labels,
    check_probabilities,
)
from .house_style import GREY, MARKERS, PALETTE, cycle, figure_options, open_frame

__all__ = ["plot_reliability"]

#: Number of columns of the legend.
LEGEND_COLUMNS = 3


def plot_reliability(
    predictions: xr.DataArray | Dataset | Mapping[str, xr.DataArray | Dataset],
    labels: Any,
    *,
    bins: Count = 10,
    min_count: Count = 10,
    of_class: Hashable | None = None,
    ci_prob: Fraction = 0.95,
    figure_kwargs: Mapping[str, Any] | None = None,
) -> PlotCollection:
    """Draw a reliability diagram: frequency of a class by predicted probability.

    Calibrated probabilities lie on the diagonal; below it, predictions are overconfident. Each
    point shows the frequency in a bin at the bin's mean probability, with a binomial interval. Bins
    with fewer than `min_count` objects are pooled with the next ones. The histogram below counts
    the objects before pooling.

    Parameters
    ----------
    predictions : DataArray (obs, class), Dataset, or dict of them by name
        Class probabilities, or outputs of `predict`; several engines are overlaid.
    labels : array_like (obs,)
        True classes, among those of the coordinate "class".
    bins : int, default=10
        Number of bins of equal width on [0, 1], each including its lower edge (the last one both).
    min_count : int, default=10
        Least number of objects of a point. Neighbouring bins are pooled from the left until they
        hold that many; the remainder on the right joins the last point. With 1, every non-empty bin
        has its own point.
    of_class : optional
        Class whose probability is compared with its frequency. Default: the probability of the
        predicted class (confidence) is compared with the frequency of correct predictions.
    ci_prob : float, default=0.95
        Probability of the intervals, equal-tailed for a proportion under Jeffreys' prior.
    figure_kwargs : mapping, optional
        Options of ``matplotlib.pyplot.subplots``, such as ``figsize`` (inches).

    Returns
    -------
    PlotCollection
        Its data are ``calibration`` (model, summary, bin): the pooled bins of each model from left
        to right with their mean probability, frequency, interval, count and edges, padded with NaN;
        and ``histogram`` (model, interval), the counts of the bins of equal width.

    Raises
    ------
    ValueError
        For invalid probabilities, labels that do not match in number or class, an unknown
        `of_class`, and `bins` or `min_count` below one.

    Notes
    -----
    Intervals: L. D. Brown, T. T. Cai and A. DasGupta (2001), Interval estimation for a binomial
    proportion, Statistical Science 16, section 3.1.3: Beta(k + 1/2, n - k + 1/2) quantiles, with
    the end at 0 for k = 0 and at 1 for k = n.

    Examples
    --------
    >>> predictions = kz.predict(model, vb, kernels(X_test, X_train))
    >>> kz.plots.plot_reliability(predictions, y_test)
    >>> kz.plots.plot_reliability({"VB": predictions, "Gibbs": others}, y_test, bins=5)
    """
    owner = "plot_reliability"
    check_arguments(plot_reliability, locals())
    named = dict(predictions) if type(predictions) is dict else {"": predictions}
    if not named:
        raise argument_error("predictions", owner, "at least one prediction", "none")
    edges = np.linspace(0, 1, bins + 1)
    tables, counts = [], []
    for entry in named.values():
        probability = _probability(entry, owner)
        assigned, happened = _events(probability, labels, of_class, owner)
        # Rounding may give a probability above 1, beyond the last edge.
        assigned = np.clip(assigned, 0.0, 1.0)
        counts.append(np.histogram(assigned, edges)[0])
        pooled = _pooled_edges(counts[-1], edges, min_count)
        tables.append(_calibration(assigned, happened, pooled, ci_prob))
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
        figure_kwargs=figure_options(
            figure_kwargs, figsize=(4.6, 5.6), sharex=True, height_ratios=[3, 1]
        ),
    )
    collection.data = data
    diagram, histogram = (
        collection.get_target(None, {"panel": panel}) for panel in ("diagram", "histogram")
    )
    above = {"panel": "diagram"}
    collection.map(_interval, "interval", data=data[["calibration"]], coords=above)
    frequencies = {"data": data[["calibration"]], "coords": above, "subset_info": True}
    collection.map(_frequency, "frequency", **frequencies)
    dashed = {"color": GREY, "linestyle": "--", "linewidth": 1, "zorder": 0}
    diagram.plot([0, 1], [0, 1], label="perfectly calibrated", **dashed)
    collection.map(_counts, "count", data=data[["histogram"]], coords={"panel": "histogram"})
    what = "the predicted class" if of_class is None else f"class {of_class}"
    seen = "frequency of correct predictions" if of_class is None else f"frequency of {what}"
    rule = (
        f"\nbins pooled to hold at least {min(min_count, len(happened))}"
        if any(np.any((n > 0) & (n < min_count)) for n in counts)
        else ""
    )
    diagram.set(
        ylabel=f"{seen}\n({100 * ci_prob:g} % Jeffreys intervals)",
        xlim=(-0.02, 1.02),
        ylim=(-0.02, 1.02),
        title=f"Reliability on {len(happened)} objects{rule}",
    )
    histogram.set(xlabel=f"probability of {what}", ylabel="objects")
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


def _probability(entry: Any, owner: str) -> xr.DataArray:
    probability = entry["probability"] if isinstance(entry, Dataset) else entry
    if not isinstance(probability, xr.DataArray) or set(probability.dims) != {"obs", "class"}:
        raise argument_error(
            "predictions", owner, "class probabilities (obs, class)", type(entry).__name__
        )
    probability = probability.transpose("obs", "class")
    objects = ids_along(probability, "obs")
    check_probabilities(probability.to_numpy(), objects, "predictions", owner)
    return probability


def _events(
    probability: xr.DataArray, labels: Any, of_class: Hashable | None, owner: str
) -> tuple[NDArray, NDArray]:
    """Predicted probability of the event for each object, and whether it happened."""
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


def _pooled_edges(counts: NDArray, edges: NDArray, min_count: int) -> NDArray:
    """Edges of the bins after pooling neighbours until each holds `min_count` objects."""
    kept, held = [edges[0]], 0
    for count, upper in zip(counts, edges[1:], strict=True):
        held += count
        if held >= min_count:
            kept.append(upper)
            held = 0
    # The remainder joins the last bin. If that is the only bin, it may hold fewer objects.
    if len(kept) == 1:
        kept.append(edges[-1])
    kept[-1] = edges[-1]
    return np.array(kept)


def _calibration(
    assigned: NDArray, happened: NDArray, edges: NDArray, ci_prob: float
) -> xr.DataArray:
    """Calibration by bin (summary, bin)."""
    n = np.histogram(assigned, edges)[0].astype(float)
    k = np.histogram(assigned, edges, weights=happened.astype(float))[0]
    total = np.histogram(assigned, edges, weights=assigned)[0]
    lower, upper = stats.beta.ppf([[(1 - ci_prob) / 2], [(1 + ci_prob) / 2]], k + 0.5, n - k + 0.5)
    summaries = {
        "probability": total / n,
        "frequency": k / n,
        "lower": np.where(k == 0, 0.0, lower),
        "upper": np.where(k == n, 1.0, upper),
        "count": n,
        "left edge": edges[:-1],
        "right edge": edges[1:],
    }
    return xr.DataArray(
        np.stack(list(summaries.values())),
        dims=("summary", "bin"),
        coords={"summary": list(summaries), "bin": np.arange(len(n))},
    )


def _interval(da: xr.DataArray, target: Axes, *, color: str, **_: Any) -> LineCollection:
    filled = da.dropna("bin")
    x, lower, upper = (filled.sel(summary=s).values for s in ("probability", "lower", "upper"))
    return target.vlines(x, lower, upper, color=color, linewidth=1, alpha=0.7)


def _frequency(
    da: xr.DataArray, target: Axes, *, color: str, marker: str, sel: dict, **_: Any
) -> Line2D:
    filled = da.dropna("bin")
    (line,) = target.plot(
        filled.sel(summary="probability"),
        filled.sel(summary="frequency"),
        color=color,
        marker=marker,
        markersize=5,
        linewidth=1.2,
        label=str(sel["model"]),
    )
    return line


def _counts(da: xr.DataArray, target: Axes, *, color: str, **_: Any) -> StepPatch:
    edges = np.linspace(0, 1, da.sizes["interval"] + 1)
    return target.stairs(da.values, edges, color=color, linewidth=1.5)
