import numpy as np
import pytest
from scipy import stats

from family import assert_mean
from kernelzoo.custom_steps.multinomial_probit import conditionals
from kernelzoo.numerics.normal_regression import precision_factor_or_none
from probit_fixture import N_BASIS, N_CLASSES, N_OBJECTS, STACK


def test_regressors_have_the_conditional_moments():
    """Given Y and its redrawn length, W is normal with the moments of appendix A."""
    rng = np.random.default_rng(1)
    zeta = rng.gamma(2.0, size=(N_CLASSES, N_BASIS))
    K, y = STACK[0], rng.normal(size=(N_OBJECTS, N_CLASSES))
    draws = np.array(
        [conditionals.draw_regressors(y, zeta, K, K.T @ K, rng) for _ in range(20_000)]
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


def linear_kernel(scale):
    """Raw features: K'K of rank 2 drowns 1/zeta in rounding errors."""
    x = scale * np.random.default_rng(1).normal(size=(30, 2))
    return x @ x[:20].T


def smooth_kernel(scale):
    """A wide Gaussian kernel: its eigenvalues fade gradually."""
    x = np.random.default_rng(1).normal(size=(30, 4))
    return scale * np.exp(-0.01 * ((x[:, None] - x[:20]) ** 2).sum(axis=2))


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
    zeta = rng.gamma(2.0, size=(3, 20))
    y = K @ rng.normal(size=(20, 3)) + rng.normal(size=(30, 3))
    _, deviation, q = conditionals.regressors_given_utilities(
        y, zeta, K, K.T @ K, np.eye(3, 20, k=5)
    )
    exact_q, exact_deviation_norms = 0.0, []
    for c in range(3):
        stacked = np.concatenate([K, np.diag(zeta[c] ** -0.5)])
        target = np.concatenate([y[:, c], np.zeros(20)])
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
    zeta = np.random.default_rng(1).gamma(2.0, size=(1, 20))
    _, singular, vectors = np.linalg.svd(K * np.sqrt(zeta))
    exact = zeta[0] * np.sum(vectors**2 / (1 + singular[:, None] ** 2), axis=0)
    deviations = [
        conditionals.regressors_given_utilities(np.ones((30, 1)), zeta, K, K.T @ K, e[None])[1][0]
        for e in np.eye(20)
    ]
    np.testing.assert_allclose(np.square(deviations).sum(axis=0), exact, rtol=1e-4)


def test_variances_of_all_sizes_take_the_fast_path():
    """A prior precision of 1e12 scales its variable; it does not spoil a Cholesky factor."""
    K, zeta = smooth_kernel(1.0), np.logspace(1, -12, 20)
    assert precision_factor_or_none(K.T @ K, 1 / zeta) is not None
