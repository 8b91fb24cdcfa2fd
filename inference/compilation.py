"""Which compiler a graph is worth.

numba takes seconds to a minute to compile a graph, and evaluates it ten times as fast as Python
does node by node, through NumPy. So a graph that is evaluated some thousand times is left to
Python, and one that a sampler follows to numba, PyTensor's default.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytensor
from pytensor.compile.mode import Mode, get_mode

from ..models.checks import argument_error

__all__ = ["check_compile_kwargs", "compiling_with", "python_mode"]


def python_mode() -> Mode:
    """Make the mode that compiles nothing: NumPy evaluates the graph node by node.

    Without fusion: what is fused is a loop over elements, slow where no compiler takes it.
    """
    return Mode(linker="py", optimizer="fast_run").excluding("fusion")


@contextmanager
def compiling_with(mode: Mode) -> Iterator[None]:
    """Let a mode be PyTensor's default for what is compiled within."""
    with pytensor.config.change_flags(mode=mode):
        yield


def check_compile_kwargs(compile_kwargs: Mapping[str, Any] | None, owner: str) -> Mode | None:
    """Return the mode that a user chose, None where none was, or raise for what is no mode."""
    if not isinstance(compile_kwargs, Mapping | None):
        rule = "a dict with the key 'mode'"
        raise argument_error("compile_kwargs", owner, rule, repr(compile_kwargs))
    given = dict(compile_kwargs or {})
    if unknown := sorted(given.keys() - {"mode"}):
        names = ", ".join(map(repr, unknown))
        raise argument_error("compile_kwargs", owner, "a dict with the key 'mode'", names)
    if given.get("mode") is None:
        return None
    try:
        mode: Mode = get_mode(given["mode"])
    except ValueError:
        mode = None  # type: ignore[assignment]
    if not isinstance(mode, Mode):
        raise argument_error(
            "compile_kwargs",
            owner,
            "a dict with the key 'mode': a PyTensor Mode or its name, such as 'NUMBA', 'JAX', "
            "'FAST_COMPILE'",
            repr(given["mode"]),
        )
    return mode
