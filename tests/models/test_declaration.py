"""What the seven declarations have in common."""

import numpy as np
import pymc as pm
import pytest

import kernelzoo as kz

MODELS = {model.__name__: model for model in kz.MODELS}


@pytest.mark.parametrize("name", MODELS)
def test_the_initial_point_is_one(name):
    """A variable whose start depends on an observed one starts from its value, not from a draw."""
    model = MODELS[name].example()
    first, second = model.initial_point(0), model.initial_point(1)
    for variable, values in first.items():
        np.testing.assert_array_equal(values, second[variable])


def test_the_initial_point_follows_the_data_and_what_is_asked_for():
    model = kz.WishartCompletion.example()
    before = model.initial_point()
    coefficients = np.linalg.solve(model.theta[:3, :3], model.theta[:3, 3:]).T
    np.testing.assert_allclose(before["K21"], coefficients @ model.K11_values)
    pm.set_data({"K11_values": 3 * model.K11_values}, model=model)
    np.testing.assert_allclose(model.initial_point()["K21"], 3 * before["K21"])
    K21 = np.ones((2, 3))
    start = model._make_initial_point(overrides={"K21": K21})(0)
    np.testing.assert_array_equal(start["K21"], K21)
    moved = model._make_initial_point(jitter_rvs={model["B"]})(0)
    gap = np.abs(moved["B"] - before["B"])
    assert (gap > 0).all()
    assert (gap < 1).all()
    np.testing.assert_allclose(moved["K21"], moved["B"] @ model.K11_values)
