"""Descriptions of an engine's settings, read from docstrings."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .settings import Setting

__all__ = ["EngineDescription", "explained_parameters", "sections", "settings_of"]

# Sections of a docstring, besides the parameters, that help to choose settings.
TOLD = ("Notes", "References")


@dataclass(frozen=True)
class EngineDescription:
    """Settings of an engine on a model, and what they mean; prints as text.

    Attributes
    ----------
    engine, model : str
    summary : str
        Summary of the function that runs.
    settings : dict of str to Setting
        Each with its type, its default, its value in force, and what it means.
    notes : dict of str to str
        Text by section: ``Notes``, ``References``.
    source : str
        Module of the function that runs; its ``help`` has the equations.
    paper : str
        First line of that module's docstring.
    """

    engine: str
    model: str
    summary: str
    settings: dict[str, Setting]
    notes: dict[str, str]
    source: str
    paper: str

    @classmethod
    def of(
        cls,
        engine: str,
        model: str,
        settings: Mapping[str, Any],
        defaults: Mapping[str, Any],
        documented: list[Any],
    ) -> "EngineDescription":
        """Read the docstrings of the objects that take the settings; the last one runs."""
        known: dict[str, str] = {}
        for each in documented:
            known |= explained_parameters(each)
        run = sections(documented[-1])
        module = inspect.getmodule(documented[-1])
        return cls(
            engine=engine,
            model=model,
            summary=run[""],
            settings={
                name: _setting(name, known[name], defaults[name], value)
                for name, value in settings.items()
            },
            notes={heading: run[heading] for heading in TOLD if heading in run},
            source=documented[-1].__module__,
            paper=(inspect.getdoc(module) or "").partition("\n")[0],
        )

    def __repr__(self) -> str:
        entries = "\n".join(map(repr, self.settings.values())) or "None."
        source = f'{self.paper}\nMore: help("{self.source}")'.lstrip()
        parts = {"Settings": entries} | self.notes | {"Source": source}
        told = [f"{self.engine} on {self.model}: {self.summary}"]
        told += [f"{heading}\n{'-' * len(heading)}\n{text}" for heading, text in parts.items()]
        return "\n\n".join(told)


def _setting(name: str, entry: str, default: Any, value: Any) -> Setting:
    """Read the type and the explanation of a setting from its entry."""
    head, _, text = entry.partition("\n")
    kind = head.partition(" : ")[2].partition(", default=")[0]
    return Setting(name, kind, default, value, inspect.cleandoc(text))


def sections(documented: Any) -> dict[str, str]:
    """Sections of a numpydoc docstring by heading; "" for the text before the first heading."""
    lead, *rest = re.split(r"^(\S.*)\n-{3,}$", inspect.getdoc(documented) or "", flags=re.MULTILINE)
    headed = dict(zip(rest[::2], rest[1::2], strict=True))
    return {heading: text.strip("\n") for heading, text in ({"": lead} | headed).items()}


def explained_parameters(documented: Any) -> dict[str, str]:
    """Entries of a docstring's section Parameters, by the name of each parameter."""
    entries = re.split(r"\n+(?=\S)", sections(documented).get("Parameters", ""))
    return {name: entry for entry in entries for name in re.split(r" ?: |\n", entry)[0].split(", ")}


def settings_of[F: Callable[..., Any]](*steps: type) -> Callable[[F], F]:
    """Give a function that takes ``**settings`` the settings of step methods, with their texts.

    The settings are the keyword arguments of the constructors that their classes explain.
    """

    def decorate(function: F) -> F:
        entries, taken = explained_parameters(function), []
        for step in steps:
            explained = explained_parameters(step)
            for parameter in inspect.signature(step).parameters.values():
                if parameter.kind is parameter.KEYWORD_ONLY:
                    taken.append(parameter)
                    entries[parameter.name] = explained[parameter.name]
        own = inspect.signature(function)
        kept = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
        vars(function)["__signature__"] = own.replace(parameters=[*kept, *taken])
        told = inspect.getdoc(function) or ""
        listed = "\n".join(entries.values())
        function.__doc__ = told.replace(sections(function)["Parameters"], listed)
        return function

    return decorate
