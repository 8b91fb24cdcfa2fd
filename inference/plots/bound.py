"""The bound of a variational fit by iteration."""

from typing import Any

import numpy as np
import xarray as xr
from arviz_plots import PlotCollection
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from xarray import DataTree

from ...validation import argument_error
from ..engine.result import check_result
from .house_style import GREY, PALETTE, open_frame

__all__ = ["plot_bound"]

#: Title and axis label of an engine's objective, by its name in the group ``trajectory``.
TITLES = {
    "elbo": ("Lower bound", "lower bound (nats)"),
    "objective": ("Objective", "log density (nats)"),
}
#: Largest share of a start's iterations that may lie below the axis of the bound.
HIDDEN = 0.1
#: Relative size below which a fall counts as rounding.
ROUNDING = 1e-10
#: A bound that falls in more than this share of the iterations is a noisy estimate.
NOISY = 0.1


def plot_bound(result: DataTree) -> PlotCollection:
    """Plot the bound or objective of every start by iteration, and its change per iteration.

    The left axes leave out the first iterations if they would dwarf the rest (a note says so). The
    right axes show the absolute change from one iteration to the next on a logarithmic scale: a
    straight line means geometric convergence. Crosses mark decreases, which a correct coordinate
    ascent never has; decreases of a noisy estimate of the bound (ADVI) are not marked.

    Parameters
    ----------
    result : DataTree
        Result of `fit` with a group ``trajectory``, which has ``elbo`` or ``objective`` (start,
        iteration) and the attribute ``best_start``.

    Returns
    -------
    PlotCollection
        Its data are ``bound`` and ``change`` (start, iteration).

    Raises
    ------
    ValueError
        For a result without a bound.

    Examples
    --------
    >>> kz.plots.plot_bound(kz.fit(model, kz.VB(starts=5)))
    """
    check_result(result, "result", "plot_bound")
    trajectory = (
        result["trajectory"].to_dataset() if "trajectory" in result.children else xr.Dataset()
    )
    name = next((name for name in TITLES if name in trajectory), None)
    if name is None:
        groups = ", ".join(result.children)
        got = f"a result of {result.attrs.get('engine', 'an unknown engine')} with {groups}"
        rule = "a result with a bound by iteration (group 'trajectory')"
        raise argument_error("result", "plot_bound", rule, got)
    title, axis_label = TITLES[name]
    bound = trajectory[name].transpose("start", "iteration")
    best = bound["start"].values[int(trajectory.attrs.get("best_start", 0))]
    # The best start comes last, so that it is drawn on top.
    bound = xr.concat([bound.drop_sel(start=best), bound.sel(start=[best])], dim="start")
    data = xr.Dataset({"bound": bound, "change": bound.diff("iteration")})

    n_starts = bound.sizes["start"]
    collection = PlotCollection.wrap(
        data,
        cols=["__variable__"],
        backend="matplotlib",
        aes={"color": ["start"], "width": ["start"]},
        color=[GREY] * (n_starts - 1) + [PALETTE[0]],
        width=[1.0] * (n_starts - 1) + [2.2],
        figure_kwargs={"layout": "constrained", "figsize": (8.5, 3.4), "sharex": True},
    )
    collection.map(_line, "line", data=data)
    noisy = _falls(data).sum() > NOISY * data["change"].notnull().sum()
    left, right = (collection.get_target(name, {}) for name in ("bound", "change"))
    if not noisy:
        collection.map(_crosses, "fall", data=data[["change"]].where(_falls(data)))
    left.set(xlabel=f"iteration{_zoom(left, bound)}", ylabel=axis_label, title=title)
    right.set(
        xlabel="iteration",
        ylabel="absolute change (nats)",
        yscale="log",
        title="Change in one iteration" + (", a noisy estimate" if noisy else ""),
    )
    open_frame(left)
    open_frame(right)
    figure = collection.viz["figure"].item()
    _legend(figure, best, n_starts, float(bound.sel(start=best).dropna("iteration")[-1]))
    return collection


def _falls(data: xr.Dataset) -> xr.DataArray:
    return data["change"] < -ROUNDING * np.abs(data["bound"])


def _line(da: xr.DataArray, target: Axes, *, color: str, width: float, **_: Any) -> Line2D:
    heights = da.values if da.name == "bound" else np.abs(da.where(da != 0).values)
    (line,) = target.plot(da["iteration"].values, heights, color=color, linewidth=width)
    return line


def _crosses(da: xr.DataArray, target: Axes, **_: Any) -> Line2D:
    (crosses,) = target.plot(
        da["iteration"].values, np.abs(da.values), "x", color=PALETTE[1], label="the bound fell"
    )
    target.legend(handles=[crosses], frameon=False, fontsize="small")
    return crosses


def _zoom(axes: Axes, bound: xr.DataArray) -> str:
    """Cut the lower end of the axis if the first iterations dwarf the rest; return a note."""
    low, high, lowest = (
        float(x) for x in (bound.quantile(HIDDEN, "iteration").min(), bound.max(), bound.min())
    )
    margin = 0.06 * (high - low)
    if lowest > high - 2 * (high - low):
        return ""
    axes.set_ylim(low - margin, high + margin)
    hidden = int((bound < low - margin).sum("iteration").max())
    return f"\n(up to {hidden} first iterations lie below, down to {lowest:,.0f})"


def _legend(figure: Figure, best: Any, n_starts: int, final: float) -> None:
    label = f"start {best}" + (f", the best of {n_starts}" if n_starts > 1 else "")
    handles = [Line2D([], [], color=PALETTE[0], linewidth=2.2, label=f"{label}: {final:,.2f} nats")]
    if n_starts > 1:
        handles.append(Line2D([], [], color=GREY, linewidth=1, label="other starts"))
    # Outside the axes, where lines may be anywhere.
    figure.legend(
        handles=handles, loc="outside lower left", frameon=False, fontsize="small", ncols=2
    )
