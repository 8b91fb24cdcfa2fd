"""Operations of PyTensor that compile in less time than its own, on the linkers in use."""

from typing import Any

import wrapt


# Implementations for a linker are imported only with the linker.
@wrapt.when_imported("pytensor.link.numba.dispatch")
def _register_numba(module: Any) -> None:
    from . import linker_numba  # noqa: F401


@wrapt.when_imported("pytensor.link.jax.dispatch")
def _register_jax(module: Any) -> None:
    from . import linker_jax  # noqa: F401
