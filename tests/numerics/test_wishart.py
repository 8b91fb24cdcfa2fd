"""Bartlett's decomposition in NumPy: laws of what is made of it, and its densities."""

import numpy as np
import pytest
from scipy import stats

from family import assert_ks
from kernelzoo.numerics.wishart import Bartlett, log_det_of_factor, solve_right

PSI = np.array([[2.0, 0.3, -0.5], [0.3, 1.0, 0.2], [-0.5, 0.2, 1.5]])
# Any square root will do: here one that is not triangular.
ROOT = np.linalg.cholesky(PSI) @ np.linalg.qr(np.arange(9.0).reshape(3, 3) ** 2 + np.eye(3))[0]


def draws_of(df, n_draws=8_000):
    rng = np.random.default_rng(1)
    return [Bartlett.draw(df, 3, rng) for _ in range(n_draws)]


@pytest.mark.parametrize("df", [2.4, 7.7])
def test_laws_of_the_diagonals(df):
    bartletts = draws_of(df)
    X = np.array([f @ f.T for f in (b.wishart_factor(ROOT) for b in bartletts)])
    S = np.array([f @ f.T for f in (b.inverse_wishart_factor(ROOT) for b in bartletts)])
    for i in range(3):
        assert_ks(X[:, i, i] / PSI[i, i], stats.chi2(df).cdf)
        assert_ks(PSI[i, i] / S[:, i, i], stats.chi2(df - 2).cdf)
    for wrong in (df - 1, df + 1):
        with pytest.raises(AssertionError):
            assert_ks(X[:, 0, 0] / PSI[0, 0], stats.chi2(wrong).cdf)


def test_log_densities_equal_scipy():
    log_det = np.linalg.slogdet(PSI)[1]
    for bartlett in draws_of(5.3, 5):
        X, S = bartlett.wishart_factor(ROOT), bartlett.inverse_wishart_factor(ROOT)
        np.testing.assert_allclose(
            [bartlett.wishart_log_density(log_det), bartlett.inverse_wishart_log_density(log_det)],
            [
                stats.wishart(5.3, PSI).logpdf(X @ X.T),
                stats.invwishart(5.3, PSI).logpdf(S @ S.T),
            ],
        )


@pytest.mark.parametrize("order", ["C", "F"])
def test_solve_from_the_right(order):
    lower = np.asarray(np.linalg.cholesky(PSI), order=order)
    b = np.asarray(np.arange(6.0).reshape(2, 3), order=order)
    np.testing.assert_allclose(solve_right(b, lower) @ lower, b, atol=1e-12)
    np.testing.assert_allclose(log_det_of_factor(lower), np.linalg.slogdet(PSI)[1])
