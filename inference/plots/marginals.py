"""Marginal distributions of several engines on common axes."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from arviz_plots import PlotCollection
from numpy.typing import NDArray
from xarray import Dataset, DataTree

from ...models.kernels.alignment import check_distinct
from ...validation import argument_error, check_name, check_names
from ..engine.paper import identified
from .house_style import by_name, legend_labels
from .intervals import Summaries, plot_intervals

__all__ = ["plot_engines"]


def plot_engines(
    results: DataTree | Mapping[str, DataTree],
    *,
    var_names: Iterable[str] | None = None,
    coords: Mapping[str, Any] | None = None,
    max_elements: int | None = 20,
    ci_kind: str | None = None,
    ci_probs: tuple[float, float] | None = None,
    point_estimate: str | None = None,
    figure_kwargs: Mapping[str, Any] | None = None,
) -> PlotCollection:
    """Plot intervals of several engines on one model.

    The quantities are those that the data identify (for the multinomial probit: weights, and
    contrasts of the regression functions between classes).

    Parameters
    ----------
    results : mapping of str to DataTree, or DataTree
        Results of `fit` by name.
    var_names : iterable of str, optional
        Quantities to draw. Default: all, those with the fewest elements (the weights) first.
    coords : mapping, optional
        Labels to keep, by dim, as in ArviZ: ``{"obs": [3, 7], "class": "setosa"}``.
    max_elements : int or None, default=20
        Largest number of elements; of a larger quantity, those of evenly spaced objects are drawn.
        None draws all.
    ci_kind : {"eti", "hdi"}, optional
        Equal-tailed or highest-density intervals. Default: ``az.rcParams["stats.ci_kind"]``.
    ci_probs : (float, float), optional
        Probabilities of the thick and the thin interval. Default: 0.5 and
        ``az.rcParams["stats.ci_prob"]``.
    point_estimate : {"mean", "median"}, optional
        Point estimate. Default: ``az.rcParams["stats.point_estimate"]``.
    figure_kwargs : mapping, optional
        Options of ``matplotlib.pyplot.subplots``, such as ``figsize`` (inches).

    Returns
    -------
    PlotCollection
        Its data are the point estimates by variable.

    Raises
    ------
    ValueError
        For no result, results of different models or data, unknown names or labels, probabilities
        outside (0, 1).

    Examples
    --------
    >>> kz.plots.plot_engines({"VB": vb, "Gibbs": gibbs}, var_names=["beta"])
    """
    owner = "plot_engines"
    summaries = Summaries(ci_kind, ci_probs, point_estimate, owner)
    named = by_name(results, owner)
    models = {str(tree.attrs.get("family", tree.attrs.get("model"))) for tree in named.values()}
    if len(models) > 1:
        raise argument_error("results", owner, "results of one model", ", ".join(sorted(models)))
    quantities = {name: identified(tree) for name, tree in named.items()}
    first = next(iter(quantities.values()))
    variables = _variables(first, var_names, owner)
    elements = _chosen(first, variables, coords or {}, max_elements, owner)
    if not elements:
        raise argument_error("coords", owner, "labels of at least one element", repr(coords))
    draws = {name: _elements(dataset, elements, owner) for name, dataset in quantities.items()}
    n_all = sum(first[v].isel(chain=0, draw=0).size for v in variables)
    n_shown = sum(len(index) for _, index in elements)
    title = "Engines compared" if len(draws) > 1 else "Marginals"
    if n_shown < n_all:
        title += f" on {n_shown} of {n_all} quantities"
    return plot_intervals(
        draws,
        summaries,
        labels=legend_labels(named),
        title=title,
        value="value",
        figure_kwargs=figure_kwargs,
    )


def _variables(dataset: Dataset, var_names: Iterable[str] | None, owner: str) -> list[str]:
    known = sorted(map(str, dataset.data_vars), key=lambda name: dataset[name].size)
    if var_names is None:
        return known
    return check_names(var_names, known, "var_names", owner)


def _chosen(
    dataset: Dataset,
    variables: list[str],
    coords: Mapping[str, Any],
    max_elements: int | None,
    owner: str,
) -> list[tuple[str, list[tuple]]]:
    """Labels of the elements to draw, by variable, for evenly spaced objects."""
    dims = {str(d) for v in variables for d in dataset[v].dims} - {"chain", "draw"}
    for dim in coords:
        check_name(dim, sorted(dims), "coords", owner)
    left = np.inf if max_elements is None else max_elements
    chosen = []
    for name in variables:
        values = dataset[name]
        kept = {dim: np.atleast_1d(coords[dim]) for dim in coords if dim in values.dims}
        try:
            labels = values.isel(chain=0, draw=0, drop=True).sel(kept)
        except KeyError as error:
            raise argument_error("coords", owner, "known labels", str(error)) from None
        for dim_labels in labels.indexes.values():
            check_distinct(dim_labels, "results", owner, "of elements with distinct labels")
        index = list(pd.MultiIndex.from_product(labels.indexes.values())) if labels.ndim else [()]
        row = labels.size // labels.shape[0] if labels.ndim else 1
        if len(index) > left:
            # Keep whole rows, so that an object's classes can be compared.
            step = row if row <= left else 1
            rows = np.unique(np.linspace(0, len(index) // step - 1, int(left // step)).astype(int))
            index = [index[r * step + i] for r in rows for i in range(step)]
        if index:
            left -= len(index)
            chosen.append((name, index))
    return chosen


def _elements(dataset: Dataset, elements: list[tuple[str, list[tuple]]], owner: str) -> Dataset:
    """Draws of the chosen elements, each variable (sample, dim with the elements' labels)."""
    chosen = {}
    for name, index in elements:
        try:
            values = dataset[name]
            dims = [str(d) for d in values.dims if d not in ("chain", "draw")]
            columns = [values.sel(dict(zip(dims, labels, strict=True))) for labels in index]
        except (KeyError, ValueError):
            raise argument_error(
                "results",
                owner,
                "of one model on the same data",
                f"one result without {name} {index[0]} (and {len(index) - 1} more)",
            ) from None
        draws = np.stack([c.transpose("chain", "draw").values.reshape(-1) for c in columns], 1)
        dim = f"{name} ({', '.join(dims)})" if dims else f"{name} "
        chosen[name] = named_draws(draws, dim, [", ".join(map(str, labels)) for labels in index])
    return Dataset(chosen)


def named_draws(values: NDArray, dim: str, labels: list[str]) -> xr.DataArray:
    """Draws (sample, dim) with labels for the columns."""
    # Numbered samples allow an outer join with engines that have more draws.
    coords = {"sample": np.arange(len(values)), dim: labels}
    return xr.DataArray(values, dims=("sample", dim), coords=coords)
