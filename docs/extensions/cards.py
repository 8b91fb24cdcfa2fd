"""Zoo cards: one per variant of a model, written from its declaration.

The variants are those on which the certificates prove the engines; their page is written, too.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from markup import escaped, sections
from references import section

import kernelzoo as kz
from benchmarks.record import markdown_table
from certificates.cells import all_cells
from certificates.run import read
from certificates.table import evidence, page
from certificates.variants import VARIANTS, Variant
from kernelzoo.models import Declaration

CERTIFICATES = Path(__file__).resolve().parents[1] / "certificates"


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
        "`pm.model_to_graphviz(model)` draws it, where Graphviz is installed.",
        "## Variables as declared",
        f"```text\n{model.str_repr()}\n```",
        "*As PyMC prints the declaration: `f(...)` stands for an expression of what it names. "
        "The formulas above are in the paper's terms.*",
        markdown_table(("name", "dimensions", "shape in the example"), variables),
        "## Engines",
        markdown_table(("engine", "kind", "applies"), applies),
        *_settings(engines),
        "## How the engines were proved",
        "What is checked, and [what the colours mean](../certificates.md#what-the-colours-mean):",
        evidence(card, read(CERTIFICATES), all_cells()),
        "## Reference posterior",
        section(card.slug),
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


INTRODUCTION = """\
# Zoo cards

One card per variant of a model, written from its declaration when the site is built: paper, data,
variables with their
distributions, the engines that apply, and their settings.
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
