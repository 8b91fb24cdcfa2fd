"""Input validation of arguments, shared by all models, kernels and engines.

Each check returns the argument in canonical form, or nothing, and raises a ``ValueError`` if the
argument is invalid. All messages have one form:

    The 'kernels' argument of MultinomialProbit must be ... Got ...

``argument`` is the name as the user typed it, ``owner`` the class or function called.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from difflib import get_close_matches
from numbers import Number, Real
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeAliasType,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, cholesky, eigvalsh
from scipy.sparse import issparse

from .user_warnings import warn_user

#: Relative size below which an asymmetry or a negative eigenvalue counts as float64 rounding.
ROUNDING = 1e-8
#: Largest deviation from one of the sum of an object's class probabilities: classifiers that
#: compute in single precision deviate this much.
OFF_ONE = 1e-5

#: Types of labels that netCDF stores.
STORABLE = (str, bytes, (int, float, np.number, np.bool_), datetime, np.datetime64)

#: What public functions take as a seed; see `integer_seed`.
type Seed = int | np.random.SeedSequence | np.random.Generator | None


class Rule(NamedTuple):
    """What `check_arguments` requires of a value: the words of the message, and the test."""

    requirement: str
    holds: Callable[[Any], bool]


def _whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


#: Annotations that `check_arguments` enforces, besides bool, None and Literal.
type Count = Annotated[int, Rule("an integer of 1 or more", lambda x: _whole(x) and x >= 1)]
type CountOrZero = Annotated[int, Rule("an integer of 0 or more", lambda x: _whole(x) and x >= 0)]
type Positive = Annotated[
    float, Rule("a finite number above 0", lambda x: 0 < number_or_nan(x) < np.inf)
]
type PositiveOrZero = Annotated[
    float, Rule("a finite number of 0 or more", lambda x: 0 <= number_or_nan(x) < np.inf)
]
type PositiveOrInf = Annotated[float, Rule("a number above 0", lambda x: number_or_nan(x) > 0)]
type Fraction = Annotated[float, Rule("between 0 and 1", lambda x: 0 < number_or_nan(x) < 1)]


def argument_error(argument: str, owner: str, requirement: str, got: str) -> ValueError:
    """Return the error for an invalid argument; `requirement` completes "must be ..."."""
    return ValueError(f"The '{argument}' argument of {owner} must be {requirement}. Got {got}.")


def number_or_nan(value: object) -> float:
    """Return a real number as a float, anything else (strings and booleans too) as NaN."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    try:
        return float(value) if isinstance(value, Real) and not isinstance(value, bool) else np.nan
    except OverflowError:
        return np.inf


def check_positive(value: float, argument: str, owner: str) -> float:
    """Return `value` as a float, or raise unless it is positive and finite."""
    number = number_or_nan(value)
    if not 0 < number < np.inf:
        raise argument_error(argument, owner, "a finite number above 0", repr(value))
    return number


def check_jitter(value: float, owner: str) -> float:
    """Return the jitter as a float, or raise unless it is finite and nonnegative."""
    number = number_or_nan(value)
    if not 0 <= number < np.inf:
        raise argument_error("jitter", owner, "0 or a positive number", repr(value))
    return number


def check_arguments(
    function: Callable[..., Any], given: Mapping[str, Any], owner: str | None = None
) -> None:
    """Raise ValueError unless arguments are of the types that a function's annotations name.

    Flags, None, choices (Literal) and the types above are checked, alone or in unions of them;
    arguments of other types pass. `given` are arguments by name, such as ``locals()`` in a
    function's first line. The default `owner` is the function, or the class of a constructor.
    """
    for name, hint in get_type_hints(function, include_extras=True).items():
        rules = list(map(_rule, _alternatives(hint))) if name in given else []
        if not rules or None in rules or any(rule.holds(given[name]) for rule in rules if rule):
            continue
        words = [c for each in _alternatives(hint) for c in _choices(each) if isinstance(c, str)]
        near = get_close_matches(str(given[name]), words, n=1)
        raise argument_error(
            name,
            owner or function.__qualname__.removesuffix(".__init__").rpartition(".")[2],
            " or ".join(rule.requirement for rule in rules if rule),
            repr(given[name]) + (f" (the nearest is {near[0]!r})" if near else ""),
        )


