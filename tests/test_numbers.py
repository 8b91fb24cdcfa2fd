"""Measured numbers in README and docs are in the files that their markers name."""

import re
import sys
from functools import cache
from pathlib import Path

import pytest

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
    """Numbers in a file, in a study's table or the page's own outputs; or what a formula gives."""
    if source.startswith("= "):
        return [eval(source.removeprefix("= "), {"__builtins__": {}})]
    if source.startswith("study "):
        text = study(source.removeprefix("study "))
    else:
        text = (ROOT / source).read_text(encoding="utf-8")
        if ROOT / source == page:
            text = "\n".join(code for _, code in FENCE.findall(text))
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
