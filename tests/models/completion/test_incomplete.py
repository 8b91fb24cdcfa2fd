"""What incomplete kernels are checked for, and what is cut out of them."""

import warnings

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from kernelzoo.models.completion.incomplete import (
    IncompleteKernels,
    half_of_visible,
    rank_error,
    square_root,
)
from kernelzoo.models.kernels import gaussian
from kernelzoo.models.mutual_kernel_completion import MutualKernelCompletion

N = 5
OBJECTS = list("abcde")
VISIBLE = np.array([[1, 1], [1, 0], [1, 1], [0, 1], [1, 1]], dtype=bool)


def whole(seed=0, scale=1.0):
    x = np.random.default_rng(seed).normal(size=(N, 8))
    return scale * x @ x.T


def with_gaps(matrix, seen):
    gaps = matrix.copy()
    gaps[~seen], gaps[:, ~seen] = np.nan, np.nan
    return gaps


def given(**changes):
    kernels = {"one": with_gaps(whole(0), VISIBLE[:, 0]), "two": with_gaps(whole(1), VISIBLE[:, 1])}
    return kernels | changes


def checked(kernels, visible=None, **options):
    return IncompleteKernels.of(kernels, visible, owner="Model", **options)


def assert_same(one, other):
    for a, b in zip(one.kernels, other.kernels, strict=True):
        assert a.name == b.name
        assert a.unit == b.unit
        np.testing.assert_array_equal(a.visible, b.visible)
        np.testing.assert_array_equal(a.hidden, b.hidden)
        np.testing.assert_allclose(a.values, b.values, rtol=1e-14)


def test_visible_blocks_have_unit_mean_diagonals():
    kernels = checked(given()).kernels
    for kernel, matrix, seen in zip(kernels, (whole(0), whole(1)), VISIBLE.T, strict=True):
        block = matrix[np.ix_(seen, seen)]
        np.testing.assert_array_equal(kernel.visible, np.flatnonzero(seen))
        np.testing.assert_array_equal(kernel.hidden, np.flatnonzero(~seen))
        assert kernel.unit == pytest.approx(np.diag(block).mean())
        np.testing.assert_allclose(kernel.values * kernel.unit, block)
    plain = checked(given(), normalize=False, jitter=0.5).kernels[1]
    seen = VISIBLE[:, 1]
    assert plain.unit == 1
    np.testing.assert_allclose(plain.values, whole(1)[np.ix_(seen, seen)] + 0.5 * np.eye(4))


def test_every_form_says_the_same():
    expected = checked(given())
    array = np.stack(list(given().values()))
    renamed = {"kernel": ["one", "two"], "obs": OBJECTS, "basis": OBJECTS}
    stack = xr.DataArray(array, dims=("kernel", "obs", "basis"), coords=renamed)
    frames = {name: pd.DataFrame(matrix, OBJECTS, OBJECTS) for name, matrix in given().items()}
    full = {"one": whole(0), "two": whole(1)}
    mask = pd.DataFrame(VISIBLE, OBJECTS, ["one", "two"])
    labelled = {name: pd.DataFrame(matrix, OBJECTS, OBJECTS) for name, matrix in full.items()}
    assert_same(expected, checked(stack.transpose("basis", "kernel", "obs")))
    assert_same(expected, checked(frames))
    arrays = {name: xr.DataArray(frame, dims=("x", "y")) for name, frame in frames.items()}
    assert_same(expected, checked(arrays))
    assert list(checked(arrays).objects) == OBJECTS
    assert_same(expected, checked(full, VISIBLE))
    assert_same(expected, checked(labelled, mask.iloc[::-1, ::-1]))
    by_name = xr.DataArray(mask.rename_axis(index="object", columns="kernel"))
    assert_same(expected, checked(labelled, by_name.transpose()))
    assert list(checked(frames).objects) == OBJECTS


def test_a_list_of_frames_goes_by_labels():
    frames = [pd.DataFrame(matrix, OBJECTS, OBJECTS) for matrix in given().values()]
    unnamed = checked(dict(zip(["K0", "K1"], given().values(), strict=True)))
    assert_same(unnamed, checked(frames))
    turned = frames[1].loc[OBJECTS[::-1], OBJECTS[::-1]]
    for other in (turned, xr.DataArray(turned, dims=("x", "y"))):
        assert_same(unnamed, checked([frames[0], other]))
    by_label = xr.DataArray(
        np.stack(list(given().values())),
        dims=("kernel", "obs", "basis"),
        coords={"kernel": ["K0", "K1"], "obs": OBJECTS, "basis": OBJECTS},
    )
    assert_same(unnamed, checked(by_label.isel(basis=[3, 0, 4, 1, 2])))
    stack = np.stack([whole(0), whole(1)])
    hidden = np.stack([~np.outer(seen, seen) for seen in VISIBLE.T])
    with pytest.raises(ValueError, match="without masked entries"):
        checked(np.ma.masked_array(stack, hidden))
    with pytest.raises(ValueError, match=r"array of numbers\. Got complex"):
        checked(stack + 0j)


def test_imputations():
    kernel = checked(given()).kernels[0]
    zero, mean = kernel.with_zeros(), kernel.with_means()
    x = np.linalg.cholesky(kernel.values)
    features = np.vstack([x[:3], x.mean(0), x[3:]])
    np.testing.assert_allclose(mean, features @ features.T, atol=1e-12)
    assert not zero[3].any()
    np.testing.assert_array_equal(zero[np.ix_(kernel.visible, kernel.visible)], kernel.values)


