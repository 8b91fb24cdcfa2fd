"""Pages of the papers: models, notation, equations, open points, and tables beside ours."""

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from cards import CARDS, rst
from docstrings import sections

import kernelzoo as kz
from kernelzoo.models import Declaration
from studies.__main__ import STUDIES
from studies.study import RULE, Study, tabulate

DOCS = Path(__file__).resolve().parents[1]
#: Units of finished studies, a record per line with its recipe, split and seed; a study without one
#: shows the paper's numbers and its command.
LEDGERS = DOCS / "ledgers"


@dataclass(frozen=True)
class Paper:
    """A paper and where it is in the project."""

    slug: str
    heading: str
    question: str
    models: tuple[type[Declaration], ...]
    studies: str
    notebooks: list[str]

    def page(self, equations: dict[str, str]) -> str:
        """Text of the page."""
        reference, _, rows = equations[self.heading].partition("\n\n")
        links = [f"[{name}](../gallery/{name}.ipynb)" for name in self.notebooks]
        parts = [f"# {self.heading}", reference, self.question]
        parts.append("Read on in the notebook: " + ", ".join(links) + ".")
        for model in self.models:
            parts += _of_model(model)
        parts += ["## Equations", f"Modules are relative to `kernelzoo`.\n\n{rows}"]
        studies = {name: make() for name, make in STUDIES.items() if name.startswith(self.studies)}
        parts += ["## What the paper leaves open", _left_open(studies)]
        parts += ["## Tables and figures", RULE]
        parts += [_of_study(name, study) for name, study in studies.items()]
        return "\n\n".join(parts) + "\n"


def _of_model(model: type[Declaration]) -> list[str]:
    told = sections(model)
    summary, _, formulas = told[""].partition("\n\n")
    own = [card for card in CARDS if card.model is model]
    cards = ", ".join(f"[{card.variant or 'defaults'}](../cards/{card.slug}.md)" for card in own)
    return [
        f"## {model.__name__}",
        f"{summary} [Reference](../api/kernelzoo.{model.__name__}.rst); cards: {cards}.",
        rst(formulas),
        f"### Notation of {model.__name__}",
        rst(told.get("Notes", "")),
    ]


def _left_open(studies: dict[str, Study]) -> str:
    notes = dict.fromkeys(study.notes for study in studies.values() if study.notes)
    reasons = dict.fromkeys(r for study in studies.values() for r in study.irreproducible.values())
    points = [f"- {note}" for note in notes]
    points += [f"- A cell of a table cannot be reproduced: {reason}." for reason in reasons]
    return (
        "Where an equation is wrong as printed, the table above says so. The studies note:\n\n"
        + "\n".join(points)
    )


def _of_study(name: str, study: Study) -> str:
    ledger = LEDGERS / f"{study.ledger or name}.jsonl"
    lines = ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else ()
    units = [json.loads(line) for line in lines]
    found = {f"{unit['recipe']}-{unit['split']}-{unit['seed']}": unit for unit in units}
    report = tabulate(study, found, study.splits)
    table = report.markdown_table()
    # The first version did not say so.
    versions = sorted({unit.get("kernelzoo", "0.1.0") for unit in units})
    source = f"ledger `docs/ledgers/{ledger.name}`, by kernelzoo {', '.join(versions)}"
    if not units:
        # Without a run there is nothing of ours to show.
        table = [_columns(line, 3) for line in table] if study.published else []
        source = "numbers as printed in the paper, from `studies/`; ours are not in this build"
    title = study.title if name not in study.title else name
    parts = (
        f"### {title} ({name})",
        f"{study.measure}; {report.repetitions()}.",
        "\n".join(table),
        f"Source: {source}. To make or resume it:",
        f"```\npython -m studies {name}\n```",
    )
    return "\n\n".join(parts)


def _columns(row: str, first: int) -> str:
    return "|".join(re.split(r"(?<!\\)\|", row)[: first + 1]) + "|"


PAPERS = tuple(
    Paper(slug, **row | {"models": tuple(getattr(kz, name) for name in row["models"])})
    for slug, row in tomllib.loads((DOCS / "papers.toml").read_text(encoding="utf-8")).items()
)

INTRODUCTION = """\
# The papers

Each page has the paper's models, the notation beside the names in the code, where each equation is,
what the paper leaves open, and its tables beside ours.
"""


def pages() -> dict[str, str]:
    """Write the pages of the papers and their index by their file in ``docs``."""
    text = (DOCS / "equations.md").read_text(encoding="utf-8")
    headed = (part.partition("\n") for part in text.split("\n## ")[1:])
    equations = {heading: rest.strip() for heading, _, rest in headed}
    # Studies ask where their data are; writing pages downloads none.
    with patch("kernelzoo.datasets.catalogue._of_openml", side_effect=OSError("no download")):
        written = {f"papers/{paper.slug}.md": paper.page(equations) for paper in PAPERS}
    entries = "\n".join(f"- [{p.heading}]({p.slug}.md): {p.question}" for p in PAPERS)
    tree = "\n".join(paper.slug for paper in PAPERS)
    written["papers/index.md"] = (
        f"{INTRODUCTION}\n{entries}\n\n```{{toctree}}\n:hidden:\n\n{tree}\n```\n"
    )
    return written
