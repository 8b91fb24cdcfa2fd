"""The simplex factor against dense grids, Dirichlet formulas and a million-point reference."""

import tracemalloc

import numpy as np
import pytest
from scipy.special import digamma, gammaln, logsumexp
from scipy.stats import dirichlet

from family import assert_ks, assert_mean
from kernelzoo.inference.variational.simplex import (
    Target,
    _logits,
    _mode,
    simplex_factor,
)
from kernelzoo.inference.variational.weights import Weights


def hard_factor(n_weights, rng):
    """Concentrations .1 to 1000, curvatures to 1e6 of any rank, peaks inside and outside."""
    size = 10 ** rng.uniform(-1, 6)
    root = rng.normal(size=(rng.integers(n_weights, n_weights + 3), n_weights))
    quadratic = root.T @ root
    quadratic *= size / np.abs(quadratic).max()
    target = rng.dirichlet(np.ones(n_weights)) if rng.random() < 0.6 else rng.normal(size=n_weights)
    linear = quadratic @ target
    concentration = 10 ** rng.uniform(-1, rng.choice([1, 3]), n_weights)
    return concentration, linear, quadratic


def logit_grid(n_points, reach):
    v = np.linspace(-reach, reach, n_points)
    return v, -np.logaddexp(0, -v), -np.logaddexp(0, v)


def by_grid(concentration, linear, quadratic, log_beta, log_measure):
    """log normaliser, E[beta], E[log beta] by summation."""
    beta = np.exp(log_beta)
    log_p = beta @ linear - 0.5 * np.einsum("...s,st,...t->...", beta, quadratic, beta)
    log_p += log_beta @ (concentration - 1) + log_measure
    total = logsumexp(log_p)
    p = np.exp(log_p - total)
    axes = tuple(range(p.ndim))
    return total, np.tensordot(p, beta, (axes, axes)), np.tensordot(p, log_beta, (axes, axes))


def two_weights_by_grid(concentration, linear, quadratic):
    """Uniform grid over the logit: nothing adaptive."""
    v, log_x, log_rest = logit_grid(2_000_001, 450)
    log_beta = np.stack([log_x, log_rest], axis=-1)
    return by_grid(
        concentration, linear, quadratic, log_beta, log_x + log_rest + np.log(v[1] - v[0])
    )


def three_weights_by_grid(concentration, linear, quadratic, n_points=1201, reach=30):
    """Uniform grid over two nested logits."""
    v, log_x, log_rest = logit_grid(n_points, reach)
    first = np.broadcast_to(log_x[:, None], (n_points, n_points))
    second = log_rest[:, None] + log_x
    third = log_rest[:, None] + log_rest
    log_beta = np.stack([first, second, third], axis=-1)
    return by_grid(
        concentration, linear, quadratic, log_beta, log_beta.sum(-1) + 2 * np.log(v[1] - v[0])
    )


@pytest.mark.parametrize("n_weights", [2, 3, 4, 6, 12])
@pytest.mark.parametrize("concentration", [0.1, 1.0, 7.0, 1000.0])
def test_without_data_it_is_a_dirichlet(n_weights, concentration):
    a = concentration * np.linspace(1, 2, n_weights)
    factor = simplex_factor(a, np.zeros(n_weights), np.zeros((n_weights, n_weights)))
    exact = dirichlet(a)
    mean_log = digamma(a) - digamma(a.sum())
    tight = n_weights <= 3
    sd, sd_log = np.sqrt(exact.var()), np.sqrt(1 / a + 1 / a**2)
    assert abs(factor.log_normaliser - gammaln(a).sum() + gammaln(a.sum())) < (
        1e-10 if tight else 3e-3
    )
    assert np.max(np.abs(factor.mean - exact.mean()) / sd) < (1e-10 if tight else 0.01)
    assert np.max(np.abs(factor.mean_log - mean_log) / sd_log) < (1e-10 if tight else 0.02)
    second = exact.cov() + np.outer(exact.mean(), exact.mean())
    assert np.max(np.abs(factor.second_moment - second) / np.outer(sd, sd)) < (
        1e-9 if tight else 0.05
    ) * max(1, np.max(exact.mean() / sd))
    assert abs(factor.entropy + factor.mean_log.sum() - exact.entropy()) < (1e-9 if tight else 0.1)


