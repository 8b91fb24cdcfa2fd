"""Which compiler a graph is worth.

numba takes 15 to 40 seconds to compile the gradient of a model, and evaluates it some fifty times
as fast as Python does node by node, through NumPy. So a graph that is evaluated some thousand times
is left to Python, and one that a sampler follows to numba, PyTensor's default.

PyTensor has one default mode for the whole process. Fits that run in threads at the same time share
it: the mode of the one begun last, of those that go on, counts for all. That alters the seconds
that compilation and evaluation take, and no result; and only where a fit is given a mode of its own
(``compile_kwargs``) or is long enough for what it records to be compiled.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any

import pytensor
from pytensor.compile.mode import Mode, get_mode
from pytensor.link.basic import PerformLinker

from ...validation import argument_error

__all__ = ["check_compile_kwargs", "compiling_with", "mode_worth", "python_mode"]

# Python takes one to four milliseconds for a gradient: as much for so many as numba's compilation.
MANY_EVALUATIONS = 10_000


def python_mode() -> Mode:
    """Make the mode that compiles nothing: NumPy evaluates the graph node by node.

    Without fusion: what is fused is a loop over elements, slow where no compiler takes it.
    """
    return Mode(linker="py", optimizer="fast_run").excluding("fusion")


def mode_worth(evaluations: float) -> Mode:
    """Choose the mode for a graph that is evaluated so many times: numba's for many."""
    return get_mode("NUMBA") if evaluations > MANY_EVALUATIONS else python_mode()


class _Defaults:
    """PyTensor's default mode while blocks that ask for one are open, in whatever threads.

    Where that mode compiles nothing, neither do graphs within its graphs: those of random variables
    ask for C, which takes several seconds for what is called once.

    Each block putting back what it found would not do: of two that overlap, the second finds the
    mode of the first, and would leave it behind.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._config: Any = pytensor.config
        self._open: dict[object, Mode] = {}
        self._before: Any = None

    def enter(self, block: object, mode: Mode) -> None:
        """Let the mode of a block that opens be the default."""
        with self._lock:
            if not self._open:
                self._before = self._config.mode, self._config.cxx
            self._open[block] = mode
            self._apply()

    def leave(self, block: object) -> None:
        """Let the default be that of the last block still open, or the one before all of them."""
        with self._lock:
            del self._open[block]
            self._apply()

    def _apply(self) -> None:
        mode, self._config.cxx = self._before
        if self._open:
            mode = next(reversed(self._open.values()))
            if isinstance(mode.linker, PerformLinker):
                self._config.cxx = ""
        self._config.mode = mode


_DEFAULTS = _Defaults()


@contextmanager
def compiling_with(mode: Mode) -> Iterator[None]:
    """Let a mode be PyTensor's default for what is compiled within."""
    block = object()
    _DEFAULTS.enter(block, mode)
    try:
        yield
    finally:
        _DEFAULTS.leave(block)


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
