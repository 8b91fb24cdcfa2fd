"""What a setting of an engine is, and what stands for the default that a model gives it."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

__all__ = ["DEFAULT", "Default", "Setting"]


class Default(Enum):
    """Stands for the default of a setting on the model at hand, where None may mean a value."""

    DEFAULT = "the default on the model"

    def __repr__(self) -> str:
        return self.name


DEFAULT: Final = Default.DEFAULT


@dataclass(frozen=True)
class Setting:
    """A setting of an engine on a model; prints as an entry of a docstring.

    Attributes
    ----------
    name : str
    type : str
        What it may be, such as ``'int, optional'`` or ``'{"mean", "zero"}'``.
    default : object
        Its default on the model.
    value : object
        Its value in force.
    explanation : str
        What it means.
    """

    name: str
    type: str
    default: Any
    value: Any
    explanation: str

    def __repr__(self) -> str:
        quoted = f'"{self.default}"' if isinstance(self.default, str) else repr(self.default)
        default = "" if self.default is None else f", default={quoted}"
        lines = [f"    {line}" for line in self.explanation.splitlines()]
        return "\n".join([f"{self.name} : {self.type}{default}", *lines])
