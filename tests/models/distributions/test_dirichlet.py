"""The Dirichlet distribution: PyMC's law and coordinates by another graph."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.logprob.transforms import SimplexTransform
from pymc.logprob.utils import ParameterValueError
from scipy import stats

from kernelzoo.inference.engine.evaluation import python_mode
from kernelzoo.models.distributions.dirichlet import Dirichlet, Simplex

MODE = python_mode()
rng = np.random.default_rng(0)


@pytest.mark.parametrize("a", [[1.0, 1.0], [0.3, 2.0, 5.5], [1e-3, 1.0, 40.0, 3.0]])
def test_density_is_scipys(a):
    x = rng.dirichlet(np.ones(len(a)))
    got = pm.logp(Dirichlet.dist(np.array(a)), x).eval(mode=MODE)
    np.testing.assert_allclose(got, stats.dirichlet.logpdf(x, a), rtol=1e-12)


def test_batches_go_by_rows():
    a, x = rng.gamma(2.0, size=(4, 3)), rng.dirichlet(np.ones(3), size=4)
    got = pm.logp(Dirichlet.dist(a), x).eval(mode=MODE)
    each = [stats.dirichlet.logpdf(row, of_row) for row, of_row in zip(x, a, strict=True)]
    np.testing.assert_allclose(got, each, rtol=1e-12)


def test_outside_and_on_the_border_it_is_as_pymcs():
    a = np.array([1.0, 2.0, 0.5])
    for x in ([-0.1, 0.6, 0.5], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5], [0.5, 0.5, 0.0]):
        mine = pm.logp(Dirichlet.dist(a), np.array(x)).eval(mode=MODE)
        theirs = pm.logp(pm.Dirichlet.dist(a), np.array(x)).eval(mode=MODE)
        np.testing.assert_array_equal(mine, theirs)


def test_concentrations_that_are_not_positive_are_refused():
    with pytest.raises(ParameterValueError, match="a > 0"):
        pm.logp(Dirichlet.dist([1.0, -1.0]), np.array([0.5, 0.5])).eval(mode=MODE)


def test_draws_have_the_mean_and_come_again_with_a_seed():
    a = np.array([0.5, 2.0, 3.5])
    draws = pm.draw(Dirichlet.dist(a), draws=4000, random_seed=1, mode=MODE)
    np.testing.assert_allclose(draws.sum(-1), 1)
    sd = np.sqrt(stats.dirichlet.var(a) / len(draws))
    assert np.all(np.abs(draws.mean(0) - stats.dirichlet.mean(a)) < 4 * sd)
    np.testing.assert_array_equal(
        draws, pm.draw(Dirichlet.dist(a), draws=4000, random_seed=1, mode=MODE)
    )


@pytest.mark.parametrize("shape", [(3,), (2, 4), (1,)])
@pytest.mark.parametrize("known", [True, False])
def test_coordinates_are_pymcs(shape, known):
    """Values, Jacobian and way back, where the number of entries is known and where it is not."""
    y = pt.tensor("y", shape=shape if known else (None,) * len(shape))
    mine, theirs = Simplex(), SimplexTransform()
    outputs = [
        *(transform.backward(y) for transform in (mine, theirs)),
        *(transform.log_jac_det(y) for transform in (mine, theirs)),
        mine.forward(mine.backward(y)),
    ]
    function = pytensor.function([y], outputs, mode=MODE)
    for scale in (1.0, 30.0):
        value = rng.normal(size=shape) * scale
        x, x_theirs, jacobian, jacobian_theirs, back = function(value)
        np.testing.assert_allclose(x, x_theirs, rtol=1e-10)
        np.testing.assert_allclose(jacobian, jacobian_theirs, rtol=1e-10)
        np.testing.assert_allclose(back, value, rtol=1e-8, atol=1e-8)


def test_the_density_of_the_coordinates_does_not_underflow():
    """A weight of e^-2000, which is zero in double precision, has a density and a slope."""
    with pm.Model() as model:
        Dirichlet("x", np.array([0.5, 0.5]))
    point = {"x_simplex__": np.array([1000.0])}
    with pytensor.config.change_flags(mode=MODE):
        density = model.compile_logp()(point)
        slope = model.compile_dlogp()(point)
    # log(1/pi) + (log x_1 + log x_2) / 2 + log 2, of which log x_2 = -2000.
    np.testing.assert_allclose(density, -np.log(np.pi) - 1000 + np.log(2), rtol=1e-12)
    np.testing.assert_allclose(slope, [-1.0], rtol=1e-9)


@pytest.mark.parametrize("known", [True, False])
def test_coordinates_in_single_precision_stay_so(known):
    y = pt.tensor("y", shape=(2 if known else None,), dtype="float32")
    assert Simplex().backward(y).dtype == "float32"


def test_it_is_a_free_variable_with_labelled_entries():
    with pm.Model(coords={"kernel": ["a", "b", "c"]}) as model:
        Dirichlet("beta", pm.Gamma("rho", 1, 1, shape=3), dims="kernel")
    assert isinstance(model.rvs_to_transforms[model["beta"]], Simplex)
    assert model.rvs_to_values[model["beta"]].type.shape == (2,)
    np.testing.assert_allclose(model.initial_point()["beta_simplex__"], 0, atol=1e-12)