@pytest.mark.parametrize("seed", range(6))
def test_two_weights_agree_with_a_dense_grid(seed):
    arguments = hard_factor(2, np.random.default_rng(seed))
    factor = simplex_factor(*arguments)
    log_normaliser, mean, mean_log = two_weights_by_grid(*arguments)
    np.testing.assert_allclose(factor.log_normaliser, log_normaliser, rtol=1e-12, atol=1e-8)
    np.testing.assert_allclose(factor.mean, mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(factor.mean_log, mean_log, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("seed", range(4))
def test_three_weights_agree_with_a_dense_grid(seed):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(3, 3)) * 8
    quadratic = root.T @ root
    linear = quadratic @ rng.dirichlet(np.ones(3))
    concentration = rng.uniform(1, 4, 3)
    factor = simplex_factor(concentration, linear, quadratic)
    log_normaliser, mean, mean_log = three_weights_by_grid(concentration, linear, quadratic)
    np.testing.assert_allclose(factor.log_normaliser, log_normaliser, rtol=0, atol=1e-6)
    np.testing.assert_allclose(factor.mean, mean, rtol=0, atol=1e-6)
    np.testing.assert_allclose(factor.mean_log, mean_log, rtol=0, atol=1e-6)


def test_peak_and_spike_are_both_seen():
    """A concentration below one adds a spike at zero far from the peak: two modes."""
    arguments = np.array([0.1, 0.1]), np.array([24.0, 0.0]), 80 * np.diag([1.0, 0.0])
    factor = simplex_factor(*arguments)
    log_normaliser, mean, mean_log = two_weights_by_grid(*arguments)
    np.testing.assert_allclose(factor.log_normaliser, log_normaliser, atol=1e-8)
    np.testing.assert_allclose(factor.mean, mean, atol=1e-8)
    np.testing.assert_allclose(factor.mean_log, mean_log, rtol=1e-8)


@pytest.mark.parametrize("n_weights", [3, 4, 6])
def test_order_of_the_weights_does_not_matter(n_weights):
    """Nothing in Q prefers one weight; the stick-breaking coordinates do."""
    for seed in range(9):
        a, b, quadratic = hard_factor(n_weights, np.random.default_rng(seed))
        factor = simplex_factor(a, b, quadratic)
        back = simplex_factor(a[::-1].copy(), b[::-1].copy(), quadratic[::-1, ::-1].copy())
        scale = 1e-6 if n_weights == 3 else 0.03
        assert abs(factor.log_normaliser - back.log_normaliser) < scale
        assert np.max(np.abs(factor.mean - back.mean[::-1]) / factor.sd) < scale
        assert factor.ess > (500 if n_weights == 3 else 1000)


def flat_factor(rng, largest_curvature, concentrations):
    """Three weights, curvature of rank one or two: a ridge across the simplex."""
    concentration = 10 ** rng.uniform(*concentrations, 3)
    root = rng.normal(size=(rng.integers(1, 3), 3))
    quadratic = root.T @ root * 10 ** rng.uniform(-2, largest_curvature)
    target = rng.dirichlet(np.ones(3)) if rng.random() < 0.5 else rng.normal(size=3)
    return concentration, quadratic @ target, quadratic


@pytest.mark.parametrize(("largest_curvature", "concentrations"), [(5, (-1.5, 0.5)), (9, (-2, 3))])
def test_three_weights_of_low_rank(largest_curvature, concentrations):
    """Another order of the weights gives the same moments, or the factor owns that it may not.

    A grid is exact but for its order; where it does not suffice, nets differ by their error.
    Rounding leaves 1e-16 of the weights themselves, however small their spread.
    """
    rng, imprecise, moved = np.random.default_rng(1), 0, []
    for _ in range(25):
        a, b, quadratic = flat_factor(rng, largest_curvature, concentrations)
        factor = simplex_factor(a, b, quadratic)
        for order in ([2, 1, 0], [1, 2, 0]):
            turned = simplex_factor(a[order], b[order], quadratic[np.ix_(order, order)])
            if not (factor.precise and turned.precise):
                imprecise += 1
                continue
            scale = factor.sd[order] + 1e-9
            moved.append(np.max(np.abs(factor.mean[order] - turned.mean) / scale))
            assert abs(factor.log_normaliser - turned.log_normaliser) < 0.01
    assert imprecise <= 2
    assert np.quantile(moved, 0.9) < 1e-5
    assert max(moved) < 0.04


def test_a_factor_beyond_the_grids_says_so():
    """Rank one, curvature 8e8: the ridge ends where a concentration of .09 piles mass up."""
    a = np.array([0.0866127, 0.79250942, 19.81482255])
    normal = np.array([-0.51, -0.64, 0.575]) * 3e4
    arguments = a, -0.09 * normal * 3e4, np.outer(normal, normal)
    factor = simplex_factor(*arguments)
    assert not factor.precise
    with pytest.warns(UserWarning, match="moments of the kernel weights are imprecise"):
        Weights(factor.mean, factor.second_moment, a, beta=factor).warn_of_imprecision()


@pytest.mark.parametrize("n_weights", [2, 3, 5])
def test_a_density_that_is_lost_in_rounding(n_weights):
    size = np.full(n_weights, 1e60)
    message = r"must be below 1\. Got curvatures up to 1e\+60: rescale"
    with pytest.raises(FloatingPointError, match=message):
        simplex_factor(np.ones(n_weights), size, np.diag(size))


def test_memory_is_bounded_by_the_weights_and_points():
    """No products of pairs of weights by point, which took 190 MB here."""
    n_weights = 30
    rng = np.random.default_rng(0)
    root = rng.normal(size=(n_weights, n_weights))
    quadratic = 10 * root.T @ root
    linear = quadratic @ rng.dirichlet(np.ones(n_weights))
    tracemalloc.start()
    try:
        factor = simplex_factor(np.ones(n_weights), linear, quadratic)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    numbers = 8 * n_weights * factor._points.features.shape[1]
    assert kept < 4 * numbers
    assert peak < 14 * numbers


def test_points_are_doubled_until_they_suffice():
    factor = simplex_factor(*hard_factor(6, np.random.default_rng(2)))
    assert factor._points.features.shape[1] > 4096
    assert factor.precise
    assert not simplex_factor(*hard_factor(10, np.random.default_rng(17))).precise


@pytest.mark.parametrize("n_weights", [2, 3, 5])
def test_moments_are_gradients_of_the_log_normaliser(n_weights):
    """Along the same points exactly; across new points to the quadrature's accuracy."""
    a, b, quadratic = hard_factor(n_weights, np.random.default_rng(3))
    factor = simplex_factor(a, b, quadratic)
    step = 1e-4
    for s in range(n_weights):
        e = np.eye(n_weights)[s] * step
        up, down = (simplex_factor(a, b + h, quadratic, near=factor) for h in (e, -e))
        assert up.covered
        assert down.covered
        gradient = (up.log_normaliser - down.log_normaliser) / (2 * step)
        np.testing.assert_allclose(gradient, factor.mean[s], atol=1e-5)


def test_new_points_are_placed_when_the_factor_moves():
    a, quadratic = np.ones(4), 500 * np.eye(4)
    first = simplex_factor(a, quadratic @ np.array([0.7, 0.1, 0.1, 0.1]), quadratic)
    target = quadratic @ np.array([0.1, 0.1, 0.1, 0.7])
    moved = simplex_factor(a, target, quadratic, near=first)
    assert moved.ess > 2000
    np.testing.assert_allclose(moved.mean, simplex_factor(a, target, quadratic).mean, atol=1e-6)


@pytest.mark.parametrize("n_weights", [2, 3])
def test_points_serve_while_the_factor_is_near(n_weights):
    """Its moments are those of points of the moved factor's own, or they are placed anew."""
    again = []
    for seed in range(12):
        a, b, quadratic = hard_factor(n_weights, np.random.default_rng(seed))
        placed = simplex_factor(a, b, quadratic)
        across = np.resize([1.0, -1.0, 0.0], n_weights) / placed.sd
        # The mean moves by about as many standard deviations.
        moves = [(a, b + distance * across, quadratic) for distance in (0.1, 0.5, 1.0, 6.0, 15.0)]
        moves += [(a, factor * b, factor * quadratic) for factor in (0.3, 0.7, 0.9, 1.5, 3.0)]
        moves += [(factor * a, b, quadratic) for factor in (0.1, 0.7, 0.9, 1.5, 10.0)]
        for moved in moves:
            found, own = simplex_factor(*moved, near=placed), simplex_factor(*moved)
            again.append(found._points is placed._points)
            assert np.max(np.abs(found.mean - own.mean) / own.sd) < 1e-5
            assert np.max(np.abs(found.mean_log - own.mean_log)) < 4e-4
            assert abs(found.log_normaliser - own.log_normaliser) < 1e-5
    assert 30 <= sum(again) < len(again)


@pytest.mark.parametrize("n_weights", [2, 4])
def test_draws_follow_the_density(n_weights):
    rng = np.random.default_rng(n_weights)
    a = np.full(n_weights, 1.5)
    quadratic = 30 * np.eye(n_weights)
    linear = quadratic @ rng.dirichlet(np.ones(n_weights))
    factor = simplex_factor(a, linear, quadratic)
    draws = factor.sample(20_000, rng)
    np.testing.assert_allclose(draws.sum(axis=1), 1, rtol=1e-12)
    assert_mean(factor.log_density(draws) + np.log(draws).sum(axis=1), -factor.entropy)
    if n_weights == 2:
        v, log_x, log_rest = logit_grid(20_001, 30)
        log_beta = np.stack([log_x, log_rest], axis=-1)
        density = np.exp(factor.log_density(np.exp(log_beta)) + log_beta.sum(axis=1))
        cumulative = np.cumsum(density) * (v[1] - v[0])
        assert_ks(draws[:, 0], lambda x: np.interp(np.log(x / (1 - x)), v, cumulative))
        assert_mean(draws, factor.mean)


def test_the_search_of_a_mode_ends_at_rounding():
    """Bug: steps whose increase rounding hides were halved thousands of times."""
    rng = np.random.default_rng(1)
    evaluations = 0

    class Counted(Target):
        def derivatives(self, v):
            nonlocal evaluations
            evaluations += 1
            return super().derivatives(v)

    for k in range(200):
        concentration, linear, quadratic = hard_factor(2 + k % 7, rng)
        size = (1e2, 1e4, 1e6)[k % 3]
        target = Counted(concentration, size * linear, size * quadratic)
        evaluations = 0
        _mode(target, _logits(np.log(concentration)))
        assert evaluations <= 60
