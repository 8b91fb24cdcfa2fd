import fractions
import inspect
import re
from collections.abc import Sequence
from typing import Literal, get_type_hints

import numpy as np
import pandas as pd
import pymc as pm
import pytest

import kernelzoo as kz
from kernelzoo.validation import (
    Count,
    CountOrZero,
    Fraction,
    Positive,
    _alternatives,
    _rule,
    argument_error,
    check_arguments,
    check_count,
    check_finite,
    check_labels,
    check_name,
    check_names,
    check_positive,
    check_psd,
    check_real,
    check_square_symmetric,
    check_unmasked,
    standard_deviation,
)


@pytest.fixture
def rng():
    return np.random.default_rng(20)


def test_message_has_the_form_of_the_house():
    error = argument_error("kernels", "MultinomialProbit", "square", "shape (3, 2)")
    assert str(error) == (
        "The 'kernels' argument of MultinomialProbit must be square. Got shape (3, 2)."
    )


@pytest.mark.parametrize("value", [0, -1.0, np.nan, np.inf, "much", None, [1.0, 2.0]])
def test_positive_refuses(value):
    with pytest.raises(ValueError, match=r"'tau' argument of X must be a finite number above 0"):
        check_positive(value, "tau", "X")


def test_positive_returns_a_float():
    assert check_positive(np.int64(2), "tau", "X") == 2.0


def thinned(
    draws: Count = 3,
    tune: CountOrZero | None = None,
    step: Positive = 0.1,
    accept: Fraction = 0.9,
    verbose: bool = False,
    method: Literal["gradient", "paper"] | None = None,
    ddof: Literal[0, 1] = 0,
    names: Sequence[str] | None = None,
    free=None,
):
    check_arguments(thinned, locals())
    return True


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"draws": np.int64(1), "tune": 0, "step": np.float32(0.5), "accept": 0.1},
        {"verbose": np.True_, "method": "paper", "ddof": 1, "names": ["a"], "free": object()},
    ],
)
def test_arguments_of_their_types_pass(given):
    assert thinned(**given)


@pytest.mark.parametrize(
    ("argument", "value", "requirement"),
    [
        *(("draws", value, "an integer of 1 or more") for value in (0, 1.0, True, "3", None)),
        *(("tune", value, "an integer of 0 or more or None") for value in (-1, "none", False)),
        *(("step", value, "a finite number above 0") for value in (0, np.inf, "small", True)),
        *(("accept", value, "between 0 and 1") for value in (0, 1, np.nan, "0.9")),
        *(("verbose", value, "True or False") for value in ("no", 1, None)),
        *(("method", value, "one of 'gradient', 'paper' or None") for value in ("", 1)),
        *(("ddof", value, "one of 0, 1") for value in (2, "1")),
    ],
)
def test_arguments_of_other_types_are_refused(argument, value, requirement):
    message = f"The '{argument}' argument of thinned must be {requirement}. Got {value!r}."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        thinned(**{argument: value})


def test_a_misspelt_choice_gets_the_nearest_suggestion():
    with pytest.raises(ValueError, match=r"Got 'grad' \(the nearest is 'gradient'\)\.$"):
        thinned(method="grad")


def test_the_owner_of_a_constructor_is_its_class():
    class Sampler:
        def __init__(self, draws: Count):
            check_arguments(Sampler.__init__, locals())

    with pytest.raises(ValueError, match="'draws' argument of Sampler must be"):
        Sampler(draws="many")


def test_names_are_known_and_different():
    assert check_names("W", ["W", "beta"], "var_names", "fit") == ["W"]
    assert check_names(("beta", "W"), ["W", "beta"], "var_names", "fit") == ["beta", "W"]
    with pytest.raises(ValueError, match=r"must be different names\. Got 'W' twice"):
        check_names(["W", "beta", "W"], ["W", "beta"], "var_names", "fit")
    with pytest.raises(ValueError, match=r"Got 'betta' \(the nearest is 'beta'\)"):
        check_names(["betta"], ["W", "beta"], "var_names", "fit")


def test_unknown_name_gets_the_nearest_suggestion():
    with pytest.raises(ValueError, match=r"one of 'trace', 'unit'. Got 'trase' \(the nearest is"):
        check_name("trase", ["trace", "unit"], "steps", "normalize")


def test_unknown_name_without_a_near_one():
    with pytest.raises(ValueError, match=r"Got 'zzz'\.$"):
        check_name("zzz", ["trace", "unit"], "steps", "normalize")


