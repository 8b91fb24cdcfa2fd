"""Measured numbers in README and docs are in the files that their markers name."""

import json
import re
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

import sentences

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
#: Written by machines from measured files, or without a claim about this version.
WRITTEN = {"certificates.md", "changelog.md"}
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted(DOCS.glob("*.md")) if page.name not in WRITTEN),
    *sorted(DOCS.glob("howto/*.md")),
]

FENCE = re.compile(r"^(`{3,})[^\n]*\n(.*?)^\1$", flags=re.MULTILINE | re.DOTALL)
#: ``<!-- numbers: FILE, study NAME, = 3 * 5 -->`` before a paragraph, a list or a table.
MARKER = re.compile(r"<!-- numbers: (.+?) -->", flags=re.DOTALL)
#: Code, addresses, sections of papers and versions of programs are no measured numbers.
ELSE = re.compile(
    r"`[^`]*`|\]\([^)]*\)|https?://\S+|sections?\s[\d., and-]+|Python\s[\d.]+(?:\sand\s[\d.]+)?"
)
UNIT = r"%|ms|CPU s|s|seconds?|[kMGT]B|hours?|minutes?|nats?|per cent"
NUMBER = re.compile(rf"(?<![\w.])(\d[\d,]*(?:\.\d+)?)(?:\s?({UNIT})(?![\w]))?")


def measured(block):
    """Numbers of a block of text that have a unit or a decimal: (digits, unit)."""
    found = NUMBER.findall(ELSE.sub(" ", MARKER.sub(" ", block)))
    return [(digits, unit) for digits, unit in found if unit or "." in digits]


@cache
def numbers_of(source, page):
    """Numbers in a file, in a study's table or the page's own outputs; or what a formula gives.

    ``SOURCE: PART`` is of the lines with PART alone, ``by NAME`` what that function returns.
    """
    if source.startswith("= "):
        return [eval(source.removeprefix("= "), {"__builtins__": {"round": round}})]
    if source.startswith("by "):
        return getattr(sentences, source.removeprefix("by "))()
    source, _, part = source.partition(": ")
    if source.startswith("study "):
        text = study(source.removeprefix("study "))
    else:
        text = (ROOT / source).read_text(encoding="utf-8")
        if ROOT / source == page:
            text = "\n".join(code for _, code in FENCE.findall(text))
    return digits_of("\n".join(line for line in text.splitlines() if part in line))


def digits_of(text):
    digits = re.findall(r"(?<![\w.])\d[\d,_]*(?:\.\d+)?(?:e-?\d+)?", text)
    return [float(each.replace(",", "").replace("_", "")) for each in digits]


def study(name):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(DOCS / "extensions"), str(DOCS), *sys.path])
        import papers
    return papers._of_study(name, papers.STUDIES[name]())


def is_in(digits, unit, numbers):
    """Whether a number is one of those, rounded to its decimals; 90 % may stand as 0.9.

    A whole number is one of them as it stands: many numbers of a table round to a small one.
    """
    value, decimals = float(digits.replace(",", "")), len(digits.partition(".")[2])
    scales = (1, 100) if unit in ("%", "per cent") else (1,)
    return any(round(scale * x, decimals or 9) == value for x in numbers for scale in scales)


def unsupported(text, page):
    """Numbers of a page without a marker, or that are not in the files which it names."""
    for block in re.split(r"\n\s*\n", FENCE.sub("", text)):
        marker = MARKER.search(block)
        sources = re.split(r",\s*", marker.group(1)) if marker else []
        known = [number for source in sources for number in numbers_of(source, page)]
        for digits, unit in measured(block):
            if not is_in(digits, unit, known):
                yield f"{digits} {unit}".strip(), block


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_numbers_come_from_files(page):
    found = [*unsupported(page.read_text(encoding="utf-8"), page)]
    assert not found, found


