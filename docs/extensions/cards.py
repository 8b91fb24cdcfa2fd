"""Zoo cards: one per variant of a model, written from its declaration, and the certificates' page.

The reference posteriors are from the files that ``docs/draw_references.py`` writes.
"""

import tomllib
from collections.abc import Mapping
from inspect import isfunction
from pathlib import Path
from typing import Any

import evidence
import numpy as np
import xarray as xr
from arviz_base import xarray_var_iter
from arviz_base.labels import BaseLabeller
from markup import TEMPLATES, escaped, sections

import kernelzoo as kz
from benchmarks.record import markdown_table
from certificates.variants import VARIANTS, Variant
from kernelzoo.inference.recommend import EngineTable
from kernelzoo.models import Declaration

DOCS = Path(__file__).resolve().parents[1]
REFERENCES = DOCS / "references"
#: By the name of the page: heading, question, models, prefix of the studies, notebooks.
PAPERS: dict[str, dict[str, Any]] = tomllib.loads((DOCS / "papers.toml").read_text("utf-8"))
TEMPLATES.globals |= {"table": markdown_table, "variants": VARIANTS, "papers": PAPERS}
#: Rows of a table; the file has all.
ROWS = 16


def rst(text: str) -> str:
    """Fence that lets Markdown take a docstring's text."""
    return f"````{{eval-rst}}\n{escaped(text.strip())}\n````" if text.strip() else ""


def settings(explained_by: Mapping[str, object]) -> dict[str, str]:
    """Explain the settings of engines that are written for a model, by their names."""
    functions = {name: each for name, each in explained_by.items() if isfunction(each)}
    explained = {name: sections(each).get("Parameters", "") for name, each in functions.items()}
    return {name: rst(text) for name, text in explained.items() if text}


def _page(card: Variant, model: Declaration, engines: EngineTable) -> str:
    told = sections(card.model)
    summary, _, formulas = told[""].partition("\n\n")
    shorter = {r"not available for \w+ \(.*\)": "not available", r"\|": r"\|"}
    return TEMPLATES.get_template("card.md").render(
        card=card,
        model=model,
        summary=summary,
        formulas=rst(formulas),
        references=rst(told.get("References", "")),
        engines=engines.frame.replace({"reason": shorter}, regex=True),
        settings=settings(engines.explained_by),
        evidence=evidence.of_card(evidence.read(), card.slug),
        reference=reference(card.slug),
    )


def reference(slug: str) -> str:
    """Table and file of a card's reference posterior, in Markdown."""
    path = REFERENCES / f"{slug}.nc"
    if not path.exists():
        command, file = f"python docs/draw_references.py {slug}", f"references/{slug}.nc"
        return f"Not drawn in this build: run `{command}`, which writes `{file}`."
    with xr.open_datatree(path) as tree:
        attrs, summary = tree.attrs, tree["summary"].to_dataset().load()
        kept = tree["posterior"].sizes["chain"] * tree["posterior"].sizes["draw"]
    rows = [
        (f"`{BaseLabeller().make_label_flat(name, chosen, at)}`", *map(_number, values))
        for name, chosen, at, values in xarray_var_iter(summary, skip_dims={"statistic"})
        if np.isfinite(values).all()  # entries that are known have no error and no size
    ]
    header = ("quantity", *map(str, summary["statistic"].values))
    return TEMPLATES.get_template("reference.md").render(
        slug=slug, attrs=attrs, header=header, rows=rows, shown=ROWS, kept=kept
    )


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def pages() -> dict[str, str]:
    """Write cards, their index and the certificates, by their file in ``docs``."""
    written: dict[str, str] = {}
    rows = []
    applying = {}
    header: tuple[str, ...] = ("model",)
    for card in VARIANTS:
        model = card.example()
        engines = kz.engines(model)
        written[f"cards/{card.slug}.md"] = _page(card, model, engines)
        header = ("model", *engines.frame.index)
        rows.append((f"[{card.title}](../cards/{card.slug}.md)", *engines.frame["applies"]))
        applying[card.slug] = list(engines.frame.query("applies != 'no'").index)
    index = TEMPLATES.get_template("cards.md").render(cards=VARIANTS, header=header, rows=rows)
    certificates = evidence.page(evidence.read(), applying)
    return {"cards/index.md": index, "certificates.md": certificates} | written
