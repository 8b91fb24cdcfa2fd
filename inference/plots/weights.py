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
from xarray import DataArray, DataTree

from ...validation import argument_error, check_name
from ..diagnostics.inclusion import inclusion
from ..engine.completed_kernels import COMPLETION
from .house_style import GREY, MARKERS, PALETTE, by_name, cycle, legend_labels
from .intervals import by_engine, in_rows, plot_intervals, plot_rows

__all__ = ["plot_weights"]

OWNER = "plot_weights"
#: Corners of the triangle, one per kernel: left, right, top.
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])
#: R-hat of weights above which chains are marked.
APART = 1.05
#: Number of evenly spaced draws that are plotted for an engine.
DRAWN = 1_000


def plot_weights(
    results: DataTree | Mapping[str, DataTree], *, kind: str = "forest"
) -> PlotCollection:
    """Plot the kernel weights ``beta`` of several engines.

    Selections are drawn as the probabilities that `inclusion` gives, with two Monte Carlo standard
    errors to each side. The legend warns of approximations whose Pareto k-hat is above 0.7, and of
    chains whose R-hat of the weights is above 1.05.

    Parameters
    ----------
    results : mapping of str to DataTree, or DataTree
        Results of `fit` by name.
    kind : {"forest", "simplex"}, default="forest"
        Intervals, with a dotted line at equal weights if weights sum to 1; or, for exactly three
        such weights, draws and their mean on the simplex, one triangle per engine.

    Returns
    -------
    PlotCollection
        Its data are the point estimates or probabilities ``beta`` (model, element), or the draws
        ``weights`` (model, chain, draw, kernel) for triangles.

    Raises
    ------
    ValueError
        For results without weights (a single kernel, fixed weights), results with different
        kernels, results of selections beside others, and a simplex for a number of kernels other
        than three, for exponents or for selections.

    Examples
    --------
    >>> kz.plots.plot_weights({"VB": vb, "Gibbs": gibbs})
    >>> kz.plots.plot_weights(gibbs, kind="simplex").savefig("weights.pdf")
    """
    check_name(kind, ("forest", "simplex"), "kind", OWNER)
    named = by_name(results, OWNER)
    draws = {name: _weights(name, tree) for name, tree in named.items()}
    kernels = {tuple(array.indexes[array.dims[-1]]) for array in draws.values()}
    if len(kernels) > 1:
        raise argument_error("results", OWNER, "of the same kernels", f"{sorted(kernels)}")
    n_kernels = len(kernels.pop())
    selected = {np.issubdtype(array.dtype, np.integer) for array in draws.values()}
    if len(selected) > 1:
        raise argument_error("results", OWNER, "all selections or all weights", "some of each")
    selections = selected.pop()
    labels = _labels(named)
    sums = all(np.allclose(array.sum([array.dims[-1]]), 1) for array in draws.values())
    if kind == "simplex":
        if n_kernels != 3:
            rule = "'forest' unless there are three kernels"
            raise argument_error("kind", OWNER, rule, f"{n_kernels}")
        if selections or not sums:
            raise argument_error("kind", OWNER, "'forest' unless weights sum to 1", repr(kind))
        return _simplex(draws, labels)
    if selections:
        return _inclusion(named)
    collection = plot_intervals(
        {name: array.to_dataset(name="beta") for name, array in draws.items()},
        labels=labels,
        title="Weights of the kernels",
        value="weight",
    )
    if sums:
        axes = collection.iget_target(0, 0)
        axes.axvline(1 / n_kernels, color=GREY, linestyle=":", zorder=0)
        axes.set_xlim(-0.02, 1.02)
    return collection


