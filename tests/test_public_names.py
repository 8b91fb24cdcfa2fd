"""Names that README, documentation and error messages hand to a user are there to be used."""

import ast
import re
from pathlib import Path
from pkgutil import resolve_name

import kernelzoo as kz

SPACES = [getattr(kz, name) for name in ("kernels", "combinations", "distributions", "completion")]
SPACES += [kz.estimators, kz.plots, kz.scores]
PUBLIC = {*kz.__all__}.union(*(space.__all__ for space in SPACES))

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# The written pages: those that the documentation's build generates are in other folders.
PAGES = sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "howto").glob("*.md")])
TEXTS = "\n".join([README, *(path.read_text(encoding="utf-8") for path in PAGES)])


def messages():
    """Strings of the rooms that raise errors about input, but docstrings."""
    for path in (
        path
        for room in ("models", "inference", "estimators")
        for path in (ROOT / room).rglob("*.py")
    ):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.Constant) and id(node) not in docstrings:
                yield str(node.value)


def test_names_in_readme_are_public():
    classes = set(re.findall(r"`([A-Z]\w*[a-z]\w*)[`(]", README)) - {"DataTree"}
    assert "MutualKernelCompletion" in classes
    assert classes <= PUBLIC


def test_names_in_readme_and_documentation_exist():
    flat = set(re.findall(r"\bkz\.(\w+)", TEXTS))
    assert "extend" in flat
    assert flat <= set(kz.__all__)
    assert [resolve_name(f"kernelzoo{name}") for name in re.findall(r"\bkz((?:\.\w+)+)", TEXTS)]


def test_names_are_few():
    """Some forty are what a reader of ``dir(kz)`` takes in; the rest has a namespace."""
    assert len(kz.__all__) <= 46
    for space in SPACES:
        assert all(hasattr(space, name) for name in space.__all__)


def test_names_with_their_module_in_documentation_exist():
    named = re.findall(r"\bkernelzoo(?:\.\w+)+", TEXTS)
    assert [resolve_name(name) for name in named]


def test_functions_that_messages_tell_to_call_are_public():
    # Written like as_stack(kernels, ...).
    call = re.compile(r"(?<![.\w])([a-z]\w*)\([^()]*\.\.\.[^()]*\)")
    named = {name for message in messages() for name in call.findall(message)}
    assert "as_stack" in named
    assert named <= PUBLIC
