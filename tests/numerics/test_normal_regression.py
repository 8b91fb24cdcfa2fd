import numpy as np
import pytest
from scipy import stats

from family import assert_mean
from kernelzoo.numerics.kernel_products import Design
from kernelzoo.numerics.normal_regression import (
    dual,
    orthogonal_factor,
    precision_factor_or_none,
    primal,
    regression_weights,
)


def problem(n=6, m=4, scalar=False, seed=0):
    rng = np.random.default_rng(seed)
    w = 1.7 if scalar else rng.gamma(2.0, size=n)
    return rng.normal(size=(n, m)), w, rng.normal(size=n), rng.gamma(2.0, size=m)


def exact(K, w, linear, phi):
    P = K.T @ (np.broadcast_to(w, len(K))[:, None] * K) + np.diag(phi)
    return P, np.linalg.solve(P, K.T @ linear)


@pytest.mark.parametrize("scalar", [True, False])
@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
def test_mean_and_precision(shape, scalar):
    given = problem(*shape, scalar)
    P, mean = exact(*given)
    found, root = regression_weights(*given)
    np.testing.assert_allclose(found, mean)
    np.testing.assert_allclose(root, np.linalg.cholesky(P))
    factor, half = orthogonal_factor(*given)
    np.testing.assert_allclose(factor, root)
    np.testing.assert_allclose(np.linalg.solve(factor.T, half), mean)


@pytest.mark.parametrize("law", [primal, dual])
@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
def test_evidence_is_that_of_a_normal_vector(law, shape):
    """l/w ~ N(0, K diag(1/phi) K' + diag(1/w)), less the density of the noise alone at l/w."""
    K, w, linear, phi = given = problem(*shape)
    covariance = K / phi @ K.T + np.diag(1 / w)
    marginal = stats.multivariate_normal(np.zeros(len(K)), covariance).logpdf(linear / w)
    noise = stats.norm(0, w**-0.5).logpdf(linear / w).sum()
    np.testing.assert_allclose(law(*given).log_evidence(), marginal - noise)


@pytest.mark.parametrize("law", [primal, dual])
@pytest.mark.parametrize("shape", [(6, 3), (3, 6)])
def test_draws_have_the_conditional_moments(law, shape):
    given = problem(*shape)
    P, mean = exact(*given)
    rng = np.random.default_rng(1)
    drawn = law(*given)
    draws = np.array([drawn.draw(rng) for _ in range(20_000)])
    assert_mean(draws, mean)
    second = np.linalg.inv(P) + np.outer(mean, mean)
    assert_mean(np.einsum("ri,rj->rij", draws, draws), second)


def test_known_gram_matrix_and_nothing_given_is_modified():
    K, w, linear, phi = problem(scalar=True)
    gram = w * K.T @ K
    given = (K, linear, phi, gram)
    kept = [value.copy() for value in given]
    for value in given:
        value.flags.writeable = False
    known = primal(K, w, linear, phi, gram)
    np.testing.assert_allclose(known.factor, primal(K, w, linear, phi).factor)
    dual(K, w, linear, phi).draw(np.random.default_rng(1))
    for before, value in zip(kept, given, strict=True):
        np.testing.assert_array_equal(before, value)


@pytest.mark.parametrize("scale", [1e4, 1e6])
@pytest.mark.parametrize("law", [primal, dual])
def test_kernels_that_drown_the_prior(scale, law):
    # Not square: objects and basis functions exchanged show.
    x = scale * np.random.default_rng(1).normal(size=(30, 2))
    K, phi = x @ x[:20].T / 1e3, np.random.default_rng(2).gamma(2.0, size=20)
    w = np.random.default_rng(3).gamma(2.0, size=30)
    linear = w * np.random.default_rng(4).normal(size=30)
    assert precision_factor_or_none(K.T @ (w[:, None] * K), phi) is None
    stacked = np.concatenate([np.sqrt(w)[:, None] * K, np.diag(np.sqrt(phi))])
    target = np.concatenate([linear / np.sqrt(w), np.zeros(20)])
    mean, _, _, singular = np.linalg.lstsq(stacked, target)
    misfit = target - stacked @ mean
    evidence = 0.5 * (np.sum(linear**2 / w) - misfit @ misfit + np.log(phi).sum())
    evidence -= np.log(singular).sum()
    np.testing.assert_allclose(law(K, w, linear, phi).log_evidence(), evidence, rtol=1e-4)
    np.testing.assert_allclose(
        K @ regression_weights(K, w, linear, phi)[0], K @ mean, rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("shape", [(1, 9, 4), (3, 9, 4), (2, 5, 5), (9, 4, 4)])
def test_gram_matrix_from_products_or_directly(shape):
    rng = np.random.default_rng(1)
    stack, beta = rng.normal(size=shape), rng.dirichlet(np.ones(shape[0]))
    design = Design.of(stack)
    composite = np.einsum("s,snm->nm", beta, stack)
    np.testing.assert_allclose(design.composite(beta), composite)
    np.testing.assert_allclose(design.gram(beta, composite), composite.T @ composite, atol=1e-12)
    assert (design.products is None) == (shape == (9, 4, 4))
