"""Forest plot: intervals of several engines, one panel a variable."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from arviz import rcParams
from arviz_base.labels import BaseLabeller
from arviz_plots import PlotCollection
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from xarray import Dataset

from ...validation import argument_error, check_name
from .house_style import MARKERS, PALETTE, cycle, figure_options, open_frame

INTERVALS = {"eti": "equal-tailed", "hdi": "highest-density"}
#: Line widths of the inner and the outer interval.
WIDTHS = {"trunk": 4.0, "twig": 1.3}
#: Part of a row's height that the engines of an element share; the rest separates elements.
SPREAD = 0.7


class Summaries:
    """Validated choice of intervals and point estimate.

    Parameters
    ----------
    ci_kind : {"eti", "hdi"} or None
    ci_probs : (float, float) or None
    point_estimate : {"mean", "median"} or None
        Each None stands for ArviZ's ``rcParams``.
    owner : str
        Name of the calling function, for messages.
    """

    def __init__(
        self,
        ci_kind: str | None,
        ci_probs: tuple[float, float] | None,
        point_estimate: str | None,
        owner: str,
    ):
        self.kind = check_name(ci_kind or rcParams["stats.ci_kind"], INTERVALS, "ci_kind", owner)
        self.estimate = check_name(
            point_estimate or rcParams["stats.point_estimate"],
            ("mean", "median"),
            "point_estimate",
            owner,
        )
        if ci_probs is None:
            wide = float(rcParams["stats.ci_prob"])
            ci_probs = (0.5 if wide > 0.5 else wide / 2, wide)
        if len(ci_probs) != 2 or not 0 < ci_probs[0] < ci_probs[1] < 1:
            raise argument_error(
                "ci_probs",
                owner,
                "two probabilities between 0 and 1, the smaller first",
                f"{ci_probs}",
            )
        self.probs = ci_probs

    def interval(self, draws: Dataset, prob: float) -> Dataset:
        """Compute the ends (..., ci_bound) of the interval of draws (sample, ...)."""
        ends: Dataset = getattr(draws.azstats, self.kind)(prob=prob, dim="sample")
        return ends

    def point(self, draws: Dataset) -> Dataset:
        """Compute the point estimate (...) of draws (sample, ...)."""
        estimate: Dataset = getattr(draws, self.estimate)("sample")
        return estimate

    def text(self, probs: Iterable[float]) -> str:
        """Describe the point estimate and the intervals."""
        listed = [f"{100 * p:g} %" for p in probs]
        noun = "intervals" if len(listed) > 1 else "interval"
        return f"{self.estimate}, {' and '.join(listed)} {INTERVALS[self.kind]} {noun}"


def side_by_side(summaries: Iterable[Dataset], names: list[str]) -> Dataset:
    """Join the summaries of all engines along a dim "model".

    Summaries are computed by engine, because an array of the draws of all engines is padded with
    NaN if their numbers differ.
    """
    return xr.concat(list(summaries), dim=pd.Index(names, name="model"), join="outer")


def plot_intervals(
    draws: Mapping[str, Dataset],
    summaries: Summaries,
    *,
    labels: Mapping[str, str],
    title: str,
    value: str,
    figure_kwargs: Mapping[str, Any] | None,
) -> PlotCollection:
    """Draw a forest plot with separate axes for each variable, since their scales differ.

    Parameters
    ----------
    draws : mapping of str to Dataset
        Draws by engine; each variable has the dims "sample" and one other, whose labels name the
        rows.
    labels : mapping of str to str
        Legend label of each engine.
    title, value : str
        Title of the figure, and label of its horizontal axes.
    """
    names = list(draws)
    ends = {
        label: side_by_side((summaries.interval(d, prob) for d in draws.values()), names)
        for label, prob in zip(WIDTHS, summaries.probs, strict=True)
    }
    return plot_rows(
        side_by_side((summaries.point(d) for d in draws.values()), names),
        ends,
        labels=labels,
        title=title,
        value=f"{value} ({summaries.text(summaries.probs)})",
        figure_kwargs=figure_kwargs,
    )


def plot_rows(
    data: Dataset,
    ends: Mapping[str, Dataset],
    *,
    labels: Mapping[str, str],
    title: str,
    value: str,
    figure_kwargs: Mapping[str, Any] | None,
) -> PlotCollection:
    """Draw points and intervals, one row an element, with separate axes for each variable.

    Parameters
    ----------
    data : Dataset
        Points (model, element) by variable.
    ends : mapping of str to Dataset
        Ends (model, element, ci_bound) by name of the interval, one of `WIDTHS`.
    labels, title, value : optional
        As in `plot_intervals`.
    """
    names = list(labels)
    rows = [data[v].size // len(names) for v in data.data_vars]
    height = 1.0 + 0.35 * len(rows) + sum(rows) * (0.14 + 0.08 * len(names))
    collection = PlotCollection.grid(
        data,
        rows=["__variable__"],
        backend="matplotlib",
        aes={"color": ["model"], "marker": ["model"], "shift": ["model"]},
        color=cycle(PALETTE, len(names)),
        marker=cycle(MARKERS, len(names)),
        shift=list(SPREAD * (np.arange(len(names)) - (len(names) - 1) / 2) / len(names)),
        figure_kwargs=figure_options(
            figure_kwargs, figsize=(6.4, height), height_ratios=[n + 0.6 for n in rows]
        ),
    )
    for label, bounds in ends.items():
        collection.map(_intervals, label, data=bounds, width=WIDTHS[label])
    collection.map(_points, "point_estimate", data=data)
    collection.map(_rows, "rows", data=data, ignore_aes="all", store_artist=False)
    last = collection.iget_target(len(rows) - 1, 0)
    # Wrapped where the figure is narrow, as a column of a journal is.
    last.set_xlabel(value, wrap=True)
    name_engines(collection, labels, title)
    return collection


def _heights(da: xr.DataArray, shift: float) -> np.ndarray:
    """Vertical positions from the top, shifted by engine."""
    return np.arange(da.shape[0]) + shift


def _intervals(
    da: xr.DataArray, target: Axes, *, color: str, shift: float, width: float, **_: Any
) -> LineCollection:
    da = da.transpose(..., "ci_bound")
    lower, upper = da.sel(ci_bound="lower").values, da.sel(ci_bound="upper").values
    return target.hlines(_heights(da, shift), lower, upper, color=color, linewidth=width)


def _points(
    da: xr.DataArray, target: Axes, *, color: str, marker: str, shift: float, **_: Any
) -> PathCollection:
    return target.scatter(
        da.values,
        _heights(da, shift),
        s=26,
        facecolor="white",
        edgecolor=color,
        linewidth=1.3,
        marker=marker,
        zorder=3,
    )


def _rows(da: xr.DataArray, target: Axes, **_: Any) -> None:
    (dim,) = (d for d in da.dims if d != "model")
    target.set_title(str(dim), loc="left", fontsize="small", color="0.35")
    target.set_yticks(np.arange(da.sizes[dim]), [str(label) for label in da[dim].values])
    target.set_ylim(da.sizes[dim] - 0.5, -0.5)
    target.tick_params(axis="y", length=0)
    open_frame(target)
    target.spines["left"].set_visible(False)
    target.grid(axis="x", color="0.92", linewidth=0.8)
    target.set_axisbelow(True)


class EngineLabeller(BaseLabeller):
    """Labeller that names engines in a legend by given labels.

    Parameters
    ----------
    labels : mapping of str to str
        Labels by engine; see `legend_labels`.
    """

    def __init__(self, labels: Mapping[str, str]):
        self.labels = labels

    def sel_to_str(self, sel: Mapping[str, Any], isel: Mapping[str, Any]) -> str:
        """Label of the selected engine."""
        return self.labels[str(sel["model"])]


def name_engines(collection: PlotCollection, labels: Mapping[str, str], title: str) -> None:
    """Name one engine in the title, or several engines in a legend, by their labels."""
    if len(labels) > 1:
        collection.add_legend(
            "model",
            aes=["color", "marker"],
            title="",
            labeller=EngineLabeller(labels),
            frameon=False,
        )
    else:
        (label,) = labels.values()
        title = f"{title}, {' '.join(label.splitlines())}"
    collection.add_title(title, size="large", color="black")
