"""What the demo says at its end leads on."""

import re
from pathlib import Path

from rich.console import Console

from studies import demo

ROOT = Path(__file__).resolve().parents[2]


def test_the_demo_ends_with_the_tour(tmp_path, monkeypatch):
    for part in ("_classify", "_complete"):
        monkeypatch.setattr(demo, part, lambda out, *_: out.joinpath("table.csv").touch())
    console = Console(record=True, width=160)
    demo.run(tmp_path, console)
    target, notebook = re.search(r"make (\w+) .*\((.+)\)$", console.export_text().strip()).groups()
    assert notebook == "notebooks/tour.ipynb"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    rule = re.search(rf"^{target}: \.venv/installed .*\n\t(.*)$", makefile, flags=re.MULTILINE)[1]
    assert rule.endswith(f" -m jupyterlab {notebook}")
