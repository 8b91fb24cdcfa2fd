import numpy as np
import pytest
from scipy import stats

from family import assert_mean
from kernelzoo.custom_steps.moves import simplex_metropolis
from kernelzoo.custom_steps.moves.simplex_metropolis import (
    initial_concentration_tuning,
    initial_weight_tuning,
)
from kernelzoo.custom_steps.multinomial_probit import sweep as probit_sweep
from kernelzoo.custom_steps.multinomial_probit.sweep import Prior, State, Tuning, sweep
from kernelzoo.numerics.kernel_products import Design
from kernelzoo.numerics.normal_regression import precision_factor_or_none
from probit_fixture import (
    N_BASIS,
    N_CLASSES,
    N_KERNELS,
    N_OBJECTS,
    PRIOR,
    STACK,
    joint_test,
    prior_draw,
)

ALL = Tuning(initial_weight_tuning(N_KERNELS), initial_concentration_tuning(N_KERNELS))


def sweep_test(replicates=1_000, **options):
    design = Design.of(STACK)
    options = {"tuning": ALL, "moves": 2} | options

    def transition(state, labels, rng):
        return sweep(state, labels, design, PRIOR, rng, **options)[0]

    joint_test(transition, replicates)


@pytest.mark.parametrize(
    "options",
    [
        {"replicates": 3_000},
        {"tuning": Tuning()},
        {"redraw_variances": False, "tuning": Tuning(weights=ALL.weights)},
    ],
    ids=["all", "W and zeta", "W and beta"],
)
def test_joint_law_is_invariant(options):
    sweep_test(**options)


@pytest.mark.slow
def test_joint_law_is_invariant_in_a_long_run():
    sweep_test(replicates=30_000)


def test_wrong_degrees_of_freedom_are_detected(monkeypatch):
    correct = probit_sweep.draw_variances
    monkeypatch.setattr(
        probit_sweep, "draw_variances", lambda W, tau, up, rng: correct(W, tau - 0.5, up, rng)
    )
    with pytest.raises(AssertionError):
        sweep_test()


def test_stale_latent_utilities_are_detected(monkeypatch):
    """Planted bug: every second sweep reuses the Y of the sweep before it."""
    memory = []

    def stale(f, t, rng):
        if memory:
            return memory.pop()
        memory.append(correct(f, t, rng))
        return memory[0]

    correct = probit_sweep.sample_cone
    monkeypatch.setattr(probit_sweep, "sample_cone", stale)
    with pytest.raises(AssertionError):
        sweep_test()


def test_wrong_dirichlet_ratio_is_detected(monkeypatch):
    monkeypatch.setattr(
        simplex_metropolis, "log_weights_density", lambda lb, rho: float((rho - 1) @ lb)
    )
    with pytest.raises(AssertionError):
        sweep_test(replicates=3_000)


def test_wrong_shift_is_detected(monkeypatch):
    """Planted bug: the shift forgets that classes differ in their variances."""

    def unweighted(W, zeta, rng):
        precision = (1 / zeta).sum(axis=0)
        return W - W.mean(axis=0) + rng.standard_normal(len(precision)) / np.sqrt(precision)

    monkeypatch.setattr(probit_sweep, "draw_shift", unweighted)
    with pytest.raises(AssertionError):
        sweep_test()


def test_regressors_have_the_conditional_moments():
    """Given Y and its redrawn length, W is normal with the moments of appendix A."""
    rng = np.random.default_rng(1)
    zeta = rng.gamma(2.0, size=(N_CLASSES, N_BASIS))
    K, y = STACK[0], rng.normal(size=(N_OBJECTS, N_CLASSES))
    draws = np.array(
        [probit_sweep.draw_regressors(y, zeta, K, K.T @ K, rng) for _ in range(20_000)]
    )
    omega = [np.eye(N_OBJECTS) + K @ np.diag(z) @ K.T for z in zeta]
    q = sum(y[:, c] @ np.linalg.solve(omega[c], y[:, c]) for c in range(N_CLASSES))
    half = y.size / 2
    mean_scale = stats.gengamma(half, 2, scale=np.sqrt(2 / q)).mean()
    for c in range(N_CLASSES):
        V = np.linalg.inv(K.T @ K + np.diag(1 / zeta[c]))
        m = V @ K.T @ y[:, c]
        assert_mean(draws[:, c], mean_scale * m)
        second = V + (2 * half / q) * np.outer(m, m)
        assert_mean(np.einsum("ri,rj->rij", draws[:, c], draws[:, c]), second)


