"""Simultaneous diagonalization of the completion model's kernels."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelzoo.numerics.wishart import Spectrum


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 6), st.integers(1, 5), st.floats(0.01, 30), st.integers(0, 2**32 - 1))
def test_spectrum_rebuilds_the_kernels(n1, n2, width, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n1 + n2, 2))
    theta = np.exp(-((x[:, None] - x[None]) ** 2).sum(-1) / width) + 1e-6 * np.eye(n1 + n2)
    a = rng.normal(size=(n1, n1))
    K11 = a @ a.T + 1e-3 * np.eye(n1)
    s = Spectrum.of(theta, K11)
    np.testing.assert_allclose(s.V @ s.V.T, theta[:n1, :n1], atol=1e-12)
    np.testing.assert_allclose((s.V * s.kappa) @ s.V.T, K11, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(s.V @ s.V_inverse, np.eye(n1), atol=1e-6)
    assert (s.kappa > 0).all()
    theta21, theta22 = theta[n1:, :n1], theta[n1:, n1:]
    np.testing.assert_allclose(s.coefficients @ theta[:n1, :n1], theta21, atol=1e-9)
    np.testing.assert_allclose(s.theta22_1 + s.coefficients @ theta21.T, theta22, atol=1e-9)
    np.testing.assert_allclose(s.K22_explained, (s.m * s.kappa) @ s.m.T, rtol=1e-5, atol=1e-5)
