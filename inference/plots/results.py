"""Figures of results: weights and intervals of several engines, and the bound by iteration.

`arviz_plots.plot_forest` has one axis for all variables, whose scales differ here, and pads engines
with fewer draws with NaN, of which it draws nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import arviz as az
import numpy as np
from matplotlib import pyplot as plt
from numpy.typing import NDArray
from xarray import DataArray, Dataset, DataTree

from ...validation import argument_error, check_name, check_names
from ..diagnostics.compare import elements_of, same_elements
from ..diagnostics.scores import drawn_weights, inclusion
from ..engine.convergence import is_unreliable, judge, k_hat_of
from ..engine.paper import identified
from ..engine.provenance import check_result, check_results

#: Okabe and Ito's colour-blind safe palette, without yellow, which is unreadable on white.
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
#: With three dark colours and a violet, of which colour-blind eyes, too, tell each from all others.
PALETTE = (*OKABE_ITO, "#5A1E5A", "#961E00", "#0000C3", "#A569FF")
#: Engines in the order of their colours.
ENGINES = (
    *("Gibbs", "VB", "NUTS", "ADVI", "SMC", "Laplace", "Pathfinder", "Exact", "EM", "MAP"),
    "INLA",
)
GREY = "0.55"
INTERVALS = {"eti": (az.eti, "equal-tailed"), "hdi": (az.hdi, "highest-density")}
#: Part of a row's height that the engines of an element share; the rest separates elements.
SPREAD = 0.7
#: Largest number of elements of a variable that `plot_engines` draws.
MOST_ELEMENTS = 20
#: Corners of the triangle, one per kernel: left, right, top.
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])
#: Number of evenly spaced draws that are plotted on a triangle.
DRAWN = 1_000
#: Title and axis label of an engine's objective, by its name in the group ``trajectory``.
TITLES = {
    "elbo": ("Lower bound", "lower bound (nats)"),
    "objective": ("Objective", "log density (nats)"),
}
#: Share of the iterations that may lie below the axis of the bound: the first would dwarf the rest.
HIDDEN = 0.1

#: Point (row,), and intervals (row, 2) from the narrow to the wide one.
type Rows = tuple[NDArray, list[NDArray]]


def plot_engines(
    results: DataTree | Mapping[str, DataTree], *, var_names: Iterable[str] | None = None
) -> NDArray:
    """Plot intervals of several engines on one model.

    The quantities are those that `compare_engines` compares. Of a quantity with more than 20
    elements, evenly spaced ones are drawn. Results are marked as in `plot_weights`, by the
    quantities of `var_names`.

    Parameters
    ----------
    results : mapping of str to DataTree, or DataTree
        Results of `fit` by name.
    var_names : iterable of str, optional
        Quantities to draw. Default: all, those with the fewest elements (the weights) first.

    Returns
    -------
    ndarray of Axes (quantity,)

    Raises
    ------
    ValueError
        For no result, results of different models or data, and unknown names.

    Examples
    --------
    >>> kz.plots.plot_engines({"VB": vb, "Gibbs": gibbs}, var_names=["beta"])
    """
    owner = "plot_engines"
    named = _by_name(results, owner)
    models = {str(tree.attrs.get("family", tree.attrs.get("model"))) for tree in named.values()}
    if len(models) > 1:
        raise argument_error("results", owner, "results of one model", ", ".join(sorted(models)))
    quantities = {name: identified(tree) for name, tree in named.items()}
    first = next(iter(quantities.values()))
    variables = sorted(map(str, first.data_vars), key=lambda name: first[name].size)
    if var_names is not None:
        variables = check_names(var_names, variables, "var_names", owner)
    panels: dict[str, tuple[list[str], dict[str, Rows]]] = {}
    for variable in variables:
        draws = {name: dataset.get(variable) for name, dataset in quantities.items()}
        labels, values = _in_rows(draws, owner)
        shown = np.unique(np.linspace(0, len(labels) - 1, MOST_ELEMENTS).astype(int))
        title = f"{variable} ({', '.join(map(str, first[variable].dims[2:]))})"
        if len(shown) < len(labels):
            title += f", {len(shown)} of {len(labels)}"
        rows = {name: _summary(each[:, shown]) for name, each in values.items()}
        panels[title] = [labels[i] for i in shown], rows
    drawn = {name: dataset[variables] for name, dataset in quantities.items()}
    return _draw_rows(panels, _styles(named, drawn), _axis_label("value"))


def plot_weights(results: DataTree | Mapping[str, DataTree], *, kind: str = "forest") -> NDArray:
    """Plot the kernel weights ``beta`` of several engines.

    Selections are drawn as the probabilities that `inclusion` gives, with two Monte Carlo standard
    errors to each side. An engine has one colour in all plots. The points of weights that have not
    converged are open, and those that are not to be read, of approximations whose Pareto k-hat is
    above 0.7, are crosses; the legend says why.

    Parameters
    ----------
    results : mapping of str to DataTree, or DataTree
        Results of `fit` by name.
    kind : {"forest", "simplex"}, default="forest"
        Intervals, with a dotted line at equal weights if weights sum to 1; or, for exactly three
        such weights, draws and their mean on the simplex, one triangle per engine.

    Returns
    -------
    ndarray of Axes (1,), or (engine,) for triangles

    Raises
    ------
    ValueError
        For results without weights (a single kernel, fixed weights), results with different
        kernels, results of selections beside others, and a simplex for a number of kernels other
        than three, for exponents or for selections.

    Examples
    --------
    >>> kz.plots.plot_weights({"VB": vb, "Gibbs": gibbs})
    >>> kz.plots.plot_weights(gibbs, kind="simplex")
    """
    owner = "plot_weights"
    check_name(kind, ("forest", "simplex"), "kind", owner)
    named = _by_name(results, owner)
    draws = {name: drawn_weights(tree, f'results["{name}"]', owner) for name, tree in named.items()}
    labels, values = _in_rows(draws, owner)
    selected = {np.issubdtype(array.dtype, np.integer) for array in draws.values()}
    if len(selected) > 1:
        raise argument_error("results", owner, "all selections or all weights", "some of each")
    are_selections = selected.pop()
    styles = _styles(named, {name: each.to_dataset(name="beta") for name, each in draws.items()})
    sums = all(np.allclose(array.sum("kernel"), 1) for array in draws.values())
    if kind == "simplex":
        if len(labels) != 3:
            rule = "'forest' unless there are three kernels"
            raise argument_error("kind", owner, rule, f"{len(labels)}")
        if are_selections or not sums:
            raise argument_error("kind", owner, "'forest' unless weights sum to 1", repr(kind))
        return _draw_simplex(labels, values, styles)
    rows = {name: _summary(each) for name, each in values.items()}
    axis = _axis_label("weight")
    if are_selections:
        for name, tree in named.items():
            found = inclusion(tree)
            p = found["probability"].to_numpy().ravel()
            error = found["mcse"].to_numpy().ravel()
            rows[name] = p, [np.stack([p - 2 * error, p + 2 * error], axis=1).clip(0, 1)]
        axis = "P(beta = 1), with 2 Monte Carlo standard errors"
    axes = _draw_rows({"Weights of the kernels": (labels, rows)}, styles, axis)
    if sums:
        axes[0].axvline(1 / len(labels), color=GREY, linestyle=":", zorder=0)
    if sums or are_selections:
        axes[0].set_xlim(-0.02, 1.02)
    return axes


def _by_name(results: DataTree | Mapping[str, DataTree], owner: str) -> dict[str, DataTree]:
    """Results by name; a single result is named by its engine."""
    # A DataTree is itself a mapping, so it is tested first.
    if isinstance(results, DataTree):
        results = {str(results.attrs.get("engine", "result")): results}
    check_results(results, owner)
    for name, tree in results.items():
        if "posterior" not in tree.children:
            got = f"none of {name!r}"
            raise argument_error("results", owner, "results with a group 'posterior'", got)
    return dict(results)


def engine_colors(named: Mapping[str, Any]) -> dict[str, str]:
    """Colour of each result: that of its engine, or the next one that no other result has."""
    colors: dict[str, str] = {}
    for name, entry in named.items():
        engine = getattr(entry, "attrs", {}).get("engine")
        first = ENGINES.index(engine) if engine in ENGINES else 0
        order = PALETTE[first:] + PALETTE[:first]
        colors[name] = next((c for c in order if c not in colors.values()), order[0])
    return colors


def _styles(
    results: Mapping[str, DataTree], shown: Mapping[str, Dataset]
) -> dict[str, dict[str, Any]]:
    """Label, colour and marker of each result, which warn where what is shown is unreliable."""
    styles = {}
    for (name, color), tree in zip(engine_colors(results).items(), results.values(), strict=True):
        style = {"label": name, "color": color, "marker": "o", "mfc": color}
        if is_unreliable(k_hat := k_hat_of(tree)):
            label = f"{name}\n(k-hat {k_hat:.2g}: do not read)"
            style |= {"label": label, "marker": "X", "mfc": "white"}
        elif judge(tree, shown[name]).state == "no":
            style |= {"label": f"{name}\n(not converged)", "mfc": "white"}
        styles[name] = style
    return styles


def _in_rows(
    draws: Mapping[str, DataArray | None], owner: str
) -> tuple[list[str], dict[str, NDArray]]:
    """Labels of the elements, the same of all engines, and draws (sample, element) by engine."""
    first = next(each for each in draws.values() if each is not None)
    first = first.isel(chain=0, draw=0, drop=True)
    values = {}
    for name, each in draws.items():
        if each is None or not same_elements(each.isel(chain=0, draw=0, drop=True), first):
            rule = f"of one model on the same data, with the same elements of {first.name}"
            raise argument_error("results", owner, rule, f"others in {name!r}")
        stacked = each.transpose("chain", "draw", *first.dims).to_numpy()
        values[name] = stacked.reshape(stacked.shape[0] * stacked.shape[1], -1).astype(float)
    return elements_of(first), values


def _summary(draws: NDArray) -> Rows:
    """Mean, and the intervals of ArviZ's ``rcParams``, of draws (sample, row)."""
    interval, _ = INTERVALS[az.rcParams["stats.ci_kind"]]
    ends = [interval(draws, prob=p, axis=0).reshape(-1, 2) for p in _probabilities()]
    return draws.mean(axis=0), ends


