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
    """Files of a cell's declaration and engine, with what they import of the paper's rooms.

    Code that all cells share, such as `fit`, is not among them: its tests prove it.
    """
    classes = type(problem_of(cell.variant)).__mro__
    found = {_file(each) for each in classes if each.__module__.startswith("kernelzoo.models")}
    if cell.engine != DECLARATION:
        engine = Engine.registry[cell.engine.lower()]()
        own: object = type(engine)
        if isinstance(engine, PaperEngine):
            own = engine.algorithm(problem_of(cell.variant)).function
        found |= _engine_files(_file(own))
    return sorted(found)


def _engine_files(own: Path) -> set[Path]:
    """Files of an engine: what its own file imports of the paper's rooms, and what that imports.

    A file that makes steps stands for all steps of the paper, and for the moves they are made of.
    """
    room, steps = own.parent, _PACKAGE / "custom_steps" / own.parent.name
    if own.stem == "__init__":
        moves = (_PACKAGE / "custom_steps" / "moves").glob("*.py")
        return {own, *steps.glob("*.py"), *moves}
    rooms = {room, steps, _PACKAGE / "inference" / "variational"} if steps.is_dir() else set()
    found: set[Path] = set()
    left = [own]
    while left:
        found.add(path := left.pop())
        left += [each for each in _imported(path) - found if each.parent in rooms]
    return found


def _imported(path: Path) -> set[Path]:
    """Modules of the package that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            origin = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            found |= {origin / alias.name for alias in node.names} | {origin}
    return {path.with_suffix(".py") for path in found if path.with_suffix(".py").is_file()}


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
