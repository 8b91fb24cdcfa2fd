"""Status line while numba compiles, before a sampler shows its progress bar."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import override

from numba.core.event import Event, Listener, install_listener
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

__all__ = ["compilation_shown"]

# Processor seconds by which a first run with an empty cache exceeds a second one on each model's
# smallest example (`bench cold`): from 8 for the composite kernels to 24 for WishartKernelMixture,
# more on slower machines.
USUAL = "10 to 30 s"
# With spinner and time it fits into a terminal of 80 columns.
MESSAGE = f"compiling the gradient: usually {USUAL}, about 1 s from then on"

# PyTensor's name for the function of a graph that numba compiles.
GRAPH = "numba_funcified_fgraph"


class _Status(Listener):
    """Status line from the start to the end of a compilation, by numba's events."""

    def __init__(self) -> None:
        self._line: Progress | None = None
        # Inner graphs are compiled while their outer graph is.
        self._open = 0

    @override
    def on_start(self, event: Event) -> None:
        if not _is_of_graph(event):
            return
        if not self._open:
            columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
            self._line = Progress(*columns, transient=True)
            self._line.add_task(MESSAGE, total=None)
            self._line.start()
        self._open += 1

    @override
    def on_end(self, event: Event) -> None:
        if not _is_of_graph(event):
            return
        self._open -= 1
        if not self._open:
            self.remove()

    def remove(self) -> None:
        """Remove the line if it is still shown."""
        if self._line is not None:
            self._line.stop()
        self._line = None


def _is_of_graph(event: Event) -> bool:
    # Blocks that run in object mode have no name.
    return getattr(event.data["dispatcher"], "__name__", "") == GRAPH


@contextmanager
def compilation_shown(visible: bool) -> Iterator[None]:
    """Show a line while numba compiles a graph; code from PyTensor's cache shows no line.

    Notes
    -----
    Only for functions such as `pm.sample` that compile before they open their own progress bar: two
    live displays would overwrite each other.
    """
    if not visible:
        yield
        return
    status = _Status()
    try:
        with install_listener("numba:compile", status):
            yield
    finally:
        status.remove()
