"""The probit likelihood against adaptive integration, in value and gradient."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from scipy.integrate import quad
from scipy.special import log_ndtr

from family import assert_z
from kernelzoo.models.distributions.categorical_probit import CategoricalProbit
from kernelzoo.models.operations.probit_likelihood import probit_log_probability

PYTHON = Mode(linker="py", optimizer="fast_run")


def adaptive_log_probability(f, t):
    """Log of eq (4) by adaptive quadrature around the integrand's mode."""
    d = f[t] - np.delete(f, t)

    def log_integrand(u):
        return -(u**2 + np.log(2 * np.pi)) / 2 + log_ndtr(np.add.outer(u, d)).sum(axis=-1)

    grid = np.linspace(-10, np.abs(d).max() + 10, 4001)
    mode = grid[np.argmax(log_integrand(grid))]
    top = log_integrand(mode)
    points = mode + np.array([-3, -1, 0, 1, 3])
    area, _ = quad(
        lambda u: np.exp(log_integrand(u) - top),
        mode - 12,
        mode + 12,
        points=points,
        epsrel=1e-12,
        epsabs=0,
        limit=500,
    )
    return top + np.log(area)


@pytest.fixture(scope="module")
def value_and_gradient():
    f, t = pt.dmatrix(), pt.lvector()
    value = probit_log_probability(f, t)
    return pytensor.function([f, t], [value, pt.grad(value.sum(), f)], mode=PYTHON)


def regression_functions(n_classes, scale, n=6):
    rng = np.random.default_rng([n_classes, int(scale)])
    f = rng.normal(size=(n, n_classes)) * scale
    return f, rng.integers(0, n_classes, n)


@pytest.mark.parametrize("scale", [1, 5, 12])
@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_log_probability_equals_adaptive_integration(value_and_gradient, n_classes, scale):
    f, t = regression_functions(n_classes, scale)
    exact = np.array([adaptive_log_probability(*row) for row in zip(f, t, strict=True)])
    value, _ = value_and_gradient(f, t)
    judged = exact > -300
    assert judged.any()
    np.testing.assert_allclose(value[judged], exact[judged], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("scale", [5e3, 1e5, 1e8])
def test_finite_for_scores_of_any_size(value_and_gradient, scale):
    f, t = regression_functions(3, scale, n=1000)
    value, gradient = value_and_gradient(f, t)
    assert np.isfinite(value).all()
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_far_tail_is_right(value_and_gradient, n_classes):
    """log p near -200, where nodes around zero would be off by more than 100."""
    gap = {2: 28.0, 3: 24.2, 10: 20.8}[n_classes]
    f = np.zeros((1, n_classes))
    f[0, 1:] = gap
    t = np.array([0])
    exact = adaptive_log_probability(f[0], 0)
    assert exact < -190
    value, _ = value_and_gradient(f, t)
    np.testing.assert_allclose(value, exact, rtol=1e-8)


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_gradient_equals_derivative_of_adaptive_integration(value_and_gradient, n_classes):
    f, t = regression_functions(n_classes, 4, n=3)
    _, gradient = value_and_gradient(f, t)
    step = 1e-4
    for row, label, slope in zip(f, t, gradient, strict=True):
        for c in range(min(n_classes, 4)):
            offset = step * np.eye(n_classes)[c]
            difference = adaptive_log_probability(row + offset, label) - adaptive_log_probability(
                row - offset, label
            )
            np.testing.assert_allclose(slope[c], difference / (2 * step), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("size", [30.0, 300.0, 1e4])
def test_value_and_gradient_are_finite_far_out(value_and_gradient, size):
    f = np.array([[size, -size, 0.0], [-size, size, size], [0.0, size, -size]])
    value, gradient = value_and_gradient(f, np.array([1, 0, 0]))
    assert np.isfinite(value).all()
    assert np.isfinite(gradient).all()
    # Adding a constant to all classes changes nothing.
    np.testing.assert_allclose(gradient.sum(-1), 0, atol=1e-9 * size)


def test_two_classes_have_the_closed_form(value_and_gradient):
    f = np.array([[0.3, -1.2], [4.0, 9.0], [-20.0, 10.0]])
    value, _ = value_and_gradient(f, np.array([0, 0, 0]))
    np.testing.assert_allclose(value, log_ndtr((f[:, 0] - f[:, 1]) / 2**0.5), rtol=1e-9)


def test_draws_have_the_probabilities_of_the_log_density():
    f = np.array([[0.5, -0.3, 0.1, 1.2], [2.0, 2.0, -1.0, 0.0]])
    n = 40_000
    draws = pm.draw(CategoricalProbit.dist(f, shape=(n, 2)), random_seed=3)
    for row in range(2):
        log_p = pm.logp(CategoricalProbit.dist(f[row]), np.arange(4)).eval(mode=PYTHON)
        p = np.exp(log_p)
        np.testing.assert_allclose(p.sum(), 1, rtol=1e-9)
        counts = np.bincount(draws[:, row], minlength=4)
        assert_z((counts - n * p) / np.sqrt(n * p * (1 - p)))


@pytest.mark.parametrize("f", [np.zeros(1), np.zeros((5, 1)), 0.0])
def test_fewer_than_two_classes_are_refused(f):
    with pytest.raises(ValueError, match=r"'f' argument of CategoricalProbit.*two or more classes"):
        CategoricalProbit.dist(f)
