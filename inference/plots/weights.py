"""Plots of kernel weights: intervals, draws on the simplex, or inclusion probabilities."""

from collections.abc import Mapping
from typing import Any

import arviz as az
import numpy as np
import pandas as pd
import xarray as xr
from arviz_plots import PlotCollection
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from numpy.typing import NDArray
from xarray import DataTree

from ...validation import argument_error, check_name
from ..diagnostics.inclusion import inclusion
from ..engine.completed_kernels import COMPLETION
from .house_style import GREY, MARKERS, PALETTE, by_name, cycle, figure_options, legend_labels
from .intervals import Summaries, plot_intervals, plot_rows, side_by_side
from .marginals import named_draws

__all__ = ["plot_weights"]

#: Corners of the triangle, one per kernel: left, right, top.
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])
#: R-hat of weights above which chains are marked.
APART = 1.05
#: Number of evenly spaced draws that are plotted for an engine.
DRAWN = 1_000


def plot_weights(
    results: DataTree | Mapping[str, DataTree],
    *,
    kind: str | None = None,
    threshold: float | None = None,
    var_name: str = "beta",
    ci_kind: str | None = None,
    ci_probs: tuple[float, float] | None = None,
    point_estimate: str | None = None,
    figure_kwargs: Mapping[str, Any] | None = None,
) -> PlotCollection:
    """Plot the kernel weights of several engines.

    The legend warns of approximations whose Pareto k-hat is above 0.7, and of chains whose R-hat of
    the weights is above 1.05.

    Parameters
    ----------
    results : mapping of str to DataTree, or DataTree
        Results of `fit` by name.
    kind : {"forest", "simplex", "inclusion"}, optional
        Intervals, with a dotted line at equal weights if weights sum to 1; for exactly three such
        weights, draws and their mean on the simplex, one triangle per engine; or the probability
        that `inclusion` gives, with two Monte Carlo standard errors to each side. Default:
        "inclusion" for selections, "forest" otherwise.
    threshold : float, optional
        That of `inclusion`, for weights that are not selections.
    var_name : str, default="beta"
        The variable (kernel) that holds the weights.
    ci_kind, ci_probs, point_estimate, figure_kwargs : optional
        As in `plot_engines`. Triangles always show the mean. Inclusion has no intervals.

    Returns
    -------
    PlotCollection
        Its data are the point estimates or probabilities (model, kernel), or the draws (model,
        sample, kernel) for triangles.

    Raises
    ------
    ValueError
        For results without weights (a single kernel, fixed weights), results with different
        kernels, results of selections beside others, a threshold that `inclusion` refuses or for
        another kind, and a simplex for a number of kernels other than three, for exponents or for
        selections.

    Examples
    --------
    >>> kz.plots.plot_weights({"VB": vb, "Gibbs": gibbs})
    >>> kz.plots.plot_weights(gibbs, kind="simplex").savefig("weights.pdf")
    >>> kz.plots.plot_weights(gibbs, kind="inclusion", threshold=0.1)
    """
    owner = "plot_weights"
    summaries = Summaries(ci_kind, ci_probs, point_estimate, owner)
    named = by_name(results, owner)
    draws = {name: _weights(name, tree, var_name, owner) for name, tree in named.items()}
    kernels = {tuple(array["kernel"].values.tolist()) for array in draws.values()}
    if len(kernels) > 1:
        raise argument_error("results", owner, "of the same kernels", f"{sorted(kernels)}")
    n_kernels = len(kernels.pop())
    selected = {np.issubdtype(array.dtype, np.integer) for array in draws.values()}
    if len(selected) > 1:
        raise argument_error("results", owner, "all selections or all weights", "some of each")
    kind = kind or ("inclusion" if selected.pop() else "forest")
    check_name(kind, ("forest", "simplex", "inclusion"), "kind", owner)
    if kind == "inclusion":
        return _inclusion(named, threshold, var_name, figure_kwargs)
    if threshold is not None:
        raise argument_error("threshold", owner, "None unless kind='inclusion'", repr(threshold))
    labels = _labels(named, var_name)
    sums = all(np.allclose(array.sum("kernel"), 1) for array in draws.values())
    if kind == "simplex":
        if n_kernels != 3:
            raise argument_error(
                "kind", owner, "'forest' unless there are three kernels", f"{n_kernels}"
            )
        if not sums:
            raise argument_error("kind", owner, "'forest' unless weights sum to 1", repr(kind))
        return _simplex(draws, labels, figure_kwargs)
    collection = plot_intervals(
        {name: array.to_dataset(name=var_name) for name, array in draws.items()},
        summaries,
        labels=labels,
        title="Weights of the kernels",
        value="weight",
        figure_kwargs=figure_kwargs,
    )
    if sums:
        axes = collection.iget_target(0, 0)
        axes.axvline(1 / n_kernels, color=GREY, linestyle=":", zorder=0)
        axes.set_xlim(-0.02, 1.02)
    return collection