def _probabilities() -> tuple[float, float]:
    wide = float(az.rcParams["stats.ci_prob"])
    return 0.5 if wide > 0.5 else wide / 2, wide


def _axis_label(value: str) -> str:
    inner, outer = (f"{100 * p:g} %" for p in _probabilities())
    _, kind = INTERVALS[az.rcParams["stats.ci_kind"]]
    return f"{value} (mean, {inner} and {outer} {kind} intervals)"


def _draw_rows(
    panels: Mapping[str, tuple[Sequence[str], Mapping[str, Rows]]],
    styles: Mapping[str, dict[str, Any]],
    label: str,
) -> NDArray:
    """Draw points and intervals by engine, one row per element, one panel per variable.

    `panels` have the labels of the rows and their numbers by engine, by the title of the panel.
    """
    numbers = [len(rows) for rows, _ in panels.values()]
    height = 1.0 + 0.35 * len(numbers) + sum(numbers) * (0.14 + 0.08 * len(styles))
    ratios = [n + 0.6 for n in numbers]
    size = (6.4, height)
    figure, axes = plt.subplots(
        len(panels), figsize=size, height_ratios=ratios, layout="constrained", squeeze=False
    )
    shifts = SPREAD * (np.arange(len(styles)) - (len(styles) - 1) / 2) / len(styles)
    for (title, (names, by_engine)), each in zip(panels.items(), axes[:, 0], strict=True):
        for (engine, (points, ends)), shift in zip(by_engine.items(), shifts, strict=True):
            heights = np.arange(len(points)) + shift
            style = styles[engine]
            for bounds, width in zip(ends, (4.0, 1.3)[-len(ends) :], strict=True):
                each.hlines(heights, *bounds.T, linewidth=width, color=style["color"])
            each.plot(points, heights, linestyle="none", **style)
        each.set_title(title, loc="left", fontsize="small", color="0.35")
        each.set_yticks(np.arange(len(names)), names)
        each.set_ylim(len(names) - 0.5, -0.5)
        each.tick_params(axis="y", length=0)
        each.spines[["top", "right", "left"]].set_visible(False)
        each.grid(axis="x", color="0.92", linewidth=0.8)
        each.set_axisbelow(True)
    # Wrapped where the figure is narrow, as a column of a journal is.
    axes[-1, 0].set_xlabel(label, wrap=True)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right upper", frameon=False)
    return axes[:, 0]