def test_known_name_is_returned():
    assert check_name("unit", ["trace", "unit"], "steps", "normalize") == "unit"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_finite_names_the_first_bad_entry(bad):
    array = np.zeros((3, 4))
    array[1, 2] = array[2, 0] = bad
    with pytest.raises(
        ValueError, match=r"2 NaN or infinite entries, the first at position \(1, 2"
    ):
        check_finite(array, "X", "Y")


@pytest.mark.parametrize("several", [False, True])
def test_rows_without_similarities_are_named_with_what_completes_them(several):
    K = np.eye(4)
    K[[1, 3]] = K[:, [1, 3]] = np.nan
    array, labels = (K[None], [["a"], [*"wxyz"], [*"wxyz"]]) if several else (K, [[*"wxyz"]] * 2)
    with pytest.raises(
        ValueError, match=r"without similarities: 'x', 'z' \(2 in all\); KernelCompl"
    ):
        check_finite(array, "X", "Y", labels, similarities=True)


def test_not_square():
    with pytest.raises(ValueError, match=r"must be a square matrix. Got shape \(3, 2\)"):
        check_square_symmetric(np.ones((3, 2)), "K", "Y")


def test_not_symmetric_names_the_entry():
    matrix = np.eye(3)
    matrix[0, 2] = 0.5
    with pytest.raises(ValueError, match=r"symmetric. Got 0.5 at \(0, 2\) but 0 at \(2, 0\)"):
        check_square_symmetric(matrix, "K", "Y")


def test_symmetry_is_relative_to_the_largest_entry():
    matrix = 1e9 * np.eye(3)
    matrix[0, 2] = 1e-3
    check_square_symmetric(matrix, "K", "Y")
    check_square_symmetric(np.zeros((2, 2)), "K", "Y")


def test_psd_names_the_smallest_eigenvalue():
    matrix = np.array([[1.0, 2.0], [2.0, 1.0]])
    with pytest.raises(ValueError, match=r"smallest eigenvalue of -1 "):
        check_psd(matrix, "K", "Y")


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("n_features", [1, 3, 40])
def test_rank_deficient_gram_passes_at_every_scale(scale, n_features, rng):
    X = scale * rng.normal(size=(120, n_features))
    gram = X @ X.T
    check_psd(gram, "K", "Y")


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_small_negative_eigenvalue_beyond_rounding_fails_at_every_scale(scale, rng):
    basis = np.linalg.qr(rng.normal(size=(30, 30)))[0]
    matrix = scale * (basis * np.r_[-1e-5, np.ones(29)]) @ basis.T
    with pytest.raises(ValueError, match=r"positive semidefinite"):
        check_psd((matrix + matrix.T) / 2, "K", "Y")


def test_psd_accepts_zeros_and_refuses_a_zero_diagonal_with_entries():
    check_psd(np.zeros((3, 3)), "K", "Y")
    with pytest.raises(ValueError, match=r"smallest eigenvalue of -1 "):
        check_psd(np.array([[0.0, 1.0], [1.0, 0.0]]), "K", "Y")


def test_psd_leaves_its_argument_alone(rng):
    matrix = np.eye(4)
    check_psd(matrix, "K", "Y")
    np.testing.assert_array_equal(matrix, np.eye(4))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["b", "a", "b"], [1, 0, 1]),
        ([3, 1, 2], [2, 0, 1]),
        ([True, False], [1, 0]),
        (pd.Series(["x", "y", "x"], index=[5, 6, 7]), [0, 1, 0]),
        (pd.Categorical(["x", "y", "x"]), [0, 1, 0]),
    ],
)
def test_codes_follow_the_sorted_classes(labels, expected):
    codes, classes = check_labels(labels, "labels", "Y")
    assert codes.tolist() == expected
    assert codes.dtype == np.int64
    assert classes[codes].tolist() == list(np.asarray(labels))


