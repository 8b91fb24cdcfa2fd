"""Certificates: right engines are green, biased amber, broken red, and none is missing."""

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from scipy import stats
from xarray import Dataset, DataTree

import kernelzoo as kz
from kernelzoo.certificates import Finding, all_cells, certify
from kernelzoo.certificates import run as running
from kernelzoo.certificates.agreement import differences
from kernelzoo.certificates.findings import ALPHA, colour_of
from kernelzoo.certificates.table import page
from kernelzoo.inference.diagnostics.uniformity import Band


def finding(outcome, decisive=True):
    return Finding("check", "measure", outcome, "told", decisive=decisive)


def result(draws):
    posterior = Dataset({"x": (("chain", "draw", "i"), draws[None])})
    tree = DataTree.from_dict({"posterior": posterior})
    tree.attrs |= {"kind": "exact", "independent": 1, "engine": "Exact"}
    return tree


@pytest.mark.parametrize(
    ("findings", "colour"),
    [
        ([finding("passed"), finding("not run")], "green"),
        ([finding("passed"), finding("biased")], "amber"),
        ([finding("biased"), finding("failed")], "red"),
        ([finding("passed", decisive=False), finding("not run")], "not run"),
        ([], "not run"),
    ],
)
def test_colours(findings, colour):
    assert colour_of(findings) == colour


def test_shrunk_and_shifted_draws_are_found_and_right_ones_are_not():
    rng = np.random.default_rng(1)
    # Draws without moments: the scores have all of them.
    base, same = (result(rng.standard_cauchy(size=(4000, 2))) for _ in range(2))
    assert differences(same, base).p >= ALPHA
    shrunk = differences(result(0.8 * rng.standard_cauchy(size=(4000, 2))), base)
    assert shrunk.p < ALPHA
    assert shrunk.largest_ratio < 0.95
    normal = result(rng.normal(size=(4000, 2)))
    shifted = differences(result(0.3 + rng.normal(size=(4000, 2))), normal)
    assert shifted.p < ALPHA
    assert shifted.bias == pytest.approx(0.3, abs=0.08)


def test_p_values_of_ranks_are_uniform():
    rng = np.random.default_rng(2)
    band = Band(40, 0.5)
    p = [band.p_value(rng.uniform(size=40)) for _ in range(300)]
    assert stats.kstest(p, "uniform", alternative="greater").pvalue > 1e-3
    assert np.mean(np.array(p) < 0.2) > 0.08
    assert band.p_value(rng.uniform(size=40) ** 3) < 1e-4


def test_every_engine_that_applies_has_a_cell():
    cells = {(cell.variant.slug, cell.engine) for cell in all_cells()}
    for variant in {cell.variant for cell in all_cells()}:
        rows = [row.engine for row in kz.engines(variant.example()).rows if row.reason is None]
        assert {(variant.slug, engine) for engine in [*rows, "declaration"]} <= cells
    assert {cell.variant.model for cell in all_cells()} == set(kz.MODELS)
    assert len({cell.slug for cell in all_cells()}) == len(all_cells())


class Broken:
    name, measures, calls = "broken", "nothing", 0

    def __repr__(self):
        return "Broken()"

    def __call__(self, case):
        Broken.calls += 1
        raise FloatingPointError("planted")


def test_cells_are_written_resumed_and_red_when_a_check_raises(tmp_path, monkeypatch):
    out, console = tmp_path / "made", Console(quiet=True)
    one = certify(out, console, cells=["wishart-em"])["wishart-em"]
    assert one.verdict == "green"
    content = json.loads((out / "wishart-em.json").read_text())
    assert {"verdict", "seed", "seconds", "versions", "checks", "recipe"} <= content.keys()
    assert {"statistic", "threshold", "outcome"} <= content["checks"][0].keys()
    assert "| WishartCompletion |" in (out.with_suffix(".md")).read_text()
    assert certify(out, console, cells=["wishart-em"])["wishart-em"] == one
    monkeypatch.setattr(running, "checks_of", lambda engine: (Broken(),))
    assert certify(out, console, cells=["wishart-em"])["wishart-em"].verdict == "red"
    certify(out, console, cells=["wishart-em"])
    assert Broken.calls == 1
    assert "planted" in out.with_suffix(".md").read_text()


def test_missing_cells_are_told_and_foreign_files_refused(tmp_path):
    cells = all_cells()
    assert f"{len(cells)} not run yet" in page({}, cells)
    (tmp_path / "foreign.json").write_text("{}")
    with pytest.raises(ValueError, match="is not a certificate"):
        running.read(tmp_path)


def test_committed_page_is_that_of_the_committed_certificates():
    docs = Path(__file__).resolve().parents[2] / "docs"
    told = (docs / "certificates.md").read_text(encoding="utf-8")
    assert told == page(running.read(docs / "certificates"), all_cells())
