"""Kernels of differences of objects are the same wherever the objects are."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from kernelzoo.models.kernels import (
    Theta,
    covariance,
    gaussian,
    inverse_multiquadric,
    laplace,
    linear,
    polynomial,
)

#: By name: kernels of differences of objects.
STATIONARY = {
    "gaussian": gaussian(0.3),
    "median": gaussian("median"),
    "laplace": laplace(0.3),
    "multiquadric": inverse_multiquadric(0.3),
    "centred": gaussian(0.3).normalize("center"),
    "pymc": covariance(pm.gp.cov.Matern52(2, ls=1.0)),
    "product in pymc": covariance(2.0 * pm.gp.cov.ExpQuad(2, ls=1.0) * pm.gp.cov.Cosine(2, ls=3.0)),
    "learned": gaussian(Theta(1, 3)),
    "learned, ard": gaussian(Theta(1, 3, ard=True)),
    "landmarks": gaussian(0.3).landmarks(5, by="kmeans"),
}

#: Kernels that do depend on the origin, until they are centred.
CENTRED = {
    "linear": linear().normalize("center"),
    "trace": linear().normalize("center", "trace"),
    "unit": linear().normalize("center", "unit", "center"),
    "polynomial": polynomial(1, gamma=0.5, coef0=2.0).normalize("center", "unit"),
    "landmarks, trace": polynomial(1).normalize("center", "trace").landmarks(5, by="kmeans"),
    "landmarks": linear().normalize("center").landmarks(5),
    "pymc": covariance(pm.gp.cov.Linear(2, c=1.0)).normalize("center"),
    "sum in pymc": covariance(
        2.0 * pm.gp.cov.Linear(2, c=1.0) + pm.gp.cov.ExpQuad(2, ls=1.0)
    ).normalize("center"),
    "learned": gaussian(Theta(1, 3)).normalize("center"),
}
KERNELS = STATIONARY | {f"centred {name}": kernels for name, kernels in CENTRED.items()}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_differences_do_not_depend_on_the_origin(name):
    """Squares of features at 1e8 have lost all digits of the differences."""
    kernels, rng = KERNELS[name], np.random.default_rng(0)
    near = np.round(rng.normal(size=(18, 2)) * 2**20) / 2**20  # so that the shift is exact
    near[0] = 1000.0 if name in STATIONARY else 3.0  # an outlier must not pull the origin away

    def values(X):
        train, cross = kernels(X[:13]), kernels(X[13:], X[:13])
        return [getattr(stack, "start", stack).values[0] for stack in (train, cross)]

    for here, there in zip(values(near), values(near + 2.0**26), strict=True):
        np.testing.assert_allclose(there, here, rtol=0, atol=1e-6)


def far_apart():
    """Objects around zero, and the same with the last five far away; the shift is exact."""
    near = np.round(np.random.default_rng(0).normal(size=(11, 2)) * 2**20) / 2**20
    apart = near.copy()
    apart[6:] += 2.0**26
    return near, apart


@pytest.mark.parametrize("name", ["gaussian", "laplace", "landmarks"])
def test_groups_that_are_far_apart_have_the_digits_of_their_differences(name):
    """Only one group can be around zero; in the others, squares have lost them."""
    near, apart = far_apart()
    exact = (laplace if name == "laplace" else gaussian)(0.3)
    kernels = exact.landmarks(11) if name == "landmarks" else exact
    train, new = kernels(apart).values[0], kernels(apart[4:], apart).values[0]
    if name == "landmarks":
        # Columns are in the order of the landmarks.
        train, new = np.sort(train), np.sort(new)
        expected = np.sort(np.pad(exact(near[6:]).values[0], ((0, 0), (6, 0))))
        np.testing.assert_allclose(train[6:], expected, rtol=0, atol=1e-12)
    else:
        np.testing.assert_allclose(train[6:, 6:], exact(near[6:]).values[0], rtol=0, atol=1e-12)
        np.testing.assert_allclose(train[:6, :6], exact(near[:6]).values[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(new, train[4:], rtol=0, atol=1e-9)


def test_learned_kernels_do_not_depend_on_the_origin():
    near = np.round(np.random.default_rng(0).normal(size=(9, 2)) * 2**20) / 2**20
    for name in ("learned", "centred learned"):
        stacks = [KERNELS[name](X) for X in (near, near + 2.0**26)]
        here, there = (
            [s.evaluate(np.array([0.7])), s.tensor(pt.as_tensor([0.7])).eval()] for s in stacks
        )
        np.testing.assert_allclose(there, here, rtol=0, atol=1e-12)
        np.testing.assert_allclose(here[0], here[1], rtol=0, atol=1e-12)


def test_covariances_of_positions_are_not_shifted():
    function = pm.gp.cov.ExpQuad(2, ls=1.0) + pm.gp.cov.Linear(2, c=0.0)
    X = np.random.default_rng(0).normal(size=(5, 2)) + 3.0
    squared = ((X[:, None] - X) ** 2).sum(-1)
    expected = np.exp(-0.5 * squared) + X @ X.T
    np.testing.assert_allclose(covariance(function)(X).values[0], expected, rtol=1e-12)


@pytest.mark.parametrize("at_landmarks", [False, True])
def test_trace_before_centring_is_that_of_features_where_they_are(at_landmarks):
    X = np.random.default_rng(0).normal(size=(9, 2)) + 2.0**26
    kernels = linear().normalize("trace", "center")
    values = (kernels.landmarks(9) if at_landmarks else kernels)(X).values[0]
    centred = X - X.mean(axis=0)
    expected = centred @ centred.T * 9 / np.einsum("nd,nd->", X, X)
    if at_landmarks:
        expected = expected[:, np.random.default_rng(0).choice(9, 9, replace=False)]
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-6 * expected.max())


def test_squares_of_features_are_not_shifted():
    X = np.random.default_rng(0).normal(size=(6, 2)) + 3.0
    for kernels, gram in (
        (polynomial(2), (X @ X.T + 1) ** 2),
        (covariance(pm.gp.cov.Linear(2, c=0.0) ** 2), (X @ X.T) ** 2),
        (covariance(pm.gp.cov.Linear(2, c=0.0) * pm.gp.cov.Linear(2, c=0.0)), (X @ X.T) ** 2),
    ):
        rows = gram.mean(axis=0)
        expected = gram - rows - rows[:, None] + gram.mean()
        centred = kernels.normalize("center")(X).values[0]
        np.testing.assert_allclose(centred, expected, rtol=0, atol=1e-10 * np.abs(gram).max())
