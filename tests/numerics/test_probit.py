"""The multinomial-probit link against adaptive integration, identities and finite differences."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate
from scipy.special import erfcx, log_ndtr, ndtr

from kernelzoo.numerics import probit, probit_compiled
from probit_moments import log_probability, truncated_moments

CLASSES = [2, 3, 10]


def scores(n_classes, seed=0):
    """Scores of every kind: small, large, |f| = 30, one class against all others."""
    rng = np.random.default_rng(seed)
    rows = [np.clip(rng.normal(size=(3, n_classes)) * s, -30, 30) for s in (0.1, 1, 4, 12)]
    rows.append(np.where(rng.random((3, n_classes)) < 0.5, 30.0, -30.0))
    for gap in (-4.0, 4.0, 30.0):
        rows.append(np.r_[0.0, np.full(n_classes - 1, gap)][None] + 0.1 * rng.random(n_classes))
    return np.concatenate(rows)


def adaptive_log_probability(f, i):
    """Eq 4 by SciPy's adaptive integration around the maximum on a fine grid: slow, no Newton."""
    gaps = f[i] - np.delete(f, i)

    def log_g(u):
        return -(u**2) / 2 - np.log(2 * np.pi) / 2 + log_ndtr(u + gaps).sum()

    grid = np.linspace(-5, 70, 3001)
    values = np.array([log_g(u) for u in grid])
    mode, peak = grid[values.argmax()], values.max()
    pieces = [mode - 12, mode - 1, mode, mode + 1, mode + 12]
    total = sum(
        integrate.quad(lambda u: np.exp(log_g(u) - peak), a, b, epsabs=0, epsrel=1e-12)[0]
        for a, b in pairwise(pieces)
    )
    return peak + np.log(total)


@pytest.mark.parametrize("n_classes", CLASSES)
def test_log_probability_agrees_with_adaptive_integration(n_classes):
    f = scores(n_classes)
    t = np.arange(len(f)) % n_classes
    expected = np.array([adaptive_log_probability(row, i) for row, i in zip(f, t, strict=True)])
    assert expected.min() < -200
    np.testing.assert_allclose(log_probability(f, t), expected, rtol=0, atol=1e-8)


def test_scaled_tail_is_right_in_relative_terms():
    x = np.linspace(-200, 200, 100_001)
    work, tail = np.empty_like(x), np.empty_like(x)
    probit_compiled._scaled_tail(x, len(x), work, tail)
    np.testing.assert_allclose(tail, erfcx(np.abs(x) / np.sqrt(2)) / 2, rtol=1e-10)


def test_many_losers_far_above_do_not_underflow():
    f = np.zeros((2, 60))
    f[:, 1:] = 1e8
    log_z, mean = truncated_moments(f, np.zeros(2, dtype=int))
    assert np.isfinite(log_z).all()
    assert np.isfinite(mean).all()


@pytest.mark.parametrize("size", [1e4, 1e6, 1e8])
def test_finite_for_scores_of_any_size(size):
    f = size * np.random.default_rng(0).normal(size=(500, 3))
    t = np.arange(500) % 3
    log_z, mean = truncated_moments(f, t)
    assert np.isfinite(log_z).all()
    assert np.isfinite(mean).all()
    # To leading order log p is minus the squared distance to the cone, halved.
    misfit = f[np.arange(500), t] < f.max(axis=1)
    assert (log_z[misfit] < 0).all()
    np.testing.assert_array_equal(log_z, log_probability(f, t))


@pytest.mark.parametrize("size", [1e4, 1e6, 1e7])
def test_moments_far_out_are_those_of_the_binary_probit(size):
    """Errors of the hazard, times scores of this size, must not make the nodes miss the mass."""
    f = np.stack([np.zeros(500), size * (1 + np.random.default_rng(0).random(500))], axis=1)
    _, mean = truncated_moments(f, np.zeros(500, dtype=int))
    hazard = np.sqrt(2 / np.pi) / erfcx((f[:, 1] - f[:, 0]) / 2)
    np.testing.assert_allclose(mean[:, 0], hazard / np.sqrt(2), rtol=0, atol=1e-8 * size)


def test_two_classes_are_the_binary_probit():
    gap = np.linspace(-60, 60, 241)
    f = np.stack([gap, np.zeros_like(gap)], axis=1)
    t = np.zeros(len(gap), dtype=int)
    expected = log_ndtr(gap / np.sqrt(2))
    np.testing.assert_allclose(log_probability(f, t), expected, rtol=0, atol=1e-8)
    np.testing.assert_allclose(
        probit.class_probabilities(f)[:, 0], ndtr(gap / np.sqrt(2)), rtol=1e-8, atol=1e-280
    )


@pytest.mark.parametrize("n_classes", [2, 3, 10, 27])
def test_node_count_suffices(n_classes, monkeypatch):
    rng = np.random.default_rng(n_classes)
    f = np.concatenate([scores(n_classes, seed) for seed in range(10)])
    t = rng.integers(0, n_classes, len(f))
    log_z, mean = truncated_moments(f, t)
    monkeypatch.setattr(probit, "default_nodes", lambda n_classes: 1000)
    fine_log_z, fine_mean = truncated_moments(f, t)
    np.testing.assert_allclose(log_z, fine_log_z, rtol=0, atol=1e-8)
    np.testing.assert_allclose(mean, fine_mean, rtol=0, atol=1e-7)


@pytest.mark.parametrize("n_classes", CLASSES)
def test_mean_is_the_gradient_of_log_probability(n_classes, monkeypatch):
    f = scores(n_classes)
    t = np.arange(len(f)) % n_classes
    log_z, mean = truncated_moments(f, t)
    np.testing.assert_allclose(log_z, log_probability(f, t), rtol=0, atol=1e-12)
    step = 1e-4
    monkeypatch.setattr(probit, "default_nodes", lambda n_classes: 400)
    for c in range(n_classes):
        shift = np.zeros(n_classes)
        shift[c] = step
        up, down = (log_probability(f + s, t) for s in (shift, -shift))
        np.testing.assert_allclose((mean - f)[:, c], (up - down) / (2 * step), rtol=1e-6, atol=1e-6)


def test_winner_has_the_largest_mean():
    f = scores(3)
    for i in range(3):
        _, mean = truncated_moments(f, np.full(len(f), i))
        assert (mean.argmax(axis=1) == i).all()


@pytest.mark.parametrize("n_classes", [2, 3, 10, 150])
def test_class_probabilities_agree_with_log_probability(n_classes):
    f = scores(n_classes)
    p = probit.class_probabilities(f)
    log_p = np.stack([log_probability(f, np.full(len(f), c)) for c in range(n_classes)], axis=1)
    np.testing.assert_allclose(p, np.exp(log_p), rtol=2e-8, atol=1e-280)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-14)


def test_class_probabilities_keep_leading_dimensions():
    f = np.random.default_rng(1).normal(size=(4, 5, 3))
    p = probit.class_probabilities(f)
    assert p.shape == f.shape
    np.testing.assert_allclose(p[2, 3], probit.class_probabilities(f[2, 3]), rtol=1e-8)
    assert probit.class_probabilities(np.empty((0, 3))).shape == (0, 3)
