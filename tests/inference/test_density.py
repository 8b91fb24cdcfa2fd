"""The judge of approximations agrees with PyMC's own density up to the Jacobian."""

import numpy as np
import pymc as pm
import pytest

import kernelzoo as kz
from kernelzoo.inference.density import log_density


def test_density_equals_pymcs_without_jacobian():
    model = kz.MultinomialProbit.example()
    point = model.initial_point(random_seed=1)
    rng = np.random.default_rng(2)
    point = {name: value + rng.normal(size=value.shape) / 3 for name, value in point.items()}
    names = [v.name for v in model.unobserved_value_vars]
    values = dict(zip(names, model.compile_fn(model.unobserved_value_vars)(point), strict=True))
    draws = {rv.name: values[rv.name][None] for rv in model.free_RVs}
    np.testing.assert_allclose(
        log_density(model, draws)[0], model.compile_logp(jacobian=False)(point), rtol=1e-10
    )


def test_potentials_are_counted():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("twice", -(x**2))
    np.testing.assert_allclose(
        log_density(model, {"x": np.array([0.0, 2.0])}) - log_density(model, {"x": np.zeros(2)}),
        [0.0, -2.0 - 4.0],
    )


def test_missing_variables_are_named():
    with pm.Model() as model:
        pm.Normal("x")
    with pytest.raises(KeyError, match="x"):
        log_density(model, {})
