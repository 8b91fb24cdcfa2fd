"""Widths chosen from training objects: the stated formulas, and the same width for new objects."""

from itertools import combinations

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.metrics.pairwise import rbf_kernel

from kernelzoo.models import MultinomialProbit
from kernelzoo.models.kernels import (
    KernelWarning,
    as_stack,
    gaussian,
    inverse_multiquadric,
    linear,
    precomputed,
)
from kernelzoo.models.kernels.functions import median_of_squared_distances

RNG = np.random.default_rng(5)
X, X_NEW = RNG.normal(size=(17, 3)), RNG.normal(3.0, 2.0, size=(6, 3))


def median(X, distance):
    return np.median([distance(x, y) for x, y in combinations(X, 2)])


def multiquadric(X, Y=None, gamma=None):
    return [
        [(1 + gamma * ((x - y) ** 2).sum()) ** -0.5 for y in (X if Y is None else Y)] for x in X
    ]


def gammas(X):
    squared = median(X, lambda x, y: ((x - y) ** 2).sum())
    return {
        "gaussian(median)": 1 / (2 * squared),
        "inverse_multiquadric(median)": 3 / squared,
    }


KERNELS = {
    "gaussian(median)": (gaussian("median"), rbf_kernel),
    "inverse_multiquadric(median)": (inverse_multiquadric("median"), multiquadric),
}


@pytest.mark.parametrize("name", KERNELS)
def test_the_width_is_that_of_the_training_objects(name):
    """Also between new and training objects: bug, a width of the new objects or of both."""
    kernels, function = KERNELS[name]
    gamma = gammas(X)[name]
    np.testing.assert_allclose(kernels(X).values[0], function(X, gamma=gamma), rtol=1e-10)
    cross = kernels(X_NEW, X)
    np.testing.assert_allclose(cross.values[0], function(X_NEW, X, gamma=gamma), rtol=1e-10)
    assert cross["kernel"].item() == name.replace(")", f"={gamma:.4g})")
    assert kernels(X)["kernel"].item() == cross["kernel"].item()


def test_each_feature_space_has_a_width_of_its_own():
    spaces, new = {"a": X, "b": 10 * X[:, :2]}, {"a": X_NEW, "b": 10 * X_NEW[:, :2]}
    kernels = (gaussian("median") | linear().on("b")).normalize("trace")
    train, cross = kernels(spaces), kernels(new, spaces)
    for space in spaces:
        gamma = gammas(spaces[space])["gaussian(median)"]
        name = f"gaussian(median={gamma:.4g})[{space}]"
        expected = rbf_kernel(new[space], spaces[space], gamma=gamma)
        np.testing.assert_allclose(cross.sel(kernel=name), expected, rtol=1e-10)
    assert as_stack(cross, like=as_stack(train)).shape == (3, 6, 17)


def test_landmarks_features_take_the_width_of_all_training_objects():
    """Bug: the width of the landmarks alone."""
    kernels = gaussian("median").landmarks(5, seed=2)
    fixed = gaussian(gammas(X)["gaussian(median)"]).landmarks(5, seed=2)
    np.testing.assert_allclose(kernels(X).values, fixed(X).values, rtol=1e-8)
    np.testing.assert_allclose(kernels(X_NEW, X).values, fixed(X_NEW, X).values, rtol=1e-8)
    assert kernels(X)["kernel"].item().startswith("landmarks gaussian(median=")


def test_a_kernel_with_a_name_says_its_width_in_the_attributes():
    kernels = gaussian("median").named("near") | linear()
    description = f"gaussian(median={gammas(X)['gaussian(median)']:.4g})"
    assert kernels(X).attrs == kernels(X_NEW, X).attrs == {"near": description}
    assert "gamma='median'" in repr(kernels)


def test_many_objects_give_one_width_near_the_median_of_all():
    many = np.random.default_rng(1).normal(size=(1500, 4))
    exact = np.median(((many[:, None] - many[None]) ** 2).sum(-1)[np.triu_indices(1500, 1)])
    train, cross = gaussian("median")(many), gaussian("median")(many[:3] + 1, many)
    assert train["kernel"].item() == cross["kernel"].item()
    gamma = -np.log(train.values[0, 0, 1]) / ((many[0] - many[1]) ** 2).sum()
    assert gamma == pytest.approx(1 / (2 * exact), rel=0.05)


def test_kernels_of_new_objects_alone_are_refused():
    """Their width is another one, so that they must not pass for kernels between the two."""
    like = as_stack(gaussian("median")(X))
    with pytest.raises(ValueError, match=r"kernels\(X_new, X_train\)"):
        as_stack(gaussian("median")(X_NEW), like=like, owner="predict")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gaussian("medain"), "'gamma' argument of gaussian .*'median'.*nearest"),
        (lambda: gaussian(-1.0), "'gamma' argument of gaussian .*above 0"),
        (lambda: gaussian("median")(np.ones((4, 2))), "objects that differ.* 4 objects"),
        (lambda: gaussian("median")(X[:1]), "objects that differ.* 1 objects"),
        (lambda: gaussian("median")({"a": X, "b": 0 * X}), r"X\[\"b\"\].*objects that differ"),
    ],
)
def test_bad_widths_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_columns_of_zeros_take_the_distances_of_pairs_that_differ():
    counts = np.r_[np.zeros(9), 1.0, 4.0][:, None]
    with pytest.warns(KernelWarning, match=r"gaussian\('median'\) is the median distance"):
        K = gaussian("median")(counts).values[0]
    # Nine squared distances of 1, nine of 16, one of 9.
    np.testing.assert_allclose(K, np.exp(-0.5 * (counts - counts.T) ** 2 / 9), rtol=1e-12)


def test_models_take_kernels_of_a_chosen_width():
    stack = (gaussian("median") | precomputed().on("b") | inverse_multiquadric("median").on("a"))(
        {"a": X, "b": X @ X.T}
    )
    assert MultinomialProbit(stack, np.arange(17) % 2).coords["kernel"] == tuple(
        stack["kernel"].values
    )
    assert as_stack({"near": stack.values[0]}).shape == (1, 17, 17)


def test_the_width_of_many_objects_does_not_depend_on_their_order():
    """They come sorted by class, for instance: the first thousand, or fixed rows, are others."""
    rng = np.random.default_rng(7)
    many = np.concatenate([rng.normal(size=(1_500, 2)), rng.normal(6.0, 3.0, size=(700, 2))])
    many[::50] = 0.0
    shuffled = rng.permutation(many)
    shuffled[shuffled == 0] = -0.0
    (one,), (other,) = (
        gaussian("median")(X[:2, :2], objects)["kernel"].values for objects in (many, shuffled)
    )
    assert one == other
    assert median_of_squared_distances(many, "f") == median_of_squared_distances(shuffled, "f")
    exact = np.median(pdist(many, "sqeuclidean"))
    assert median_of_squared_distances(many, "f") == pytest.approx(exact, rel=0.1)
