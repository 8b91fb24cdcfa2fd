"""Fingerprint of the code that a cell proves; comments, docstrings and layout do not count."""

import ast
import hashlib
import inspect
from functools import cache
from pathlib import Path

import kernelzoo
from kernelzoo.inference import Engine
from kernelzoo.inference.paper_engines import PaperEngine

from .cells import DECLARATION, Cell, problem_of

__all__ = ["files_of", "fingerprint_of_code"]

_PACKAGE = Path(inspect.getfile(kernelzoo)).resolve().parent


@cache
def fingerprint_of_code(cell: Cell) -> str:
    """Short fingerprint of the declaration, the engine and the steps of a cell."""
    digest = hashlib.sha256()
    for path in files_of(cell):
        digest.update(_statements(path))
    return digest.hexdigest()[:16]


def files_of(cell: Cell) -> list[Path]:
    """Files of a cell's declaration and engine: a paper's rooms, or the engine's own module.

    Code that all cells share, such as `fit`, is not among them: its tests prove it.
    """
    classes = type(problem_of(cell.variant)).__mro__
    found = {_file(each) for each in classes if each.__module__.startswith("kernelzoo.models")}
    if cell.engine != DECLARATION:
        engine = Engine.registry[cell.engine.lower()]()
        own: object = type(engine)
        if isinstance(engine, PaperEngine):
            own = engine.algorithm(problem_of(cell.variant)).function
        found.add(_file(own))
        room = _file(own).parent
        if (_PACKAGE / "custom_steps" / room.name).is_dir():
            shared = {"VB": "inference/variational", "Gibbs": "custom_steps/moves"}
            rooms = [room, _PACKAGE / "custom_steps" / room.name]
            rooms += [_PACKAGE / shared[cell.engine]] if cell.engine in shared else []
            found.update(path for each in rooms for path in each.glob("*.py"))
    return sorted(found)


def _file(documented: object) -> Path:
    return Path(inspect.getfile(documented)).resolve()  # type: ignore[arg-type]


@cache
def _statements(path: Path) -> bytes:
    """Statements of a file without docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            node.body = node.body[1:]
    return ast.dump(tree).encode()
