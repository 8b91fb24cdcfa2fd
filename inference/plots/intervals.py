"""Forest plot: intervals of several engines, one panel per variable.

`arviz_plots.plot_forest` has one axis for all variables, whose scales differ here.
"""

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
    """Validated choice of intervals and point estimate; None stands for ArviZ's ``rcParams``."""

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
        """Point estimate (...) of draws (sample, ...)."""
        estimate: Dataset = getattr(draws, self.estimate)("sample")
        return estimate

    @property
    def text(self) -> str:
        """Describe the point estimate and the intervals."""
        inner, outer = (f"{100 * p:g} %" for p in self.probs)
        return f"{self.estimate}, {inner} and {outer} {INTERVALS[self.kind]} intervals"


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
    """Draw the intervals of draws by engine with `plot_rows`.

    Each variable has the dims "sample" and one other, whose labels name the rows.
    """
    names = list(draws)
    ends = {
        label: side_by_side((summaries.interval(d, prob) for d in draws.values()), names)
        for label, prob in zip(WIDTHS, summaries.probs, strict=True)
    }
    return plot_rows(
        side_by_side(map(summaries.point, draws.values()), names),
        ends,
        labels=labels,
        title=title,
        value=f"{value} ({summaries.text})",
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
    """Draw points and intervals, one row per element, with separate axes for each variable.

    Points are (model, element) by variable; `ends` have the dim "ci_bound", too, and are by the
    names of intervals in `WIDTHS`. `labels` are those of the legend, `value` of the axes.
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
    if len(labels) > 1:
        collection.add_legend(
            "model",
            aes=["color", "marker"],
            title="",
            labeller=_EngineLabeller(labels),
            frameon=False,
        )
    else:
        (label,) = labels.values()
        title = f"{title}, {' '.join(label.splitlines())}"
    collection.add_title(title, size="large", color="black")
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


class _EngineLabeller(BaseLabeller):
    """Labeller that names engines in a legend by their labels."""

    def __init__(self, labels: Mapping[str, str]):
        self.labels = labels

    def sel_to_str(self, sel: Mapping[str, Any], isel: Mapping[str, Any]) -> str:
        """Label of the selected engine."""
        return self.labels[str(sel["model"])]
