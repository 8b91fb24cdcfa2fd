"""Kernels as pictures."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from arviz_plots import PlotCollection
from matplotlib.axes import Axes
from matplotlib.colors import FuncNorm, Normalize
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from ...models.kernels.alignment import aligned, ids_along
from ...models.kernels.specification import as_stack
from ...validation import check_labels
from .class_labels import name_classes
from .house_style import figure_options

__all__ = ["plot_kernels"]

#: Share of the entries whose size the scale of colours covers.
SATURATED = 0.99
#: The scale covers at least this share of the diagonal, so that nothing looks like something.
LEAST_REACH = 0.01
#: Strength of the colour of the median entry, where the scale is curved to show small entries.
MEDIAN_TONE = 0.2
#: Exponent of the most curved scale.
LEAST_EXPONENT = 0.35
#: Ticks of a curved scale in one hue, and of each hue of two.
TICKS = {1: 5, 2: 4}
#: Negative entries smaller than this share of the largest entry count as rounding.
ROUNDING = 1e-9


def plot_kernels(
    kernels: Any,
    labels: Any = None,
    *,
    classes: Sequence | None = None,
    figure_kwargs: Mapping[str, Any] | None = None,
) -> PlotCollection:
    """Draw base kernels as pictures side by side, each on a scale of its own.

    A kernel without negative entries is drawn from light to dark; one with them in two hues that
    meet at zero. The scale covers 99 % of the entries (the diagonal of a Gram matrix left out); an
    arrow on it says that some lie beyond. It begins above zero where all entries are large. Where
    most entries are small beside the largest ones, the scale is curved (a power of the entry), so
    that small entries show: the ticks of the colour bar are then not evenly spaced.

    Parameters
    ----------
    kernels : DataArray (kernel, obs, basis), dict of 2-D arrays, or array (2-D or 3-D)
        As `MultinomialProbit` takes them.
    labels : array_like (obs,), optional
        Classes of the objects: rows (and, of Gram matrices, columns) are ordered by class, and
        lines drawn between classes. Names that would collide are set apart and joined to their
        class by a line; where there is no room for all, some are left out, small classes first.
    classes : sequence, optional
        Classes in the order to draw. Default: the sorted distinct labels.
    figure_kwargs : mapping, optional
        Options of ``matplotlib.pyplot.subplots``, such as ``figsize`` (inches).

    Returns
    -------
    PlotCollection
        Its data are ``kernels`` (kernel, obs, basis) in the order drawn.

    Raises
    ------
    ValueError
        For kernels that are no stack of finite matrices, or labels that disagree with their rows.

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
        figure_kwargs=figure_options(
            figure_kwargs, figsize=(0.4 + 3.3 * n_columns, 2.9 * -(-n_kernels // n_columns))
        ),
    )
    collection.map(_picture, "picture", subset_info=True, gram=gram)
    pictures = [image.axes for image in collection.viz["picture"]["kernels"].values.ravel()]
    for axes in pictures:
        axes.set(xlabel="object" if gram else "basis function", ylabel="object")
    if starts:
        name_classes(pictures, starts, stack.sizes["obs"], columns=gram)
    return collection


def _picture(da: xr.DataArray, target: Axes, *, sel: dict, gram: bool, **_: Any) -> AxesImage:
    values = da.transpose("obs", "basis").values
    norm, ticks = _scale(values, gram)
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
    # Axes inside those of the picture are as high as the picture, whatever its shape.
    bar = target.inset_axes((1.03, 0.0, 0.05, 1.0))
    number = "%g" if ticks else None
    target.figure.colorbar(image, cax=bar, extend=beyond, ticks=ticks, format=number)
    target.set_title(str(sel["kernel"]), fontsize=10)
    return image


def _scale(values: NDArray, gram: bool) -> tuple[Normalize, list[float] | None]:
    """Scale of the colours, which begins below zero if it has two hues, and its ticks."""
    off_diagonal = gram and len(values) > 1
    entries = values[~np.eye(len(values), dtype=bool)] if off_diagonal else values.ravel()
    signed = bool(values.min() < -ROUNDING * np.abs(values).max())
    # A few large entries (polynomials have them) would leave all others pale.
    reach = float(np.quantile(np.abs(entries), SATURATED))
    if off_diagonal:
        reach = max(reach, LEAST_REACH * float(np.median(np.diag(values))))
    reach = reach or 1.0
    # All entries of a wide Gaussian kernel are near 1: what differs among them is to be seen.
    smallest = float(np.quantile(entries, 1 - SATURATED))
    if not signed and reach / 2 < smallest < reach:
        return Normalize(smallest, reach), None
    sizes = np.abs(entries[entries != 0]) / reach
    middle = float(np.median(sizes)) if len(sizes) else 1.0
    low = -reach if signed else 0.0
    if middle >= MEDIAN_TONE:
        return Normalize(low, reach), None
    exponent = max(LEAST_EXPONENT, float(np.log(MEDIAN_TONE) / np.log(middle)))
    curve, inverse = (partial(_signed_power, exponent=e) for e in (exponent, 1 / exponent))
    sizes = reach * inverse(np.linspace(0, 1, TICKS[1 + signed]))
    ticks = {float(f"{size:.1g}") for size in sizes}
    ticks |= {-tick for tick in ticks} if signed else set()
    return FuncNorm((curve, inverse), vmin=low, vmax=reach), sorted(ticks)


def _signed_power(values: NDArray, exponent: float) -> NDArray:
    """Sizes to a power, with their signs."""
    return np.sign(values) * np.abs(values) ** exponent