def _labels(named: Mapping[str, DataTree]) -> dict[str, str]:
    """Label of each result, with a warning if its chains or its approximation are off."""
    labels = legend_labels(named)
    for name, tree in named.items():
        posterior = tree["posterior"].to_dataset()
        # Chains of several completions have different targets.
        if posterior.sizes["chain"] < 2 or COMPLETION in posterior.coords:
            continue
        with np.errstate(invalid="ignore"):
            rhat = float(az.rhat(posterior[["beta"]])["beta"].max())
        if rhat > APART:
            labels[name] = f"{name}\n(R-hat {rhat:.2f}: chains have not mixed)"
    return labels


def _weights(name: str, tree: DataTree) -> DataArray:
    """Draws of the weights (chain, draw, kernel); the kernels of several outputs in one row."""
    posterior = tree["posterior"]
    if "beta" not in posterior or "kernel" not in posterior["beta"].dims:
        rule = "results with learned weights 'beta' (kernel)"
        got = f"{name!r} with {', '.join(map(str, posterior.data_vars))}"
        raise argument_error("results", OWNER, rule, got)
    return in_rows(posterior["beta"].transpose(..., "kernel"))


def _inclusion(named: Mapping[str, DataTree]) -> PlotCollection:
    """Draw inclusion probabilities with two Monte Carlo standard errors to each side."""
    found = {name: inclusion(tree) for name, tree in named.items()}
    data = by_engine(found).transpose("model", ..., "kernel")
    p, error = data["probability"], 2 * data["mcse"]
    ends = xr.concat([p - error, p + error], dim=pd.Index(["lower", "upper"], name="ci_bound"))
    beside = ("model", "ci_bound")
    collection = plot_rows(
        in_rows(p.rename("beta"), beside).to_dataset(name="beta"),
        {"twig": in_rows(ends.clip(0, 1).rename("beta"), beside).to_dataset(name="beta")},
        labels=legend_labels(named),
        title="Inclusion of the kernels",
        value="P(beta = 1), with 2 Monte Carlo standard errors",
    )
    collection.iget_target(0, 0).set_xlim(-0.02, 1.02)
    return collection


def _simplex(draws: Mapping[str, DataArray], labels: Mapping[str, str]) -> PlotCollection:
    names = list(draws)
    data = by_engine({name: each.to_dataset(name="weights") for name, each in draws.items()})
    data = data.rename({data["weights"].dims[-1]: "kernel"})
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
        figure_kwargs={"layout": "constrained", "figsize": (3.4 * n_columns, 3.3 * n_rows)},
    )
    plain = {"store_artist": False, "ignore_aes": "all", "subset_info": True}
    collection.map(_triangle, "triangle", labels=labels, **plain)
    collection.map(_scatter, "draws")
    collection.map(_mean, "mean")
    collection.add_title("Weights of the kernels: draws and mean", size="large", color="black")
    return collection


def on_triangle(weights: NDArray) -> NDArray:
    """Plane coordinates (..., 2) of weights (..., 3)."""
    return weights @ CORNERS


def _triangle(
    da: DataArray, target: Axes, *, sel: dict, labels: Mapping[str, str], **_: Any
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


def _drawn(da: DataArray) -> NDArray:
    """Draws (sample, kernel), without those that fill the place of other engines' draws."""
    joined = da.stack(sample=("chain", "draw"), create_index=False).transpose("sample", "kernel")
    return joined.dropna("sample").values


def _scatter(da: DataArray, target: Axes, *, color: str, marker: str, **_: Any) -> PathCollection:
    weights = _drawn(da)
    chosen = np.unique(np.linspace(0, len(weights) - 1, DRAWN).astype(int))
    x, y = on_triangle(weights[chosen]).T
    return target.scatter(x, y, s=5, color=color, alpha=0.25, linewidth=0, zorder=2)


def _mean(da: DataArray, target: Axes, *, color: str, marker: str, **_: Any) -> PathCollection:
    x, y = on_triangle(_drawn(da).mean(0))
    return target.scatter(
        x, y, s=70, color=color, marker=marker, edgecolor="white", linewidth=1.2, zorder=3
    )
