"""Compile functions with numba and cache the result on disk."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]


def numba_compiles() -> bool:
    """Tell whether numba compiles, which ``NUMBA_DISABLE_JIT=1`` switches off."""
    # numba takes half a second to import, and only samplers need it.
    from numba import config

    return not getattr(config, "DISABLE_JIT", 0)


def source_digest(*files: str) -> str:
    """Digest of source files, by their paths in the package; part of the cache key."""
    digest = sha256()
    for name in files:
        digest.update((_ROOT / name).read_bytes())
    return digest.hexdigest()[:15]


def compiled[F: Callable[..., Any]](*files: str, **options: Any) -> Callable[[F], F]:
    """Compile a function when it is first called, with numba's `options`, and cache it as PyTensor.

    `files` are the sources of the function and of all that numba inlines into it: a change
    invalidates the cached code. If no cache folder is writable, every process compiles anew.
    """
    from numba import njit

    def decorate(function: F) -> F:
        try:
            from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS

            key = f"kernelzoo_{function.__name__}_{source_digest(*files)}"
            CACHED_SRC_FUNCTIONS[function] = key
            return njit(cache=True, **options)(function)
        except (ImportError, OSError, RuntimeError):
            return njit(**options)(function)

    return decorate