def _draw_simplex(
    kernels: Sequence[str], draws: Mapping[str, NDArray], styles: Mapping[str, dict[str, Any]]
) -> NDArray:
    """Draw draws and their mean, with lines at 0.25, 0.5 and 0.75 of each kernel."""
    figure, axes = plt.subplots(
        1, len(draws), figsize=(3.4 * len(draws), 3.3), layout="constrained", squeeze=False
    )
    for (name, weights), each in zip(draws.items(), axes[0], strict=True):
        for level in (0.25, 0.5, 0.75):
            for corner in range(3):
                ends = np.zeros((2, 3))
                ends[:, corner] = level
                ends[[0, 1], [corner - 2, corner - 1]] = 1 - level
                each.plot(*(ends @ CORNERS).T, color="0.88", linewidth=0.8, zorder=0)
        each.plot(*CORNERS[[0, 1, 2, 0]].T, color="0.3", linewidth=1)
        for (x, y), kernel in zip(CORNERS, kernels, strict=True):
            each.text(x, y + (0.05 if y else -0.1), kernel, ha="center", fontsize=9)
        spaced = np.unique(np.linspace(0, len(weights) - 1, DRAWN).astype(int))
        style = styles[name]
        each.scatter(
            *(weights[spaced] @ CORNERS).T, s=5, alpha=0.25, color=style["color"], linewidth=0
        )
        each.scatter(
            *(weights.mean(axis=0) @ CORNERS),
            s=70,
            marker=style["marker"],
            facecolor=style["mfc"],
            edgecolor="black",
            zorder=3,
        )
        each.set_title(style["label"], fontsize=10, pad=14)
        each.set(aspect="equal", xlim=(-0.25, 1.25), ylim=(-0.2, 1.0))
        each.axis("off")
    figure.suptitle("Weights of the kernels: draws and mean")
    return axes[0]


