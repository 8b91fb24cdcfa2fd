"""The judge of approximations agrees with PyMC's own density up to the Jacobian."""

import numpy as np
import pymc as pm
import pytest

import kernelzoo as kz
from kernelzoo.inference import density
from kernelzoo.inference.compilation import python_mode
from kernelzoo.inference.density import log_density


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_density_equals_pymcs_without_jacobian(monkeypatch, at_once):
    """Draws are evaluated together, as many as the size of the problem allows."""
    model = kz.MultinomialProbit.example()
    monkeypatch.setattr(density, "ELEMENTS_AT_ONCE", at_once * 500)
    rng = np.random.default_rng(2)
    variables = model.unobserved_value_vars
    constrain = model.compile_fn(variables, mode=python_mode())
    log_p = model.compile_logp(jacobian=False, mode=python_mode())
    start = model.initial_point(random_seed=1)
    points = [
        {name: value + rng.normal(size=value.shape) / 3 for name, value in start.items()}
        for _ in range(3)
    ]
    rows = [dict(zip(map(str, variables), constrain(point), strict=True)) for point in points]
    draws = {rv.name: np.stack([row[rv.name] for row in rows]) for rv in model.free_RVs}
    found = log_density(model, draws)
    np.testing.assert_allclose(found, [log_p(point) for point in points], rtol=1e-10)


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