#: Texts on the papers' pages, which stand in one line once their line breaks are joined.
TEXTS = [ROOT / "studies" / "studies.toml", DOCS / "papers.toml"]
PROSE = {"choices", "left_out", "notes", "measure", "reason", "text", "question"}
PLACES = re.compile(
    r"(?:Table|Figure|eq|[Ss]ection)\s\(?[\d.]*\d\)?|\(\d{4}\)"
    r"|(?:Tables|Figures|eqs|[Ss]ections)\s[\d(][\d(), and-]*(?:to \d+)?"
)
IN_PROSE = re.compile(rf"(?<![\w.])(\d[\d,]*(?:\.\d+)?(?:e-?\d+)?)(?:\s?({UNIT}|points?)(?![\w]))?")


def prose(value, key=None):
    """Texts under the keys ``PROSE``, in a TOML file's tables."""
    if isinstance(value, str):
        return [value] if key in PROSE else []
    if isinstance(value, list):
        return [text for each in value for text in prose(each, key)]
    if not isinstance(value, dict):
        return []
    inherited = key if key in PROSE else None
    return [text for name, each in value.items() for text in prose(each, inherited or name)]


def unsupported_prose(file):
    """Numbers of a TOML file's texts that are in no source of the comments above.

    They have two digits, a unit, a decimal or an exponent.
    """
    joined = re.sub(r"\\\n\s*", "", file.read_text(encoding="utf-8"))
    texts, sources, seen = prose(tomllib.loads(joined)), [], set()
    for line in joined.splitlines():
        if line.strip().startswith("# numbers: "):
            sources += line.strip().removeprefix("# numbers: ").split("; ")
            continue
        here = [text for text in texts if text.strip() in line]
        seen.update(here)
        for text in here:
            known = [number for source in sources for number in numbers_of(source, None)]
            for digits, unit in IN_PROSE.findall(PLACES.sub(" ", ELSE.sub(" ", text))):
                whole = digits.rstrip(",")
                if len(whole) == 1 and not unit:
                    continue
                if "e" in whole:
                    form = f".{len(whole.partition('e')[0].partition('.')[2])}e"
                    found = any(f"{x:{form}}" == f"{float(whole):{form}}" for x in known)
                else:
                    found = is_in(whole, unit, known)
                if not found:
                    yield f"{whole} {unit}".strip(), text
        sources = []
    assert seen == set(texts)


@pytest.mark.parametrize("file", TEXTS, ids=lambda file: file.stem)
def test_numbers_on_the_papers_pages_come_from_files(file):
    found = [*unsupported_prose(file)]
    assert not found, found


@pytest.mark.parametrize(
    "text", ["R-hat of 1.4.", "covered 83 %", "510 draws", "entries up to 5e4", "2 points"]
)
def test_a_number_of_a_study_without_a_file_is_found(text, tmp_path):
    file, source = tmp_path / "studies.toml", tmp_path / "measured.md"
    source.write_text("a: 1.41, 0.83, 510, 46617.8, 2\nb: 1.46, 0.84, 511, 56617.8, 3", "utf-8")
    body = f'[a]\n{{}}notes = """\\\n    One, \\\n    {text}"""\n'
    for marker, supported in (("", False), (f": {'a'}", True), (f": {'b'}", False)):
        file.write_text(body.format(f"# numbers: {source}{marker}\n" if marker else ""), "utf-8")
        assert bool([*unsupported_prose(file)]) is not supported


@pytest.mark.parametrize(
    "sentence", ["It takes 31.5 s.", "90 % of them.", "An R-hat of 1.02.", "| a | 12.5 |"]
)
def test_a_number_without_a_file_is_found(sentence, tmp_path):
    file = tmp_path / "measured.md"
    file.write_text("31.46 and 0.9, 1.0199, 12.54", encoding="utf-8")
    assert [*unsupported(sentence, None)]
    marked = f"<!-- numbers: {file} -->\n{sentence}"
    assert not [*unsupported(marked, None)]
    file.write_text("30 and 0.8, 2.0199, 12.44", encoding="utf-8")
    numbers_of.cache_clear()
    assert [*unsupported(marked, None)]


