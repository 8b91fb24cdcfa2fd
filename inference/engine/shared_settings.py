"""Settings of the whole process, which calls that overlap in threads change and put back.

Each thread puts back what it found, perhaps another thread's value, which then stays for good. So
the first of overlapping blocks notes the settings, and the last puts them back.
"""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from threading import Lock
from typing import Any, ClassVar, override

import pytensor
from threadpoolctl import threadpool_limits


class Shared:
    """A context that blocks which overlap in threads share: the first enters, the last leaves."""

    def __init__(self, make: Callable[[], AbstractContextManager[Any]]):
        self._make = make
        self._lock = Lock()
        self._open = ExitStack()
        self._blocks = 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Return the context of one block."""
        with self._lock:
            if not self._blocks:
                self._open.enter_context(self._make())
            self._blocks += 1
        try:
            yield
        finally:
            with self._lock:
                self._blocks -= 1
                if not self._blocks:
                    self._open.close()


#: What PyTensor and PyMC change while they build and compile graphs.
_CHANGED = ("mode", "cxx", "traceback__limit", "optdb__max_use_ratio")


@contextmanager
def _settings_kept() -> Iterator[None]:
    config: Any = pytensor.config
    before = {name: getattr(config, name) for name in _CHANGED}
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(config, name, value)


@contextmanager
def _quiet_sampler() -> Iterator[None]:
    logger = logging.getLogger("pymc")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _quiet_libraries() -> Iterator[None]:
    with warnings.catch_warnings():
        # PyTensor then keeps two loops, because one would take too many arguments.
        warnings.filterwarnings("ignore", "Loop fusion failed")
        # Of scikit-learn: a class with fewer objects than folds is not in every fold.
        warnings.filterwarnings("ignore", "The least populated class")
        yield


#: Leave PyTensor's settings as they were. A lock around compilations does not do: PyTensor and PyMC
#: change them to find the shapes of random variables, too, so wherever a graph is built, from the
#: declaration to `pm.sample`: 59 times outside of compilations in three Gibbs fits.
settings_kept = Shared(_settings_kept)

#: Leave out PyMC's messages about every chain, which would disturb a bar of many fits.
quiet_sampler = Shared(_quiet_sampler)

#: Leave out harmless warnings of libraries. One context for all, since filters are one list.
quiet_libraries = Shared(_quiet_libraries)


class BlasLimits(threadpool_limits):
    """A context with at most `number` BLAS threads; None leaves them as they are."""

    _lock: ClassVar[Lock] = Lock()
    _open: ClassVar[list["BlasLimits"]] = []

    def __init__(self, number: int | None):
        with self._lock:
            super().__init__(number, user_api="blas")
            # The one that found the number of threads before all that overlap.
            self._first: BlasLimits = self._open[0]._first if self._open else self
            self._open.append(self)

    @override
    def restore_original_limits(self) -> None:
        with self._lock:
            self._open.remove(self)
            found = self if self._open else self._first
            super(BlasLimits, found).restore_original_limits()
