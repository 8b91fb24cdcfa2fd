"""Validation of the options that `fit` passes on to PyMC's samplers."""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from inspect import Parameter, signature
from typing import Any

from ...validation import argument_error

__all__ = ["check_sampler_options", "keywords_of"]

# Arguments of `fit` itself, and arguments with which `fit` could not make a result.
_TAKEN = frozenset(
    {
        *("draws", "tune", "chains", "cores", "random_seed", "progressbar", "model", "self"),
        *("return_inferencedata", "nuts_sampler_kwargs", "compile_kwargs", "backend"),
    }
)


def keywords_of(*functions: Callable[..., Any]) -> frozenset[str]:
    """Names of the arguments of functions, without those that `fit` sets itself."""
    named = {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}
    return frozenset(
        parameter.name
        for function in functions
        for parameter in signature(function).parameters.values()
        if parameter.kind in named and parameter.name not in _TAKEN
    )


def check_sampler_options(
    options: Mapping[str, Any],
    engine: str,
    *,
    known: frozenset[str],
    settings: Iterable[str],
    own: Iterable[str],
    owner: str = "fit",
) -> None:
    """Raise ValueError unless an engine's sampler takes every option.

    PyMC's NUTS would ignore unknown options.

    Parameters
    ----------
    options : mapping of str to object
        Arguments given to `fit` beyond its own.
    engine : str
        Name of the engine.
    known : frozenset of str
        Arguments of the engine's sampler; empty if it runs no sampler of PyMC.
    settings : iterable of str
        Names of the engine's settings, which must be given to the engine.
    own : iterable of str
        Names of the arguments of `fit`, for suggestions.
    owner : str, default="fit"
        Function that was given the options.
    """
    settings = list(settings)
    for name, value in options.items():
        if name in settings:
            where = f"given to the engine, {engine}({name}=...)"
            raise argument_error(name, owner, where, repr(value))
        if name in known:
            continue
        near = get_close_matches(name, [*settings, *own, *known], n=1)
        nearest = _spelt(near[0], settings, engine) if near else ""
        if not known:
            hint = f" Did you mean {nearest}?" if near else ""
            raise ValueError(f"{owner}() got an unexpected argument {name!r} for {engine}.{hint}")
        hint = f" (the nearest is {nearest})" if near else ""
        requirement = f"one that fit or the sampler of {engine} knows"
        raise argument_error(name, owner, requirement, f"{name!r}{hint}")


def _spelt(name: str, settings: list[str], engine: str) -> str:
    return f"the setting {engine}({name}=...)" if name in settings else repr(name)