def test_what_is_no_measurement_needs_no_file():
    text = "With Python 3.12 or newer, `tau=0.5`, section 4.1, [page](a-1.5.md), 20 objects."
    assert not [*unsupported(text, None)]


NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
#: Formulas, years and volumes are no results.
FORMULA = re.compile(r"\$\$.*?\$\$|\$[^$]*\$|\b(?:\d+, )?(?:19|20)\d\d\b", flags=re.DOTALL)


def code_of(notebook):
    """Source and printed outputs of each cell of code by its id; apart, all assertions."""
    by_id, checks = {}, []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            texts = ["".join(cell["source"])]
            if "remove-cell" in cell["metadata"].get("tags", ()):
                checks += texts
            for output in cell["outputs"]:
                texts += output.get("text", []), output.get("data", {}).get("text/plain", [])
            by_id[cell["id"]] = "\n".join("".join(text) for text in texts)
    return by_id, "\n".join(checks)


def unsupported_in_notebook(notebook):
    """Numbers of a notebook's text that no assertion has, nor what the marker above them names.

    A marker names files and functions, as on pages, and cells of code: ``cell ID``. The numbers
    have two digits, a unit or a decimal.
    """
    by_id, checks = code_of(notebook)
    for cell in notebook["cells"]:
        text = "".join(cell["source"]) if cell["cell_type"] == "markdown" else ""
        for block in re.split(r"\n\s*\n", text):
            marker, known = MARKER.search(block), digits_of(checks)
            for source in re.split(r",\s*", marker.group(1)) if marker else []:
                named = source.startswith("cell ")
                known += digits_of(by_id[source[5:]]) if named else numbers_of(source, None)
            plain = PLACES.sub(" ", FORMULA.sub(" ", ELSE.sub(" ", MARKER.sub(" ", block))))
            for digits, unit in IN_PROSE.findall(plain):
                whole = digits.rstrip(",")
                if (unit or len(whole) > 1) and not is_in(whole, unit, known):
                    yield f"{whole} {unit}".strip(), block


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_numbers_in_notebooks_come_from_assertions_cells_or_files(path):
    found = [*unsupported_in_notebook(json.loads(path.read_text(encoding="utf-8")))]
    assert not found, found


def test_a_number_of_a_notebook_without_a_source_is_found(tmp_path):
    def notebook(text, check="assert True"):
        code = {"cell_type": "code", "outputs": [{"text": ["0.875\n"]}], "metadata": {}}
        tags = {"tags": ["remove-cell"]}
        return {
            "cells": [
                {"cell_type": "markdown", "source": text},
                code | {"id": "share", "source": "print(7 / 8)  # of 24"},
                code | {"id": "check", "source": check, "metadata": tags, "outputs": []},
            ]
        }

    file = tmp_path / "measured.md"
    file.write_text("23.96 and 0.865", encoding="utf-8")
    for text, right, wrong in (
        ("87.5 % of them.", "cell share", "cell check"),
        ("24 objects.", "cell share", f"{file}"),
        ("In 23.96 s.", f"{file}", "cell share"),
    ):
        assert [*unsupported_in_notebook(notebook(text))]
        assert not [*unsupported_in_notebook(notebook(f"<!-- numbers: {right} -->\n{text}"))]
        assert [*unsupported_in_notebook(notebook(f"<!-- numbers: {wrong} -->\n{text}"))]
        # A marker is of its own paragraph.
        assert [*unsupported_in_notebook(notebook(f"<!-- numbers: {right} -->\nA.\n\n{text}"))]
    assert not [*unsupported_in_notebook(notebook("24 objects.", "assert len(K) == 24"))]
    assert [*unsupported_in_notebook(notebook("24 objects.", "assert len(K) == 25"))]
    none = "Zhang (2004), volume 42, 2009, has $x = 0.5$, `tau=0.5`, eqs 10 and 13, and 3 classes."
    assert not [*unsupported_in_notebook(notebook(none.replace("volume ", "")))]