@pytest.mark.parametrize("shape", [(1, 9, 4), (3, 9, 4), (2, 5, 5), (9, 4, 4)])
def test_gram_matrix_from_products_or_directly(shape):
    rng = np.random.default_rng(1)
    stack, beta = rng.normal(size=shape), rng.dirichlet(np.ones(shape[0]))
    design = Design.of(stack)
    composite = np.einsum("s,snm->nm", beta, stack)
    np.testing.assert_allclose(design.composite(beta), composite)
    np.testing.assert_allclose(design.gram(beta, composite), composite.T @ composite, atol=1e-12)
    assert (design.products is None) == (shape == (9, 4, 4))


def linear_kernel(scale):
    """Raw features: K'K of rank 2 drowns 1/zeta in rounding errors."""
    x = scale * np.random.default_rng(1).normal(size=(30, 2))
    return x @ x.T


def smooth_kernel(scale):
    """A wide Gaussian kernel: its eigenvalues fade gradually."""
    x = np.random.default_rng(1).normal(size=(30, 4))
    return scale * np.exp(-0.01 * ((x[:, None] - x) ** 2).sum(axis=2))


@pytest.mark.parametrize(
    "K",
    [
        *(linear_kernel(scale) for scale in (1.0, 100.0, 200.0, 500.0, 1e3, 3e3, 1e5)),
        *(smooth_kernel(scale) for scale in (1.0, 1e4, 1e6, 1e8)),
    ],
    ids=[f"linear {s:g}" for s in (1, 100, 200, 500, 1e3, 3e3, 1e5)]
    + [f"smooth {s:g}" for s in (1, 1e4, 1e6, 1e8)],
)
def test_regressors_of_kernels_that_drown_the_prior(K):
    rng = np.random.default_rng(1)
    zeta = rng.gamma(2.0, size=(3, 30))
    y = K @ rng.normal(size=(30, 3)) + rng.normal(size=(30, 3))
    _, deviation, q = probit_sweep.regressors_given_utilities(
        y, zeta, K, K.T @ K, np.eye(3, 30, k=5)
    )
    exact_q, exact_deviation_norms = 0.0, []
    for c in range(3):
        stacked = np.concatenate([K, np.diag(zeta[c] ** -0.5)])
        target = np.concatenate([y[:, c], np.zeros(30)])
        m = np.linalg.lstsq(stacked, target, rcond=None)[0]
        exact_q += np.sum((target - stacked @ m) ** 2)
        # |V^(1/2) e| in the metric of V^-1 is |e| = 1 for either square root.
        exact_deviation_norms.append(np.linalg.norm(stacked @ deviation[c]))
    np.testing.assert_allclose(q, exact_q, rtol=1e-4)
    np.testing.assert_allclose(exact_deviation_norms, 1.0, rtol=1e-4)


@pytest.mark.parametrize(
    "K",
    [linear_kernel(500.0), linear_kernel(1e3), smooth_kernel(1e6)],
    ids=["linear 500", "linear 1000", "smooth 1e+06"],
)
def test_variances_of_regressors_agree_with_singular_values(K):
    zeta = np.random.default_rng(1).gamma(2.0, size=(1, 30))
    _, singular, vectors = np.linalg.svd(K * np.sqrt(zeta))
    exact = zeta[0] * np.sum(vectors**2 / (1 + singular[:, None] ** 2), axis=0)
    deviations = [
        probit_sweep.regressors_given_utilities(np.ones((30, 1)), zeta, K, K.T @ K, e[None])[1][0]
        for e in np.eye(30)
    ]
    np.testing.assert_allclose(np.square(deviations).sum(axis=0), exact, rtol=1e-4)


def test_variances_of_all_sizes_take_the_fast_path():
    """A prior precision of 1e12 scales its variable; it does not spoil a Cholesky factor."""
    K, zeta = smooth_kernel(1.0), np.logspace(1, -12, 30)
    assert precision_factor_or_none(K.T @ K, 1 / zeta) is not None


def test_raw_features_leave_the_chain_finite():
    rng = np.random.default_rng(0)
    x = 2e3 * rng.normal(size=(40, 3))
    labels = np.digitize(x[:, 0], [-800.0, 800.0])
    design, prior = Design.of((x @ x.T)[None]), Prior(tau=3.0, upsilon=0.6)
    state = State(np.zeros((3, 40)), np.full((3, 40), 0.2), np.ones(1), np.ones(1))
    for _ in range(30):
        state, _ = sweep(state, labels, design, prior, rng)
        assert all(np.isfinite(value).all() for value in state)


def test_nothing_given_is_modified():
    rng = np.random.default_rng(1)
    state, labels = prior_draw(rng), np.array([0, 1, 2, 0])
    kept = [value.copy() for value in state]
    for value in state:
        value.flags.writeable = False
    new, info = sweep(state, labels, Design.of(STACK), PRIOR, rng, tuning=ALL)
    for before, value, after in zip(kept, state, new, strict=True):
        np.testing.assert_array_equal(before, value)
        assert not np.shares_memory(value, after)
    assert 0 <= info.weights <= 1
