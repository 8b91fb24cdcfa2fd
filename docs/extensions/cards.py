"""Zoo cards: one per variant of a model, written from its declaration.

The variants are those on which the certificates prove the engines; their page is written, too. The
reference posteriors are from the files that ``docs/draw_references.py`` writes.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr
from arviz_base import xarray_var_iter
from arviz_base.labels import BaseLabeller
from markup import escaped, sections

import kernelzoo as kz
from benchmarks.record import markdown_table
from certificates.cells import all_cells
from certificates.run import read
from certificates.table import evidence, page
from certificates.variants import VARIANTS, Variant
from kernelzoo.models import Declaration

CERTIFICATES = Path(__file__).resolve().parents[1] / "certificates"
REFERENCES = Path(__file__).resolve().parents[1] / "references"
#: Rows of a table; the file has all.
ROWS = 16
NOTE = (
    "Not drawn in this build: run `python docs/draw_references.py {slug}`, which writes "
    "`references/{slug}.nc`."
)
#: What a plate diagram shows.
PLATES = (
    "*Grey: data and observed variables. A frame is a plate, with its dimensions. Quantities that "
    "are only computed from the variables are left out; `pm.model_to_graphviz(model)` shows all.*"
)


def rst(text: str) -> str:
    """Fence that lets Markdown take a docstring's text."""
    return f"````{{eval-rst}}\n{escaped(text.strip())}\n````" if text.strip() else ""


def _page(card: Variant, model: Declaration, engines: pd.DataFrame) -> str:
    """Text of a card."""
    told = sections(card.model)
    summary, _, formulas = told[""].partition("\n\n")
    shapes = {str(data.name): str(data.get_value().shape) for data in model.data_vars}
    dims = model.named_vars_to_dims
    names = [str(variable.name) for variable in (*model.data_vars, *model.basic_RVs)]
    variables = [
        (f"`{name}`", " by ".join(map(str, dims.get(name, ()))) or "scalar", shapes.get(name, ""))
        for name in names
    ]
    applies = []
    for row in engines.itertuples():
        reason = re.sub(r"not available for \w+ \(.*\)", "not available", row.reason)
        link = f"[{row.Index}](../api/kernelzoo.{row.Index}.rst)"
        applies.append((link, row.kind, f"{row.applies}: {reason}" if reason else row.applies))
    parts = [
        f"# {card.title}",
        f"{summary} [Reference](../api/kernelzoo.{card.model.__name__}.rst).",
        "## Paper",
        rst(told.get("References", "")),
        "## The model",
        rst(formulas),
        f"![Plate diagram of {card.title}](../plates/{card.slug}.svg)",
        PLATES,
        "## Variables as declared",
        f"```text\n{model.str_repr()}\n```",
        "*`model.str_repr()`: `f(...)` is an expression of what it names. The second argument of "
        "Gamma is a rate. The formulas above are in the paper's terms.*",
        markdown_table(("name", "dimensions", "shape in the example"), variables),
        "## Engines",
        markdown_table(("engine", "kind", "applies"), applies),
        *_settings(engines),
        "## How the engines were proved",
        "What is checked, and [what the colours mean](../certificates.md#what-the-colours-mean):",
        evidence(card, read(CERTIFICATES), all_cells()),
        "## Reference posterior",
        reference(card.slug),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _settings(engines: pd.DataFrame) -> Iterator[str]:
    """List the settings of the engines written for the model, folded, with their defaults on it."""
    for row in engines.itertuples():
        handwritten = row.Index in ("VB", "Gibbs", "EM", "Exact", "MAP")
        if row.applies != "no" and handwritten and row.settings:
            defaults = [(f"`{name}`", f"`{value!r}`") for name, value in row.settings.items()]
            yield (
                f"::::{{dropdown}} Settings of {row.Index}\n"
                f"{markdown_table(('setting', 'default'), defaults)}\n\n"
                f"[What they mean](../api/kernelzoo.{row.Index}.rst).\n::::"
            )


def reference(slug: str) -> str:
    """Table and file of a card's reference posterior, in Markdown."""
    path = REFERENCES / f"{slug}.nc"
    if not path.exists():
        return NOTE.format(slug=slug)
    with xr.open_datatree(path) as tree:
        attrs, summary = tree.attrs, tree["summary"].to_dataset().load()
        kept = tree["posterior"].sizes["chain"] * tree["posterior"].sizes["draw"]
    rows = [
        (f"`{BaseLabeller().make_label_flat(name, chosen, at)}`", *map(_number, values))
        for name, chosen, at, values in xarray_var_iter(summary, skip_dims={"statistic"})
        if np.isfinite(values).all()  # entries that are known have no error and no size
    ]
    header = ("quantity", *map(str, summary["statistic"].values))
    more = f"; {len(rows) - ROWS} more quantities are in the file" if len(rows) > ROWS else ""
    chains = f"{attrs['chains']} chain" + ("s" if attrs["chains"] > 1 else "")
    return (
        f"{attrs['engine']}, {chains} of {attrs['draws']} draws, on the example above{more}.\n\n"
        f"{markdown_table(header, rows[:ROWS])}\n\n"
        f"Source: {{download}}`{slug}.nc <../references/{slug}.nc>`, {kept} of the "
        "draws and these statistics; open it by `xarray.open_datatree`."
    )


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


INTRODUCTION = """\
# Zoo cards

One card per variant of a model, written from its declaration when the site is built: paper, data,
variables with their distributions, the engines that apply, and their settings.
"""


def pages() -> dict[str, str]:
    """Write cards and their index, the variants by engines, by their file in ``docs``."""
    written, rows, header = {}, [], ("model",)
    for card in VARIANTS:
        model = card.example()
        engines = kz.engines(model).frame
        written[f"cards/{card.slug}.md"] = _page(card, model, engines)
        header = ("model", *engines.index)
        rows.append((f"[{card.title}](../cards/{card.slug}.md)", *engines["applies"]))
    tree = "\n".join(card.slug for card in VARIANTS)
    index = (
        f"{INTRODUCTION}\n{markdown_table(header, rows)}\n\n*Answers of `kz.engines` on the small "
        "example of each card; why an engine does not apply is on the card.*\n\n"
        f"```{{toctree}}\n:hidden:\n\n{tree}\n```\n"
    )
    certificates = page(read(CERTIFICATES), all_cells())
    return {"cards/index.md": index, "certificates.md": certificates} | written
