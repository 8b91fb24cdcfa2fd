"""The bound of a variational fit by iteration."""

import numpy as np
from matplotlib import pyplot as plt
from numpy.typing import NDArray
from xarray import Dataset, DataTree

from ...validation import argument_error
from ..engine.provenance import check_result
from .house_style import GREY, PALETTE, open_frame

#: Title and axis label of an engine's objective, by its name in the group ``trajectory``.
TITLES = {
    "elbo": ("Lower bound", "lower bound (nats)"),
    "objective": ("Objective", "log density (nats)"),
}
#: Share of the iterations that may lie below the axis of the bound: the first would dwarf the rest.
HIDDEN = 0.1


def plot_bound(result: DataTree) -> NDArray:
    """Plot the bound or objective of every start by iteration, and its change per iteration.

    The left axes may leave out the first tenth of the iterations. The right axes show the absolute
    change on a logarithmic scale: a straight line means geometric convergence.

    Parameters
    ----------
    result : DataTree
        Result of `fit` with a group ``trajectory``, which has ``elbo`` or ``objective`` (start,
        iteration) and the attribute ``best_start``.

    Returns
    -------
    ndarray of Axes (2,)

    Raises
    ------
    ValueError
        For a result without a bound.

    Examples
    --------
    >>> kz.plots.plot_bound(kz.fit(model, kz.VB(starts=5)))
    """
    check_result(result, "result", "plot_bound")
    trajectory = result["trajectory"].to_dataset() if "trajectory" in result.children else Dataset()
    name = next((name for name in TITLES if name in trajectory), None)
    if name is None:
        groups = ", ".join(result.children)
        got = f"a result of {result.attrs.get('engine', 'an unknown engine')} with {groups}"
        rule = "a result with a bound by iteration (group 'trajectory')"
        raise argument_error("result", "plot_bound", rule, got)
    bound = trajectory[name].transpose("start", "iteration")
    best = int(trajectory.attrs.get("best_start", 0))
    figure, axes = plt.subplots(1, 2, figsize=(8.5, 3.4), sharex=True, layout="constrained")
    for start, values in enumerate(bound.to_numpy()):
        style = {"color": GREY, "linewidth": 1.0, "label": "other starts"}
        if start == best:
            label = f"start {bound['start'].values[best]}: {values[np.isfinite(values)][-1]:,.2f}"
            style = {"color": PALETTE[0], "linewidth": 2.2, "label": label, "zorder": 3}
        axes[0].plot(bound["iteration"], values, **style)
        changes = np.abs(np.diff(values))
        axes[1].plot(bound["iteration"][1:], np.where(changes > 0, changes, np.nan), **style)
    title, label = TITLES[name]
    low, high = float(bound.quantile(HIDDEN, "iteration").min()), float(bound.max())
    if float(bound.min()) < high - 2 * (high - low):
        axes[0].set_ylim(bottom=low - 0.06 * (high - low))
        title += f", from {float(bound.min()):,.0f}"
    axes[0].set(xlabel="iteration", ylabel=label, title=title)
    axes[1].set(xlabel="iteration", ylabel="absolute change", title="Change in one iteration")
    axes[1].set_yscale("log")
    for each in axes:
        open_frame(each)
    handles = dict(zip(*axes[0].get_legend_handles_labels()[::-1], strict=True))
    # Outside the axes, where lines may be anywhere.
    figure.legend(
        handles.values(), handles, loc="outside lower left", frameon=False, fontsize="small"
    )
    return axes
