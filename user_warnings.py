"""Warnings that point at the user's line, at any depth of the call stack."""

import functools
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from pathlib import Path

import numpy as np

#: NumPy's own defaults, in place of a user's ``np.seterr(all="raise")``, which would end algorithms
#: at harmless underflows.
numpy_warnings = functools.partial(
    np.errstate, divide="warn", over="warn", under="ignore", invalid="warn"
)

_ROOT = Path(__file__).parent


def _folders_below_users() -> tuple[str, ...]:
    """Path prefixes of rooms from numerics to estimators and of libraries, links also resolved."""
    libraries = [find_spec(name) for name in ("numpy", "pymc", "sklearn", "joblib")]
    names = ("numerics", "models", "custom_steps", "inference", "estimators")
    rooms = [_ROOT / name for name in names]
    for library in libraries:
        rooms += [Path(place) for place in (library and library.submodule_search_locations) or ()]
    links = dict.fromkeys(folder for room in rooms for folder in (room, room.resolve()))
    # In CPython 3.12 a prefix that is the whole path matches nothing, so ".py" is cut off.
    return (
        *(f"{folder}{os.sep}" for folder in links),
        str(Path(functools.__file__).with_suffix("")),
        *(str(folder / "validation") for folder in (_ROOT, _ROOT.resolve())),
    )


_BELOW_USERS = _folders_below_users()


#: Whether the package's own warnings are left out in this thread. `warnings.catch_warnings` would
#: change the filters of all threads, and where threads overlap for good.
_SILENT: ContextVar[bool] = ContextVar("silent", default=False)


@contextmanager
def silent() -> Iterator[None]:
    """Leave out the package's own warnings."""
    token = _SILENT.set(True)
    try:
        yield
    finally:
        _SILENT.reset(token)


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line of the call stack outside rooms of the package and libraries."""
    if _SILENT.get():
        return
    warnings.warn(message, category, skip_file_prefixes=_BELOW_USERS)
