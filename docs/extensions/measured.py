"""Tables of benchmarks, from what ``python -m benchmarks NAME --json`` writes."""

import json
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from tables import markdown_table

MEASURED = Path(__file__).resolve().parents[1] / "measured"


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
    return "\n\n".join([f"## {name}", *told, source])


def pages() -> dict[str, str | bytes]:
    """Write a section per benchmark, for inclusion."""
    records = (
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(MEASURED.glob("bench-*.json"))
    )
    told = "\n\n".join(map(_section, records)) or "None was recorded."
    return {"generated/benchmarks.md": told + "\n"}
