import numpy as np
import pandas as pd
import pytest
import xarray as xr

from kernelzoo.models.kernels import (
    as_stack,
    gaussian,
    linear,
    polynomial,
)

N, NEW = 6, 4


@pytest.fixture
def rng():
    return np.random.default_rng(11)


@pytest.fixture
def X(rng):
    return rng.normal(size=(N, 2))


@pytest.fixture
def train(X):
    return (gaussian() | linear())(X)


@pytest.fixture
def cross(X, rng):
    return (gaussian() | linear())(rng.normal(size=(NEW, 2)), X)


# --- canonical form ---------------------------------------------------------------------------


def test_a_canonical_stack_passes_through_without_a_copy(train, cross):
    for stack in (as_stack(train), cross):
        result = as_stack(stack)
        xr.testing.assert_identical(result, stack)
        assert np.shares_memory(result.values, stack.values)


def test_dims_in_any_order_and_any_number_type(train):
    shuffled = train.transpose("basis", "kernel", "obs").astype("float32")
    result = as_stack(shuffled)
    assert result.dims == ("kernel", "obs", "basis")
    assert result.dtype == float
    assert result.values.flags.c_contiguous
    np.testing.assert_allclose(result.values, train.values, rtol=1e-6)


def test_coords_are_filled_in(train):
    result = as_stack(train.drop_vars(["kernel", "obs", "basis"]))
    assert result["kernel"].values.tolist() == ["K0", "K1"]
    assert result["obs"].values.tolist() == result["basis"].values.tolist() == list(range(N))


@pytest.mark.parametrize(
    ("pick", "names"),
    [
        (lambda v: {"a": v[0], "b": v[1].tolist()}, ["a", "b"]),
        (lambda v: v, ["K0", "K1"]),
        (lambda v: v[0], ["K0"]),
        (lambda v: pd.DataFrame(v[0]), ["K0"]),
        (lambda v: list(v), ["K0", "K1"]),
    ],
)
def test_bare_arrays(pick, names, train):
    result = as_stack(pick(train.values))
    assert result["kernel"].values.tolist() == names
    np.testing.assert_allclose(result.values, train.values[: len(names)], rtol=1e-14)


def test_labels_of_data_frames_are_kept(train):
    people = list("abcdef")
    frames = {
        name: pd.DataFrame(matrix, index=people, columns=people)
        for name, matrix in zip(["x", "y"], train.values, strict=True)
    }
    result = as_stack(frames)
    assert result["obs"].values.tolist() == result["basis"].values.tolist() == people
    frames["y"] = frames["y"].iloc[[2, 0, 1, 5, 4, 3], ::-1]
    xr.testing.assert_identical(as_stack(frames), result)
    frames["y"].index = [*"ghi", *people[3:]]
    with pytest.raises(
        ValueError,
        match=r"""'kernels\["y"\]' .* as the first kernel is. Got the unknown 'g', 'h', 'i'; """
        r"none for 'a', 'b', 'c'",
    ):
        as_stack(frames)


def test_given_labels(cross):
    result = as_stack(
        xr.DataArray(cross.values, dims=("kernel", "obs", "basis"), coords={"obs": list("wxyz")})
    )
    assert result["obs"].values.tolist() == list("wxyz")
    assert result["basis"].values.tolist() == list(range(N))


def test_the_argument_is_never_written_to(X):
    gram = X @ X.T
    gram[0, 1] += 1e-12
    before = gram.copy()
    result = as_stack(gram, jitter=1e-3)
    np.testing.assert_array_equal(gram, before)
    np.testing.assert_array_equal(result.values, result.values.swapaxes(1, 2))


# --- Gram matrices ----------------------------------------------------------------------------


def test_rank_deficient_gram_of_float64_and_float32(rng):
    X = rng.normal(size=(150, 3))
    as_stack(X @ X.T)
    single = (X @ X.T).astype("float32")
    single[0, 1] *= np.float32(1 + 2e-7)
    as_stack(single)
    # Bug: beside a kernel of double precision its rounding errors were refused.
    as_stack({"single": single, "double": X @ X.T})
    with pytest.raises(ValueError, match=r"must be symmetric.*\(K \+ K.T\) / 2"):
        as_stack({"double": single.astype(float)})


def test_scales_that_differ_by_orders_of_magnitude(rng):
    X = rng.normal(size=(60, 5)) * np.array([1e4, 1.0, 1e-2, 1e2, 1.0])
    as_stack((gaussian() | linear() | polynomial(3))(X))


def test_asymmetry_and_negative_eigenvalues_name_the_kernel(train):
    skew = train.copy(deep=True)
    skew.values[1, 0, 2] += 1.0
    with pytest.raises(
        ValueError, match=r"""'kernels\["linear"\]' argument of Model must be symm"""
    ):
        as_stack(skew, owner="Model")
    indefinite = train.copy(deep=True)
    indefinite.values[1] = -indefinite.values[1]
    with pytest.raises(ValueError, match=r"""\["linear"\]' argument .* a smallest eigenvalue of"""):
        as_stack(indefinite)


