"""Docstrings as reStructuredText: their sections; what is prose to a reader is escaped."""

import inspect
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the tests import this module without Sphinx
    from sphinx.application import Sphinx

# Outside of literals: dims such as object_, and the bare star of a signature.
LITERAL = re.compile(r"(``.*?``|:math:`.*?`)")
# In a table the escape takes the place of a space, so that columns keep their places.
REFERENCE = re.compile(r"(?<![\w`\\|])([A-Za-z]\w*)_(?=[,)\s.;:]|$)(?: (?=  ))?")
STAR = re.compile(r"(?<=[\s(])\*(?=,)")


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


def _process(
    app: "Sphinx", what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    lines[:] = escaped("\n".join(lines)).split("\n")


def setup(app: "Sphinx") -> dict[str, bool]:
    """Escape docstrings before numpydoc reads them."""
    app.connect("autodoc-process-docstring", _process, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