def _alternatives(hint: Any) -> list[Any]:
    """Members of a union, aliases resolved, None last."""
    if isinstance(hint, TypeAliasType):
        return _alternatives(hint.__value__)
    if get_origin(hint) not in (Union, UnionType):
        return [hint]
    found = [each for member in get_args(hint) for each in _alternatives(member)]
    return sorted(found, key=lambda each: each is NoneType)


def _choices(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) is Literal else ()


def _rule(hint: Any) -> Rule | None:
    """Rule of an annotation; None for one that is not checked."""
    if hint is bool:
        return Rule("True or False", lambda value: isinstance(value, bool | np.bool_))
    if hint is NoneType:
        return Rule("None", lambda value: value is None)
    if choices := _choices(hint):
        return Rule(
            f"one of {', '.join(map(repr, choices))}",
            lambda value: any(isinstance(value, type(c)) and value == c for c in choices),
        )
    return next((extra for extra in get_args(hint) if isinstance(extra, Rule)), None)


def check_flag(value: bool, argument: str, owner: str) -> bool:
    """Return `value` as a bool, or raise unless it is one: every nonempty string is truthy."""
    if not isinstance(value, bool | np.bool_):
        raise argument_error(argument, owner, "True or False", repr(value))
    return bool(value)


def check_count(value: int, argument: str, owner: str, *, least: int = 1) -> int:
    """Return `value` as an int, or raise unless it is an integer of at least `least`."""
    if not _whole(value) or value < least:
        raise argument_error(argument, owner, f"an integer of {least} or more", repr(value))
    return int(value)


def integer_seed(seed: Seed, argument: str, owner: str) -> int:
    """Return a seed in any form as the integer that repeats the run, or raise.

    An integer of 2**32 or more, which some samplers and files do not take, and a SeedSequence
    always give the same integer. A Generator draws one and advances. None takes fresh entropy.
    """
    if seed is None or (isinstance(seed, int | np.integer) and seed >= 2**32):
        seed = np.random.SeedSequence(seed)
    if isinstance(seed, np.random.SeedSequence):
        return int(seed.generate_state(1)[0])
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(2**32))
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        rule = "an integer of 0 or more, a SeedSequence, a Generator or None"
        raise argument_error(argument, owner, rule, repr(seed))
    return int(seed)


def check_name(name: str, names: Iterable[str], argument: str, owner: str) -> str:
    """Return `name`, or raise and suggest the nearest of `names` unless it is one of them."""
    known = list(names)
    if not known:
        raise ValueError(f"{owner} has no {argument}. Got {name!r}.")
    if name not in known:
        near = get_close_matches(str(name), known, n=1)
        hint = f" (the nearest is {near[0]!r})" if near else ""
        rule = f"one of {', '.join(map(repr, known))}"
        raise argument_error(argument, owner, rule, f"{name!r}{hint}")
    return name


def check_storable(labels: Iterable[object], argument: str, owner: str) -> None:
    """Raise unless netCDF stores labels: strings, numbers or dates, all of one kind."""
    kinds: dict[object, object] = {}
    for label in labels:
        kind = next((each for each in STORABLE if isinstance(label, each)), None)
        text = label.encode(errors="replace") if isinstance(label, str) else label
        cut = isinstance(text, bytes) and b"\0" in text
        odd = isinstance(label, np.complexfloating | np.timedelta64)
        if kind is None or cut or odd or getattr(label, "tzinfo", None):
            rule = "labelled by strings without NUL, numbers or dates without time zone, "
            rule += "which files can hold"
            got = f"the {type(label).__name__} {label!r}; convert the labels, as by astype(str)"
            raise argument_error(argument, owner, rule, got)
        kinds.setdefault(kind, label)
    if len(kinds) > 1:
        got = f"{' and '.join(map(repr, kinds.values()))}; convert the labels, as by astype(str)"
        raise argument_error(argument, owner, "labelled by ids of one type", got)


def check_names(
    names: str | Iterable[str], known: Iterable[str], argument: str, owner: str
) -> list[str]:
    """Return one name or several as a list; raise for unknown names, repeated ones, and none."""
    known = list(known)
    found = [names] if isinstance(names, str) else list(names)
    for name in found:
        check_name(name, known, argument, owner)
        if found.count(name) > 1:
            raise argument_error(argument, owner, "different names", f"{name!r} twice")
    return found