def test_given_classes_fix_the_order_and_may_be_empty():
    codes, classes = check_labels(["b", "b"], "labels", "Y", classes=["c", "b", "a"])
    assert codes.tolist() == [1, 1]
    assert classes.tolist() == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("labels", "settings", "message"),
    [
        ([[0, 1]], {}, r"one-dimensional, one label per object. Got shape \(1, 2\)"),
        ([0, 1], {"n_objects": 3}, "of length 3, one label per object. Got length 2"),
        ([0.0, np.nan, 1.0], {}, "without missing labels. Got 1 missing, the first at position 1"),
        (np.array(["a", None], dtype=object), {}, "without missing labels"),
        (np.ma.array([0, 1, 1], mask=[0, 1, 0]), {}, "masked entries: .* Got 1 masked.* \\(1,\\)"),
        ([1, 1, 1], {}, "at least two classes. Got only 1"),
        ([], {}, "at least two classes. Got only none"),
        (np.array(["a", 1], dtype=object), {}, "one type, so that .* Got int and str"),
        (["a", "z"], {"classes": ["a", "b"]}, "Got the unseen class 'z'"),
        (["a", "z", "y"], {"classes": ["a", "b"]}, "Got the unseen classes 'y', 'z'"),
        (["a"], {"classes": ["a", "a"]}, "'classes' argument of Y must be at least two distinct"),
    ],
)
def test_labels_refused(labels, settings, message):
    with pytest.raises(ValueError, match=message):
        check_labels(labels, "labels", "Y", **settings)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["1.5", "2"], "must be real numbers. Got str"),
        ([True, False], "must be real numbers. Got bool"),
        ([1 + 0j, 2], "must be real numbers. Got complex"),
        (np.array([1.0, None], dtype=object), "must be real numbers. Got NoneType and float"),
        (np.array([1.0, True], dtype=object), "must be real numbers. Got bool and float"),
        (np.ma.masked_greater([1.0, 9.0, 9.0], 5), r"2 masked, the first at position \(1,\)"),
    ],
)
def test_what_is_no_real_number(values, message):
    with pytest.raises(ValueError, match=message):
        check_real(values, "targets", "Y")


@pytest.mark.parametrize(
    "values",
    [
        [1, 2],
        np.float32([1, 2]),
        pd.Series([1.0, 2.0]),
        [fractions.Fraction(1), np.int8(2)],
        np.array([1, 2], dtype=object),
        np.ma.array([1, 2]),
    ],
)
def test_real_numbers_of_any_type_pass(values):
    array = check_real(values, "targets", "Y")
    assert type(array) is np.ndarray
    assert array.dtype == float
    np.testing.assert_array_equal(array, [1.0, 2.0])


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "two", None])
def test_counts_are_whole_and_large_enough(value):
    with pytest.raises(ValueError, match="'starts' argument of VB must be an integer of 1 or more"):
        check_count(value, "starts", "VB")


def test_counts_of_any_integer_type_pass():
    assert check_count(np.int32(3), "starts", "VB") == 3
    assert check_count(0, "tune", "fit", least=0) == 0


def settings_of_public_functions():
    """Functions and engines with the names of their flags, counts, positive numbers and choices."""
    found = []
    for space in (kz, kz.completion, kz.datasets.Dataset):
        for public, each in inspect.getmembers(space):
            # Models read their kernels first.
            if inspect.isclass(each) and issubclass(each, pm.Model):
                continue
            constructor = vars(each).get("__init__") if inspect.isclass(each) else each
            own = getattr(constructor, "__module__", None) or ""
            if not public.startswith("_") and callable(constructor) and own.startswith("kernelzoo"):
                hints = get_type_hints(constructor, include_extras=True)
                for name in inspect.signature(each).parameters:
                    if name in hints and all(map(_rule, _alternatives(hints[name]))):
                        found.append(pytest.param(each, name, id=f"{each.__qualname__}-{name}"))
    return found


@pytest.mark.parametrize(("function", "name"), settings_of_public_functions())
def test_settings_of_public_functions_are_checked_before_all_else(function, name):
    """A string is none of them: flags would take "no" for yes."""
    needed = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty and parameter.name != name
    ]
    first = [1 for parameter in needed if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    named = {each.name: 1 for each in needed if each.kind is each.KEYWORD_ONLY}
    with pytest.raises(ValueError, match=f"^The '{name}' argument of .* must be .* Got 'no'"):
        # `folds` is a generator.
        list(function(*first, **named, **{name: "no"}))


def test_masked_nan_is_called_nan():
    """PyMC masks NaN that `pm.set_data` sets."""
    with pytest.raises(ValueError, match=r"without NaN: .*Got 1 NaN, the first at position \(1,\)"):
        check_unmasked(np.ma.masked_invalid([0.0, np.nan]), "x", "f")
    with pytest.raises(ValueError, match="Got 1 masked"):
        check_unmasked(np.ma.masked_greater([0.0, 2.0], 1), "x", "f")


@pytest.mark.parametrize("size", [1e-310, 1e-300, 1e-155, 1.0, 1e155, 1e307])
def test_standard_deviations_of_numbers_without_squares(size):
    values = np.random.default_rng(1).normal(size=(9, 2)) / 4
    found = standard_deviation(size * values)
    np.testing.assert_allclose(found, size * values.std(axis=0), rtol=1e-10)
    if size == 1:
        np.testing.assert_array_equal(found, values.std(axis=0))
    np.testing.assert_array_equal(standard_deviation(np.zeros(3)), 0)
