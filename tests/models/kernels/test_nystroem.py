"""Nystroem features: exact with all landmarks, else scikit-learn's; landmarks by seed."""

import weakref
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.linalg import sqrtm
from sklearn.kernel_approximation import Nystroem

from kernelzoo.models.kernels import (
    Theta,
    as_stack,
    gaussian,
    linear,
    polynomial,
    precomputed,
)
from kernelzoo.models.kernels.base import BaseKernel, Gaussian, Linear
from kernelzoo.models.kernels.features import feature_spaces
from kernelzoo.models.kernels.kernel_features import LANDMARKS, NystroemFeatures


@dataclass(frozen=True)
class Scaled(BaseKernel):
    """A multiple of a kernel."""

    base: BaseKernel
    scale: float

    def pairwise(self, X, Y):
        return self.scale * self.base.pairwise(X, Y)

    def diagonal(self, X):
        return self.scale * self.base.diagonal(X)

    def describe(self, space):
        return self.base.describe(space)


RNG = np.random.default_rng(3)
X, X_NEW = RNG.normal(size=(30, 4)), RNG.normal(size=(7, 4))


@pytest.mark.parametrize("kernel", [gaussian(0.3), polynomial(2)])
def test_all_landmarks_give_the_kernel(kernel):
    kernels = kernel.nystroem(15)
    few, new = X[:15], X_NEW
    train, cross = kernels(few).values[0], kernels(new, few).values[0]
    np.testing.assert_allclose(train @ train.T, kernel(few).values[0], rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(cross @ train.T, kernel(new, few).values[0], rtol=1e-7, atol=1e-8)


ALL_STEPS = [(), ("trace",), ("unit",), ("unit", "trace"), ("center",), ("center", "unit", "trace")]


@pytest.mark.parametrize("steps", ALL_STEPS)
@pytest.mark.parametrize("kernel", [gaussian(0.3), linear(), polynomial(2)])
def test_columns_at_all_landmarks_are_those_of_the_kernel(kernel, steps):
    normalized = kernel.normalize(*steps) if steps else kernel
    columns = normalized.landmarks(30, seed=5)
    order = np.random.default_rng(5).choice(30, 30, replace=False)
    for found, expected in (
        (columns(X), normalized(X)),
        (columns(X_NEW, X), normalized(X_NEW, X)),
    ):
        np.testing.assert_allclose(found.values[0], expected.values[0][:, order], atol=1e-7)


@pytest.mark.parametrize("steps", ALL_STEPS[:4])
def test_columns_at_some_landmarks_are_exact_without_centring(steps):
    normalized = gaussian(0.3).normalize(*steps) if steps else gaussian(0.3)
    order = np.random.default_rng(5).choice(30, 8, replace=False)
    columns = normalized.landmarks(8, seed=5)
    found, expected = columns(X_NEW, X).values[0], normalized(X_NEW, X).values[0][:, order]
    np.testing.assert_allclose(found, expected, atol=1e-10)
    assert list(columns(X)["kernel"].values) == ["landmarks gaussian(0.3)"]


def test_all_landmarks_give_the_root_of_the_kernel():
    features = gaussian(0.3).nystroem(30, seed=5)(X).values[0]
    root = sqrtm(gaussian(0.3)(X).values[0]).real
    order = np.random.default_rng(5).choice(30, 30, replace=False)
    np.testing.assert_allclose(features, root[:, order], atol=1e-8)


@pytest.mark.parametrize("scale", [1e-10, 1e10])
@pytest.mark.parametrize("kernel", ["gaussian", "linear"])
def test_scale_of_a_kernel_is_that_of_its_features(scale, kernel):
    """Smooth and of low rank: eigenvalues of rounding must be told by what they are relative to."""
    base = Gaussian(1e-3) if kernel == "gaussian" else Linear()
    plain = NystroemFeatures(base, 12, 4).pairwise(X_NEW, X)
    scaled = NystroemFeatures(Scaled(base, scale), 12, 4).pairwise(X_NEW, X)
    np.testing.assert_allclose(scaled, np.sqrt(scale) * plain, rtol=1e-6, atol=1e-6 * scale**0.5)
    if kernel == "linear":
        np.testing.assert_allclose(plain @ plain.T, X_NEW @ X_NEW.T, atol=1e-8)


def test_features_span_what_scikit_learns_do():
    landmarks = X[np.random.default_rng(1).choice(30, 8, replace=False)]
    theirs = Nystroem(kernel="rbf", gamma=0.3, n_components=8, random_state=0).fit(landmarks)
    ours = gaussian(0.3).nystroem(8, seed=1)(X_NEW, X).values[0]
    expected = theirs.transform(X_NEW)
    np.testing.assert_allclose(ours @ ours.T, expected @ expected.T, atol=1e-10)


def test_stack_is_an_expansion_with_the_same_landmarks_for_new_objects():
    kernels = (gaussian(0.3) | linear()).nystroem(6, seed=2)
    train, cross = kernels(X), kernels(X_NEW, X)
    assert train.shape == (2, 30, 6)
    assert train["kernel"].values.tolist() == ["nystroem gaussian(0.3)", "nystroem linear"]
    assert cross["basis"].equals(train["basis"])
    # An object's features do not depend on the other objects.
    np.testing.assert_allclose(kernels(X[:3], X).values, train.values[:, :3], atol=1e-12)
    as_stack(cross, like=train)
    other = (gaussian(0.3) | linear()).nystroem(6, seed=3)(X)
    assert not np.allclose(other.values, train.values)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gaussian().nystroem(0), "'n_components' argument of nystroem must be an integer"),
        (lambda: gaussian().nystroem(31)(X), "at most the number of training objects, 30. Got 31"),
        (lambda: gaussian().nystroem(3, by="random"), "'uniform', 'kmeans'"),
        (lambda: precomputed().nystroem(3), "functions of features"),
        (lambda: gaussian(Theta(1, 1)).nystroem(3), "without parameters to learn"),
        (lambda: gaussian().nystroem(3).nystroem(2), "Got 'nystroem gaussian'"),
        (lambda: gaussian().nystroem(3).normalize("unit"), "applied to kernels"),
        (lambda: gaussian().nystroem(3)(X_NEW[:, :2], X), "of 4 features"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_landmarks_differ_where_objects_are_repeated():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(40, 3))
    X[::2] = X[0]
    m = 15
    columns = gaussian(0.3).landmarks(m)(X).values[0]
    assert len(np.unique(columns, axis=1).T) == m
    # All different objects are landmarks before any is one twice.
    columns = gaussian(0.3).landmarks(30)(X).values[0]
    assert len(np.unique(columns.round(9), axis=1).T) == 21


def test_landmarks_of_training_objects_that_stay_are_chosen_once(monkeypatch):
    chosen = []
    by_k_means = LANDMARKS["kmeans"]
    monkeypatch.setitem(LANDMARKS, "kmeans", lambda *args: chosen.append(1) or by_k_means(*args))
    X = np.random.default_rng(0).normal(size=(30, 3))
    kernels = gaussian("median").landmarks(6, by="kmeans")
    train = feature_spaces(X)
    stack, once = kernels(train), kernels(X[:4], train)
    assert len(chosen) == 1
    np.testing.assert_array_equal(once, kernels(X[:4], X))
    np.testing.assert_array_equal(stack, kernels(X))
    assert len(chosen) == 3
    other = gaussian("median").landmarks(5, by="kmeans")
    assert other(train).shape == (1, 30, 5)
    alive = weakref.ref(train)
    del train
    assert alive() is None