def check_finite(
    array: NDArray,
    argument: str,
    owner: str,
    labels: Sequence[Sequence[Hashable]] = (),
    *,
    similarities: bool = False,
) -> None:
    """Raise unless every entry of a numeric array is finite; the message locates the first bad one.

    `labels` are those of each axis. Of `similarities` (..., row, column) the message names the rows
    that have none, and what completes them.
    """
    bad = ~np.isfinite(array)
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        found = f"{int(bad.sum())} NaN or infinite entries, the first at position {first}"
        if labels:
            named = (repr(np.array(ids).tolist()[i]) for ids, i in zip(labels, first, strict=True))
            found += f", {', '.join(named)}"
        absent = np.atleast_2d(bad.all(axis=-1)).any(axis=0)
        if similarities and absent.any():
            ids = labels[-2] if labels else range(len(absent))
            rows = ", ".join(repr(ids[row]) for row in np.flatnonzero(absent)[:5])
            found += f", rows without similarities: {rows} ({int(absent.sum())} in all); "
            found += "KernelCompleter and complete_kernels fill such kernels"
        raise argument_error(argument, owner, "finite", found)


def check_probabilities(p: NDArray, objects: Sequence[Hashable], argument: str, owner: str) -> None:
    """Raise unless each row of p (N, C) is a probability vector; the message names an object."""
    total = p.sum(axis=1)
    smallest = p.min(axis=1)
    bad = ~((smallest >= 0) & (np.abs(total - 1) <= OFF_ONE))
    if bad.any():
        first = int(bad.argmax())
        which = np.asarray(objects, dtype=object)[first]
        rule = "probabilities of the classes, of 0 or more, that sum to one for each object"
        got = f"a sum of {total[first]:.7g} and a smallest entry of {smallest[first]:.3g} at "
        got += f"object {which!r} ({int(bad.sum())} of {len(p)} objects are wrong)"
        raise argument_error(argument, owner, rule, got)


def check_codes(codes: NDArray, n_classes: int, owner: str) -> NDArray:
    """Return class codes, or raise unless they are from 0 to `n_classes` - 1."""
    if len(codes) and not 0 <= codes.min() <= codes.max() < n_classes:
        rule = f"codes of its {n_classes} classes, 0 to {n_classes - 1}, when pm.set_data sets them"
        raise argument_error("labels", owner, rule, f"{codes.min()} to {codes.max()}")
    return codes


def check_unmasked(values: object, argument: str, owner: str) -> None:
    """Raise if `values` is a masked array that masks anything, or a sparse matrix."""
    # NumPy drops masks silently, and takes a sparse matrix for a single object.
    if issparse(values):
        got = f"a sparse {type(values).__name__}"
        raise argument_error(argument, owner, "a dense array, such as X.toarray()", got)
    masked = np.ma.getmaskarray(values) if np.ma.isMaskedArray(values) else np.zeros(1, dtype=bool)
    if masked.any():
        first = tuple(int(i) for i in np.argwhere(masked)[0])
        hidden = np.asarray(values)[masked]
        word = "masked"
        rule = "without masked entries: leave out the masked objects"
        # PyMC masks what is NaN.
        if hidden.dtype.kind == "f" and np.isnan(hidden).all():
            word = "NaN"
            rule = "without NaN: leave out the objects that have it"
        got = f"{int(masked.sum())} {word}, the first at position {first}"
        raise argument_error(argument, owner, rule, got)


def check_one_table(values: Any, argument: str, owner: str) -> None:
    """Raise for several tables in one argument, as a list of views or a MuData, and for masks."""
    # NumPy would make one array of tables of one shape, with the views in place of the objects.
    objects = isinstance(values, np.ndarray) and values.dtype == object and values.ndim == 1
    got = ""
    if (isinstance(values, list | tuple) or objects) and len(values):
        got = "several tables" if len(getattr(values[0], "shape", ())) == 2 else ""
    elif isinstance(getattr(values, "mod", None), Mapping):
        got = f"a {type(values).__name__}, whose tables are in .mod"
    if got:
        rule = 'one table, or a dict of tables by name, {"a": X[0], "b": X[1]}'
        raise argument_error(argument, owner, rule, got)
    check_unmasked(values, argument, owner)


def check_undated(values: Any, argument: str, owner: str) -> None:
    """Raise if an array, or a column of a frame, has dates or durations."""
    # As numbers they would depend on their unit, which files and libraries change.
    dtypes: Any = getattr(values, "dtypes", getattr(values, "dtype", np.dtype(object)))
    found = [str(dtype) for dtype in np.ravel(dtypes) if dtype.kind in "mM"]
    if any(dtype.kind == "O" for dtype in np.ravel(dtypes)):
        dates = (date, timedelta, np.datetime64, np.timedelta64)
        entries = np.asarray(values, dtype=object).ravel()
        found += [type(x).__name__ for x in entries if isinstance(x, dates)]
    if found:
        rule = 'numbers, in a unit of yours: (dates - dates[0]) / np.timedelta64(1, "D")'
        raise argument_error(argument, owner, rule, found[0])


