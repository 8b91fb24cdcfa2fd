"""What a benchmark prints is kept, and shown by the documentation."""

import importlib
import json
import re
from contextlib import redirect_stdout, suppress
from pathlib import Path

import pytest
from rich.table import Table

from benchmarks import BENCHMARKS
from benchmarks.__main__ import main

DOCS = Path(__file__).resolve().parents[2] / "docs"


def benchmark(console):
    """Print a line, a table and two lines."""
    console.print("before", markup=False)
    table = Table("engine", "seconds", title="small")
    table.add_row("VB", "1.50")
    table.add_row("a|b", "2")
    console.print(table)
    console.print("after")
    console.print("[bold]end[/bold]")


@pytest.fixture
def record(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(BENCHMARKS, "growing", benchmark)
    path = tmp_path / "new" / "bench-growing.json"
    assert main(["growing", "--json", str(path)]) == 0
    told = capsys.readouterr().out
    assert "1.50" in told
    assert "written:" in told
    return path


def test_tables_and_lines_are_kept(record):
    content = json.loads(record.read_text())
    table = {
        "title": "small",
        "columns": ["engine", "seconds"],
        "rows": [["VB", "1.50"], ["a|b", "2"]],
    }
    lines = [{"text": "after"}, {"text": "[bold]end[/bold]"}]
    assert content["parts"] == [{"text": "before"}, table, *lines]
    assert content["benchmark"] == "growing"
    assert {"machine", "blas_threads", "seconds"} <= content.keys()
    assert "pymc" in content["versions"]


def test_an_unwritable_output_loses_no_benchmark(tmp_path, monkeypatch):
    def run(console):
        console.print("one")
        console.print("two")

    monkeypatch.setitem(BENCHMARKS, "growing", run)
    with suppress(OSError, SystemExit), open("/dev/full", "w") as output, redirect_stdout(output):
        main(["growing", "--json", str(tmp_path / "toy.json")])
    parts = json.loads((tmp_path / "toy.json").read_text())["parts"]
    assert parts == [{"text": "one"}, {"text": "two"}]


def test_pages_show_the_tables_with_their_source(record, monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "extensions")
    pages = importlib.import_module("measured")
    monkeypatch.setattr(pages, "MEASURED", record.parent)
    (text,) = pages.pages().values()
    assert "## growing" in text
    assert "| VB | 1.50 |" in text
    assert "```text\nafter\nend\n```" in text
    assert "Source: `docs/measured/bench-growing.json`" in text
    monkeypatch.setattr(pages, "MEASURED", record.parent / "none")
    assert "None was recorded." in pages.pages()["generated/benchmarks.md"]


def test_the_page_names_every_benchmark():
    page = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE)) == set(BENCHMARKS)
