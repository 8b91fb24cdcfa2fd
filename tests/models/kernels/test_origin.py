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
)

#: By name: kernels of differences of objects.
STATIONARY = {
    "gaussian": gaussian(0.3),
    "median": gaussian("median"),
    "multiquadric": inverse_multiquadric(0.3),
    "pymc": covariance(pm.gp.cov.Matern52(2, ls=1.0)),
    "product in pymc": covariance(2.0 * pm.gp.cov.ExpQuad(2, ls=1.0) * pm.gp.cov.Cosine(2, ls=3.0)),
    "learned": gaussian(Theta(1, 3)),
    "learned, ard": gaussian(Theta(1, 3, ard=True)),
    "landmarks": gaussian(0.3).landmarks(5),
}


@pytest.mark.parametrize("name", STATIONARY)
def test_kernels_of_differences_do_not_depend_on_the_origin(name):
    """Squares of features at 1e8 have lost all digits of the differences."""
    kernels, rng = STATIONARY[name], np.random.default_rng(0)
    near = np.round(rng.normal(size=(18, 2)) * 2**20) / 2**20  # so that the shift is exact
    near[0] = 1000.0  # an outlier must not pull the origin away

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


@pytest.mark.parametrize("name", ["gaussian", "landmarks"])
def test_groups_that_are_far_apart_have_the_digits_of_their_differences(name):
    """Only one group can be around zero; in the others, squares have lost them."""
    near, apart = far_apart()
    exact = gaussian(0.3)
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
    stacks = [STATIONARY["learned"](X) for X in (near, near + 2.0**26)]
    theta = np.array([0.7])
    tensors = [s.tensor(pt.as_tensor(theta), s.features, s.fixed.to_numpy()) for s in stacks]
    here, there = ([s.evaluate(theta), f.eval()] for s, f in zip(stacks, tensors, strict=True))
    np.testing.assert_allclose(there, here, rtol=0, atol=1e-12)
    np.testing.assert_allclose(here[0], here[1], rtol=0, atol=1e-12)


def test_covariances_of_positions_are_not_shifted():
    function = pm.gp.cov.ExpQuad(2, ls=1.0) + pm.gp.cov.Linear(2, c=0.0)
    X = np.random.default_rng(0).normal(size=(5, 2)) + 3.0
    squared = ((X[:, None] - X) ** 2).sum(-1)
    expected = np.exp(-0.5 * squared) + X @ X.T
    np.testing.assert_allclose(covariance(function)(X).values[0], expected, rtol=1e-12)
