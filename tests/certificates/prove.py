"""Prove every engine on every variant of every model: ``make test-certificates`` (hours).

A cell whose certificate in ``docs/certificates`` is complete is left out; remove its file to make
it anew. ``ARGS="-k probit-vb"`` chooses cells.
"""

from pathlib import Path

import pytest

from certificates.cells import all_cells
from certificates.run import certify, is_done, read
from certificates.table import page

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "certificates"


@pytest.fixture(scope="module", autouse=True)
def written_page():
    """Page of all certificates, written when the last cell is done."""
    yield
    text = page(read(FOLDER), all_cells())
    FOLDER.with_suffix(".md").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("cell", all_cells(), ids=lambda cell: cell.slug)
def test_cell(cell):
    if is_done(cell, read(FOLDER).get(cell.slug)):
        pytest.skip("its certificate is complete")
    found = certify(cell, FOLDER)
    assert found.verdict not in ("red", "unfinished"), found.checks
