import numpy as np
import pytest
from scipy import stats

from family import assert_ks, assert_mean
from kernelzoo.custom_steps.moves.ellipse import update_simplex


def test_prior_alone_is_drawn():
    """Without a likelihood each move draws from the normal prior along an ellipse: exact law."""
    rng, varphi = np.random.default_rng(1), np.array([0.2, 1.5, 0.7])
    tau, nu = 2.0, 3.0
    given, joint = [], []
    for _ in range(4_000):
        start = rng.dirichlet(varphi)
        beta, kept, _ = update_simplex(start, varphi, lambda beta: 0.0, rng, 1)
        assert kept is varphi
        given.append(beta)
        start = rng.gamma(tau, 1 / nu, 3)
        beta = rng.dirichlet(start)
        joint.append(
            update_simplex(beta, start, lambda beta: 0.0, rng, 2, concentrations=(tau, nu))[1]
        )
    for k, column in enumerate(np.array(given).T):
        assert_ks(column, stats.beta(varphi[k], varphi.sum() - varphi[k]).cdf)
    for column in np.array(joint).T:
        assert_ks(column, stats.gamma(tau, scale=1 / nu).cdf)


def test_posterior_of_counts_is_drawn():
    """Multinomial counts: the posterior is Dirichlet again."""
    rng, varphi, counts = np.random.default_rng(2), np.array([0.5, 1.5, 0.7]), np.array([3, 0, 5])
    draws = []
    for _ in range(4_000):
        start = rng.dirichlet(varphi + counts)
        beta, _, evaluations = update_simplex(
            start, varphi, lambda beta: float(counts @ np.log(beta)), rng, 2
        )
        assert evaluations >= 3
        draws.append(beta)
    exact = stats.dirichlet(varphi + counts)
    assert_mean(np.array(draws), exact.mean())
    for k, column in enumerate(np.array(draws).T):
        alpha = varphi + counts
        assert_ks(column, stats.beta(alpha[k], alpha.sum() - alpha[k]).cdf)


def test_posterior_far_out_in_the_tails_of_the_prior():
    """Normal scores of about -25 and 8."""
    rng, varphi, counts = np.random.default_rng(6), np.full(2, 100.0), np.array([0, 3_000])
    draws, moved = [], 0
    for _ in range(150):
        start = rng.dirichlet(varphi + counts)
        beta, _, _ = update_simplex(
            start, varphi, lambda beta: float(counts @ np.log(beta)), rng, 1
        )
        moved += beta[0] != start[0]
        draws.append(beta[0])
    assert moved == 150
    assert_ks(draws, stats.beta(varphi[0] + counts[0], varphi[1] + counts[1]).cdf)


def test_weights_that_their_prior_all_but_excludes():
    """Normal scores of about -42 and 13: no double holds the probability."""
    rng = np.random.default_rng(6)
    with pytest.raises(FloatingPointError, match=r"within 36 standard .*: take a wider prior"):
        update_simplex(np.array([0.01, 0.99]), np.full(2, 300.0), lambda beta: 0.0, rng, 1)


def test_weights_that_vanish_stay_in_the_support():
    rng, varphi = np.random.default_rng(3), np.array([1e-3, 1e-3, 1.0])
    beta = np.array([0.0, 0.0, 1.0])
    for _ in range(50):
        beta, _, _ = update_simplex(beta, varphi, lambda beta: 0.0, rng, 1)
        assert (beta >= 1e-300).all()
        np.testing.assert_allclose(beta.sum(), 1.0)


def test_likelihood_of_nothing_but_the_given_weights():
    """The slice is one point: the arc shrinks to nothing, and the weights stay."""
    rng, varphi, beta = np.random.default_rng(4), np.ones(2), np.array([0.3, 0.7])
    new, kept, _ = update_simplex(
        beta,
        varphi,
        lambda weights: 0.0 if np.allclose(weights, beta, rtol=0, atol=1e-15) else -1e3,
        rng,
        2,
        concentrations=(1.0, 1.0),
    )
    np.testing.assert_allclose(new, beta)
    np.testing.assert_array_equal(kept, varphi)


def test_likelihood_that_is_not_finite():
    rng = np.random.default_rng(5)
    with pytest.raises(FloatingPointError, match=r"current weights .* must be finite\. Got nan"):
        update_simplex(np.array([0.3, 0.7]), np.ones(2), lambda beta: np.nan, rng, 1)


def test_scores_that_are_not_finite():
    """A concentration of 1e-308 is below what logarithms of its quantiles hold."""
    rng = np.random.default_rng(5)
    with pytest.raises(FloatingPointError, match=r"within 36 .* and finite\. Got"):
        update_simplex(np.array([0.3, np.nan]), np.ones(2), lambda beta: 0.0, rng, 1)
