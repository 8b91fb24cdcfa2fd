"""Kernels given to the completion models: who is observed, what is added up, what is refused."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import kernelzoo as kz
from kernelzoo.models.completion.input import (
    PartitionedStack,
    check_degrees_of_freedom,
    check_positive_definite,
    check_weights,
)

OWNER = "Model"


def gram(n, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, 2))
    return np.exp(-((x[:, None] - x[None]) ** 2).sum(-1) / 2)


THETA = gram(5)
K11 = np.array([[1.5, 0.6, 0.1], [0.6, 1.2, 0.3], [0.1, 0.3, 1.0]])


def kernels_of(theta=THETA, observed=K11, weights=None):
    given = stack_of(theta, observed)
    return SimpleNamespace(theta=given.weighted(weights, OWNER), K11=given.K11, labels=given.labels)


def stack_of(theta=THETA, observed=K11):
    return PartitionedStack.of(theta, observed, OWNER)


def frame(matrix, names):
    return pd.DataFrame(matrix, index=names, columns=names)


# --- who is observed -------------------------------------------------------------------------


def test_without_labels_the_first_are_observed():
    given = stack_of()
    np.testing.assert_array_equal(given.kernels, THETA[None])
    np.testing.assert_array_equal(given.K11, K11)
    np.testing.assert_array_equal(given.labels, np.arange(5))


def as_array(labelled):
    return xr.DataArray(labelled.rename_axis(index="object", columns="object_"))


@pytest.mark.parametrize("of_theta", [pd.DataFrame, as_array])
@pytest.mark.parametrize("of_K11", [pd.DataFrame, as_array])
def test_labels_say_who_is_observed(of_theta, of_K11):
    theta = of_theta(frame(THETA, list("abcde")))
    given = kernels_of(theta, of_K11(frame(np.diag([1.0, 2.0]), ["d", "b"])))
    order = [3, 1, 0, 2, 4]
    assert given.labels.tolist() == ["d", "b", "a", "c", "e"]
    np.testing.assert_array_equal(given.theta, THETA[np.ix_(order, order)])
    np.testing.assert_array_equal(given.K11, np.diag([1.0, 2.0]))


def test_every_kernel_of_a_stack_is_put_in_order():
    stack = kz.kernels.as_stack({"near": THETA, "far": gram(5, 1)})
    stack = stack.assign_coords(obs=list("abcde"), basis=list("abcde"))
    given = stack_of(stack, frame(np.eye(2), ["e", "c"]))
    assert given.names.tolist() == ["near", "far"]
    order = [4, 2, 0, 1, 3]
    for kernel, original in zip(given.kernels, stack.values, strict=True):
        np.testing.assert_array_equal(kernel, original[np.ix_(order, order)])


@pytest.mark.parametrize(
    "observed", [pd.DataFrame(K11), xr.DataArray(K11, dims=("a", "b")), K11.tolist()]
)
def test_what_pandas_numbers_by_itself_is_no_label(observed):
    given = kernels_of(frame(THETA, [4, 1, 5, 0, 2]), observed)
    assert given.labels[:3].tolist() == [4, 1, 5]
    np.testing.assert_array_equal(given.theta, THETA)


def test_given_arrays_are_neither_changed_nor_kept():
    theta, observed = THETA.copy(), K11.copy()
    given = kernels_of(theta, observed)
    given.theta[0, 0] = given.K11[0, 0] = 9.0
    assert theta[0, 0] == THETA[0, 0]
    assert observed[0, 0] == K11[0, 0]


# --- weights ---------------------------------------------------------------------------------


def test_kernels_are_added_up_with_their_weights():
    stack = {"a": THETA, "b": np.eye(5)}
    np.testing.assert_allclose(kernels_of(stack).theta, (THETA + np.eye(5)) / 2)
    weighted = kernels_of(stack, weights=[0.5, 2.0])
    np.testing.assert_allclose(weighted.theta, 0.5 * THETA + 2 * np.eye(5))


NAMES = np.array(["a", "b"])
NAMED = {"b": 0.9, "a": 0.1}


@pytest.mark.parametrize(
    "weights",
    [
        NAMED,
        pd.Series(NAMED),
        xr.DataArray([0.9, 0.1], dims="kernel", coords={"kernel": ["b", "a"]}),
    ],
)
def test_weights_with_names_go_by_them(weights):
    np.testing.assert_array_equal(check_weights(weights, NAMES, "alpha", OWNER), [0.1, 0.9])


@pytest.mark.parametrize(
    "weights", [[0.1, 0.9], pd.Series([0.1, 0.9]), xr.DataArray([0.1, 0.9], dims="kernel")]
)
def test_weights_without_names_go_by_their_order(weights):
    np.testing.assert_array_equal(check_weights(weights, NAMES, "alpha", OWNER), [0.1, 0.9])


@pytest.mark.parametrize(
    "weights",
    [
        {"a": 1.0},
        {"a": 0.5, "c": 0.5},
        {"a": 0.5, "b": 0.5, "c": 0.5},
        "x",
        [{}, 1],
        [1.0],
        [0.5, -0.5],
        [0.0, 0.0],
        [np.nan, 1.0],
        [np.inf, 1.0],
        [[0.5, 0.5]],
        0.5,
    ],
)
def test_weights_that_do_not_fit_are_refused(weights):
    with pytest.raises(ValueError, match="'alpha' argument of Model must be 2 finite non-negative"):
        check_weights(weights, NAMES, "alpha", OWNER)


# --- what is refused -------------------------------------------------------------------------

MISSING = np.where(np.eye(3) > 0, np.nan, K11)
#: Its smallest eigenvalue is -0.15.
INDEFINITE = THETA - (np.linalg.eigvalsh(THETA)[0] + 0.15) * np.eye(5)
TWINS = THETA[np.ix_([0, 1, 2, 3, 3], [0, 1, 2, 3, 3])]
BAD = {
    "K11 not PD": (THETA, -K11, "'K11' argument .* positive semidefinite"),
    "K11 singular": (THETA, np.ones((3, 3)), r"'K11' argument .* K11 \+ 1e-0\d \* np.eye\(3\)"),
    "K11 not square": (THETA, K11[:2], "'K11' argument .* square"),
    "K11 not symmetric": (THETA, np.triu(K11), "'K11' argument .* symmetric"),
    "K11 with NaN": (THETA, MISSING, "'K11' argument .* finite"),
    "K11 no matrix": (THETA, [1.0, 2.0], "'K11' argument .* array of shape"),
    "K11 of words": (THETA, np.full((2, 2), "x"), "'K11' argument .* array of numbers"),
    "K11 empty": (THETA, np.empty((0, 0)), r"'K11' argument .* shape \(0, 0\)"),
    "K11 unknown labels": (THETA, frame(K11, [0, 1, 9]), "objects of theta.*the unknown 9"),
    "K11 repeated labels": (
        THETA,
        frame(K11, [0, 1, 1]),
        "'K11' .* distinct ids, .* Got different rows for 1",
    ),
    "K11 crossed labels": (
        THETA,
        pd.DataFrame(K11, index=[0, 1, 2], columns=[2, 1, 0]),
        "'K11' argument .* 0 to 2, on one side in another order",
    ),
    "theta too small": (THETA[:2, :2], K11, r"'theta' argument .* 3 of K11 .* shape \(2, 2\)"),
    "no test objects": (THETA[:3, :3], K11, "n2 = 0"),
    "theta not square": (THETA[:4], K11, "'theta' argument .* square"),
    "theta with NaN": (np.full((5, 5), np.nan), K11, "'theta' argument .* finite"),
    "theta crossed labels": (
        xr.DataArray(
            np.eye(5)[None],
            dims=("kernel", "obs", "basis"),
            coords={"kernel": ["a"], "obs": list("pqrst"), "basis": range(5)},
        ),
        K11,
        "'theta' argument .* alike in rows and columns",
    ),
    "duplicates": (
        TWINS,
        K11,
        r"'theta' argument .* definite.* theta \+ 1e-0\d \* np.eye\(5\)",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_kernels_are_refused(case):
    theta, observed, message = BAD[case]
    with pytest.raises(ValueError, match=message) as error:
        kernels_of(theta, observed)
    assert "argument of Model must be" in str(error.value)


def test_a_stack_may_be_semidefinite_where_its_sum_may_not():
    stack = [np.ones((5, 5)), THETA]
    assert len(stack_of(stack).kernels) == 2
    kernels_of(stack)
    with pytest.raises(ValueError, match=r"'theta' argument .* positive definite"):
        kernels_of(stack, weights=[1.0, 0.0])


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("matrix", [TWINS, np.ones((4, 4)), INDEFINITE])
def test_suggested_jitter_is_enough(matrix, scale):
    """At any scale of the kernel; twins fall short by rounding, the last by much more."""
    matrix = scale * matrix
    with pytest.raises(ValueError, match="positive definite") as error:
        check_positive_definite(matrix, "theta", OWNER)
    jitter = float(str(error.value).split("theta + ")[1].split(" *")[0])
    check_positive_definite(matrix + jitter * np.eye(len(matrix)), "theta", OWNER)
    shortage = -np.linalg.eigvalsh(matrix)[0]
    assert jitter <= 20 * max(1e-8 * matrix.max(), 2 * shortage)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_positive_definite_matrices_pass_at_any_scale(scale):
    check_positive_definite(scale * THETA, "theta", OWNER)


def test_degrees_of_freedom_are_numbers_above_the_bound():
    assert check_degrees_of_freedom(np.float32(4.5), "r", OWNER, 5) == 4.5
    assert check_degrees_of_freedom(None, "r", OWNER, 5) == 6
    assert isinstance(check_degrees_of_freedom(5, "r", OWNER, 5), float)
    for value in (4, 3.5, np.nan, np.inf, "many", [5.0, 6.0]):
        with pytest.raises(ValueError, match=r"'r' argument of Model .* above n - 1 = 4\. Got "):
            check_degrees_of_freedom(value, "r", OWNER, 5)
