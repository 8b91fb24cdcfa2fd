"""Matrix F: density, draws, transform."""

import numpy as np
import pymc as pm
import pytest
from pymc.logprob.utils import ParameterValueError
from scipy import integrate, stats

from family import assert_ks, assert_mean
from kernelzoo.models.distributions.positive_definite import PositiveDefinite
from kernelzoo.models.distributions.wishart import MatrixF

MODE = "FAST_COMPILE"
PSI = np.array([[2.0, 0.6, 0.1], [0.6, 1.5, -0.4], [0.1, -0.4, 1.0]])


def test_order_one_is_a_scaled_beta_prime():
    nu, delta, psi = 2.3, 4.7, 1.7
    law = stats.betaprime(nu / 2, delta / 2, scale=psi)
    rv = MatrixF.dist(nu, delta, [[psi]])
    for x in (0.01, 0.4, 3.0, 50.0):
        ours = pm.logp(rv, np.array([[x]])).eval(mode=MODE)
        np.testing.assert_allclose(ours, law.logpdf(x), rtol=1e-12)
    many = MatrixF.dist(nu, delta, [[psi]], size=(4_000,))
    assert_ks(pm.draw(many, random_seed=1, mode=MODE)[:, 0, 0], law.cdf)


def test_density_is_the_wishart_averaged_over_its_scale():
    nu, delta = 6.4, 9.3
    x = np.array([[3.0, 0.5, 0.0], [0.5, 2.0, 0.3], [0.0, 0.3, 1.2]])
    scales = stats.invwishart(delta, PSI).rvs(60_000, random_state=1)
    # Scipy's density at the first scale, and what it changes by at the others.
    traces = np.trace(np.linalg.solve(scales, x), axis1=1, axis2=2)
    change = -(traces + nu * np.linalg.slogdet(scales)[1]) / 2
    density = stats.wishart(nu, scales[0]).pdf(x) * np.exp(change - change[0])
    assert density[1] == pytest.approx(stats.wishart(nu, scales[1]).pdf(x), rel=1e-10)
    ours = np.exp(pm.logp(MatrixF.dist(nu, delta, PSI), x).eval(mode=MODE))
    assert_mean(density, ours)


def test_density_integrates_to_one():
    """Order two, in the coordinates (a, b, r) of the matrix [[a, r sqrt(ab)], [., b]]."""
    rv = MatrixF.dist(5.5, 7.5, np.eye(2))

    nodes, weights = np.polynomial.legendre.leggauss(36)
    u, du = (nodes + 1) / 2, weights / 2
    a, da = u / (1 - u), du / (1 - u) ** 2
    A, B, R = np.meshgrid(a, a, nodes, indexing="ij")
    off = R * np.sqrt(A * B)
    x = np.stack([np.stack([A, off], -1), np.stack([off, B], -1)], -2).reshape(-1, 2, 2)
    batch = MatrixF.dist(5.5, 7.5, np.broadcast_to(np.eye(2), x.shape))
    log_density = pm.logp(batch, x).eval(mode=MODE).reshape(A.shape)
    jacobian = np.sqrt(A * B) * da[:, None, None] * da[None, :, None] * weights
    np.testing.assert_allclose((np.exp(log_density) * jacobian).sum(), 1, rtol=1e-6)
    assert rv.type.shape == (2, 2)


def test_draws_have_the_marginal_laws():
    nu, delta, n = 5.5, 12.4, 3
    X = pm.draw(MatrixF.dist(nu, delta, PSI, size=(6_000,)), random_seed=2, mode=MODE)
    law = stats.betaprime(nu / 2, (delta - n + 1) / 2)
    for i in range(n):
        assert_ks(X[:, i, i] / PSI[i, i], law.cdf)
    assert_mean(X, nu * PSI / (delta - n - 1))
    for wrong in (delta - n, delta - n + 2):
        with pytest.raises(AssertionError):
            assert_ks(X[:, 0, 0] / PSI[0, 0], stats.betaprime(nu / 2, wrong / 2).cdf)


def test_sizes_supports_and_bad_parameters():
    rv = MatrixF.dist(nu=4.5, delta=6.0, psi=PSI, size=(4,))
    draws = pm.draw(rv, random_seed=1, mode=MODE)
    assert draws.shape == (4, 3, 3)
    assert len({draw.tobytes() for draw in draws}) == 4
    indefinite = np.diag([1.0, 1.0, -1.0])
    assert pm.logp(MatrixF.dist(4.5, 6.0, PSI), indefinite).eval(mode=MODE) == -np.inf
    for nu, delta in ((1.9, 6.0), (6.0, 1.9)):
        with pytest.raises(ParameterValueError, match="nu, delta > n - 1"):
            pm.logp(MatrixF.dist(nu, delta, PSI), np.eye(3)).eval(mode=MODE)
    with pytest.raises(ValueError, match="must be a square matrix"):
        MatrixF.dist(3.0, 3.0, np.ones((2, 3)))


def test_free_variable_has_the_transform_and_a_start():
    with pm.Model() as model:
        MatrixF("X", 5.5, 7.5, PSI)
    point = model.initial_point()
    assert point["X_cholesky__"].shape == (6,)
    # The Wishart's mean at the mode of its scale, an inverse Wishart matrix.
    start = PositiveDefinite().backward(point["X_cholesky__"]).eval(mode=MODE)
    np.testing.assert_allclose(start, 5.5 * PSI / (7.5 + 3 + 1), rtol=1e-12)
    assert np.isfinite(model.compile_logp(mode=MODE)(point))
    start = pm.draw(model["X"], random_seed=3, mode=MODE)
    assert np.linalg.eigvalsh(start).min() > 0


def test_quadrature_agrees_with_scipys():
    """The integral over the scale, once by adaptive quadrature."""
    nu, delta, psi, x = 2.3, 4.7, 1.7, 0.8

    def joint(s):
        return stats.gamma(nu / 2, scale=2 * s).pdf(x) * stats.invgamma(
            delta / 2, scale=psi / 2
        ).pdf(s)

    value, _ = integrate.quad(joint, 0, np.inf)
    ours = pm.logp(MatrixF.dist(nu, delta, [[psi]]), np.array([[x]])).eval(mode=MODE)
    np.testing.assert_allclose(np.exp(ours), value, rtol=1e-7)
