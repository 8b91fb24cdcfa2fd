"""A setting of an engine, and the placeholder for its default on a model."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

__all__ = ["DEFAULT", "Default", "Setting"]


class Default(Enum):
    """Placeholder for a setting's default on the model, because None may be a value."""

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
        Type, such as ``'int, optional'`` or ``'{"mean", "zero"}'``.
    default : object
        Default on the model.
    value : object
        Value in force.
    explanation : str
        Meaning of the setting.
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
