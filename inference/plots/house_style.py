"""Colours, markers and frames that all figures share."""

from collections.abc import Mapping

from matplotlib.axes import Axes
from xarray import DataTree

from ...validation import argument_error
from ..engine.convergence import is_unreliable, k_hat_of
from ..engine.provenance import check_results

#: Okabe and Ito's colour-blind safe palette, without yellow, which is unreadable on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY = "0.55"


def cycle[T](values: tuple[T, ...], n: int) -> list[T]:
    """First `n` values, repeated if there are too few."""
    return [values[i % len(values)] for i in range(n)]


def open_frame(axes: Axes) -> None:
    """Leave only the left and bottom line of the frame."""
    axes.spines[["top", "right"]].set_visible(False)


def by_name(results: DataTree | Mapping[str, DataTree], owner: str) -> dict[str, DataTree]:
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


def legend_labels(results: Mapping[str, DataTree]) -> dict[str, str]:
    """Label of each result, with a warning of a k-hat that is too large, or of no convergence."""
    labels = {}
    for name, tree in results.items():
        labels[name] = name
        if is_unreliable(k_hat := k_hat_of(tree)):
            labels[name] += f"\n(k-hat {k_hat:.2g}: do not read)"
        elif tree.attrs.get("converged") == "no":
            labels[name] += "\n(not converged)"
    return labels