def _labels(named: Mapping[str, DataTree], var_name: str) -> dict[str, str]:
    """Label of each result, with a warning if its chains or its approximation are off."""
    labels = legend_labels(named)
    for name, tree in named.items():
        posterior = tree["posterior"].to_dataset()
        # Chains of several completions have different targets.
        if posterior.sizes["chain"] < 2 or COMPLETION in posterior.coords:
            continue
        with np.errstate(invalid="ignore"):
            rhat = float(az.rhat(posterior[[var_name]])[var_name].max())
        if rhat > APART:
            labels[name] = f"{name}\n(R-hat {rhat:.2f}: chains have not mixed)"
    return labels


def _weights(name: str, tree: DataTree, var_name: str, owner: str) -> xr.DataArray:
    """Draws (sample, kernel), with chains joined."""
    posterior = tree["posterior"]
    if var_name not in posterior or "kernel" not in posterior[var_name].dims:
        raise argument_error(
            "results",
            owner,
            f"results with learned weights {var_name!r} (kernel)",
            f"{name!r} with {', '.join(map(str, posterior.data_vars))}",
        )
    weights = _in_one_row(posterior[var_name].stack(sample=("chain", "draw")))
    labels = [str(label) for label in weights["kernel"].values]
    return named_draws(weights.transpose("sample", "kernel").values, "kernel", labels)


def _in_one_row(values: xr.DataArray) -> xr.DataArray:
    """Values (sample, kernel) or (kernel,), where the kernels of several outputs follow each other.

    Their labels are then those of the output and of the kernel.
    """
    kernels = [str(kernel) for kernel in values["kernel"].values]
    if "output" in values.dims:
        outputs = values["output"].values
        values = values.stack(row=("output", "kernel")).drop_vars(["row", "output", "kernel"])
        values = values.rename(row="kernel")
        kernels = [f"{output}: {kernel}" for output in outputs for kernel in kernels]
    return values.assign_coords(kernel=kernels)


def _inclusion(
    named: Mapping[str, DataTree],
    threshold: float | None,
    var_name: str,
    figure_kwargs: Mapping[str, Any] | None,
) -> PlotCollection:
    found = [
        inclusion(r, threshold=threshold, var_name=var_name).map(_in_one_row, keep_attrs=True)
        for r in named.values()
    ]
    data = side_by_side(found, list(named)).transpose("model", "kernel")
    p, error = data["probability"], 2 * data["mcse"]
    ends = xr.concat([p - error, p + error], dim=pd.Index(["lower", "upper"], name="ci_bound"))
    collection = plot_rows(
        p.to_dataset(name=var_name),
        {"twig": ends.clip(0, 1).to_dataset(name=var_name)},
        labels=legend_labels(named),
        title="Inclusion of the kernels",
        value=f"P({found[0].attrs['event']}), with 2 Monte Carlo standard errors",
        figure_kwargs=figure_kwargs,
    )
    collection.iget_target(0, 0).set_xlim(-0.02, 1.02)
    return collection


