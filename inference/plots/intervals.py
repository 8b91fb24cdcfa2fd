"""Forest plots of several engines, with an axis of its own for each variable.

`arviz_plots.plot_forest` has one axis for all variables, whose scales differ here.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from arviz import rcParams
from arviz_base.labels import MapLabeller
from arviz_plots import PlotCollection
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from numpy.typing import NDArray
from pandas.errors import InvalidIndexError
from xarray import Dataset, DataTree

from ...models.kernels.labels import check_distinct
from ...validation import argument_error, check_names
from ..diagnostics.variance import variance_explained
from ..engine.paper import identified
from .house_style import GREY, MARKERS, PALETTE, by_name, cycle, legend_labels, open_frame

__all__ = ["plot_engines", "plot_variance_explained"]

INTERVALS = {"eti": "equal-tailed", "hdi": "highest-density"}
#: Line widths of the inner and the outer interval.
WIDTHS = {"trunk": 4.0, "twig": 1.3}
#: Part of a row's height that the engines of an element share; the rest separates elements.
SPREAD = 0.7
#: Largest number of elements that `plot_engines` draws.
MOST = 20
#: Row of the sum over the kernels.
TOTAL = "all kernels"


def plot_engines(
    results: DataTree | Mapping[str, DataTree], *, var_names: Iterable[str] | None = None
) -> PlotCollection:
    """Plot intervals of several engines on one model.

    The quantities are those that the data identify (for the multinomial probit: weights, and
    contrasts of the regression functions between classes). Of more than 20 elements, those of
    evenly spaced objects are drawn; ``az.plot_forest`` draws any others of
    ``kernelzoo.inference.identified(result)``.

    Parameters
    ----------
    results : mapping of str to DataTree, or DataTree
        Results of `fit` by name.
    var_names : iterable of str, optional
        Quantities to draw. Default: all, those with the fewest elements (the weights) first.

    Returns
    -------
    PlotCollection
        Its data are the point estimates by variable.

    Raises
    ------
    ValueError
        For no result, results of different models or data, and unknown names.

    Examples
    --------
    >>> kz.plots.plot_engines({"VB": vb, "Gibbs": gibbs}, var_names=["beta"])
    """
    owner = "plot_engines"
    named = by_name(results, owner)
    models = {str(tree.attrs.get("family", tree.attrs.get("model"))) for tree in named.values()}
    if len(models) > 1:
        raise argument_error("results", owner, "results of one model", ", ".join(sorted(models)))
    quantities = {name: identified(tree) for name, tree in named.items()}
    first = next(iter(quantities.values()))
    variables = sorted(map(str, first.data_vars), key=lambda name: first[name].size)
    if var_names is not None:
        variables = check_names(var_names, variables, "var_names", owner)
    draws = {name: Dataset() for name in named}
    n_all = n_shown = 0
    for variable in variables:
        elements = in_rows(first[variable].isel(chain=0, draw=0, drop=True))
        (row,) = elements.dims
        check_distinct(elements.indexes[row], "results", owner, "of elements with distinct labels")
        shown = _evenly(first[variable].isel(chain=0, draw=0).shape, MOST - n_shown)
        n_all += elements.size
        n_shown += len(shown)
        for name, dataset in quantities.items() if len(shown) else ():
            try:
                values = in_rows(dataset[variable].transpose(*first[variable].dims))
                draws[name][variable] = values.sel({row: elements[row][shown].values})
            except (KeyError, ValueError, InvalidIndexError):
                rule, got = "of one model on the same data", f"one without the same {variable}"
                raise argument_error("results", owner, rule, got) from None
    title = "Engines compared" if len(draws) > 1 else "Marginals"
    if n_shown < n_all:
        title += f" on {n_shown} of {n_all} quantities"
    return plot_intervals(draws, labels=legend_labels(named), title=title, value="value")


def plot_variance_explained(results: DataTree | Mapping[str, DataTree]) -> PlotCollection:
    """Plot the part of the targets' variance that each kernel explains, a panel for each output.

    Parameters
    ----------
    results : mapping of str to DataTree, or DataTree
        Results of `fit` on a `CompositeKernelRegression` by name.

    Returns
    -------
    PlotCollection
        Its data are the point estimates (model, kernel and sum), one variable per output.

    Raises
    ------
    ValueError
        For results that `kz.scores.variance_explained` refuses, and results with different kernels
        or outputs.

    Examples
    --------
    >>> model = kz.CompositeKernelRegression(kernels(X_train), response)
    >>> kz.plots.plot_variance_explained(kz.fit(model, "gibbs", random_seed=1))
    """
    owner = "plot_variance_explained"
    named = by_name(results, owner)
    draws = {name: _by_output(variance_explained(tree)) for name, tree in named.items()}
    rows = {
        str({output: each.indexes[values.dims[-1]].tolist() for output, values in each.items()})
        for each in draws.values()
    }
    if len(rows) > 1:
        raise argument_error("results", owner, "of the same kernels and outputs", f"{sorted(rows)}")
    collection = plot_intervals(
        draws,
        labels=legend_labels(named),
        title="Variance explained by the kernels",
        value="part of the variance",
        sharex=True,
    )
    for row in range(len(next(iter(draws.values())).data_vars)):
        collection.iget_target(row, 0).axvline(0, color=GREY, linestyle=":", zorder=0)
    return collection


def _by_output(explained: Dataset) -> Dataset:
    """Draws (chain, draw, kernel and sum), one variable per output."""
    total = explained["total"].expand_dims(kernel=[TOTAL])
    rows = xr.concat([explained["explained"], total], "kernel").transpose(..., "kernel")
    if "output" not in rows.dims:
        return Dataset({"targets": rows})
    # The name of the dim is the title of the panel.
    return Dataset(
        {
            str(output): rows.sel(output=output, drop=True).rename(kernel=f"{output}, by kernel")
            for output in rows["output"].values
        }
    )


def _evenly(shape: Sequence[int], most: int) -> NDArray:
    """Places of at most `most` elements: all of them, or those of evenly spaced objects."""
    size = int(np.prod(shape))
    if size <= most:
        return np.arange(size)
    # Whole objects, so that an object's classes can be compared.
    each = size // shape[0] if size // shape[0] <= most else 1
    objects = np.unique(np.linspace(0, size // each - 1, most // each).astype(int))
    return (objects[:, None] * each + np.arange(each)).ravel()


def in_rows(values: xr.DataArray, beside: Sequence[Hashable] = ("chain", "draw")) -> xr.DataArray:
    """Values whose last dim holds all elements, with their labels, for each label of `beside`."""
    dims = [dim for dim in values.dims if dim not in beside]
    labels = [", ".join(map(str, each)) for each in product(*(values[d].values for d in dims))]
    row = f"{values.name} ({', '.join(map(str, dims))})" if dims else f"{values.name} "
    flat = values.stack({row: dims}, create_index=False) if dims else values.expand_dims(row, -1)
    return flat.reset_coords(drop=True).assign_coords({row: labels})


def plot_intervals(
    draws: Mapping[str, Dataset],
    *,
    labels: Mapping[str, str],
    title: str,
    value: str,
    sharex: bool = False,
) -> PlotCollection:
    """Draw the intervals and point estimates that ArviZ's ``rcParams`` name.

    Each variable of an engine has the dims "chain", "draw" and one other, whose labels name the
    rows.
    """
    kind, estimate = rcParams["stats.ci_kind"], rcParams["stats.point_estimate"]
    wide = float(rcParams["stats.ci_prob"])
    probs = {"trunk": 0.5 if wide > 0.5 else wide / 2, "twig": wide}
    # By engine: an array of the draws of all engines is padded with NaN if their numbers differ.
    points = by_engine({name: getattr(d.azstats, estimate)() for name, d in draws.items()})
    ends = {
        label: by_engine({name: getattr(d.azstats, kind)(prob=p) for name, d in draws.items()})
        for label, p in probs.items()
    }
    inner, outer = (f"{100 * p:g} %" for p in probs.values())
    value += f" ({estimate}, {inner} and {outer} {INTERVALS[kind]} intervals)"
    return plot_rows(points, ends, labels=labels, title=title, value=value, sharex=sharex)


def by_engine(summaries: Mapping[str, Dataset]) -> Dataset:
    """Join the summaries of all engines along a dim "model"."""
    names = pd.Index(list(summaries), name="model")
    return xr.concat(list(summaries.values()), dim=names, join="outer")


def plot_rows(
    data: Dataset,
    ends: Mapping[str, Dataset],
    *,
    labels: Mapping[str, str],
    title: str,
    value: str,
    sharex: bool = False,
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
        figure_kwargs={
            "layout": "constrained",
            "figsize": (6.4, height),
            "height_ratios": [n + 0.6 for n in rows],
            "sharex": sharex,
        },
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
            labeller=MapLabeller(coord_map={"model": {name: labels[name] for name in names}}),
            frameon=False,
        )
    else:
        (label,) = labels.values()
        title = f"{title}, {' '.join(label.splitlines())}"
    collection.add_title(title, size="large", color="black")
    return collection


def _intervals(
    da: xr.DataArray, target: Axes, *, color: str, shift: float, width: float, **_: Any
) -> LineCollection:
    da = da.transpose(..., "ci_bound")
    lower, upper = da.sel(ci_bound="lower").values, da.sel(ci_bound="upper").values
    heights = np.arange(len(lower)) + shift
    return target.hlines(heights, lower, upper, color=color, linewidth=width)


def _points(
    da: xr.DataArray, target: Axes, *, color: str, marker: str, shift: float, **_: Any
) -> PathCollection:
    return target.scatter(
        da.values,
        np.arange(da.size) + shift,
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
