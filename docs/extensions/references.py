"""Reference posteriors of the cards, from the files that ``docs/draw_references.py`` writes."""

from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from tables import markdown_table

REFERENCES = Path(__file__).resolve().parents[1] / "references"
#: Statistics in the columns of the table.
STATISTICS = ("mean", "sd", "MCSE", "ESS", "R-hat")
#: Rows of a table; the file has all.
ROWS = 16
NOTE = (
    "Not drawn in this build: run `python docs/draw_references.py {slug}`, which writes "
    "`references/{slug}.nc`."
)


def section(slug: str) -> str:
    """Table and file of a card's reference posterior, in Markdown."""
    path = REFERENCES / f"{slug}.nc"
    if not path.exists():
        return NOTE.format(slug=slug)
    with xr.open_datatree(path) as reference:
        attrs, summary = reference.attrs, reference["summary"].to_dataset().load()
        kept = reference["posterior"].sizes["chain"] * reference["posterior"].sizes["draw"]
    names = [str(name) for name in summary["statistic"].values]
    rows = [row for variable in summary.data_vars.values() for row in _rows(variable)]
    # Entries that are known have no error and no size.
    drawn = [row for row in rows if np.isfinite(row[1:]).all()]
    table = markdown_table(
        ("quantity", *names),
        [(f"`{name}`", *map(_number, row)) for name, *row in drawn[:ROWS]],
    )
    more = f"; {len(drawn) - ROWS} more quantities are in the file" if len(drawn) > ROWS else ""
    chains = f"{attrs['chains']} chain" + ("s" if attrs["chains"] > 1 else "")
    return (
        f"{attrs['engine']}, {chains} of {attrs['draws']} draws, on the example above{more}.\n\n"
        f"{table}\n\nSource: {{download}}`{slug}.nc <../references/{slug}.nc>`, {kept} of the "
        "draws and these statistics; open it by `xarray.open_datatree`."
    )


def _rows(variable: xr.DataArray) -> list[tuple[Any, ...]]:
    """Name and statistics of each entry."""
    entries = [dim for dim in variable.dims if dim != "statistic"]
    if not entries:
        return [(str(variable.name), *map(float, variable.values))]
    stacked = variable.stack(entry=entries).transpose("entry", "statistic")
    return [
        (f"{variable.name}[{', '.join(map(str, label))}]", *map(float, row))
        for label, row in zip(stacked.indexes["entry"], stacked.values, strict=True)
    ]


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
