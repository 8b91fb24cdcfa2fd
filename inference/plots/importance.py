"""Figure of what each kernel contributes to predictions."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from ...validation import argument_error
from .results import GREY, PALETTE

COLUMNS = ("alone", "alone_se", "without", "without_se")
#: Distance of two points of a kernel, in rows.
SHIFT = 0.12


def plot_importance(importance: pd.DataFrame) -> Axes:
    """Plot how well each kernel alone, and all without it, predict left-out objects.

    A kernel counts where it is good alone and its absence is felt. A line marks the score of all
    kernels; bars reach two standard errors to each side.

    Parameters
    ----------
    importance : DataFrame
        Attribute ``importance_`` of a fitted `KernelClassifier` or `KernelRegressor`.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        For anything else.

    Examples
    --------
    >>> kz.plots.plot_importance(classifier.importance_)
    """
    owner = "plot_importance"
    given: Any = importance
    if not (isinstance(given, pd.DataFrame) and {*COLUMNS} <= {*given} and "all" in given.attrs):
        rule = "the attribute importance_ of a fitted KernelClassifier or KernelRegressor"
        raise argument_error("importance", owner, rule, type(given).__name__)
    height = 1.2 + 0.4 * len(importance)
    _, axes = plt.subplots(figsize=(6.4, height), layout="constrained")
    rows = np.arange(len(importance))
    axes.axvline(importance.attrs["all"], color=GREY, linestyle=":", label="all kernels")
    for name, shift, color, marker in (
        ("alone", -SHIFT, PALETTE[0], "o"),
        ("without", SHIFT, PALETTE[1], "s"),
    ):
        axes.errorbar(
            importance[name],
            rows + shift,
            xerr=2 * importance[f"{name}_se"],
            linestyle="none",
            color=color,
            marker=marker,
            label="the kernel alone" if name == "alone" else "all without the kernel",
        )
    axes.set_yticks(rows, importance.index.astype(str))
    axes.set_ylim(len(importance) - 0.5, -0.5)
    axes.set_xlabel("mean log score of left-out objects, with 2 standard errors")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    return axes
