import numpy as np
import pytest

from kernelzoo.custom_steps.probit_gradient import log_likelihood
from kernelzoo.models.probit import truncated_moments


@pytest.mark.parametrize(
    ("n_classes", "scale"), [(2, 1), (3, 3), (3, 1e6), (4, 20), (5, 300), (10, 3), (27, 5)]
)
def test_value_and_gradient_are_the_truncated_moments(n_classes, scale):
    rng = np.random.default_rng(0)
    f, labels = scale * rng.normal(size=(40, n_classes)), rng.integers(n_classes, size=40)
    value, gradient = log_likelihood(f, labels)
    log_z, mean = truncated_moments(f, labels)
    np.testing.assert_allclose(value, log_z.sum(), rtol=1e-9)
    np.testing.assert_allclose(gradient, mean - f, rtol=1e-7, atol=1e-8 * scale)
    np.testing.assert_allclose(gradient.sum(axis=1), 0.0, atol=1e-9 * np.abs(gradient).max())


def test_certain_labels_have_no_gradient():
    f = np.array([[60.0, 0.0, 0.0], [0.0, 60.0, 0.0]])
    value, gradient = log_likelihood(f, np.array([0, 1]))
    assert abs(value) < 1e-8
    assert np.abs(gradient).max() < 1e-12


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_scores_that_are_not_finite(bad):
    f = np.zeros((3, 3))
    f[1, 2] = bad
    value, gradient = log_likelihood(f, np.zeros(3, dtype=np.intp))
    assert value == -np.inf
    assert not gradient.any()