def test_halves_add_up_to_the_weighted_sum():
    # Two objects are hidden in the first kernel, so that what is above the diagonal shows.
    visible = VISIBLE & ([[True, True]] * 4 + [[False, True]])
    kernels = checked({"one": whole(0), "two": whole(1)}, visible).kernels
    rng = np.random.default_rng(2)
    half = half_of_visible(kernels, [2.0, 3.0], N, 0.7)
    total = 0.7 * np.eye(N)
    for kernel, weight in zip(kernels, (2.0, 3.0), strict=True):
        Q = rng.normal(size=(N, N))
        Q = Q + Q.T
        h, v = kernel.hidden, kernel.visible
        Q[np.ix_(v, v)] = kernel.values
        hh = np.tril(Q[np.ix_(h, h)]) + np.triu(np.ones((len(h), len(h))), 1)
        kernel.add_missing(half, Q[np.ix_(h, v)], hh, weight)
        total += weight * Q
    np.testing.assert_allclose(half + half.T, total, atol=1e-12)


@pytest.mark.parametrize("rounded", [np.float32, lambda K: np.round(K, 10)])
def test_rounded_blocks_of_low_rank_are_semidefinite(rounded):
    """Or the objective sees another matrix than the steps do, one that has no root."""
    x = np.random.default_rng(3).normal(size=(30, 2))
    given = np.asarray(rounded(x @ x.T), dtype=None)
    kernel = checked({"one": given}).kernels[0]
    assert np.linalg.eigvalsh(given.astype(float))[0] < -1e-11
    root, triangular = square_root(kernel.values)
    assert not triangular
    np.testing.assert_allclose(root @ root.T, kernel.values, atol=1e-14)
    np.testing.assert_allclose(kernel.values * kernel.unit, given, atol=1e-5)


def test_rank_error_suggests_a_jitter_that_is_enough():
    matrix = np.outer(np.arange(1.0, 6), np.arange(1.0, 6))
    kernel = checked({"one": matrix, "two": np.eye(5)}).kernels[0]
    assert not kernel.full_rank
    message = str(rank_error(kernel, "Model"))
    assert "rank 1 of 5" in message
    jitter = float(message.split("jitter=")[1].split(" ")[0])
    assert checked({"one": matrix, "two": np.eye(5)}, jitter=jitter).kernels[0].full_rank


def bad_inputs():
    indefinite = np.eye(N)
    indefinite[0, 1] = indefinite[1, 0] = 1.5
    lone, infinite, crooked = given()["one"], given()["one"], given()["one"]
    lone[0, 1] = lone[1, 0] = np.nan
    infinite[0, 0] = np.inf
    crooked[0, 1] += 1.0
    half_gone = given()["one"]
    half_gone[3, 3] = 1.0
    nowhere = VISIBLE.copy()
    nowhere[2] = False
    single = np.zeros((N, 5), dtype=bool)
    single[range(N), range(N)] = True
    complete = {"one": whole(0), "two": whole(1)}
    unknown = pd.DataFrame(VISIBLE, OBJECTS, ["one", "three"])
    twins = pd.DataFrame(whole(0), list("abcda"), list("abcda"))
    turned = pd.DataFrame(whole(0), list("abcde"), list("abced"))
    return {
        "sizes": (given(two=np.eye(4)), None, r"reindex\(.*Got \{'one': 5, 'two': 4\}"),
        "not square": (np.ones((2, 4, 5)), None, r"square, .* Got shape \(2, 4, 5\)"),
        "NaN in one entry": (given(one=lone), None, r'kernels\["one"\].* NaN at \(0, 1\)'),
        "diagonal there": (given(one=half_gone), None, r"whole row and column.* NaN at \(0, 3\)"),
        "infinite": (given(one=infinite), None, r'kernels\["one"\].* finite'),
        "not symmetric": (given(one=crooked), None, r'kernels\["one"\].* symmetric'),
        "indefinite": (given(two=indefinite), None, r'kernels\["two"\].* eigenvalue of -0\.5'),
        "zeros": (given(two=np.zeros((N, N))), None, r'kernels\["two"\].* other than 0'),
        "object in none": (complete, nowhere, "1 in none: 2"),
        "all alone": (np.stack([np.eye(N)] * 5), single, "two visible objects"),
        "mask against NaN": (
            given(),
            ~VISIBLE | VISIBLE,
            r'kernels\["one"\].* finite.* \(0, 3\), 0, 3',
        ),
        "mask transposed": (complete, VISIBLE.T, "looks transposed"),
        "mask of numbers": (complete, VISIBLE * 2.0, r"true or false.* Got 2\.0"),
        "mask of others": (complete, unknown, "labelled as the objects"),
        "objects twice": ({"one": twins}, None, "distinct ids. Got 'a' more than once"),
        "columns in another order": ({"one": turned}, None, r'kernels\["one"\].* symmetric'),
        "no kernels": (None, None, "Got NoneType"),
        "specification": (gaussian(), None, "computed from data"),
        "one name": ({1: whole(0), "1": whole(1)}, None, "'1' more than once"),
        "strings": ({"one": np.full((2, 2), "x")}, None, "array of numbers"),
    }


@pytest.mark.parametrize("case", bad_inputs())
def test_bad_input_is_refused(case):
    kernels, visible, message = bad_inputs()[case]
    with pytest.raises(ValueError, match=message):
        checked(kernels, visible)


@pytest.mark.parametrize("jitter", [-1.0, np.nan, None])
def test_jitter_is_checked(jitter):
    with pytest.raises(ValueError, match="'jitter' argument"):
        checked(given(), jitter=jitter)


def test_scales_that_disagree_are_warned_of():
    kernels = {"one": whole(0), "two": whole(1, scale=5_000.0)}
    with pytest.warns(UserWarning, match=r"differ by a factor of .* 'one'.* 'two'") as warned:
        MutualKernelCompletion(kernels, normalize=False)
    assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checked(kernels).kernels[1].unit > 1_000
