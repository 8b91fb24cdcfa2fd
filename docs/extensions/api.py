"""Reference pages: one per public name, and one table per task."""

import fnmatch
import inspect
import re
import tomllib
import types
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from markup import TEMPLATES
from sphinx.addnodes import pending_xref
from sphinx.util.inspect import stringify_signature

import kernelzoo as kz
from kernelzoo.inference import Engine

#: Names by task, with the pages that explain it.
GROUPS = tomllib.loads((Path(__file__).resolve().parents[1] / "api.toml").read_text("utf-8"))


class Name(NamedTuple):
    """A public name."""

    space: str
    name: str
    value: Any

    @property
    def qualified(self) -> str:
        """Name as Sphinx imports it."""
        return f"{self.space}.{self.name}".replace("kz", "kernelzoo", 1)

    def page(self, howto: list[str]) -> str:
        """Text of the reference page, which links to the pages of the name's task."""
        directive = "autofunction" if callable(self.value) else "autodata"
        if isinstance(self.value, type):
            directive = "autoexception" if issubclass(self.value, Exception) else "autoclass"
        return TEMPLATES.get_template("name.rst").render(
            name=self,
            directive=directive,
            members=own_members(self.value) if directive == "autoclass" else (),
            howto=howto,
        )


def own_members(owner: type) -> list[str]:
    """Public methods and properties that the package itself documents, inherited ones included."""
    found = {
        name
        for ancestor in owner.__mro__
        if ancestor.__module__.startswith("kernelzoo.")
        for name, value in vars(ancestor).items()
        if not name.startswith("_")
        and isinstance(value, (types.FunctionType, property, classmethod, staticmethod))
        and inspect.getdoc(value)
    }
    return sorted(found)


def namespaces() -> dict[str, types.ModuleType]:
    """Public namespaces, the root first."""
    spaces = {f"kz.{name}": getattr(kz, name) for name in kz.__all__}
    return {"kz": kz} | {n: v for n, v in spaces.items() if isinstance(v, types.ModuleType)}


def public_names() -> Iterator[Name]:
    """All public names except namespaces; a name of two namespaces once, in the inner one."""
    spaces = namespaces()
    inner = {name for space, module in spaces.items() if space != "kz" for name in module.__all__}
    for space, module in spaces.items():
        for name in module.__all__:
            value = getattr(module, name)
            if not isinstance(value, types.ModuleType) and (space != "kz" or name not in inner):
                yield Name(space, name, value)


def pages() -> dict[str, str]:
    """Write reference pages by their file in ``docs``."""
    names = list(public_names())
    # Names for extensions are not attributes of ``kz``.
    extension = [
        Name(f"kz.{module}", name, getattr(import_module(f"kernelzoo.{module}"), name))
        for module, _, name in (each.rpartition(".") for each in GROUPS["extensions"]["names"])
    ]
    groups = [*by_task(names), (GROUPS["extensions"], extension)]
    named = ((name, group["howto"]) for group, listed in groups for name in listed)
    written = {f"api/{name.qualified}.rst": name.page(howto) for name, howto in named}
    return written | {"api/index.md": TEMPLATES.get_template("api.md").render(groups=groups)}


def signature_of_engine(app: Any, what: str, name: str, value: Any, *given: Any) -> Any:
    """Signature of an engine: Sphinx would show that of ``__new__``, which refuses settings."""
    if what == "class" and issubclass(value, Engine):
        return stringify_signature(inspect.signature(value), show_annotation=False), None
    return None


def link_code(app: Any, doctree: Any) -> None:
    """Link code, ``module:name``, to its page or to that of the engine that it is part of."""
    own = {f"{getattr(n.value, '__module__', '')}:{n.name}": n.qualified for n in public_names()}
    for code in [*doctree.findall(nodes.literal)]:
        if not (found := re.fullmatch(r"(([\w.]+):\w+)[\w.]*", code.astext())):
            continue
        keys = (f"kernelzoo.{found[1]}", found[0], found[2], *re.split(r"[._:]", found[0]))
        if target := next(filter(None, map((GROUPS["parts"] | own).get, keys)), ""):
            kind = {"refdomain": "py", "reftype": "obj", "refwarn": True}
            code.replace_self(pending_xref("", code.deepcopy(), reftarget=target, **kind))


def by_task(names: list[Name]) -> Iterator[tuple[dict[str, Any], list[Name]]]:
    """Give each group its names; ValueError for a name that is in no group."""
    left = {f"{name.space}.{name.name}".removeprefix("kz."): name for name in names}
    for group in GROUPS["group"]:
        listed = []
        for pattern in group["names"]:
            if not (found := fnmatch.filter(left, pattern)):
                raise ValueError(f"{pattern} of docs/api.toml is not a public name.")
            listed += [left.pop(key) for key in found]
        yield group, listed
    if left:
        raise ValueError(f"docs/api.toml has no group for {', '.join(left)}.")