def check_real(
    values: object, argument: str, owner: str, *, booleans: bool = False, rule: str = "real numbers"
) -> NDArray[np.float64]:
    """Return real numbers, also NaN and infinity, as floats; raise for others, even x + 0i."""
    check_unmasked(values, argument, owner)
    array = np.asarray(values)
    kinds, others = ("biuf", ()) if booleans else ("iuf", (bool, np.bool_))
    numbers = array.dtype.kind in kinds or (
        array.dtype.kind == "O"
        and all(isinstance(x, Real | np.bool_) and not isinstance(x, others) for x in array.ravel())
    )
    if not numbers:
        # As a list, dates in nanoseconds are integers.
        plain = [] if array.dtype.kind in "mM" else array.ravel().tolist()
        got = " and ".join(sorted({type(x).__name__ for x in plain})) or str(array.dtype)
        raise argument_error(argument, owner, rule, got)
    return array.astype(float)


def check_square_symmetric(
    matrix: NDArray,
    argument: str,
    owner: str,
    *,
    tolerance: float = ROUNDING,
    ids: Sequence[Hashable] | None = None,
) -> None:
    """Raise unless a matrix is square and symmetric, up to `tolerance` times its largest entry."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise argument_error(argument, owner, "a square matrix", f"shape {matrix.shape}")
    gap = np.abs(matrix - matrix.T)
    if gap.max(initial=0.0) > tolerance * np.abs(matrix).max(initial=0.0):
        row, column = (int(i) for i in np.unravel_index(gap.argmax(), gap.shape))
        above = matrix[row, column]
        below = matrix[column, row]
        one, other = (row, column) if ids is None else (repr(ids[row]), repr(ids[column]))
        got = f"{above:.9g} at ({one}, {other}) but {below:.9g} at ({other}, {one})"
        got += "; the mean with the transpose, (K + K.T) / 2, is symmetric"
        raise argument_error(argument, owner, "symmetric", got)


def check_psd(matrix: NDArray, argument: str, owner: str, *, tolerance: float = ROUNDING) -> None:
    """Raise unless a symmetric matrix is positive semidefinite up to rounding, in O(N^3 / 3).

    `tolerance` times the largest diagonal entry is the most negative eigenvalue allowed: rounding
    makes zero eigenvalues of a Gram matrix of low rank slightly negative.
    """
    diagonal = np.diagonal(matrix)
    # The largest diagonal entry bounds every entry of a positive semidefinite matrix, so rounding
    # is relative to it. The shift is positive so that a matrix of zeros passes.
    shift = tolerance * np.max(diagonal, initial=0.0) or np.finfo(float).tiny
    shifted = np.array(matrix, dtype=float)
    shifted.flat[:: len(shifted) + 1] += shift
    try:
        cholesky(shifted, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        smallest = float(eigvalsh(matrix, subset_by_index=[0, 0], check_finite=False)[0])
        if smallest < -shift:
            got = f"a smallest eigenvalue of {smallest:.4g} (largest diagonal entry "
            got += f"{np.max(diagonal):.4g}); kz.kernels.nearest_psd mends matrices without NaN"
            raise argument_error(argument, owner, "positive semidefinite", got) from None


def check_labels(
    labels: ArrayLike,
    argument: str,
    owner: str,
    *,
    classes: Sequence | NDArray | None = None,
    n_objects: int | None = None,
) -> tuple[NDArray[np.int64], NDArray]:
    """Return the codes (N,), 0 to C - 1, and the classes (C,) of labels that can be classes.

    `classes`, in the order of the codes, are by default the distinct labels, sorted, or in the
    order of an ordered Categorical. Classes
    without objects are allowed, labels outside `classes` are not.
    """
    check_unmasked(labels, argument, owner)
    # dtype=object keeps the types of a mixed list: NumPy would turn NaN and 1 into strings.
    values = np.asarray(labels, dtype=None if hasattr(labels, "dtype") else object)
    if values.ndim != 1:
        got = f"shape {values.shape}"
        raise argument_error(argument, owner, "one-dimensional, one label per object", got)
    if n_objects is not None and len(values) != n_objects:
        rule = f"of length {n_objects}, one label per object"
        raise argument_error(argument, owner, rule, f"length {len(values)}")
    missing = np.array([_is_missing(value) for value in values.tolist()], dtype=bool)
    if missing.any():
        got = f"{int(missing.sum())} missing, the first at position {int(missing.argmax())}"
        raise argument_error(argument, owner, "without missing labels", got)
    dtype: Any = getattr(labels, "dtype", None)
    if classes is None and getattr(dtype, "ordered", False):
        # Of an ordered Categorical, which has its own order.
        present = set(values.tolist())
        used = [category for category in dtype.categories if category in present]
        classes = used if len(used) > 1 else None
    given = values
    values = _of_one_type(values, argument, owner)
    if given.dtype.kind in "OUSM":
        check_storable(list(given), argument, owner)
    if classes is None:
        distinct, codes = np.unique(values, return_inverse=True)
        if len(distinct) < 2:
            listed = ", ".join(map(repr, distinct.tolist())) or "none"
            rule = "labels of at least two classes"
            raise argument_error(argument, owner, rule, f"only {listed}")
        return codes.astype(np.int64), distinct
    known = np.asarray(classes)
    place = {value: code for code, value in enumerate(known.tolist())}
    if known.ndim != 1 or len(place) != known.size or known.size < 2:
        raise argument_error("classes", owner, "at least two distinct classes", repr(classes))
    unseen = sorted({repr(value) for value in values.tolist() if value not in place})
    if unseen:
        got = f"the unseen {'class' if len(unseen) == 1 else 'classes'} {', '.join(unseen)}"
        raise argument_error(argument, owner, f"among the classes {known.tolist()}", got)
    return np.array([place[value] for value in values.tolist()], dtype=np.int64), known


def _is_missing(value: object) -> bool:
    """Whether a label is None, NaN, NaT or NA (`value != value` is true, or raises for NA)."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):
        return True


