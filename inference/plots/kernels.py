"""Kernels as pictures."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from numpy.typing import NDArray

from ...models.kernels.labels import aligned, ids_along
from ...models.kernels.stack import as_stack
from ...user_warnings import numpy_warnings
from ...validation import check_labels

#: Share of the entries that the colour scale covers, by size.
SATURATED = 0.99
#: The scale covers at least this share of the diagonal, so that negligible entries look negligible.
LEAST_REACH = 0.01
#: Entries smaller than this share of the largest entry count as rounding: they are drawn as zeros.
ROUNDING_SHARE = 1e-9


@numpy_warnings()
def plot_kernels(kernels: Any, labels: Any = None, *, classes: Sequence | None = None) -> NDArray:
    """Draw base kernels as pictures side by side, each on its own colour scale.

    A kernel without negative entries is drawn from light to dark, a kernel with negative entries in
    two hues that meet at zero. The scale covers 99 % of the entries (without the diagonal of a Gram
    matrix); an arrow marks that some lie beyond. It begins above zero if all entries are large.

    Parameters
    ----------
    kernels : DataArray (kernel, obs, basis), dict of 2-D arrays, or array (2-D or 3-D)
        Kernels as for `MultinomialProbit`, or completed ones: ``kernel_mean`` of ``kz.predict``.
    labels : array_like (obs,), optional
        Classes of the objects: rows (and columns of Gram matrices) are ordered by class, with lines
        between classes.
    classes : sequence, optional
        Classes in the order to draw. Default: the sorted distinct labels.

    Returns
    -------
    ndarray of Axes (kernel,)

    Raises
    ------
    ValueError
        For kernels that are not a stack of finite matrices, or labels that do not match their rows.

    Examples
    --------
    >>> kz.plots.plot_kernels(kernels(data.X_train), data.y_train)
    """
    owner = "plot_kernels"
    if "object_" in getattr(kernels, "dims", ()):
        kernels = kernels.rename(object="obs", object_="basis")
    stack = as_stack(kernels, owner=owner)
    gram = np.array_equal(stack["obs"].values, stack["basis"].values)
    names = np.empty(0)
    edges = np.empty(0)
    if labels is not None:
        labels = aligned(labels, ids_along(stack, "obs"), "labels", owner)
        n_objects = stack.sizes["obs"]
        codes, known = check_labels(labels, "labels", owner, classes=classes, n_objects=n_objects)
        order = np.argsort(codes, kind="stable")
        stack = stack.isel(obs=order, basis=order) if gram else stack.isel(obs=order)
        counts = np.bincount(codes, minlength=len(known))
        names = known[counts > 0].astype(str)
        edges = np.cumsum([0, *counts[counts > 0]]) - 0.5
    columns = min(4, len(stack))
    rows = -(-len(stack) // columns)
    size = 0.4 + 3.3 * columns, 2.9 * rows
    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    for each in axes.flat[len(stack) :]:
        each.remove()
    pictures = axes.flat[: len(stack)]
    for each, kernel in zip(pictures, stack.transpose("kernel", "obs", "basis"), strict=True):
        values = kernel.to_numpy()
        values = np.where(np.abs(values) > ROUNDING_SHARE * np.abs(values).max(), values, 0.0)
        low, high = _range(values, gram)
        look = {"aspect": "equal" if gram else "auto", "cmap": "RdBu" if low < 0 else "Blues"}
        image = each.imshow(values, interpolation="nearest", vmin=low, vmax=high, **look)
        below = values.min() < low
        above = values.max() > high
        extend = ("both" if above else "min") if below else ("max" if above else "neither")
        # Inset axes are as high as the picture for any shape.
        figure.colorbar(image, cax=each.inset_axes((1.03, 0.0, 0.05, 1.0)), extend=extend)
        each.set_title(str(kernel["kernel"].item()), fontsize=10)
        each.set(xlabel="object" if gram else "basis function")
        if len(names):
            for line in (each.axhline, each.axvline)[: 1 + gram]:
                for edge in edges[1:-1]:
                    line(edge, color="black", linewidth=0.5)
            each.set_yticks((edges[:-1] + edges[1:]) / 2, names)
            each.tick_params(axis="y", length=0, labelsize=8)
    # Elsewhere it would stand beside a colour bar, and read as that bar's.
    plt.setp(axes[:, 0], ylabel="objects by class" if len(names) else "object")
    return pictures


def _range(values: NDArray, gram: bool) -> tuple[float, float]:
    """Return the ends of the colour scale, which begins below zero if it has two hues."""
    off_diagonal = gram and len(values) > 1
    entries = values[~np.eye(len(values), dtype=bool)] if off_diagonal else values.ravel()
    # A few large entries, as in polynomial kernels, would leave all others pale.
    reach = float(np.quantile(np.abs(entries), SATURATED))
    if off_diagonal:
        reach = max(reach, LEAST_REACH * float(np.median(np.diag(values))))
    reach = reach or 1.0
    if values.min() < 0:
        return -reach, reach
    # All entries of a wide Gaussian kernel are near 1; the scale must show their differences.
    smallest = float(np.quantile(entries, 1 - SATURATED))
    return (smallest if reach / 2 < smallest < reach else 0.0), reach
