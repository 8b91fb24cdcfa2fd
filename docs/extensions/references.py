"""Reference posteriors of the cards, from the files that ``docs/draw_references.py`` writes."""

from pathlib import Path

import numpy as np
import xarray as xr
from arviz_base import xarray_var_iter
from arviz_base.labels import BaseLabeller

from benchmarks.record import markdown_table

REFERENCES = Path(__file__).resolve().parents[1] / "references"
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
    rows = [
        (f"`{BaseLabeller().make_label_flat(name, chosen, at)}`", *map(_number, values))
        for name, chosen, at, values in xarray_var_iter(summary, skip_dims={"statistic"})
        if np.isfinite(values).all()  # entries that are known have no error and no size
    ]
    header = ("quantity", *map(str, summary["statistic"].values))
    more = f"; {len(rows) - ROWS} more quantities are in the file" if len(rows) > ROWS else ""
    chains = f"{attrs['chains']} chain" + ("s" if attrs["chains"] > 1 else "")
    return (
        f"{attrs['engine']}, {chains} of {attrs['draws']} draws, on the example above{more}.\n\n"
        f"{markdown_table(header, rows[:ROWS])}\n\n"
        f"Source: {{download}}`{slug}.nc <../references/{slug}.nc>`, {kept} of the "
        "draws and these statistics; open it by `xarray.open_datatree`."
    )


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
