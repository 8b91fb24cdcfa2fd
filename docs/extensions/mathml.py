"""Mathematics as MathML, which browsers draw by themselves: no scripts, no fonts, no network."""

import re

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

# Sizes, which MathML chooses by itself and docutils does not know everywhere.
SIZES = re.compile(r"\\(?:textstyle|displaystyle|[bB]igg?[lr]?)(?![a-zA-Z])\s*")


def to_mathml(tex: str, *, block: bool) -> str:
    r"""Translate LaTeX to a ``math`` element."""
    return latex2mathml.tex2mathml(SIZES.sub("", tex), as_block=block)


def _inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(to_mathml(node.astext(), block=False))
    raise nodes.SkipNode


def _block(translator: HTML5Translator, node: nodes.math_block) -> None:
    math = to_mathml(node.astext(), block=True)
    translator.body.append(f'<div class="math">{math}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer under the name ``mathml``."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