def _simplex(
    draws: Mapping[str, xr.DataArray],
    labels: Mapping[str, str],
    figure_kwargs: Mapping[str, Any] | None,
) -> PlotCollection:
    names = list(draws)
    data = side_by_side((array.to_dataset(name="weights") for array in draws.values()), names)
    n_columns = min(3, len(names))
    n_rows = -(-len(names) // n_columns)
    collection = PlotCollection.wrap(
        data,
        cols=["model"],
        col_wrap=n_columns,
        backend="matplotlib",
        aes={"color": ["model"], "marker": ["model"]},
        color=cycle(PALETTE, len(names)),
        marker=cycle(MARKERS, len(names)),
        figure_kwargs=figure_options(figure_kwargs, figsize=(3.4 * n_columns, 3.3 * n_rows)),
    )
    collection.map(
        _triangle,
        "triangle",
        store_artist=False,
        ignore_aes="all",
        subset_info=True,
        labels=labels,
    )
    collection.map(_scatter, "draws")
    collection.map(_mean, "mean")
    collection.add_title("Weights of the kernels: draws and mean", size="large", color="black")
    return collection


def on_triangle(weights: NDArray) -> NDArray:
    """Plane coordinates (..., 2) of weights (..., 3)."""
    return weights @ CORNERS


def _triangle(
    da: xr.DataArray, target: Axes, *, sel: dict, labels: Mapping[str, str], **_: Any
) -> None:
    for level in (0.25, 0.5, 0.75):
        for corner in range(3):
            ends = np.full((2, 3), 0.0)
            ends[:, corner] = level
            ends[[0, 1], [corner - 2, corner - 1]] = 1 - level
            target.plot(*on_triangle(ends).T, color="0.88", linewidth=0.8, zorder=0)
            # The value stands at the end on the side that leads to this corner.
            x, y = on_triangle(ends[0])
            outwards = CORNERS[[corner, corner - 2]].mean(0) - CORNERS[corner - 1]
            x, y = np.array([x, y]) + 0.07 * outwards / np.linalg.norm(outwards)
            target.text(x, y, f"{level:g}", color=GREY, fontsize=7, ha="center", va="center")
    target.plot(*CORNERS[[0, 1, 2, 0]].T, color="0.3", linewidth=1)
    sides = (("center", "top", -0.1), ("center", "top", -0.1), ("center", "bottom", 0.05))
    for (x, y), kernel, (ha, va, shift) in zip(CORNERS, da["kernel"].values, sides, strict=True):
        target.text(x, y + shift, str(kernel), ha=ha, va=va, fontsize=9)
    target.set_title(labels[str(sel["model"])], fontsize=10, pad=14)
    target.set_aspect("equal")
    target.set(xlim=(-0.25, 1.25), ylim=(-0.2, 1.0))
    target.axis("off")


def _scatter(
    da: xr.DataArray, target: Axes, *, color: str, marker: str, **_: Any
) -> PathCollection:
    weights = da.transpose("sample", "kernel").dropna("sample").values
    chosen = np.unique(np.linspace(0, len(weights) - 1, DRAWN).astype(int))
    x, y = on_triangle(weights[chosen]).T
    return target.scatter(x, y, s=5, color=color, alpha=0.25, linewidth=0, zorder=2)


def _mean(da: xr.DataArray, target: Axes, *, color: str, marker: str, **_: Any) -> PathCollection:
    x, y = on_triangle(da.transpose("sample", "kernel").dropna("sample").values.mean(0))
    return target.scatter(
        x,
        y,
        s=70,
        color=color,
        marker=marker,
        edgecolor="white",
        linewidth=1.2,
        zorder=3,
    )
