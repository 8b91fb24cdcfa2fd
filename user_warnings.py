"""Warnings that point at the user's line, however deep below it they are raised."""

import functools
import os
import warnings
from importlib.util import find_spec
from pathlib import Path

__all__ = ["warn_user"]

_ROOT = Path(__file__).parent


def _folders_below_users() -> tuple[str, ...]:
    """Folders of models, steps, engines and PyMC, also where links lead to them, and dispatch."""
    pymc = find_spec("pymc")
    rooms = [_ROOT / name for name in ("numerics", "models", "custom_steps", "inference")]
    rooms += [Path(place) for place in (pymc and pymc.submodule_search_locations) or ()]
    links = dict.fromkeys(folder for room in rooms for folder in (room, room.resolve()))
    # A prefix that is the whole path matches nothing in CPython 3.12.
    return (
        *(f"{folder}{os.sep}" for folder in links),
        str(Path(functools.__file__).with_suffix("")),
    )


_BELOW_USERS = _folders_below_users()


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside models, steps, engines and PyMC that led here."""
    warnings.warn(message, category, skip_file_prefixes=_BELOW_USERS)
