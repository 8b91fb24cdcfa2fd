"""What a benchmark prints is kept, and shown by the documentation."""

import re
from contextlib import redirect_stdout, suppress
from pathlib import Path

from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.record import markdown_table

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_tables_and_lines_are_kept_with_their_source(tmp_path, monkeypatch, capsys):
    table = markdown_table(("engine", "seconds"), [("VB", "1.50"), ("a|b", "2")])
    monkeypatch.setitem(BENCHMARKS, "mixing", lambda: iter(["before", table, "after"]))
    path = tmp_path / "new" / "bench-cold.md"
    assert main(["mixing", "--out", str(path)]) == 0
    assert "1.50" in capsys.readouterr().out
    before, kept, source, after, written = path.read_text().strip().split("\n\n")
    assert (before, kept, after) == ("before", table, "after")
    assert table.splitlines()[-1] == "| a\\|b | 2 |"
    assert source == f"Source: `{path}`."
    for word in (f"`python -m benchmarks mixing --out {path}`", "BLAS threads", "pymc "):
        assert word in written


def test_an_unwritable_output_loses_no_benchmark(tmp_path, monkeypatch):
    monkeypatch.setitem(BENCHMARKS, "mixing", lambda: iter(["one", "two"]))
    with suppress(OSError, SystemExit), open("/dev/full", "w") as output, redirect_stdout(output):
        main(["mixing", "--out", str(tmp_path / "toy.md")])
    assert (tmp_path / "toy.md").read_text().startswith("one\n\ntwo\n\nThe file was written")


def test_a_table_without_rows_says_so():
    assert markdown_table(("engine",), []) == "None."


def test_the_page_names_every_benchmark():
    page = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([\w-]+)` \|", page, flags=re.MULTILINE)) == set(BENCHMARKS)


def test_the_page_shows_every_file_that_was_kept():
    page = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    kept = [path.name for path in (DOCS / "measured").glob("bench-*.md")]
    assert len(kept) >= 5
    assert all(f"{{include}} measured/{name}\n" in page for name in kept)
