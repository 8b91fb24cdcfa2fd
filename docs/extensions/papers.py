"""Pages of the papers: models, notation, equations, open points, and tables beside ours."""

import json
import re
from pathlib import Path
from typing import Any
from unittest.mock import patch

from cards import DOCS, PAPERS, rst
from markup import TEMPLATES, sections

import kernelzoo as kz
from studies.__main__ import STUDIES
from studies.study import DESCRIPTIONS, HEADER, RULE, TESTED, Report, Study, tabulate

#: Units of finished studies, a record per line with its recipe, split and seed.
LEDGERS = DOCS / "ledgers"
#: Studies ask where their data are; pages need none.
NO_DOWNLOADS = patch("kernelzoo.datasets.catalogue._of_openml", side_effect=OSError("no download"))
TEMPLATES.globals |= {"rule": RULE, "header": HEADER, "tested": TESTED}


def _page(paper: dict[str, Any], equations: dict[str, str]) -> str:
    reference, _, rows = equations[paper["heading"]].partition("\n\n")
    prefix = paper.get("studies")
    if prefix is None:
        return TEMPLATES.get_template("paper.md").render(
            paper=paper,
            reference=reference,
            models="\n\n".join(map(_of_model, paper["models"])),
            equations=rows,
            studies="",
        )
    studies = {name: make() for name, make in STUDIES.items() if name.startswith(prefix)}
    return TEMPLATES.get_template("paper.md").render(
        paper=paper,
        reference=reference,
        models="\n\n".join(map(_of_model, paper["models"])),
        equations=rows,
        points=_left_open(prefix, studies),
        left_out=DESCRIPTIONS["left_out"][prefix],
        studies="\n\n".join(_of_study(name, study) for name, study in studies.items()),
    )


def _of_model(name: str) -> str:
    told = sections(getattr(kz, name))
    summary, _, formulas = told[""].partition("\n\n")
    return TEMPLATES.get_template("model.md").render(
        name=name, summary=summary, formulas=rst(formulas), notation=rst(told.get("Notes", ""))
    )


def _left_open(prefix: str, studies: dict[str, Study]) -> list[str]:
    notes = dict.fromkeys(study.notes for study in studies.values() if study.notes)
    unclear: dict[tuple[str, str], list[str]] = {}
    for study in studies.values():
        for (row, column), reason in study.irreproducible.items():
            unclear.setdefault((f"{_short(study.title)}, {column}", reason), []).append(row)
    told = "{}, cells that cannot be reproduced ({}): {}.".format
    each = (told(where, "; ".join(rows), why) for (where, why), rows in unclear.items())
    return [*DESCRIPTIONS["choices"][prefix], *notes, *each]


def _short(title: str) -> str:
    """Title of a study without the paper, whose page it is on."""
    short = re.sub(r"^.*\(\d{4}\)[,:] ", "", title)
    return short[:1].upper() + short[1:]


def _ledger(study: Study) -> Path:
    return LEDGERS / f"{study.ledger or study.name}.jsonl"


def _units(study: Study) -> list[dict[str, Any]]:
    lines = _ledger(study).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def report(study: Study) -> Report:
    """Make the table of a study from its ledger."""
    units = _units(study)
    found = {f"{unit['recipe']}-{unit['split']}-{unit['seed']}": unit for unit in units}
    return tabulate(study, found, study.splits)


def _of_study(name: str, study: Study) -> str:
    return TEMPLATES.get_template("study.md").render(
        name=name,
        title=_short(study.title),
        study=study,
        report=report(study),
        ledger=_ledger(study).name,
        # The first version did not say so.
        versions=sorted({unit.get("kernelzoo", "0.1.0") for unit in _units(study)}),
    )


def pages() -> dict[str, str]:
    """Write the pages of the papers and their index by their file in ``docs``."""
    text = (DOCS / "equations.md").read_text(encoding="utf-8")
    headed = (part.partition("\n") for part in text.split("\n## ")[1:])
    equations = {heading: rest.strip() for heading, _, rest in headed}
    with NO_DOWNLOADS:
        written = {f"papers/{slug}.md": _page(paper, equations) for slug, paper in PAPERS.items()}
    return written | {"papers/index.md": TEMPLATES.get_template("papers.md").render(papers=PAPERS)}
