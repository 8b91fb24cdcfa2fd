"""Prove every engine on every variant of every model: ``make test-certificates`` (hours).

A cell whose certificate in ``docs/certificates`` is complete and of the present code is left out;
``ARGS="-k probit-vb"`` chooses cells. `make docs` writes their page.
"""

from pathlib import Path

import pytest

from certificates.cells import all_cells
from certificates.run import certify, is_done, read

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "certificates"


@pytest.mark.parametrize("cell", all_cells(), ids=lambda cell: cell.slug)
def test_cell(cell):
    if is_done(cell, read(FOLDER).get(cell.slug)):
        pytest.skip("its certificate is complete")
    found = certify(cell, FOLDER)
    assert found.verdict not in ("red", "unfinished"), found.checks
