"""Functions that numba compiles, and where the result is kept."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba import njit

__all__ = ["compiled", "source_digest"]


_ROOT = Path(__file__).parents[1]


def source_digest(*files: str) -> str:
    """Digest of source files, by their paths in the package: compiled code is kept by it."""
    digest = sha256()
    for name in files:
        digest.update((_ROOT / name).read_bytes())
    return digest.hexdigest()[:15]


def compiled[F: Callable[..., Any]](*files: str, **options: Any) -> Callable[[F], F]:
    """Compile a function when it is first called; keep the result beside PyTensor's.

    Parameters
    ----------
    *files : str
        Source files that the function comes from, by their paths in the package. Functions
        are inlined into one another, so that code is kept by the contents of all of them.
    **options
        Of ``numba.njit``.

    Notes
    -----
    Where no folder can be written to, every process compiles anew.
    """

    def decorate(function: F) -> F:
        try:
            from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS

            key = f"kernelzoo_{function.__name__}_{source_digest(*files)}"
            CACHED_SRC_FUNCTIONS[function] = key
            return njit(cache=True, **options)(function)
        except (ImportError, OSError, RuntimeError):
            return njit(**options)(function)

    return decorate