def test_jitter_repairs_on_request_only():
    matrix = np.array([[1.0, 1.01], [1.01, 1.0]])
    with pytest.raises(ValueError, match=r"eigenvalue of -0.01 .*nearest_psd mends matrices"):
        as_stack(matrix)
    np.testing.assert_allclose(as_stack(matrix, jitter=0.02).values[0], matrix + 0.02 * np.eye(2))


@pytest.mark.parametrize("jitter", [-1e-3, np.nan, np.inf])
def test_bad_jitter(jitter):
    with pytest.raises(ValueError, match=r"'jitter' argument of as_stack must be 0 or a positive"):
        as_stack(np.eye(2), jitter=jitter)


def test_cross_stacks_and_expansions_are_not_gram_matrices(rng):
    values = rng.normal(size=(N, N))
    with pytest.raises(ValueError, match=r"must be symmetric"):
        as_stack(values)
    coords = {"basis": [f"phi{m}" for m in range(N)]}
    functions = xr.DataArray(values[None], dims=("kernel", "obs", "basis"), coords=coords)
    result = as_stack(functions, jitter=1.0)
    np.testing.assert_array_equal(result.values[0], values)


# --- new objects beside the training stack ----------------------------------------------------


def test_like_lends_names_and_basis_to_bare_arrays(train, cross):
    result = as_stack(cross.values, like=train)
    assert result["kernel"].values.tolist() == train["kernel"].values.tolist()
    assert result["basis"].equals(train["basis"])
    assert result["obs"].values.tolist() == list(range(N, N + NEW))
    xr.testing.assert_identical(as_stack(cross, like=train), cross)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.values.swapaxes(1, 2), r"6 training .* Got shape \(2, 6, 4\), which looks"),
        (
            lambda c: c.values[:1],
            r"the 2 kernels \['gaussian', 'linear'\].* Got an array of shape \(1, ",
        ),
        (lambda c: {"gaussian": c.values[0]}, r"kernels .*, 'linear'\]. Got \['gaussian'\]"),
        (lambda c: c[:, :, :5], r"\(2, new objects, 6 training .* Got shape \(2, 4, 5\)\."),
        (lambda c: c[:, :, ::-1], r"Got the numbers 0 to 5, on one side in another order"),
        (
            lambda c: c.assign_coords(basis=list("abcdef")),
            r"computed against the training objects, .* Got the unknown 'a', .* none for 0, 1, 2",
        ),
        (
            lambda c: c.rename(obs="basis", basis="obs"),
            r"Got shape \(2, 6, 4\), which looks transposed",
        ),
    ],
)
def test_like_refuses(change, message, train, cross):
    with pytest.raises(ValueError, match=message):
        as_stack(change(cross), like=train)


# --- shapes and contents ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernels", "message"),
    [
        (gaussian() | linear(), r"computed from data: kernels\(X_train\)"),
        ({}, r"at least one kernel. Got none"),
        (np.ones(3), r"of shape \(n, M\) or \(S, n, M\). Got ndarray of shape \(3,\)"),
        ("gaussian", r"a dict of named arrays, .* Got str of shape \(\)"),
        ([np.eye(2), np.eye(3)], r"of matrices of one shape. Got a ragged sequence"),
        (np.ones((0, 3, 3)), r"or an array of shape"),
        (np.ones((2, 0)), "'kernels' .* two-dimensional array of numbers"),
        (np.array([["a", "b"]]), r"two-dimensional array of numbers. Got <U1"),
        ({"a": np.eye(3), "b": np.ones(3)}, r"""\["b"\]' .* two-dimensional array of numbers"""),
        (
            {"a": np.eye(3), "b": np.eye(4)},
            r"""\["b"\]' .* of shape \(3, 3\), .* shape \(4, 4\)\.""",
        ),
        (
            {"a": np.ones((8, 5)), "b": np.ones((5, 8)), "c": np.ones((5, 8))},
            r"""'kernels\["a"\]' .* of shape \(5, 8\), .* \(8, 5\), which looks transposed""",
        ),
        (np.diag([1.0, np.nan]), r"must be finite. Got 1 NaN .* position \(0, 1, 1\)"),
        (xr.DataArray(np.eye(2), dims=("a", "b")), r"of dims \('kernel', .* Got dims \('a', 'b'"),
        (
            xr.DataArray(np.empty((0, 2, 2)), dims=("kernel", "obs", "basis")),
            r"numbers with nonempty dims",
        ),
        (
            xr.DataArray(
                np.ones((2, 1, 1)), dims=("kernel", "obs", "basis"), coords={"kernel": ["a", "a"]}
            ),
            r"of kernels with distinct names. Got 'a' more than once",
        ),
        (
            xr.DataArray(
                np.ones((2, 1, 1)),
                dims=("kernel", "obs", "basis"),
                coords={"kernel": np.array([1, "1"], dtype=object)},
            ),
            r"of kernels with distinct names. Got '1' more than once",
        ),
    ],
)
def test_refused_at_the_door(kernels, message):
    with pytest.raises(ValueError, match=message):
        as_stack(kernels)


def test_messages_name_the_caller():
    with pytest.raises(ValueError, match=r"The 'kernels_new' argument of predict must be"):
        as_stack({}, owner="predict", argument="kernels_new")