def plot_bound(result: DataTree) -> NDArray:
    """Plot the bound or objective of every start by iteration, and its change per iteration.

    The left axes may leave out the first tenth of the iterations. The right axes show the absolute
    change on a logarithmic scale: a straight line means geometric convergence. Of more than 2,000
    iterations, means of consecutive ones are drawn; of VB's best start, those in double precision.

    Parameters
    ----------
    result : DataTree
        Result of VB, EM, MAP or ADVI, with a group ``trajectory``.

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
    (color,) = engine_colors({"": result}).values()
    if name is None:
        groups = ", ".join(result.children)
        got = f"a result of {result.attrs.get('engine', 'an unknown engine')} with {groups}"
        rule = "a result with a bound by iteration (group 'trajectory')"
        raise argument_error("result", "plot_bound", rule, got)
    bound = trajectory[name].transpose("start", "iteration")
    # Noisy bounds of thousands of steps would be a solid block.
    every = max(1, bound.sizes["iteration"] // 1000)
    bound = bound.coarsen(iteration=every, boundary="trim").mean()
    best = int(trajectory.attrs.get("best_start", 0))
    figure, axes = plt.subplots(1, 2, figsize=(8.5, 3.4), sharex=True, layout="constrained")
    for start, values in enumerate(bound.to_numpy()):
        style = {"color": GREY, "linewidth": 1.0, "label": "other starts"}
        if start == best:
            label = f"start {bound['start'].values[best]}: {values[np.isfinite(values)][-1]:,.2f}"
            style = {"color": color, "linewidth": 2.2, "label": label, "zorder": 3}
        axes[0].plot(bound["iteration"], values, **style)
        changes = np.abs(np.diff(values))
        axes[1].plot(bound["iteration"][1:], np.where(changes > 0, changes, np.nan), **style)
    title, label = TITLES[name]
    change = "Change in one iteration" if every == 1 else f"Change of means of {every} iterations"
    low = float(bound.quantile(HIDDEN, "iteration").min())
    high = float(bound.max())
    if float(bound.min()) < high - 2 * (high - low):
        axes[0].set_ylim(bottom=low - 0.06 * (high - low))
        title += f" (lowest value, {float(bound.min()):,.0f}, not shown)"
    axes[0].set(xlabel="iteration", ylabel=label, title=title)
    axes[1].set(xlabel="iteration", ylabel="absolute change", title=change)
    axes[1].set_yscale("log")
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
    handles = dict(zip(*axes[0].get_legend_handles_labels()[::-1], strict=True))
    # Outside the axes, where lines may be anywhere.
    figure.legend(
        handles.values(), handles, loc="outside lower left", frameon=False, fontsize="small"
    )
    return axes
