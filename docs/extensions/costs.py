"""Tables of measured costs, from the file that ``docs/measure.py`` writes."""

import json
from pathlib import Path
from typing import Any

from tables import markdown_table

MEASURED = Path(__file__).resolve().parents[1] / "measured" / "engines.json"

#: What each problem is, with the sizes to fill in.
PROBLEMS = {
    "wine": "classes of wine, {obs} training objects, {class} classes, {kernel} kernels, tau=1",
    "sonar": "two classes of sonar echoes, {obs} training objects, {kernel} kernels",
    "completion": "ionosphere, a kernel known for {train} objects and completed for {test}",
    "mutual": "{object} irises, {kernel} kernels, each of which lacks some objects",
}
HEADER = ("engine", "seconds", "draws", "converged", "least ESS a second", "k-hat", "log score")


def _number(value: Any, form: str) -> str:
    return "" if value is None else format(value, form)


def _table(problem: dict[str, Any]) -> str:
    rows = [
        (
            engine,
            _number(row["seconds"], ".1f"),
            f"{row['draws']}",
            str(row["converged"]),
            _number(row.get("ess_per_second"), ".2g"),
            _number(row.get("pareto_k"), ".2f"),
            _number(row.get("log_score"), ".3f"),
        )
        for engine, row in problem["engines"].items()
    ]
    # Columns that no engine fills say nothing.
    filled = [i for i in range(len(HEADER)) if any(row[i] for row in rows)]
    return markdown_table(
        tuple(HEADER[i] for i in filled), [tuple(row[i] for i in filled) for row in rows]
    )


def _weights(problem: dict[str, Any]) -> str:
    told = []
    for engine, row in problem["engines"].items():
        each = ", ".join(f"{name} {mean:.2f} ± {sd:.2f}" for name, mean, sd in row["weights"])
        if each:
            told.append(f"- {engine}: {each}")
    return "Weights of the kernels, mean ± sd:\n\n" + "\n".join(told) if told else ""


def pages() -> dict[str, str]:
    """Write the tables, for inclusion, by their file in ``docs``."""
    if not MEASURED.exists():
        return {"generated/costs.md": "Not measured in this build: run `python docs/measure.py`.\n"}
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    versions = ", ".join(f"{name} {number}" for name, number in measured["versions"].items())
    source = (
        f"Source: `docs/measured/engines.json`, written by `python docs/measure.py` "
        f"({measured['machine']}; {versions}). Compare times within a table only."
    )
    parts = []
    for name, told in PROBLEMS.items():
        problem = measured["problems"].get(name)
        if problem is not None:
            heading = f"**`{problem['model']}`** on {told.format(**problem['sizes'])}:"
            parts += [heading, _table(problem), source, _weights(problem)]
    return {"generated/costs.md": "\n\n".join(filter(None, parts)) + "\n"}
