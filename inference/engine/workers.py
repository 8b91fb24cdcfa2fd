"""Processes in which PyMC samples chains."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from functools import cache, partial
from multiprocessing import parent_process
from multiprocessing.context import BaseContext
from threading import Thread
from typing import Any

from pymc.sampling.parallel import _cpu_count, _initialize_multiprocessing_context

from .engine import Run


def processes(run: Run) -> int:
    """Chains that run at once: `cores`, or PyMC's default."""
    return min(run.cores or min(4, max(1, _cpu_count())), run.chains)


def context_of_workers(mp_ctx: BaseContext | str | None, mode: Any = None) -> BaseContext:
    """Return a context, by default PyMC's for a mode, whose processes end with this one.

    RuntimeError unless new processes that do not fork can import the main program.
    """
    context: Any = copy(_initialize_multiprocessing_context(mp_ctx, mode=mode, quiet=True))
    check_main_guard(mp_ctx)
    context.Process = partial(_process, context.Process)
    return context


def _process(make: Callable[..., Any], *, target: Any, args: Sequence[Any], **options: Any) -> Any:
    return make(target=_run_with_parent, args=(target, args), **options)


def _run_with_parent(target: Callable[..., Any], args: Sequence[Any]) -> None:
    """Call `target`, and end this process when the one that began it is gone."""
    # The worker would wait for its next order for ever, with the memory that it takes.
    Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    target(*args)


def _end_with_parent(number: int) -> None:
    # Forked processes that began later keep open what tells of the parent's end.
    while (parent := parent_process()) and parent.is_alive() and os.getppid() == number:
        parent.join(timeout=1)
    os._exit(1)


@cache
def check_main_guard(mp_ctx: BaseContext | str | None = None) -> None:
    """Raise RuntimeError unless new processes that do not fork can import the main program."""
    # PyMC would wait for ever for a process that fails to do so to read the model.
    context = _initialize_multiprocessing_context(mp_ctx, quiet=True)
    if context.get_start_method() == "fork":
        return
    trial = context.Process(daemon=True)
    # Within such a program's second run, multiprocessing itself refuses to begin a process.
    with suppress(RuntimeError):
        trial.start()
        trial.join()
    if trial.exitcode != 0:
        raise RuntimeError(
            "This fit runs in processes that import the main program again, which fails. Put what "
            'the program does under if __name__ == "__main__":, or, for engines with chains, pass '
            "cores=1."
        )
