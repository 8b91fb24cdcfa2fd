"""Every notebook is a story: question, picture of the answer, short cells, checks out of sight."""

import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))
MOST_CELLS, MOST_LINES = 25, 15
#: The picture that answers the question is an output of one of so many first cells, which are of
#: 72 columns (notebooks/ruff.toml): the code before it is no longer than in five cells of 100.
OPENING = 7
#: Tag of cells that hold assertions: the documentation leaves them out.
OUT_OF_SIGHT = "remove-cell"


def source(cell):
    return "".join(cell["source"])


def has_picture(cell):
    return any("image/png" in output.get("data", {}) for output in cell.get("outputs", ()))


def faults(notebook):
    """What is wrong with a notebook, in words."""
    cells = notebook["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    found = []
    first = source(cells[0])
    if cells[0]["cell_type"] != "markdown" or not first.startswith("# ") or "?" not in first:
        found.append("does not open with a heading and a question")
    if not any(has_picture(cell) for cell in cells[:OPENING]):
        found.append("has no picture at its beginning")
    if len(cells) > MOST_CELLS:
        found.append(f"has {len(cells)} cells")
    for number, cell in enumerate(code, 1):
        lines = source(cell).splitlines()
        if len(lines) > MOST_LINES:
            found.append(f"cell {number} of code has {len(lines)} lines")
        hidden = OUT_OF_SIGHT in cell["metadata"].get("tags", ())
        checks = any(line.lstrip().startswith("assert ") for line in lines)
        checks |= any("assert_" in line for line in lines)
        if checks and not hidden:
            found.append(f"cell {number} of code has an assertion in sight")
        if cell["execution_count"] is None:
            found.append(f"cell {number} of code was not run")
    if not any(OUT_OF_SIGHT in cell["metadata"].get("tags", ()) for cell in code):
        found.append("checks nothing")
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_stories(path):
    assert faults(json.loads(path.read_text(encoding="utf-8"))) == []


def test_the_tour_is_among_them():
    assert "tour" in {path.stem for path in NOTEBOOKS}


def cell(text, **changes):
    kind = {"cell_type": "code", "execution_count": 1, "outputs": [], "metadata": {}}
    return kind | {"source": text} | changes


TITLE = cell("# A kernel?", cell_type="markdown")
PICTURE = cell("plot()", outputs=[{"data": {"image/png": ""}}])
CHECK = cell("assert True", metadata={"tags": [OUT_OF_SIGHT]})


@pytest.mark.parametrize(
    ("cells", "fault"),
    [
        ([PICTURE, CHECK], "does not open with a heading and a question"),
        ([TITLE | {"source": "# A kernel"}, PICTURE, CHECK], "does not open with a heading"),
        ([TITLE, *[cell("1")] * 6, PICTURE, CHECK], "has no picture"),
        ([TITLE, PICTURE, CHECK, *[cell("1")] * 23], "has 26 cells"),
        ([TITLE, PICTURE, CHECK, cell("1\n" * 16)], "cell 3 of code has 16 lines"),
        ([TITLE, PICTURE, CHECK, cell("if True:\n    assert True")], "an assertion in sight"),
        ([TITLE, PICTURE, CHECK, cell("np.testing.assert_equal(1, 1)")], "an assertion in sight"),
        ([TITLE, PICTURE, CHECK, cell("1", execution_count=None)], "was not run"),
        ([TITLE, PICTURE], "checks nothing"),
    ],
)
def test_faults_of_notebooks_are_found(cells, fault):
    assert faults({"cells": [TITLE, PICTURE, CHECK]}) == []
    (found,) = faults({"cells": cells})
    assert fault in found
