"""Kernels near the identity and features of unequal scales are warned of, and nothing else is."""

import warnings

import numpy as np
import pandas as pd
import pymc as pm
import pytest

import kernelzoo as kz
from kernelzoo.models import (
    CompositeKernelClassification,
    CompositeKernelRegression,
    MultinomialProbit,
    WishartCompletion,
)
from kernelzoo.models.kernels import (
    KernelWarning,
    Theta,
    as_stack,
    covariance,
    gaussian,
    inverse_multiquadric,
    linear,
    polynomial,
    precomputed,
)

RNG = np.random.default_rng(3)
X = RNG.normal(size=(20, 6))
TARGETS = {
    MultinomialProbit: np.arange(20) % 3,
    CompositeKernelClassification: np.arange(20) % 2,
    CompositeKernelRegression: RNG.normal(size=20),
}
# Of a kernel that is no warning's business.
WIDE = gaussian("median")(X).values[0]


@pytest.fixture
def silence():
    """Any warning is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def off_diagonal(value, n=20):
    return np.eye(n) + value * (1 - np.eye(n))


# --- kernels near the identity --------------------------------------------------------------------


@pytest.mark.parametrize("declare", TARGETS, ids=lambda model: model.__name__)
def test_kernels_near_the_identity_are_warned_of_by_name(declare):
    kernels = {"wide": WIDE, "narrow": gaussian(100.0)(X).values[0], "far": np.eye(20)}
    with pytest.warns(kz.kernels.KernelWarning, match=r"nearly the identity") as caught:
        declare(kernels, TARGETS[declare])
    (warning,) = caught
    text = str(warning.message)
    assert f"given to {declare.__name__} are nearly the identity: 'narrow', 'far'." in text
    assert "gaussian('median')" in text
    assert "z-score" in text
    # At the user's line, not in the model's or PyMC's.
    assert warning.filename == __file__


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_what_is_near_the_identity_goes_by_the_diagonal(scale):
    """Bug: an absolute bound, which traces and units of kernels move."""
    labels, upsilon = TARGETS[MultinomialProbit], scale**-2
    with pytest.warns(kz.kernels.KernelWarning, match="given to .* are nearly the identity: 'K'"):
        MultinomialProbit({"K": scale * off_diagonal(0.9e-6)}, labels, upsilon=upsilon)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MultinomialProbit({"K": scale * off_diagonal(1.1e-6)}, labels, upsilon=upsilon)


def test_more_than_half_of_the_objects_decide():
    """Nine alike objects of twenty leave eleven alone; of ten, ten."""
    kernels = {}
    for n in (9, 10):
        kernels[n] = off_diagonal(1e-9)
        kernels[n][:n, :n] = 0.5 * np.eye(n) + 0.5
    with pytest.warns(kz.kernels.KernelWarning, match="nearly the identity: '9'"):
        MultinomialProbit(kernels, TARGETS[MultinomialProbit])


@pytest.mark.parametrize("alike", [0.02, 0.9, 1.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_clusters_are_no_identity(silence, alike, sign):
    """Twenty clusters of five: 95 of 99 entries of a row are zero, as they should be."""
    signs = sign ** np.arange(5)
    cluster = alike * np.outer(signs, signs)
    np.fill_diagonal(cluster, 1.0)
    kernel = np.kron(np.eye(20), cluster)
    MultinomialProbit({"clusters": kernel}, np.arange(100) // 5 % 4)


@pytest.mark.parametrize("size", [2, 3])
def test_raw_features_in_small_groups_are_nearly_the_identity(size):
    """One or two close neighbours do not make up for the others."""
    groups = np.kron(np.eye(10), np.ones((size, size)))
    with pytest.warns(kz.kernels.KernelWarning, match="nearly the identity"):
        MultinomialProbit({"groups": groups}, np.arange(10 * size) % 3)


def test_negative_entries_are_entries(silence):
    """Bug: signs, not sizes."""
    K = off_diagonal(-0.04)
    MultinomialProbit({"K": K}, TARGETS[MultinomialProbit])


@pytest.mark.parametrize("declare", TARGETS)
@pytest.mark.parametrize(
    ("others", "size"),
    [({"a": WIDE}, 1e-12), ({"a": 1e7 * WIDE}, 1), ({}, 1e-12), ({}, 1e-3), ({"a": WIDE}, 1e-3)],
)
def test_negligible_kernels_are_warned_of(declare, others, size):
    with pytest.warns(
        kz.kernels.KernelWarning, match="hardly matter: 'b', with entries of at most"
    ):
        declare(others | {"b": size * WIDE}, TARGETS[declare])


@pytest.mark.parametrize("declare", [MultinomialProbit, CompositeKernelRegression])
def test_wide_priors_make_small_kernels_matter(silence, declare):
    """Regressors of scale 1e4 give scores of scale one."""
    rate = {"upsilon" if declare is MultinomialProbit else "varsigma": 1e8}
    declare({"b": 1e-4 * WIDE}, TARGETS[declare], **rate)


def test_no_other_kernels_are_warned_of(silence):
    labels = TARGETS[MultinomialProbit]
    # Features, which have no diagonal.
    functions = pd.DataFrame(np.eye(20), np.arange(50, 70), np.arange(100, 120))
    MultinomialProbit(as_stack({"phi": functions}), labels)
    # Parameters that samplers move.
    MultinomialProbit(gaussian(Theta(1000.0, 1.0))(X), labels)
    MultinomialProbit(gaussian(100.0).landmarks(20)(X), labels)
    # Ideal kernels of completion models: 1 for objects of one class.
    ideal = (labels[:10, None] == labels[:10]) + 0.1 * np.eye(10)
    WishartCompletion(WIDE, ideal)


def test_kernels_without_parameters_are_looked_at_beside_those_that_have():
    kernels = gaussian(Theta(1000.0, 1.0)) | gaussian(100.0)
    with pytest.warns(kz.kernels.KernelWarning, match=r"nearly the identity: 'gaussian\(100\)'"):
        MultinomialProbit(kernels(X), TARGETS[MultinomialProbit])


# --- features of unequal scales -------------------------------------------------------------------

SCALES = np.array([1.0, 2.0, 0.5, 1.0, 1.0, 300.0])
ADDING = {
    "gaussian": gaussian(),
    "gaussian, width chosen": gaussian("median"),
    "gaussian, one width learned": gaussian(Theta()),
    "linear": linear(),
    "polynomial": polynomial(2),
    "features": gaussian().landmarks(5),
}


@pytest.mark.parametrize("name", ADDING)
def test_features_of_unequal_scales_are_warned_of(name):
    with pytest.warns(
        kz.kernels.KernelWarning, match="Features are of very different scales"
    ) as caught:
        ADDING[name](X * SCALES)
    (warning,) = caught
    assert "column 5 has" in str(warning.message)
    assert "StandardScaler" in str(warning.message)
    assert warning.filename == __file__


def test_the_feature_spaces_concerned_are_named_once():
    kernels = linear() | gaussian()
    with pytest.warns(kz.kernels.KernelWarning) as caught:
        kernels({"text": X * SCALES, "image": X, "sound": X[:, ::-1] * SCALES[::-1]})
    text, sound = (str(warning.message) for warning in caught)
    assert "column 5 of X['text']" in text
    assert "column 0 of X['sound']" in sound


def test_features_are_not_warned_of_where_scales_do_no_harm(silence):
    unequal = X * SCALES
    gaussian(Theta(ard=True))(unequal)
    covariance(pm.gp.cov.Matern52(6, ls=SCALES))(unequal)
    precomputed()(unequal @ unequal.T)
    (linear().on("a") | precomputed().on("b"))({"a": X, "b": unequal @ unequal.T})
    linear()(unequal[:, :1])
    linear()(np.column_stack([unequal[:, 5], np.full(20, 0.1), np.zeros(20)]))
    linear()(X * np.where(SCALES == 300, 90.0, SCALES))


def test_kernels_of_new_objects_do_not_warn_again(silence):
    for new, train in ((X * SCALES, X), (X, X * SCALES)):
        linear()(new, train)


@pytest.mark.filterwarnings("ignore::kernelzoo.ApproximationWarning")
@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_new_objects_in_another_unit_are_warned_of(scale):
    """Where one kernel knows most of them, nobody is warned."""
    kernels = gaussian("median") | linear()
    model = MultinomialProbit(scale * kernels(X), TARGETS[MultinomialProbit], upsilon=scale**-2)
    result = kz.fit(model, "vb", draws=20, random_seed=1, progressbar=False)
    for new, known, warned in [
        (X[:3] + 0.1, 2, False),
        (100 * X[:3], 2, False),
        (100 * X[:3], 1, True),
        (np.vstack([X[:2], 100 * X[:2]]), 1, False),
        (np.vstack([X[:1], 100 * X[:2]]), 1, True),
    ]:
        rows = scale * kernels(new, X)
        rows.values[known:] = 0
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            predicted = kz.predict(model, result, rows, progressbar=False)
        assert [w.category for w in told] == [kz.kernels.KernelWarning] * warned
        if warned:
            assert "like no training object" in str(told[0].message)
            np.testing.assert_allclose(predicted["probability"][-1], 1 / 3)


def test_a_quarter_of_the_features_must_be_small(silence):
    """Images have pixels that hardly change."""
    linear()(X * np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1e-3]))
    linear()(np.tile(X, 2) * np.array([1e-3] * 2 + [1.0] * 10))
    with pytest.warns(kz.kernels.KernelWarning):
        linear()(np.tile(X, 2) * np.array([1e-3] * 3 + [1.0] * 9))


def test_the_data_sets_of_the_package_are_scaled_by_their_split(silence):
    data = kz.datasets.load("wine").split(seed=1)
    kernels = gaussian() | linear() | gaussian("median")
    MultinomialProbit(kernels(data.X_train), data.y_train)
    kernels(data.X_test, data.X_train)


def test_raw_wine_is_warned_of_twice():
    raw = kz.datasets.load("wine")
    with pytest.warns(kz.kernels.KernelWarning) as caught:
        MultinomialProbit(gaussian()(raw.X), raw.y)
    first, second = (str(warning.message) for warning in caught)
    assert "column 12 has a standard deviation of 314" in first
    assert "given to MultinomialProbit are nearly the identity: 'gaussian'" in second


@pytest.mark.parametrize("size", [1e-12, 1e-162, 1e-300])
@pytest.mark.parametrize(
    "kernel",
    [gaussian(1.0), gaussian(1.0).landmarks(5), polynomial(2), inverse_multiquadric(1.0)],
    ids=str,
)
def test_kernels_that_are_the_same_for_all_objects_are_warned_of(kernel, size):
    """Bug: nothing was said of features whose distances underflow."""
    objects = np.random.default_rng(0).normal(size=(12, 3))
    new = size * objects[:4]
    with pytest.warns(KernelWarning, match=r"are 1: it tells no training objects apart"):
        kernel(size * objects)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel(1e-3 * objects)
        kernel(new, objects)
        kernel(objects[:1]) if "landmarks" not in repr(kernel) else None


@pytest.mark.parametrize("size", [1e-162, 1e-300])
def test_widths_of_features_whose_squares_underflow_are_refused(size):
    """Bug: objects 'without a difference', or a width of infinity."""
    objects = size * np.random.default_rng(0).normal(size=(12, 3))
    with pytest.raises(ValueError, match=r"squares do not underflow: standardise the features"):
        gaussian("median")(objects)
