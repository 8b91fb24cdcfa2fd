"""Tables and pictures of benchmarks, from what ``python -m benchmarks NAME --json`` writes."""

import json
import re
from collections.abc import Iterator
from io import BytesIO
from itertools import cycle, groupby
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from tables import markdown_table

__all__ = ["pages"]

MEASURED = Path(__file__).resolve().parents[1] / "measured"

#: Columns of the curves, the abscissa and the ordinates of a benchmark's picture, by its name.
PICTURES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "features": ("features", "number", ("error of kernels", "log score", "weight of upper half")),
}


def _parts(parts: list[dict[str, Any]], source: str) -> Iterator[str]:
    """Tables in Markdown with their source; lines between them in one block."""
    for is_table, group in groupby(parts, key=lambda part: "rows" in part):
        if not is_table:
            lines = "\n".join(part["text"] for part in group)
            yield f"```text\n{lines}\n```"
            continue
        for part in group:
            if part["title"]:
                yield f"**{part['title']}**"
            yield markdown_table(tuple(part["columns"]), [tuple(row) for row in part["rows"]])
            yield f"Source: {source}."


def _number(cell: str) -> float:
    """Read the number that a cell begins with; NaN for an empty cell."""
    return float(cell.split()[0]) if cell else float("nan")


def _picture(table: dict[str, Any], curve: str, x: str, ordinates: tuple[str, ...]) -> bytes:
    """Draw columns of a table against another; a curve of one row is a level."""
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    figure = Figure(figsize=(3.6 * len(ordinates), 3.6), layout="constrained")
    for axes, y in zip(
        figure.subplots(1, len(ordinates), squeeze=False)[0], ordinates, strict=True
    ):
        styles = cycle(("--", ":"))
        for name, group in groupby(rows, key=lambda row: row[curve]):
            points = [(_number(row[x]), _number(row[y])) for row in group]
            if len(points) == 1:
                axes.axhline(points[0][1], color="black", ls=next(styles), label=name)
            else:
                axes.plot(*zip(*points, strict=True), marker="o", ms=4, label=name)
        axes.set(xscale="log", xlabel=x, title=y)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    out = BytesIO()
    figure.savefig(out, dpi=150)
    return out.getvalue()


def _section(record: dict[str, Any]) -> str:
    name = record["benchmark"]
    versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    file = f"`docs/measured/bench-{name}.json`"
    source = (
        f"The file was written by `python -m benchmarks {name} --json "
        f"docs/measured/bench-{name}.json` in {record['seconds']} s ({record['machine']}, "
        f"BLAS threads: {record['blas_threads']}; {versions})."
    )
    # Markup of the console says nothing on a page.
    told = (re.sub(r"\[/?[a-z ]*\]", "", part) for part in _parts(record["parts"], file))
    shown = f"![{name}](generated/bench-{name}.png)"
    return "\n\n".join([f"## {name}", *([shown] if name in PICTURES else []), *told, source])


def pages() -> dict[str, str | bytes]:
    """Write a section a benchmark, for inclusion, and its picture, by their files in ``docs``."""
    records = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(MEASURED.glob("bench-*.json"))
    ]
    told = "\n\n".join(map(_section, records)) or "None was recorded."
    written: dict[str, str | bytes] = {"generated/benchmarks.md": told + "\n"}
    for record in records:
        if columns := PICTURES.get(record["benchmark"]):
            table = record["parts"][0]
            written[f"generated/bench-{record['benchmark']}.png"] = _picture(table, *columns)
    return written
