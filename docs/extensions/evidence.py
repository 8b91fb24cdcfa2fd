"""The table of certificates as a page of coloured cells, and its rows on each card.

``make test-certificates`` writes ``docs/certificates.csv``, a row for each check of a cell: of an
engine on a variant of a model.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markup import TEMPLATES

from benchmarks.record import markdown_table
from certificates import checks

TABLE = Path(__file__).resolve().parents[1] / "certificates.csv"
#: Verdicts of checks; the first that a cell has is its own.
VERDICTS = ("failed", "biased", "passed", "weak", "not run")
#: Columns of the page: samplers, approximations, points.
COLUMNS = (
    *("declaration", "Exact", "Gibbs", "NUTS", "SMC", "INLA", "VB", "ADVI", "Laplace"),
    *("Pathfinder", "EM", "MAP"),
)
#: Header of the rows on a card.
HEADER = (
    *("engine", "check", "verdict", "statistic", "threshold", "bias", "ratios of sds", "finds"),
    *("note", "version, date"),
)


def read(path: Path = TABLE) -> pd.DataFrame:
    """Rows of the table."""
    return pd.read_csv(path, keep_default_na=False, na_values=[""]).fillna({"note": ""})


def verdict(rows: pd.DataFrame) -> str:
    """Verdict of a cell by the rows of its checks."""
    return next((each for each in VERDICTS if (rows["verdict"] == each).any()), "not run")


def anchor(variant: str, engine: str) -> str:
    """Name of a cell on its card."""
    return f"{variant}-{engine}".lower()


def page(table: pd.DataFrame, applying: Mapping[str, Sequence[str]]) -> str:
    """Write the page in Markdown.

    Parameters
    ----------
    table : DataFrame
    applying : mapping of str to sequence of str
        Engines that apply to each variant, by its slug; a cell without a row is "not run".
    """
    rows = dict(iter(table.groupby(["variant", "engine"])))
    cells = {
        (variant, engine): _cell(rows.get((variant, engine), table[:0]))
        for variant in applying
        for engine in ("declaration", *applying[variant])
    }
    verdicts = [verdict for verdict, _ in cells.values()]
    return TEMPLATES.get_template("certificates.md").render(
        engines=sorted({engine for _, engine in cells}, key=COLUMNS.index),
        cells=cells,
        made=rows,
        anchor=anchor,
        checks=checks,
        counts={each: verdicts.count(each) for each in VERDICTS if each in verdicts},
        hours=table["seconds"].sum() / 3600,
        dates=sorted(set(table["date"])),
        versions=sorted(set(table["version"])),
    )


def _cell(rows: pd.DataFrame) -> tuple[str, str]:
    """Verdict and text of a cell: an approximation's largest errors against the reference."""
    found = verdict(rows)
    compared = rows[(rows["check"] == "agreement") & rows["bias"].notna()]
    if found != "biased" or compared.empty:
        return found, found
    (row,) = compared.itertuples()
    ratio = max(row.least_sd_ratio, row.largest_sd_ratio, key=lambda ratio: abs(np.log(ratio)))
    return found, f"{row.bias:+.1f} sd, \N{MULTIPLICATION SIGN}{ratio:.2g}"


def of_card(table: pd.DataFrame, variant: str) -> str:
    """Rows of a variant, for its card, in Markdown."""
    rows = table[table["variant"] == variant]
    first = ~rows.duplicated("engine")
    return markdown_table(HEADER, list(map(_row, rows.itertuples(), first)))


def _row(row: Any, first: bool) -> Sequence[str]:
    kind = row.verdict.replace(" ", "-")
    ratios = dict.fromkeys(map(_number, (row.least_sd_ratio, row.largest_sd_ratio)))
    return (
        f'<a id="{anchor(row.variant, row.engine)}"></a>{row.engine}' if first else "",
        row.check,
        f'<span class="certificate {kind}">{row.verdict}</span>',
        *map(_number, (row.statistic, row.threshold, row.bias)),
        " to ".join(ratios),
        *(_number(row.detects), row.note, f"{row.version}, {row.date}"),
    )


def _number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.2g}"
