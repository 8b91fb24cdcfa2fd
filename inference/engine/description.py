"""Sections and parameters of numpydoc docstrings."""

import inspect
import re
from typing import Any

__all__ = ["explained_parameters", "sections"]


def sections(documented: Any) -> dict[str, str]:
    """Sections of a numpydoc docstring by heading; "" for the text before the first heading."""
    lead, *rest = re.split(r"^(\S.*)\n-{3,}$", inspect.getdoc(documented) or "", flags=re.MULTILINE)
    headed = dict(zip(rest[::2], rest[1::2], strict=True))
    return {heading: text.strip("\n") for heading, text in ({"": lead} | headed).items()}


def explained_parameters(documented: Any) -> dict[str, str]:
    """Entries of a docstring's section Parameters, by the name of each parameter."""
    entries = re.split(r"\n+(?=\S)", sections(documented).get("Parameters", ""))
    return {name: entry for entry in entries for name in re.split(r" ?: |\n", entry)[0].split(", ")}
