import numpy as np
import pytest
from scipy import integrate, special, stats

from family import assert_ks, assert_mean
from kernelzoo.custom_steps.multinomial_probit import conditionals as cone
from kernelzoo.custom_steps.multinomial_probit.conditionals import sample_cone
from probit_moments import truncated_moments

MEANS = {
    3: np.array([0.4, -0.7, 0.9]),
    10: np.array([0.3, 1.1, -0.5, 0.0, 0.8, -1.4, 0.6, 1.3, -0.2, 0.5]),
}


def by_rejection(f, t, size, rng):
    """Independent reference: draw without the constraint, keep what falls into the cone."""
    kept = np.empty((0, len(f)))
    while len(kept) < size:
        y = f + rng.standard_normal((20 * size, len(f)))
        kept = np.concatenate([kept, y[y.argmax(axis=1) == t]])
    return kept[:size]


@pytest.mark.parametrize("draw", [sample_cone, cone._draw_inside], ids=["public", "envelope"])
@pytest.mark.parametrize("n_classes", [3, 10])
def test_agrees_with_rejection(n_classes, draw):
    rng = np.random.default_rng(n_classes)
    f, t, size = MEANS[n_classes], 1, 20_000
    y = draw(np.tile(f, (size, 1)), np.full(size, t), rng)
    reference = by_rejection(f, t, size, rng)
    for c in range(n_classes):
        assert_ks(y[:, c], reference[:, c])
    # Joint functionals: the gap to the runner-up, and sums and products between entries.
    for g in (
        lambda y: y[:, t] - np.delete(y, t, axis=1).max(axis=1),
        lambda y: y.sum(axis=1),
        lambda y: y[:, t] * y[:, 0],
        lambda y: y[:, 0] * y[:, 2],
    ):
        assert_ks(g(y), g(reference))


@pytest.mark.parametrize("n_classes", [2, 3, 10])
@pytest.mark.parametrize("scale", [1.0, 5.0, 30.0])
def test_means_agree_with_quadrature(n_classes, scale):
    rng = np.random.default_rng(int(scale) + 100 * n_classes)
    size = 20_000
    for _ in range(3):
        f = scale * rng.standard_normal(n_classes)
        t = int(rng.integers(n_classes))
        y = sample_cone(np.tile(f, (size, 1)), np.full(size, t), rng)
        _, mean = truncated_moments(f[None], np.array([t]))
        assert_mean(y, mean[0])


def winner_cdf(f, t):
    """Distribution function of the winning entry, by integration on a grid around its mode."""
    others = np.delete(f, t)

    def log_density(v):
        x = np.asarray(v)[..., None] - others
        return -0.5 * (v - f[t]) ** 2 + special.log_ndtr(x).sum(axis=-1)

    coarse = np.linspace(f.min() - 10, f.max() + 10, 20_001)
    mode = coarse[log_density(coarse).argmax()]
    grid = np.linspace(mode - 9, mode + 9, 4_001)
    density = np.exp(log_density(grid) - log_density(grid).max())
    cdf = integrate.cumulative_simpson(density, x=grid, initial=0.0)
    return lambda v: np.interp(v, grid, cdf / cdf[-1])


@pytest.mark.parametrize("n_classes", [3, 10])
def test_unlikely_class(n_classes):
    """The winner's own mean is 30 to 60 below the others': P(t | f) < exp(-200)."""
    rng = np.random.default_rng(n_classes)
    f = np.linspace(30.0, -30.0, n_classes)
    t = n_classes - 1
    y = sample_cone(np.tile(f, (20_000, 1)), np.full(20_000, t), rng)
    assert_ks(y[:, t], winner_cdf(f, t))
    # Given the winner the losers are truncated normals: their distribution function is uniform.
    log_uniform = special.log_ndtr(y - f) - special.log_ndtr(y[:, [t]] - f)
    for j in range(t):
        assert_ks(np.exp(log_uniform[:, j]), stats.uniform.cdf)


@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0, 1e3, 1e6])
@pytest.mark.parametrize("n_classes", [2, 3, 27])
def test_every_draw_is_in_its_cone(n_classes, scale):
    rng = np.random.default_rng(1)
    f = scale * rng.standard_normal((500, n_classes))
    t = rng.integers(n_classes, size=500)
    before = f.copy()
    y = sample_cone(f, t, rng)
    assert np.isfinite(y).all()
    np.testing.assert_array_equal(y.argmax(axis=1), t)
    np.testing.assert_array_equal(f, before)
    assert not np.shares_memory(y, f)


def test_exact_when_the_search_for_the_mode_is_cut_short(monkeypatch):
    """The envelope's height, slope and point of contact belong together after any Newton step."""
    sound = cone.near_mode

    def cut_short(gaps):
        return sound(gaps) - 0.5

    monkeypatch.setattr(cone, "near_mode", cut_short)
    f, size = np.array([-2.0, 1.0, 0.5]), 20_000
    winner = cone._draw_winner(
        np.full(size, f[0]), np.tile(f[1:], (size, 1)), np.random.default_rng(1)
    )
    assert_ks(winner, winner_cdf(f, 0))


def test_rounding_does_not_throw_the_search_off_the_mode(monkeypatch):
    """Near 1e8 the curvature as computed may be any number, zero and less included."""

    class Found(Exception):
        pass

    def contact(x):
        raise Found(x)

    monkeypatch.setattr(cone, "log_ndtr", contact)
    far = np.random.default_rng(1).uniform(0.5e8, 1e8, size=10_000)
    # One loser is as far above the winner's mean as that is below zero, where the other one is.
    with pytest.raises(Found) as found:
        cone._draw_winner(-far, np.stack([far, np.zeros_like(far)], axis=1), None)
    mode = found.value.args[0][:, 1]
    assert np.abs(mode).max() < 2


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e9])
def test_means_beyond_double_precision_are_refused(bad):
    f = np.array([[0.0, bad, 1.0]])
    with pytest.raises(ValueError, match="The 'f' argument of sample_cone must be finite"):
        sample_cone(f, np.array([0]), np.random.default_rng(1))


def test_a_wrong_tail_is_detected(monkeypatch):
    """Planted bug: losers drawn without the ceiling's probability."""
    monkeypatch.setattr(cone, "log_ndtr", lambda x: 0.98 * special.log_ndtr(x))
    with pytest.raises(AssertionError):
        test_agrees_with_rejection(3, cone._draw_inside)
