"""Columns at landmarks: those of the kernel with all of them; landmarks by seed."""

import weakref

import numpy as np
import pytest

from kernelzoo.models.kernels import (
    Theta,
    as_stack,
    gaussian,
    linear,
    polynomial,
    precomputed,
)
from kernelzoo.models.kernels.features import feature_spaces
from kernelzoo.models.kernels.landmarks import CHOICES

RNG = np.random.default_rng(3)
X, X_NEW = RNG.normal(size=(30, 4)), RNG.normal(size=(7, 4))


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
@pytest.mark.parametrize("kernel", [gaussian(0.3), polynomial(2)])
def test_columns_at_some_landmarks_are_exact_without_centring(steps, kernel):
    normalized = kernel.normalize(*steps) if steps else kernel
    order = np.random.default_rng(5).choice(30, 8, replace=False)
    columns = normalized.landmarks(8, seed=5)
    found, expected = columns(X_NEW, X).values[0], normalized(X_NEW, X).values[0][:, order]
    np.testing.assert_allclose(found, expected, atol=1e-10)
    assert columns(X)["kernel"].item().startswith("landmarks ")


def test_stack_is_an_expansion_with_the_same_landmarks_for_new_objects():
    kernels = (gaussian(0.3) | linear()).landmarks(6, seed=2)
    train, cross = kernels(X), kernels(X_NEW, X)
    assert train.shape == (2, 30, 6)
    assert train["kernel"].values.tolist() == ["landmarks gaussian(0.3)", "landmarks linear"]
    assert cross["basis"].equals(train["basis"])
    # An object's features do not depend on the other objects.
    np.testing.assert_allclose(kernels(X[:3], X).values, train.values[:, :3], atol=1e-12)
    as_stack(cross, like=train)
    other = (gaussian(0.3) | linear()).landmarks(6, seed=3)(X)
    assert not np.allclose(other.values, train.values)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: gaussian().landmarks(0),
            "'n_components' argument of landmarks must be an integer",
        ),
        (lambda: gaussian().landmarks(31)(X), "at most the number of training objects, 30. Got 31"),
        (lambda: gaussian().landmarks(3, by="random"), "'uniform', 'kmeans'"),
        (lambda: precomputed().landmarks(3), "functions of features"),
        (lambda: gaussian(Theta(1, 1)).landmarks(3), "without parameters to learn"),
        (lambda: gaussian().landmarks(3).landmarks(2), "Got 'landmarks gaussian'"),
        (lambda: gaussian().landmarks(3).normalize("unit"), "applied to kernels"),
        (lambda: gaussian().landmarks(3)(X_NEW[:, :2], X), "of 4 features"),
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
    by_k_means = CHOICES["kmeans"]
    monkeypatch.setitem(CHOICES, "kmeans", lambda *args: chosen.append(1) or by_k_means(*args))
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
