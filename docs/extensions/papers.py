"""Pages of the papers: models, notation, equations, open points, and tables beside ours."""

import json
import tomllib
from pathlib import Path
from typing import Any
from unittest.mock import patch

from cards import rst
from markup import sections

import kernelzoo as kz
from benchmarks.record import markdown_table
from certificates.variants import VARIANTS
from studies.__main__ import STUDIES
from studies.study import DESCRIPTIONS, HEADER, RULE, TESTED, Study, tabulate

DOCS = Path(__file__).resolve().parents[1]
#: Units of finished studies, a record per line with its recipe, split and seed.
LEDGERS = DOCS / "ledgers"
#: By the name of the page: heading, question, models, prefix of the studies, notebooks.
PAPERS: dict[str, dict[str, Any]] = tomllib.loads((DOCS / "papers.toml").read_text("utf-8"))
INTRODUCTION = """\
# The papers

Each page has the paper's models, the notation beside the names in the code, where each equation is,
what the paper leaves open, and its tables beside ours.
"""


def _page(paper: dict[str, Any], equations: dict[str, str]) -> str:
    """Text of a paper's page."""
    reference, _, rows = equations[paper["heading"]].partition("\n\n")
    links = [f"[{name}](../gallery/{name}.ipynb)" for name in paper["notebooks"]]
    parts = [f"# {paper['heading']}", reference, paper["question"]]
    parts.append("Read on in the notebook: " + ", ".join(links) + ".")
    for model in paper["models"]:
        parts += _of_model(model)
    parts += [
        "## Equations",
        folded("Where each equation is; modules are relative to kernelzoo", rows),
    ]
    prefix = paper["studies"]
    studies = {name: make() for name, make in STUDIES.items() if name.startswith(prefix)}
    parts += ["## What the paper leaves open", _left_open(prefix, studies)]
    if left_out := DESCRIPTIONS["left_out"][prefix]:
        parts += ["## What of the paper is not here", "\n".join(f"- {each}" for each in left_out)]
    parts += ["## Tables and figures", RULE]
    parts += [_of_study(name, study) for name, study in studies.items()]
    return "\n\n".join(parts) + "\n"


def _of_model(name: str) -> list[str]:
    told = sections(getattr(kz, name))
    summary, _, formulas = told[""].partition("\n\n")
    own = [card for card in VARIANTS if card.model.__name__ == name]
    cards = ", ".join(f"[{card.told or 'defaults'}](../cards/{card.slug}.md)" for card in own)
    return [
        f"## {name}",
        f"{summary} [Reference](../api/kernelzoo.{name}.rst); cards: {cards}.",
        rst(formulas),
        f"### Notation of {name}",
        rst(told.get("Notes", "")),
    ]


def _left_open(prefix: str, studies: dict[str, Study]) -> str:
    notes = dict.fromkeys(study.notes for study in studies.values() if study.notes)
    reasons = dict.fromkeys(r for study in studies.values() for r in study.irreproducible.values())
    points = [*DESCRIPTIONS["choices"][prefix], *notes]
    points += [f"A cell of a table cannot be reproduced: {reason}." for reason in reasons]
    return (
        "Where an equation is wrong as printed, the table above says so. Choices of the studies "
        "where the paper is silent, and what they note:\n\n"
        + "\n".join(f"- {point}" for point in points)
    )


def _of_study(name: str, study: Study) -> str:
    ledger = LEDGERS / f"{study.ledger or name}.jsonl"
    units = [json.loads(line) for line in ledger.read_text(encoding="utf-8").splitlines()]
    found = {f"{unit['recipe']}-{unit['split']}-{unit['seed']}": unit for unit in units}
    report = tabulate(study, found, study.splits)
    # The first version did not say so.
    versions = ", ".join(sorted({unit.get("kernelzoo", "0.1.0") for unit in units}))
    rows = report.printed()
    # Most readers compare; what the paper has not measured is long.
    further = [row for row in rows if study.published and not row[2]]
    title = study.title if name not in study.title else name
    parts = [f"### {title} ({name})", f"{study.measure}; {report.repetitions()}."]
    parts += [markdown_table(HEADER, [row for row in rows if row not in further])]
    if further:
        told = f"{len(further)} rows that the paper does not have"
        parts.append(folded(told, markdown_table(HEADER, further)))
    if tested := report.tested():
        told = "Paired t-tests over our splits of what the paper says:"
        parts += [told, markdown_table(TESTED, tested)]
    parts.append(
        f"Source: ledger `docs/ledgers/{ledger.name}`, by kernelzoo {versions}. To resume it:"
    )
    return "\n\n".join([*parts, f"```\npython -m studies {name}\n```"])


def folded(title: str, text: str) -> str:
    """Text that a reader opens."""
    return f"::::{{dropdown}} {title}\n{text}\n::::"


def pages() -> dict[str, str]:
    """Write the pages of the papers and their index by their file in ``docs``."""
    text = (DOCS / "equations.md").read_text(encoding="utf-8")
    headed = (part.partition("\n") for part in text.split("\n## ")[1:])
    equations = {heading: rest.strip() for heading, _, rest in headed}
    # Studies ask where their data are; writing pages downloads none.
    with patch("kernelzoo.datasets.catalogue._of_openml", side_effect=OSError("no download")):
        written = {f"papers/{slug}.md": _page(paper, equations) for slug, paper in PAPERS.items()}
    entries = "\n".join(
        f"- [{p['heading']}]({slug}.md): {p['question']}" for slug, p in PAPERS.items()
    )
    tree = "\n".join(PAPERS)
    index = f"{INTRODUCTION}\n{entries}\n\n```{{toctree}}\n:hidden:\n\n{tree}\n```\n"
    return written | {"papers/index.md": index}
