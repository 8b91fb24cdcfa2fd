"""Kernels as pictures."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import xarray as xr
from arviz_plots import PlotCollection
from matplotlib.axes import Axes
from matplotlib.colors import AsinhNorm, Normalize
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from ...models.kernels.labels import aligned, ids_along
from ...models.kernels.stack import as_stack
from ...user_warnings import numpy_warnings
from ...validation import check_labels

__all__ = ["plot_kernels"]

#: Share of the entries that the colour scale covers, by size.
SATURATED = 0.99
#: The scale covers at least this share of the diagonal, so that negligible entries look negligible.
LEAST_REACH = 0.01
#: The scale is curved where the median entry is below this share of the largest ones.
SMALL = 0.2
#: Least share of the scale that is straight on a curved scale.
STRAIGHT = 1e-3
#: Number of ticks on a curved scale.
TICKS = 7
#: Font size of the names of classes, and least distance of neighbouring names in heights of a name.
FONT_SIZE, SPACING = 8, 1.3
#: Layout rounds: names shrink the picture, and a smaller picture leaves room for fewer names.
ROUNDS = 2
#: Negative entries smaller than this share of the largest entry count as rounding.
ROUNDING = 1e-9
#: Entries smaller than this share of the largest entry are drawn as zeros.
TINY = 1e-100


def plot_kernels(
    kernels: Any, labels: Any = None, *, classes: Sequence | None = None
) -> PlotCollection:
    """Draw base kernels as pictures side by side, each on its own colour scale.

    A kernel without negative entries is drawn from light to dark, a kernel with negative entries in
    two hues that meet at zero. The scale covers 99 % of the entries (without the diagonal of a Gram
    matrix); an arrow marks that some entries lie beyond. The scale begins above zero if all entries
    are large. If most entries are small relative to the largest ones, the scale is curved to show
    them (matplotlib's ``AsinhNorm``); then the ticks of the colour bar are not evenly spaced.

    Parameters
    ----------
    kernels : DataArray (kernel, obs, basis), dict of 2-D arrays, or array (2-D or 3-D)
        Kernels as for `MultinomialProbit`.
    labels : array_like (obs,), optional
        Classes of the objects: rows (and columns of Gram matrices) are ordered by class, with lines
        between classes. Without room for all names, the largest classes are named.
    classes : sequence, optional
        Classes in the order to draw. Default: the sorted distinct labels.

    Returns
    -------
    PlotCollection
        Its data are ``kernels`` (kernel, obs, basis) in the order drawn.

    Raises
    ------
    ValueError
        For kernels that are not a stack of finite matrices, or labels that do not match their rows.

    Examples
    --------
    >>> kz.plots.plot_kernels(kernels(data.X_train), data.y_train)
    """
    owner = "plot_kernels"
    stack = as_stack(kernels, owner=owner)
    gram = np.array_equal(stack["obs"].values, stack["basis"].values)
    starts: dict[str, int] = {}
    if labels is not None:
        labels = aligned(labels, ids_along(stack, "obs"), "labels", owner)
        codes, known = check_labels(
            labels, "labels", owner, classes=classes, n_objects=stack.sizes["obs"]
        )
        order = np.argsort(codes, kind="stable")
        stack = stack.isel(obs=order, basis=order) if gram else stack.isel(obs=order)
        first = np.searchsorted(codes[order], np.arange(len(known) + 1))
        starts = {str(c): int(i) for c, i, j in zip(known, first, first[1:], strict=False) if j > i}
    n_kernels = stack.sizes["kernel"]
    n_columns = min(4, n_kernels)
    collection = PlotCollection.wrap(
        stack.to_dataset(name="kernels"),
        cols=["kernel"],
        col_wrap=n_columns,
        backend="matplotlib",
        figure_kwargs={
            "layout": "constrained",
            "figsize": (0.4 + 3.3 * n_columns, 2.9 * -(-n_kernels // n_columns)),
        },
    )
    collection.map(_picture, "picture", subset_info=True, gram=gram)
    pictures = [image.axes for image in collection.viz["picture"]["kernels"].values.ravel()]
    for axes in pictures:
        axes.set(xlabel="object" if gram else "basis function", ylabel="object")
    if starts:
        _name_classes(pictures, starts, stack.sizes["obs"], columns=gram)
    return collection


@numpy_warnings()
def _picture(da: xr.DataArray, target: Axes, *, sel: dict, gram: bool, **_: Any) -> AxesImage:
    values = da.transpose("obs", "basis").values
    # Matplotlib scales the entries whenever it draws, where a user may have made underflows errors.
    values = np.where(np.abs(values) > TINY * np.abs(values).max(), values, 0.0)
    norm = _scale(values, gram)
    low, high = float(norm.vmin or 0.0), float(norm.vmax or 0.0)
    image = target.imshow(
        values,
        interpolation="nearest",
        aspect="equal" if gram else "auto",
        cmap="RdBu" if low < 0 else "Blues",
        norm=norm,
    )
    extend = {(False, False): "neither", (False, True): "max", (True, False): "min"}
    beyond = extend.get((bool(values.min() < low), bool(values.max() > high)), "both")
    # Inset axes are as high as the picture for any shape.
    bar = target.inset_axes((1.03, 0.0, 0.05, 1.0))
    ticks = None
    if isinstance(norm, AsinhNorm):
        ticks = [float(f"{tick:.1g}") for tick in norm.inverse(np.linspace(0, 1, TICKS))]
    number = "%g" if ticks else None
    target.figure.colorbar(image, cax=bar, extend=beyond, ticks=ticks, format=number)
    target.set_title(str(sel["kernel"]), fontsize=10)
    return image


def _scale(values: NDArray, gram: bool) -> Normalize:
    """Colour scale, which begins below zero if it has two hues."""
    off_diagonal = gram and len(values) > 1
    entries = values[~np.eye(len(values), dtype=bool)] if off_diagonal else values.ravel()
    signed = bool(values.min() < -ROUNDING * np.abs(values).max())
    # A few large entries, as in polynomial kernels, would leave all others pale.
    reach = float(np.quantile(np.abs(entries), SATURATED))
    if off_diagonal:
        reach = max(reach, LEAST_REACH * float(np.median(np.diag(values))))
    reach = reach or 1.0
    # All entries of a wide Gaussian kernel are near 1; the scale must show their differences.
    smallest = float(np.quantile(entries, 1 - SATURATED))
    if not signed and reach / 2 < smallest < reach:
        return Normalize(smallest, reach)
    sizes = np.abs(entries[entries != 0]) / reach
    middle = float(np.median(sizes)) if len(sizes) else 1.0
    low = -reach if signed else 0.0
    if middle >= SMALL:
        return Normalize(low, reach)
    return AsinhNorm(reach * max(middle, STRAIGHT), vmin=low, vmax=reach)


def _name_classes(
    pictures: Sequence[Axes], starts: Mapping[str, int], n_objects: int, *, columns: bool
) -> None:
    """Draw lines between classes and name each class, or the largest ones, at its middle.

    All axes have the objects as rows in the same order, and, with `columns`, as columns;
    `starts` has the first object of each class.
    """
    names, edges = np.array(list(starts)), np.array([*starts.values(), n_objects])
    middles = (edges[:-1] + edges[1:] - 1) / 2
    figure = pictures[0].get_figure(root=True)
    assert figure is not None
    for axes in pictures:
        for edge in edges[1:-1] - 0.5:
            axes.axhline(edge, color="black", linewidth=0.5)
            if columns:
                axes.axvline(edge, color="black", linewidth=0.5)
        axes.tick_params(length=0, labelsize=FONT_SIZE)
    for _ in range(ROUNDS):
        figure.draw_without_rendering()
        for axes in pictures:
            pixels = axes.get_window_extent().height
            gap = SPACING * FONT_SIZE * figure.dpi / 72 * n_objects / pixels
            kept = _largest_apart(middles, np.diff(edges), gap)
            left_out = "" if len(kept) == len(names) else "\n(largest named)"
            axes.set_yticks(middles[kept], names[kept])
            axes.set_ylabel(f"objects by class{left_out}")
            if columns:
                axes.set_xticks(middles[kept], names[kept])
                axes.set_xlabel("")
                boxes = [text.get_window_extent() for text in axes.get_xticklabels()]
                if any(first.overlaps(second) for first, second in pairwise(boxes)):
                    axes.tick_params(axis="x", labelrotation=90)


def _largest_apart(places: NDArray, sizes: NDArray, gap: float) -> NDArray:
    """Find the largest classes that are at least `gap` apart: their indices, in order."""
    kept: list[int] = []
    for i in np.argsort(-sizes, kind="stable"):
        if all(abs(places[i] - places[j]) >= gap for j in kept):
            kept.append(int(i))
    return np.sort(kept)
