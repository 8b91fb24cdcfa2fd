"""Figures 2 to 4 of Kato and Rivero, drawn from the tables of their studies.

Rows of these tables have names "<method>, <ratio> %: <measure>". Bars are standard errors.
"""

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.figure import Figure

from kernelzoo.inference.plots.house_style import MARKERS, PALETTE, cycle, open_frame

from .report import Report

__all__ = ["draw_by_matrix", "draw_by_ratio"]

ROW = r"(?P<method>.+), (?P<ratio>\d+) %: (?P<measure>.+)"
AREA = r"AUC of (?P<matrix>.+), (?P<part>\w+) part"


def draw_by_ratio(report: Report) -> Figure:
    """Draw every measure by missing share: a row of panels per measure, a panel per data set.

    The embryo data sets, of one repetition each, share a panel with their mean.
    """
    table = _finished(report)
    table["column"] = table["column"].str.replace(r" \d+$", "", regex=True)
    by = ["measure", "column", "method", "ratio"]
    lines = table.groupby(by, sort=False, as_index=False).agg(
        ours=("ours", "mean"),
        error=("error", "first"),
        over_sets=("ours", "sem"),
    )
    # The spread over data sets, where several share the panel.
    lines["error"] = lines["over_sets"].fillna(lines["error"])
    return _draw(lines.rename(columns={"measure": "panel", "ratio": "x"}), "missing (%)")


def draw_by_matrix(report: Report) -> Figure:
    """Draw areas under the curve by matrix: a row of panels per training part, one per data set."""
    table = _finished(report)
    table = table.join(table["measure"].str.extract(AREA))
    table["panel"] = "AUC (%), " + table["part"] + " training part"
    return _draw(table.rename(columns={"matrix": "x"}))


def _finished(report: Report) -> pd.DataFrame:
    """Cells with numbers, their standard errors, and the parts of their rows' names."""
    table = report.table
    table = table[table["splits"] > 0].reset_index(drop=True)
    table["error"] = table["sd"] / np.sqrt(table["splits"])
    return table.join(table["row"].str.extract(ROW)).astype({"ratio": float})


def _draw(lines: pd.DataFrame, label: str | None = None) -> Figure:
    """Draw each method by x in the panels; x are numbers with a label, or names."""
    rows, columns, methods = (lines[k].unique().tolist() for k in ("panel", "column", "method"))
    styles = list(zip(cycle(PALETTE, len(methods)), cycle(MARKERS, len(methods)), strict=True))
    size = (1.0 + 2.9 * len(columns), 0.8 + 2.6 * len(rows))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(rows), len(columns), squeeze=False)
    named: dict[str, Artist] = {}
    for (i, j), target in np.ndenumerate(axes):
        open_frame(target)
        panel = lines[(lines["panel"] == rows[i]) & (lines["column"] == columns[j])]
        target.set_visible(len(panel) > 0)
        names = panel["x"].unique().tolist()
        for number, method in enumerate(methods):
            points = panel[panel["method"] == method]
            if points.empty:
                continue
            if label is not None:
                points = points.sort_values("x")
                places = points["x"].to_numpy()
            else:
                shift = 0.12 * (number - (len(methods) - 1) / 2)
                places = np.array([names.index(name) + shift for name in points["x"]])
            color, marker = styles[number]
            named[method] = target.errorbar(
                places,
                points["ours"],
                yerr=points["error"].fillna(0),
                color=color,
                marker=marker,
                markersize=4,
                linewidth=0.0 if label is None else 1.2,
                elinewidth=1.0,
            )
        if label is None:
            target.set_xticks(range(len(names)), names, fontsize="small")
            target.tick_params(axis="x", rotation=60)
            for name in target.get_xticklabels():
                name.set(ha="right", rotation_mode="anchor")
        else:
            target.set_xlabel(label)
        if i == 0:
            target.set_title(columns[j], fontsize="medium")
        target.set_ylabel(rows[i], fontsize="small")
    figure.legend(
        list(named.values()), list(named), loc="outside lower center", ncols=5, frameon=False
    )
    return figure
