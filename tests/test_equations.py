"""docs/equations.md has every numbered equation of the papers, at names that exist and say so."""

import inspect
import re
from pathlib import Path
from pkgutil import resolve_name

import pytest

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "equations.md"

#: Numbered equations and algorithms, by the paper's heading.
NUMBERED = {
    "Zhang, Yeung & Kwok (2004)": [*range(1, 19)],
    "Zhang, Yeung & Kwok (2003)": [*range(1, 17), "Figure 2", "Figure 4"],
    "Rasmussen & Williams (2006)": [],
    "Girolami & Rogers (2005)": [1],
    "Damoulas & Girolami (2009)": [
        *range(1, 14),
        *(f"B.{i}" for i in range(1, 4)),
        *(f"D.{i}" for i in range(1, 4)),
        *(f"E.{i}" for i in range(1, 8)),
        "Algorithm 1",
    ],
    "Kato & Rivero (2017)": [*range(1, 43), "Algorithm 1"],
}


def tables(text):
    """Rows (equation, what it is, where) of each paper, by its heading."""
    papers = {}
    for part in text.split("\n## ")[1:]:
        heading, _, rest = part.partition("\n")
        lines = [line for line in rest.splitlines() if line.startswith("|")]
        cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines[2:]]
        papers[heading] = [tuple(cell.strip() for cell in row) for row in cells]
    return papers


PAPERS = tables(DOCUMENT.read_text(encoding="utf-8"))
ROWS = [(paper, *row) for paper, rows in PAPERS.items() for row in rows]


def names(where):
    """Names in a cell: what is written `module:name`."""
    return [code for code in re.findall(r"`([^`]*)`", where) if ":" in code]


def mentioned(text):
    """Equations, sections, appendices, figures and algorithms that a text names; ranges count."""
    text = " ".join(text.split())
    found = set(re.findall(r"(?:Algorithm|Figure) \d", text))
    number = r"\(?\d+\)?"
    for series in re.findall(rf"(?i)\beq(?:uation)?s? ({number}(?:(?:-|, | and ){number})*)", text):
        for part in re.split(", | and ", re.sub("[()]", "", series)):
            first, _, last = part.partition("-")
            found |= {str(i) for i in range(int(first), int(last or first) + 1)}
    for letter, first, last in re.findall(r"\b([A-E])\.(\d)(?:-[A-E]\.(\d))?", text):
        found |= {f"{letter}.{i}" for i in range(int(first), int(last or first) + 1)}
    for kind, series in re.findall(
        r"(section|appendix)s? ([\dA-E.]+(?:(?:-|, | and )[\dA-E.]+)*)", text
    ):
        found |= {f"{kind} {part.rstrip('.')}" for part in re.split("-|, | and ", series)}
    return found


def test_every_numbered_equation_has_one_row():
    for paper, equations in NUMBERED.items():
        rows = [equation for equation, *_ in PAPERS[paper]]
        assert len(rows) == len(set(rows)), paper
        assert not [e for e in map(str, equations) if e not in rows], paper
        # What has no number of its own is found by its section.
        others = set(rows) - set(map(str, equations))
        assert all(re.match(r"(section|appendix) [\dA-E]", other) for other in others), others
    assert PAPERS.keys() == NUMBERED.keys()


def test_every_row_says_where_or_why_not():
    assert {len(row) for row in ROWS} == {4}
    assert not [row for row in ROWS if not all(row)]


def texts(name):
    """What is written at a name: its source, and the texts of what it is in."""
    module, _, path = f"kernelzoo.{name}".partition(":")
    yield resolve_name(module).__doc__
    within = path.split(".")[:-1]
    for i in range(len(within)):
        yield resolve_name(f"{module}:{'.'.join(within[: i + 1])}").__doc__
    value = resolve_name(f"{module}:{path}")
    yield inspect.getsource(value if callable(value) else resolve_name(module))


@pytest.mark.parametrize(
    ("equation", "where"),
    [pytest.param(row[1], row[3], id=f"{row[0]}: {row[1]}") for row in ROWS],
)
def test_names_exist_and_mention_the_equation(equation, where):
    given = names(where)
    written = " ".join(text or "" for name in given for text in texts(name))
    if given:
        assert equation.partition(",")[0] in mentioned(written)
