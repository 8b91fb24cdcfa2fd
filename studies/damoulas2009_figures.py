"""Figures 4 to 8 of Damoulas and Girolami: posterior of a boundary, regions, weights."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from numpy.typing import NDArray
from scipy.stats import chi2

from kernelzoo.inference.plots.house_style import GREY, MARKERS, PALETTE, cycle, open_frame, tint

from .report import Cell, Report

__all__ = ["Regions", "draw_boundaries_and_regions", "draw_weights"]

#: Separator between a combination and a feature space in the name of a row.
WEIGHT = ": weight of "
#: Share of a cloud that the axes cover, and probability of its ellipse under normality.
SHOWN, INSIDE = 0.99, 0.95
POINTS = 2000


class Regions(NamedTuple):
    """Training objects (N, 2) and classes (N,); predicted classes on a grid by engine.

    The grid (side, side) is that of the unit square, the first input along the last axis.
    """

    X: NDArray
    codes: NDArray
    labels: Mapping[str, NDArray]


def draw_boundaries_and_regions(
    clouds: Mapping[str, NDArray], true: NDArray, regions: Regions
) -> Figure:
    """Draw Figures 4 and 5, slopes and intercepts (draw, 2) by engine, above Figures 6 and 7."""
    figure = Figure(figsize=(10.5, 7.4), layout="constrained")
    above, below = figure.subfigures(2, 1, squeeze=False)[:, 0]
    above.suptitle("Slope and intercept of a boundary", fontsize="medium")
    below.suptitle("Regions of the predicted class", fontsize="medium")
    first = next(iter(clouds.values()))
    low, high = np.quantile(first, [(1 - SHOWN) / 2, (1 + SHOWN) / 2], axis=0)
    low, high = np.minimum(low, true), np.maximum(high, true)
    margin = 0.08 * (high - low)
    panels = above.subplots(1, len(clouds), sharex=True, sharey=True, squeeze=False)[0]
    for target, (name, draws), color in zip(
        panels, clouds.items(), cycle(PALETTE, len(clouds)), strict=True
    ):
        _cloud(target, draws, true, color)
        target.set(
            title=name,
            xlabel="slope",
            xlim=(low[0] - margin[0], high[0] + margin[0]),
            ylim=(low[1] - margin[1], high[1] + margin[1]),
        )
    panels[0].set_ylabel("intercept")
    panels[0].legend(frameon=False, fontsize="small", loc="upper left")
    panels = below.subplots(1, len(regions.labels), sharex=True, sharey=True, squeeze=False)[0]
    for target, (name, labels) in zip(panels, regions.labels.items(), strict=True):
        _regions(target, regions, labels)
        target.set(title=name, xlabel="$x_1$")
    panels[0].set_ylabel("$x_2$")
    return figure


def _cloud(target: Axes, draws: NDArray, true: NDArray, color: str) -> None:
    """Draw a cloud, the ellipse of the normal with the same moments, and the truth."""
    spaced = np.linspace(0, len(draws) - 1, min(POINTS, len(draws))).astype(int)
    target.scatter(
        draws[spaced, 0],
        draws[spaced, 1],
        s=4,
        color=color,
        alpha=0.35,
        linewidth=0,
        rasterized=True,
    )
    variances, axes = np.linalg.eigh(np.cov(draws.T))
    width, height = 2 * np.sqrt(chi2.ppf(INSIDE, 2) * variances)
    angle = float(np.degrees(np.arctan2(axes[1, 0], axes[0, 0])))
    center = float(draws[:, 0].mean()), float(draws[:, 1].mean())
    ellipse = Ellipse(center, width, height, angle=angle, fill=False, edgecolor="0.2")
    ellipse.set_label(f"normal of the same moments, {100 * INSIDE:.0f} %")
    target.add_patch(ellipse)
    target.plot(*true, "x", color="black", markersize=10, markeredgewidth=2, label="true boundary")
    open_frame(target)


def _regions(target: Axes, regions: Regions, labels: NDArray) -> None:
    """Draw the class on the grid, the borders and the objects."""
    n_classes = int(regions.codes.max()) + 1
    colors = cycle(PALETTE, n_classes)
    shades = np.array([tint(color, 0.3) for color in colors])
    half = 0.5 / (len(labels) - 1)
    extent = (-half, 1 + half, -half, 1 + half)
    target.imshow(shades[labels], origin="lower", extent=extent, interpolation="nearest")
    axis = np.linspace(0, 1, len(labels))
    for code in range(n_classes):
        inside = (labels == code).astype(float)
        if 0 < inside.mean() < 1:
            target.contour(axis, axis, inside, levels=[0.5], colors="0.2", linewidths=0.7)
        own = regions.X[regions.codes == code]
        marker = cycle(MARKERS, n_classes)[code]
        target.scatter(
            own[:, 0],
            own[:, 1],
            s=13,
            color=colors[code],
            marker=marker,
            edgecolor="white",
            linewidth=0.4,
        )
    target.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")


def draw_weights(report: Report) -> Figure:
    """Draw Figure 8: weights of the spaces, a point per trial, a panel per combination.

    Bars show means over trials.
    """
    by_rule: dict[str, list[Cell]] = {}
    for cell in report.cells:
        if WEIGHT in cell.row and cell.values:
            by_rule.setdefault(cell.row.partition(WEIGHT)[0], []).append(cell)
    figure = Figure(figsize=(1.0 + 2.2 * max(len(by_rule), 1), 3.4), layout="constrained")
    if not by_rule:
        return figure
    panels = figure.subplots(1, len(by_rule), sharey=True, squeeze=False)[0]
    for target, (rule, cells) in zip(panels, by_rule.items(), strict=True):
        spaces = [cell.row.partition(WEIGHT)[2] for cell in cells]
        for place, (cell, color) in enumerate(zip(cells, cycle(PALETTE, len(cells)), strict=True)):
            values = np.array(cell.values) / 100
            target.bar(place, values.mean(), width=0.7, color=tint(color, 0.35), edgecolor=color)
            shift = np.linspace(-0.22, 0.22, len(values)) if len(values) > 1 else 0.0
            target.scatter(place + shift * np.ones(len(values)), values, s=9, color=color, zorder=3)
        target.axhline(0, color=GREY, linewidth=0.8)
        target.set_xticks(range(len(spaces)), spaces)
        title, _, start = rule.partition(", ")
        target.set_title(f"{title}\n{start}" if start else title, fontsize="medium")
        target.set_ylim(bottom=0)
        open_frame(target)
    panels[0].set_ylabel("posterior mean of the weight")
    return figure
