"""Section 4.1 of damoulas2009: the points, the boundary, small runs."""

import numpy as np
import pytest

from kernelzoo.datasets import neal_three_class
from studies import damoulas2009_synthetic as synthetic


def small(engine, **sampling):
    recipe = synthetic.RECIPES[engine]
    return recipe | {"sampling": recipe["sampling"] | sampling}


GIBBS = small("Gibbs", draws=300, tune=100)
VB = small("VB", draws=300)


def test_boundary_is_where_two_functions_meet():
    np.testing.assert_allclose(synthetic.boundary(synthetic.REGRESSORS), [1, -1 / 3])
    W = np.random.default_rng(0).normal(size=(5, 2, 3, 3))
    slope, intercept = np.moveaxis(synthetic.boundary(W), -1, 0)
    features = np.stack([np.ones_like(slope), np.full_like(slope, 0.7), intercept + 0.7 * slope])
    f = np.einsum("...cd,d...->...c", W, features)
    np.testing.assert_allclose(f[..., 0], f[..., 1], atol=1e-9)


def test_points_have_the_class_of_the_largest_function():
    features, labels = synthetic.divided_plane(200, 1)
    assert set(labels) == {0, 1, 2}
    assert (features[:, 0] == 1).all()
    assert np.abs(features[:, 1:]).max() <= 1
    slope, intercept = synthetic.boundary(synthetic.REGRESSORS)
    above = features[:, 2] > intercept + slope * features[:, 1]
    np.testing.assert_array_equal(above[labels < 2], labels[labels < 2] == 0)


def test_vb_is_narrower_than_gibbs_on_the_plane():
    values = synthetic.boundaries("plane", 3, n=60, recipes={"Gibbs": GIBBS, "VB": VB})
    assert set(values) == set(synthetic.study().tasks[0].rows)
    assert values["variance of the slope, Gibbs in VB's"] > 1
    assert values["Gibbs: variance of the slope"] > values["VB: variance of the slope"] > 0


def test_regions_are_compared_with_the_first_recipe():
    recipes = {"one": VB, "the same": VB}
    values = synthetic.regions(
        "Neal", 1, n=120, n_test=50, noise=0.0, side=8, kept=30, recipes=recipes
    )
    assert values["the same: region as of one"] == 100
    assert values["one: error on new objects"] < 30
    names = {row.replace("one: ", "Gibbs: ").replace("of one", "of Gibbs") for row in values}
    assert {row for row in names if row.startswith("Gibbs")} == {
        row for row in synthetic.study().tasks[1].rows if row.startswith("Gibbs")
    }


def test_least_error_is_that_of_the_most_frequent_class_of_noisy_objects():
    found = synthetic.least_error("", 1, n=200_000, noise=0.1, side=100)
    (error,) = found.values()
    squares = [np.linspace(-0.5, 1.5, 41)] * 2
    seen, new = (
        np.histogramdd((np.asarray(data.y), data.X["x1"], data.X["x2"]), (np.arange(4), *squares))[
            0
        ]
        for data in (neal_three_class(200_000, seed) for seed in (2, 3))
    )
    right = np.take_along_axis(new, seen.argmax(axis=0)[None], axis=0).sum()
    assert error == pytest.approx(100 * (1 - right / 200_000), abs=0.5)
    assert error > synthetic.least_error("", 1, n=200_000, noise=0.01, side=100)[synthetic.LEAST]


def test_quadratic_features():
    X = np.array([[2.0, 3.0, 9.0, 9.0]])
    np.testing.assert_array_equal(synthetic.quadratic(X), [[1, 2, 3, 4, 6, 9]])


def test_ratio_of_times():
    values = synthetic.durations("clock", 1, n=40, rounds=1, sweeps=50)
    assert set(values) == set(synthetic.study().tasks[-1].rows)
    seconds, vb = values["seconds of 100,000 sweeps"], values["seconds of 100 iterations"]
    assert values["ratio"] == pytest.approx(seconds / vb)
    assert synthetic.study().published["ratio", "Neal, time"].mean == pytest.approx(346.8, abs=0.05)
