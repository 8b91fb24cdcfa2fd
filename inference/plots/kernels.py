"""Kernels as pictures."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from arviz_plots import PlotCollection
from matplotlib.axes import Axes
from matplotlib.image import AxesImage

from ...models.alignment import aligned, ids_along
from ...models.checks import check_labels
from ...models.kernels import as_stack
from .house_style import figure_options

__all__ = ["plot_kernels"]

#: Share of the entries whose size the scale of colours covers.
SATURATED = 0.99


def plot_kernels(
    kernels: Any,
    labels: Any = None,
    *,
    classes: Sequence | None = None,
    figure_kwargs: Mapping[str, Any] | None = None,
) -> PlotCollection:
    """Draw base kernels as pictures side by side, each on a scale of its own.

    A kernel without negative entries is drawn from light to dark; one with them in two hues that
    meet at zero. The scale covers 99 % of the entries; an arrow on it says that some lie beyond.

    Parameters
    ----------
    kernels : DataArray (kernel, obs, basis), dict of 2-D arrays, or array (2-D or 3-D)
        As `MultinomialProbit` takes them.
    labels : array_like (obs,), optional
        Classes of the objects: rows (and, of Gram matrices, columns) are ordered by class, and
        lines drawn between classes.
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
    >>> kz.plot_kernels(kernels(data.X_train), data.y_train)
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
            figure_kwargs, figsize=(0.4 + 3.0 * n_columns, 2.9 * -(-n_kernels // n_columns))
        ),
    )
    collection.map(_picture, "picture", subset_info=True, starts=starts, gram=gram)
    return collection


def _picture(
    da: xr.DataArray, target: Axes, *, sel: dict, starts: dict[str, int], gram: bool, **_: Any
) -> AxesImage:
    values = da.transpose("obs", "basis").values
    # A few large entries (polynomials have them) would leave all others pale.
    reach = float(np.quantile(np.abs(values), SATURATED)) or 1.0
    signed = values.min() < 0
    image = target.imshow(
        values,
        interpolation="nearest",
        aspect="equal" if gram else "auto",
        cmap="RdBu" if signed else "Blues",
        vmin=-reach if signed else 0.0,
        vmax=reach,
    )
    beyond = {(False, False): "neither", (False, True): "max", (True, False): "min"}
    extend = beyond.get((bool(values.min() < -reach), bool(values.max() > reach)), "both")
    target.figure.colorbar(image, ax=target, shrink=0.8, pad=0.03, extend=extend)
    target.set_title(str(sel["kernel"]), fontsize=10)
    if starts:
        _divide(target, starts, len(values), gram)
    else:
        target.set(xlabel="object" if gram else "basis function", ylabel="object")
    return image


def _divide(axes: Axes, starts: dict[str, int], n_objects: int, gram: bool) -> None:
    """Name each class at the middle of its objects and draw lines between classes."""
    edges = np.array([*starts.values(), n_objects])
    for edge in edges[1:-1] - 0.5:
        axes.axhline(edge, color="black", linewidth=0.7)
        if gram:
            axes.axvline(edge, color="black", linewidth=0.7)
    middles = (edges[:-1] + edges[1:] - 1) / 2
    axes.set_yticks(middles, list(starts))
    axes.set_ylabel("objects by class")
    if gram:
        axes.set_xticks(middles, list(starts))
    else:
        axes.set_xlabel("basis function")
    axes.tick_params(length=0)
