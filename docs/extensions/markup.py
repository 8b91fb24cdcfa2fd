"""Docstrings as reStructuredText, in which prose is escaped, and mathematics as MathML.

Browsers draw MathML by themselves: no scripts, no fonts, no network.
"""

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

if TYPE_CHECKING:  # the tests import this module without Sphinx
    from sphinx.application import Sphinx

#: Pages of the site in which generated text is filled in.
TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).resolve().parents[1] / "templates"),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=StrictUndefined,
)
# Outside of literals: dims such as object_, and the bare star of a signature.
LITERAL = re.compile(r"(``.*?``|:math:`.*?`)")
# In a table the escape takes the place of a space, so that columns keep their places.
REFERENCE = re.compile(r"(?<![\w`\\|])([A-Za-z]\w*)_(?=[,)\s.;:]|$)(?: (?=  ))?")
STAR = re.compile(r"(?<=[\s(])\*(?=,)")
# Sizes of mathematics, which MathML chooses by itself and docutils does not know everywhere.
SIZES = re.compile(r"\\(?:textstyle|displaystyle|[bB]igg?[lr]?)(?![a-zA-Z])\s*")
# Symbols in tables of notation, which docstrings have as plain text: beta_s, K22.1, Q_vv^-1, C'WC.
NAMES = (
    "alpha|beta|gamma|delta|zeta|eta|theta|lambda|mu|nu|pi|rho|sigma|tau|phi|xi|chi|omega|"
    "varphi|varrho|Delta|Theta|Lambda|Sigma|Omega|(?:sum|prod)(?=_)|[ax](?=_)|[A-Zb-wyz]"
)
PRIME = "'\u2019"  # as written, and as Sphinx sets it
# Not the letters of "I-step", "appendix A" and "E.5".
SYMBOL = re.compile(
    rf"(?<![\w.{PRIME}])(?<!appendix )(?:([A-Z][{PRIME}][A-Z]+)|({NAMES})"
    rf"(\d+(?:\.\d)?|_[a-z\d]+(?:,[a-z]+)?)?(\^-?\w+(?:\.\d)?)?([{PRIME}](?!\w)|\*)?)"
    rf"(?![\w{PRIME}]|-[a-z]|\.\d)"
)
# Formulas in sentences: costs, one level of brackets deep, and symbols with an index or a power.
COST = r"\bO\((?:[^()]|\([^()]*\))+\)"
FORMULA = re.compile(rf"{COST}|(?=[A-Za-z]+\d*(?:_(?:[a-z\d]|{NAMES})\b|\^)){SYMBOL.pattern}")


def to_tex(found: re.Match[str]) -> str:
    """LaTeX of a symbol, or of a cost, which text has as O(n1^3 + draws S N)."""
    if not found.lastindex:
        return SYMBOL.sub(to_tex, re.sub(r"[a-z]{2,}", r"\\mathrm{\g<0>}", found[0]))
    product, base, below, above, mark = found.groups(default="")
    tex = product.replace("\u2019", "'") or (base if len(base) == 1 else f"\\{base}")
    tex += f"_{{{SYMBOL.sub(to_tex, below.lstrip('_'))}}}" if below else ""
    tex += f"^{{{SYMBOL.sub(to_tex, above[1:])}}}" if above else ""
    return tex + {"": "", "*": "^*"}.get(mark, "'")


def escaped(text: str) -> str:
    """Escape words that end in an underscore, and single stars."""
    lines = []
    for line in text.split("\n"):
        parts = LITERAL.split(line) if not line.lstrip().startswith((">>>", "...")) else ["", line]
        parts[::2] = [STAR.sub(r"\\*", REFERENCE.sub(r"\1\\_", part)) for part in parts[::2]]
        lines.append("".join(parts))
    return "\n".join(lines)


def sections(documented: Any) -> dict[str, str]:
    """Sections of a numpydoc docstring by heading; "" for the text before the first heading."""
    lead, *rest = re.split(r"^(\S.*)\n-{3,}$", inspect.getdoc(documented) or "", flags=re.MULTILINE)
    headed = dict(zip(rest[::2], rest[1::2], strict=True))
    return {heading: text.strip("\n") for heading, text in ({"": lead} | headed).items()}


def to_mathml(tex: str, *, block: bool) -> str:
    """Translate LaTeX to a ``math`` element."""
    from docutils.utils.math import latex2mathml

    math = latex2mathml.tex2mathml(SIZES.sub("", tex), as_block=block)
    return f'<div class="math">{math}</div>\n' if block else math


def setup(app: "Sphinx") -> dict[str, bool]:
    """Escape docstrings before numpydoc reads them; register the renderer ``mathml``."""
    from docutils import nodes

    def typeset(app: "Sphinx", doctree: Any) -> None:
        notation: set[int] = set()
        for table in doctree.findall(nodes.table):
            if table.next_node(nodes.entry).astext() in ("paper", "combination", "equation"):
                notation.update(map(id, table.next_node(nodes.tbody).findall(nodes.Text)))
        for text in [*doctree.findall(nodes.Text)]:
            pattern = SYMBOL if id(text) in notation else FORMULA
            if isinstance(text.parent, nodes.paragraph) and pattern.search(text):
                parts, end = [], 0
                for found in pattern.finditer(text):
                    plain, end = nodes.Text(text[end : found.start()]), found.end()
                    parts += [plain, nodes.math("", to_tex(found))]
                text.parent.replace(text, [*parts, nodes.Text(text[end:])])

    def escape(
        app: "Sphinx", what: str, name: str, value: Any, options: Any, lines: list[str]
    ) -> None:
        lines[:] = escaped("\n".join(lines)).split("\n")

    def render(translator: Any, node: Any) -> None:
        translator.body.append(to_mathml(node.astext(), block=isinstance(node, nodes.math_block)))
        raise nodes.SkipNode

    app.connect("autodoc-process-docstring", escape, priority=400)
    app.connect("doctree-read", typeset)
    app.add_html_math_renderer("mathml", (render, None), (render, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
