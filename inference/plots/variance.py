"""Plot of the variance that each kernel explains."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from arviz_plots import PlotCollection
from xarray import DataArray, Dataset, DataTree

from ...validation import argument_error
from ..engine.paper import variance_explained
from .house_style import GREY, by_name, figure_options, legend_labels
from .intervals import Summaries, plot_intervals
from .marginals import named_draws

__all__ = ["plot_variance_explained"]

#: Row of the sum over the kernels.
TOTAL = "all kernels"


def plot_variance_explained(
    results: DataTree | Mapping[str, DataTree],
    *,
    ci_kind: str | None = None,
    ci_probs: tuple[float, float] | None = None,
    point_estimate: str | None = None,
    figure_kwargs: Mapping[str, Any] | None = None,
) -> PlotCollection:
    """Plot the part of the targets' variance that each kernel explains, a panel for each output.

    The legend warns of approximations whose Pareto k-hat is above 0.7.

    Parameters
    ----------
    results : mapping of str to DataTree, or DataTree
        Results of `fit` on a `CompositeKernelRegression` by name.
    ci_kind, ci_probs, point_estimate, figure_kwargs : optional
        As in `plot_engines`.

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
    summaries = Summaries(ci_kind, ci_probs, point_estimate, owner)
    named = by_name(results, owner)
    draws = {name: _by_output(variance_explained(tree)) for name, tree in named.items()}
    rows = {
        str({output: each[output].coords[each[output].dims[1]].values for output in each.data_vars})
        for each in draws.values()
    }
    if len(rows) > 1:
        raise argument_error("results", owner, "of the same kernels and outputs", f"{sorted(rows)}")
    collection = plot_intervals(
        draws,
        summaries,
        labels=legend_labels(named),
        title="Variance explained by the kernels",
        value="part of the variance",
        figure_kwargs=figure_options(figure_kwargs, sharex=True),
    )
    for row in range(len(next(iter(draws.values())).data_vars)):
        collection.iget_target(row, 0).axvline(0, color=GREY, linestyle=":", zorder=0)
    return collection


def _by_output(explained: Dataset) -> Dataset:
    """Draws (sample, kernel and sum), one variable per output."""
    joined = explained.stack(sample=("chain", "draw")).transpose(..., "sample", "kernel")
    labels = [*map(str, explained["kernel"].values), TOTAL]

    def rows(of_output: Dataset, dim: str) -> DataArray:
        values = np.column_stack([of_output["explained"], of_output["total"]])
        return named_draws(values, dim, labels)

    if "output" not in joined.dims:
        return Dataset({"targets": rows(joined, "kernel")})
    # The name of the dim is the title of the panel.
    return Dataset(
        {
            str(output): rows(joined.isel(output=o), f"{output}, by kernel")
            for o, output in enumerate(joined["output"].values)
        }
    )
