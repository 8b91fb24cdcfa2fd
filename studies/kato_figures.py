"""Figures 2 to 4 of Kato and Rivero, drawn from the tables of their studies.

Rows of these tables have names "<method>, <ratio> %: <measure>".
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kernelzoo.inference.plots.house_style import MARKERS, PALETTE, cycle, open_frame

from .report import Report

__all__ = ["draw_by_matrix", "draw_by_ratio"]

ROW = r"(?P<method>.+), (?P<ratio>\d+) %: (?P<measure>.+)"
AREA = r"AUC of (?P<matrix>.+), (?P<part>\w+) part"


def draw_by_ratio(report: Report) -> Figure:
    """Draw every measure by missing share: a row of panels a measure, a panel a data set.

    Bars are standard errors over repetitions. The embryo data sets, of one repetition each, share a
    panel with their mean.
    """
    table = _finished(report)
    table["column"] = table["column"].str.replace(r" \d+$", "", regex=True)
    measures, columns = (table[name].unique().tolist() for name in ("measure", "column"))
    figure, axes = _panels(len(measures), len(columns))
    for (measure, column, method), lines in table.groupby(["measure", "column", "method"]):
        target = axes[measures.index(measure), columns.index(column)]
        ratios, means, errors = zip(*_by_ratio(lines), strict=True)
        _line(target, table, str(method), np.array(ratios), np.array(means), np.array(errors))
        target.set_xlabel("missing (%)")
    _finish(figure, axes, measures, columns)
    return figure


def draw_by_matrix(report: Report) -> Figure:
    """Draw areas under the curve by matrix: a row of panels a training part, a panel a data set.

    Bars are standard errors over repetitions.
    """
    table = _finished(report)
    table = table.join(table["measure"].str.extract(AREA))
    parts, columns = (table[name].unique().tolist() for name in ("part", "column"))
    figure, axes = _panels(len(parts), len(columns))
    for (part, column), panel in table.groupby(["part", "column"]):
        target = axes[parts.index(part), columns.index(column)]
        matrices = panel["matrix"].unique().tolist()
        for method, lines in panel.groupby("method"):
            places = np.array([matrices.index(matrix) for matrix in lines["matrix"]], dtype=float)
            errors = (lines["sd"] / np.sqrt(lines["splits"])).to_numpy()
            _line(
                target, table, str(method), places, lines["ours"].to_numpy(), errors, joined=False
            )
        target.set_xticks(range(len(matrices)), matrices, fontsize="small")
        target.tick_params(axis="x", rotation=60)
        for label in target.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")
    _finish(figure, axes, [f"AUC (%), {part} training part" for part in parts], columns)
    return figure


def _finished(report: Report) -> pd.DataFrame:
    """Cells with numbers, and the parts of their rows' names."""
    table = report.table
    table = table[table["splits"] > 0].reset_index(drop=True)
    return table.join(table["row"].str.extract(ROW)).astype({"ratio": float})


def _by_ratio(lines: pd.DataFrame) -> Iterator[tuple[float, float, float]]:
    """Ratio, mean and its standard error, for one data set or several together."""
    for ratio, cells in lines.groupby("ratio"):
        if len(cells) == 1:
            error = float((cells["sd"] / np.sqrt(cells["splits"])).iloc[0])
        else:
            error = float(cells["ours"].std(ddof=1) / np.sqrt(len(cells)))
        yield float(str(ratio)), float(cells["ours"].mean()), error


def _panels(n_rows: int, n_columns: int) -> tuple[Figure, np.ndarray]:
    size = (1.0 + 2.9 * n_columns, 0.8 + 2.6 * n_rows)
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(n_rows, n_columns, squeeze=False)


def _line(
    target: Axes,
    table: pd.DataFrame,
    method: str,
    places: np.ndarray,
    means: np.ndarray,
    errors: np.ndarray,
    *,
    joined: bool = True,
) -> None:
    """Draw one method, with colours in the order of the table."""
    methods = table["method"].unique().tolist()
    i, n = methods.index(method), len(methods)
    shift = 0.0 if joined else 0.12 * (i - (n - 1) / 2)
    target.errorbar(
        places + shift,
        means,
        yerr=np.nan_to_num(errors),
        label=method,
        color=cycle(PALETTE, n)[i],
        marker=cycle(MARKERS, n)[i],
        markersize=4,
        linewidth=1.2 if joined else 0.0,
        elinewidth=1.0,
    )


def _finish(figure: Figure, axes: np.ndarray, measures: list[str], columns: list[str]) -> None:
    """Name rows, columns and methods; hide empty panels."""
    named: dict[str, Artist] = {}
    for (i, j), target in np.ndenumerate(axes):
        open_frame(target)
        handles, labels = target.get_legend_handles_labels()
        named |= {str(label): handle for label, handle in zip(labels, handles, strict=True)}
        if not handles:
            target.set_visible(False)
            continue
        if i == 0:
            target.set_title(columns[j], fontsize="medium")
        target.set_ylabel(measures[i], fontsize="small")
    figure.legend(
        list(named.values()), list(named), loc="outside lower center", ncols=5, frameon=False
    )