def _of_one_type(values: NDArray, argument: str, owner: str) -> NDArray:
    """Return labels as an array of one type, or raise unless they can be classes."""
    plain = values.tolist()
    kinds = {
        bool if isinstance(x, bool | np.bool_) else Real if isinstance(x, Real) else type(x)
        for x in plain
    }
    if len(kinds) > 1:
        names = " and ".join(sorted({type(x).__name__ for x in plain}))
        rule = "labels of one type, so that classes can be sorted"
        raise argument_error(argument, owner, rule, names)
    numbers = [x for x in plain if isinstance(x, Number)]
    odd = [x for x in numbers if not (isinstance(x, Real) and float(x).is_integer())]
    if odd:
        rule = "classes such as strings or whole numbers, not measurements"
        raise argument_error(argument, owner, rule, repr(odd[0]))
    return values if values.dtype.kind != "O" or kinds - {bool, Real, str} else np.array(plain)


def check_targets(targets: ArrayLike, n_objects: int, owner: str) -> np.ndarray:
    """Return targets (obs,) or (obs, output), or raise unless they are finite and as many rows."""
    values = check_real(targets, "targets", owner)
    if values.ndim not in (1, 2) or len(values) != n_objects or not values.size:
        rule = f"{n_objects} numbers, one per object, or a table of {n_objects} rows (obs, output)"
        raise argument_error("targets", owner, rule, f"shape {values.shape}")
    check_finite(values, "targets", owner)
    # VB and the marginal density square terms in t^2; these fourth powers overflow at 1e77.
    largest = float(np.abs(values).max(initial=0.0))
    if largest > 1e60:
        got = f"one of {largest:.3g}"
        raise argument_error("targets", owner, "at most 1e60 in size (standardise them)", got)
    # From 60 objects of sd 0.1, intervals were 7 times too wide; of sd 30, errors a quarter larger.
    spread = np.atleast_1d(standard_deviation(values))
    constant = 1e-12 * largest
    odd = [sd for sd in spread if sd > constant and not 0.1 <= sd <= 10]
    if odd:
        warn_user(
            f"Targets given to {owner} have a standard deviation of {odd[0]:.3g}; its default "
            "priors assume about 1. Standardise the targets, or choose priors for their scale."
        )
    return values


def standard_deviation(values: NDArray) -> NDArray:
    """Return that of each column, also of numbers whose squares underflow or overflow."""
    exponent = np.frexp(np.abs(values).max(axis=0, initial=0.0))[1]
    return np.asarray(np.ldexp(np.ldexp(values, -exponent).std(axis=0), exponent))
