"""Matrix normal densities against scipy, draws against their covariances."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats

from family import assert_mean
from kernelzoo.models.distributions.normal import MatrixNormal, RegressionMatrix

MODE = "FAST_COMPILE"
RNG = np.random.default_rng(0)
MU = RNG.normal(size=(2, 3))
A = RNG.normal(size=(5, 5))
R, C = np.linalg.cholesky(A[:2] @ A[:2].T), np.linalg.cholesky(A[2:] @ A[2:].T)
PAIRS = [(MatrixNormal, C @ C.T), (RegressionMatrix, np.linalg.inv(C @ C.T))]


@pytest.mark.parametrize(("ours", "columns"), PAIRS)
def test_log_density_equals_scipy(ours, columns):
    value = RNG.normal(size=(2, 3))
    exact = stats.matrix_normal(MU, R @ R.T, columns).logpdf(value)
    density = pm.logp(ours.dist(MU, R, C), value).eval(mode=MODE)
    np.testing.assert_allclose(density, exact, rtol=1e-12)


@pytest.mark.parametrize(("ours", "columns"), PAIRS)
def test_draws_have_the_moments(ours, columns):
    draws = pm.draw(ours.dist(MU, R, C), 8_000, 1, mode=MODE)
    assert_mean(draws, MU)
    gap = draws - MU
    products = np.einsum("dij,dkl->dikjl", gap, gap)
    assert_mean(products, np.einsum("ik,jl->ikjl", R @ R.T, columns))


@pytest.mark.parametrize("ours", [MatrixNormal, RegressionMatrix])
def test_batches_shapes_and_starting_point(ours):
    means = np.stack([MU, 1 + MU])
    rv = ours.dist(means, R, C)
    assert rv.type.shape == (2, 2, 3)
    values = pm.draw(rv, random_seed=1, mode=MODE)
    single = [pm.logp(ours.dist(m, R, C), v) for m, v in zip(means, values, strict=True)]
    together, *apart = pytensor.function([], [pm.logp(rv, values), *single], mode=MODE)()
    np.testing.assert_allclose(together, apart, rtol=1e-12)
    with pm.Model() as model:
        ours("X", MU, R, C)
    np.testing.assert_array_equal(model.initial_point()["X"], MU)
    with pytest.raises(ValueError, match=r"'mu' argument of .* must be a matrix"):
        ours.dist(pt.zeros(3), R, C)


@pytest.mark.parametrize("ours", [MatrixNormal, RegressionMatrix])
def test_there_is_no_density_where_a_factor_is_nan(ours):
    """As of other matrices that are not positive definite: NaN would be no density of a model."""
    rows, columns = np.eye(2), np.eye(3)
    for factors in ((rows * np.nan, columns), (rows, columns * np.nan)):
        value = pm.logp(ours.dist(np.zeros((2, 3)), *factors), np.zeros((2, 3)))
        assert value.eval(mode="FAST_COMPILE") == -np.inf
