"""Fingerprint of a function and its data, the same in every process that defines them."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property, partial, singledispatch
from hashlib import sha256
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import pymc as pm

from ...validation import argument_error
from .evaluation import arrays_in
from .provenance import data_of, declared

__all__ = ["fingerprint", "model_digest"]

# The version of this package stands for its functions.
OWN = __name__.partition(".")[0]

# Methods of a class that are no functions, and attributes of it that count by their values.
METHODS = staticmethod | classmethod | property | cached_property
CONSTANTS = bool | int | float | complex | str | bytes | list | tuple | dict | np.ndarray

type Seen = set[int]


def fingerprint(task: object, owner: str) -> str:
    """Fingerprint of a function with its code, defaults and data.

    Parameters
    ----------
    task : callable
    owner : str
        Function whose argument the task is, for messages.

    Raises
    ------
    ValueError
        When the data cannot be pickled.

    Notes
    -----
    Data are the values that the function holds (closures, arguments of ``functools.partial``,
    attributes of an object) and the globals of its module that it names. Functions and classes of
    its module count by their code, those of other modules by their names.
    """
    return str(_hashed(_contents(task, set()), owner))


def model_digest(model: pm.Model) -> str:
    """Digest of a model's declaration and of its data."""
    terms = [*model.free_RVs, *model.observed_RVs, *model.potentials]
    digest = sha256()
    for array in (*arrays_in(terms), *data_of(model).values()):
        if array.dtype.kind in "biuf":
            digest.update(f"{array.shape} {array.dtype}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(f"{type(model).__name__} {sorted(declared(model).items())}".encode())
    return digest.hexdigest()


def _hashed(value: object, owner: str) -> str:
    """Hash of a value by its pickle, with the keys of dicts and the elements of sets sorted."""
    import joblib

    try:
        return str(joblib.hash(value, hash_name="sha1"))
    except Exception as error:  # any error of a user's class
        rule = "a function whose data can be pickled"
        raise argument_error("task", owner, rule, f"{type(error).__name__}: {error}") from error


def _name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _is_own(value: Any) -> bool:
    return str(value.__module__).partition(".")[0] in (OWN, "builtins", "None")


def _is_wrapper(value: Any) -> bool:
    """Whether a value is an object around a function, such as those of ``functools.cache``."""
    return callable(value) and isinstance(getattr(value, "__wrapped__", None), FunctionType)


@singledispatch
def _contents(value: Any, seen: Seen) -> Any:
    """Replace functions, models and objects by lists of values that are hashed by their pickles."""
    if id(value) in seen:
        return type(value).__qualname__
    if is_dataclass(value):
        seen.add(id(value))
        held = {each.name: getattr(value, each.name) for each in fields(value)}
        return [_contents(type(value), seen), _contents(held, seen)]
    if _is_wrapper(value):
        return [type(value).__qualname__, _contents(value.__wrapped__, seen)]
    # Objects without a way of their own to be pickled.
    ways = ("__reduce_ex__", "__reduce__", "__getstate__")
    plain = all(getattr(type(value), way) is getattr(object, way) for way in ways)
    if plain and hasattr(value, "__dict__"):
        seen.add(id(value))
        return [_contents(type(value), seen), _contents(vars(value), seen)]
    return value


@_contents.register
def _(value: pm.Model, seen: Seen) -> Any:
    return model_digest(value)


@_contents.register
def _(value: ModuleType, seen: Seen) -> Any:
    return value.__name__


@_contents.register
def _(value: BuiltinFunctionType, seen: Seen) -> Any:
    return [value.__name__, _contents(value.__self__, seen)]


@_contents.register
def _(value: partial, seen: Seen) -> Any:
    return [_contents(part, seen) for part in (value.func, value.args, value.keywords)]


@_contents.register
def _(value: MethodType, seen: Seen) -> Any:
    return [_contents(value.__func__, seen), _contents(value.__self__, seen)]


@_contents.register(dict)
def _(value: Mapping[Any, Any], seen: Seen) -> Any:
    return {key: _contents(each, seen) for key, each in value.items()}


@_contents.register(list | tuple)
def _(value: Any, seen: Seen) -> Any:
    return [_contents(each, seen) for each in value]


@_contents.register
def _(value: type, seen: Seen) -> Any:
    if _is_own(value) or id(value) in seen:
        return _name(value)
    seen.add(id(value))
    own = {
        name: _contents(each, seen)
        for name, each in vars(value).items()
        if _is_wrapper(each)
        or isinstance(each, FunctionType | METHODS)
        or (isinstance(each, CONSTANTS) and not name.startswith("__"))
    }
    bases = [
        _contents(base, seen) if base.__module__ == value.__module__ else _name(base)
        for base in value.__bases__
    ]
    return [_name(value), own, bases]


@_contents.register(staticmethod | classmethod)
def _(value: Any, seen: Seen) -> Any:
    return [type(value).__name__, _contents(value.__func__, seen)]


@_contents.register
def _(value: property, seen: Seen) -> Any:
    return [_contents(each, seen) for each in (value.fget, value.fset, value.fdel)]


@_contents.register
def _(value: cached_property, seen: Seen) -> Any:
    return _contents(value.func, seen)


@_contents.register
def _(value: FunctionType, seen: Seen) -> Any:
    if _is_own(value) or id(value) in seen:
        return _name(value)
    seen.add(id(value))
    codes = [*_codes(value.__code__)]
    held = [cell.cell_contents for cell in value.__closure__ or ()]
    named = sorted({name for code in codes for name in code.co_names} & value.__globals__.keys())
    used = {name: _of_global(value.__globals__[name], value, seen) for name in named}
    data = [_contents(part, seen) for part in (held, value.__defaults__, value.__kwdefaults__)]
    return [_name(value), [_text(code) for code in codes], data, used]


def _of_global(value: Any, function: FunctionType, seen: Seen) -> Any:
    """Contents of a global; the name of a function or class of another module."""
    elsewhere = getattr(value, "__module__", None) != function.__module__
    if elsewhere and (isinstance(value, FunctionType | type) or _is_wrapper(value)):
        return _name(value)
    return _contents(value, seen)


def _codes(code: CodeType) -> Any:
    """Code of a function, and of the functions and comprehensions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _text(code: CodeType) -> list[Any]:
    # The order of a set of strings differs between processes.
    constants = [
        sorted(map(repr, each)) if isinstance(each, frozenset) else repr(each)
        for each in code.co_consts
        if not isinstance(each, CodeType)
    ]
    return [code.co_code, constants, code.co_names, code.co_varnames]
