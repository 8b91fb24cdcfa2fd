"""Zoo cards: one a variant of a model, written from its declaration."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from docstrings import escaped, sections
from references import section
from tables import markdown_table

import kernelzoo as kz
from kernelzoo.models import Declaration


def _with(model: type[Declaration], **changes: Any) -> Callable[[], Declaration]:
    """Make a constructor of the model's example with other arguments."""

    def make() -> Declaration:
        given, named = model.example()._arguments
        return model(*given, **(named | changes))

    return make


def _probit(kernels: kz.kernels.Kernels, combination: str = "mean") -> Callable[[], Declaration]:
    """Make a constructor of a classifier on twelve made-up objects."""

    def make() -> Declaration:
        X = np.random.default_rng(0).normal(size=(12, 2))
        return kz.MultinomialProbit(kernels(X), np.arange(12) % 3, combination=combination)

    return make


@dataclass(frozen=True)
class Card:
    """A variant of a model."""

    slug: str
    variant: str
    model: type[Declaration]
    make: Callable[[], Declaration]

    @property
    def title(self) -> str:
        """Heading of the card."""
        return f"{self.model.__name__}{', ' if self.variant else ''}{self.variant}"

    def page(self) -> str:
        """Text of the card."""
        model, told = _instance(self), sections(self.model)
        summary, _, formulas = told[""].partition("\n\n")
        parts = [
            f"# {self.title}",
            f"{summary} [Reference](../api/kernelzoo.{self.model.__name__}.rst).",
            "## Paper",
            rst(told.get("References", "")),
            "## The model",
            rst(formulas),
            "`pm.model_to_graphviz(model)` draws it, where Graphviz is installed.",
            "## Variables as declared",
            f"```text\n{model.str_repr()}\n```",
            "*As PyMC prints the declaration: `f(...)` stands for an expression of what it names. "
            "The formulas above are in the paper's terms.*",
            markdown_table(("name", "dimensions", "shape in the example"), _dimensions(model)),
            "## Engines",
            markdown_table(("engine", "kind", "applies"), _engines(model)),
            _settings(model),
            "## Reference posterior",
            section(self.slug),
        ]
        return "\n\n".join(filter(None, parts)) + "\n"


PROBIT, MIXTURE, MUTUAL = kz.MultinomialProbit, kz.WishartKernelMixture, kz.MutualKernelCompletion
REGRESSION, CLASSIFICATION = kz.CompositeKernelRegression, kz.CompositeKernelClassification
#: Kernels without negative entries, for products, and kernels with parameters.
POSITIVE = kz.gaussian(0.5) | kz.polynomial(2)
WIDTHS = kz.gaussian(kz.kernels.Theta(ard=True)) | kz.linear()

CARDS = (
    Card("probit", "learned weights", PROBIT, PROBIT.example),
    Card("probit-fixed", "fixed weights", PROBIT, _with(PROBIT, combination="fixed")),
    Card("probit-product", "learned exponents", PROBIT, _probit(POSITIVE, "product")),
    Card("probit-fixed-product", "fixed exponents", PROBIT, _probit(POSITIVE, "fixed product")),
    Card("probit-binary", "selection of kernels", PROBIT, _with(PROBIT, combination="binary")),
    Card("probit-widths", "learned kernel parameters", PROBIT, _probit(WIDTHS)),
    Card("regression", "", REGRESSION, REGRESSION.example),
    Card("regression-collapsed", "collapsed", REGRESSION, _with(REGRESSION, collapsed=True)),
    Card("classification", "", CLASSIFICATION, CLASSIFICATION.example),
    Card("wishart", "", kz.WishartCompletion, kz.WishartCompletion.example),
    Card("diagonal", "", kz.DiagonalWishartCompletion, kz.DiagonalWishartCompletion.example),
    Card("mixture", "fixed weights", MIXTURE, MIXTURE.example),
    Card("mixture-learned", "learned weights", MIXTURE, _with(MIXTURE, concentration=1.0)),
    Card(
        "mixture-collapsed",
        "learned weights, collapsed",
        MIXTURE,
        _with(MIXTURE, concentration=1.0, collapsed=True),
    ),
    Card("mixture-wishart", "Wishart prior", MIXTURE, _with(MIXTURE, prior="wishart")),
    Card("mixture-exact", "exact mixture prior", MIXTURE, _with(MIXTURE, prior="mixture")),
    Card("mutual", "", MUTUAL, MUTUAL.example),
    Card("mutual-collapsed", "collapsed", MUTUAL, _with(MUTUAL, collapsed=True)),
)


@cache
def _instance(card: Card) -> Declaration:
    return card.make()


def rst(text: str) -> str:
    """Fence that lets Markdown take a docstring's text."""
    return f"````{{eval-rst}}\n{escaped(text.strip())}\n````" if text.strip() else ""


def _dimensions(model: Declaration) -> list[tuple[str, ...]]:
    """Dimensions of data and random variables, and shapes of data."""
    shapes = {str(data.name): str(data.get_value().shape) for data in model.data_vars}
    dims = model.named_vars_to_dims
    names = [str(variable.name) for variable in (*model.data_vars, *model.basic_RVs)]
    return [
        (f"`{name}`", " by ".join(map(str, dims.get(name, ()))) or "scalar", shapes.get(name, ""))
        for name in names
    ]


def _engines(model: Declaration) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for row in kz.engines(model).frame.itertuples():
        reason = re.sub(r"not available for \w+ \(.*\)", "not available", row.reason)
        link = f"[{row.Index}](../api/kernelzoo.{row.Index}.rst)"
        rows.append((link, row.kind, f"{row.applies}: {reason}" if reason else row.applies))
    return rows


def _settings(model: Declaration) -> str:
    """List the settings of the engines written for the model, folded, with their defaults on it."""
    parts = []
    for row in kz.engines(model).frame.itertuples():
        engine = row.Index
        handwritten = engine in ("VB", "Gibbs", "EM", "Exact", "MAP")
        if row.applies == "no" or not handwritten or not row.settings:
            continue
        defaults: list[tuple[str, ...]] = [
            (f"`{name}`", f"`{value!r}`") for name, value in row.settings.items()
        ]
        parts.append(
            f"::::{{dropdown}} Settings of {engine}\n"
            f"{markdown_table(('setting', 'default'), defaults)}\n\n"
            f"[What they mean](../api/kernelzoo.{engine}.rst).\n::::"
        )
    return "\n\n".join(parts)


INTRODUCTION = """\
# Zoo cards

One card per variant of a model, written from its declaration when the site is built: paper, data,
variables with their
distributions, the engines that apply, and their settings.
"""


def _marks(card: Card) -> dict[str, str]:
    return dict(kz.engines(_instance(card)).frame["applies"])


def engine_matrix() -> str:
    """Table of the variants by engines."""
    marks = [_marks(card) for card in CARDS]
    header = ("model", *marks[0])
    rows = [
        (f"[{card.title}](../cards/{card.slug}.md)", *(mark[e] for e in marks[0]))
        for card, mark in zip(CARDS, marks, strict=True)
    ]
    return markdown_table(header, rows)


def pages() -> dict[str, str]:
    """Write cards and their index by their file in ``docs``."""
    tree = "\n".join(f"{card.slug}" for card in CARDS)
    index = (
        f"{INTRODUCTION}\n{engine_matrix()}\n\n*Answers of `kz.engines` on the small example of "
        "each card; why an engine does not apply is on the card.*\n\n"
        f"```{{toctree}}\n:hidden:\n\n{tree}\n```\n"
    )
    return {"cards/index.md": index} | {f"cards/{card.slug}.md": card.page() for card in CARDS}
