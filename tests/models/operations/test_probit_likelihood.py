"""The probit log probability as an operation: values and derivatives on every linker."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.replace import vectorize_graph

from kernelzoo.models.distributions.categorical_probit import CategoricalProbit
from kernelzoo.models.operations.probit_likelihood import probit_log_probability
from kernelzoo.numerics import probit
from probit_moments import log_probability, truncated_moments

PYTHON = Mode(linker="py", optimizer="fast_run")
MARGINS = np.logspace(-3, 4, 29)


def scores(n_classes, n_each=1):
    """Scores whose margins are of all sizes, won and lost."""
    rng = np.random.default_rng(n_classes)
    f = rng.normal(size=(len(MARGINS) * n_each, n_classes)) * np.repeat(MARGINS, n_each)[:, None]
    return f, rng.integers(n_classes, size=len(f))


def compiled(mode, second=True):
    f, t = pt.dmatrix(), pt.lvector()
    value = probit_log_probability(f, t)
    gradient = pt.grad(value.sum(), f)
    outputs = [value, gradient]
    if second:
        outputs.append(pt.grad((gradient * pt.arange(f.shape[1])).sum(), f))
    function = pytensor.function([f, t], outputs, mode=mode)
    return lambda *arrays: [np.asarray(output) for output in function(*arrays)]


@pytest.fixture(scope="module")
def python():
    return compiled(PYTHON)


@pytest.fixture(scope="module", params=["NUMBA", "JAX"])
def other(request):
    if request.param == "JAX":
        pytest.importorskip("jax")
    return compiled(request.param)


@pytest.mark.parametrize("n_classes", [2, 3, 10, 50])
def test_linkers_agree_at_margins_of_all_sizes(python, other, n_classes):
    f, t = scores(n_classes)
    # The integrand's exponent is a difference of numbers of the order of the scores' squares, and
    # second derivatives, which are between -C and C, are differences of such themselves.
    first = 1e-9 + 1e-15 * MARGINS**2
    second = np.where(MARGINS <= 30, 1e-7, np.inf)
    for mine, theirs, error in zip(python(f, t), other(f, t), [first, first, second], strict=True):
        assert np.isfinite(theirs).all()
        axes = tuple(range(1, mine.ndim))
        scale = 1 + np.abs(mine).max(axis=axes)
        assert (np.abs(theirs - mine).max(axis=axes) / scale <= error).all()


@pytest.mark.parametrize("n_classes", [2, 3, 10, 50])
def test_value_and_gradient_are_the_truncated_moments(python, n_classes, monkeypatch):
    f, t = scores(n_classes)
    value, gradient, _ = python(f, t)
    monkeypatch.setattr(probit, "default_nodes", lambda n_classes: 400)
    log_z, mean = truncated_moments(f, t)
    np.testing.assert_allclose(value, log_z, rtol=1e-9, atol=2e-8)
    size = 1 + np.abs(mean - f).max(axis=1, keepdims=True)
    np.testing.assert_allclose(gradient / size, (mean - f) / size, rtol=0, atol=1e-7)


def test_certain_classes_have_no_gradient(other):
    """JAX derives NaN from a quadrature there: its derivative is declared, not derived."""
    value, gradient, second = other(np.array([[40.0, 0.0], [0.0, 1e4]]), np.array([0, 1]))
    # One but for the mass beyond the nodes.
    np.testing.assert_allclose(value, 0, atol=1e-10)
    np.testing.assert_allclose(gradient, 0, atol=1e-12)
    np.testing.assert_allclose(second, 0, atol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
def test_what_is_impossible_has_no_probability_and_no_gradient(python, other, bad):
    f = np.zeros((4, 3))
    f[1, 2] = bad
    t = np.array([0, 0, 3, -1])
    for function in (python, other):
        value, gradient, second = function(f, t)
        np.testing.assert_array_equal(value[1:], -np.inf)
        np.testing.assert_allclose(value[0], -np.log(3), rtol=1e-8)
        assert not gradient[1:].any()
        assert not second[1:].any()


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_derivatives_are_those_of_the_value(n_classes):
    f, t = scores(n_classes)
    small = MARGINS < 20
    f, t = f[small], t[small]

    def value(x):
        return probit_log_probability(x, t)

    def gradient(x):
        return pt.grad(probit_log_probability(x, t).sum(), x)

    rng = np.random.default_rng(0)
    for function in (value, gradient):
        pytensor.gradient.verify_grad(
            function, [f], rng=rng, mode=PYTHON, eps=1e-5, abs_tol=1e-5, rel_tol=1e-5
        )


def test_hessian_is_the_covariance_less_the_identity():
    """By draws of the truncated normal, which know nothing of the quadrature."""
    from kernelzoo.custom_steps.multinomial_probit.conditionals import sample_cone

    f, t = np.array([[0.3, 1.2, -0.5]]), np.array([0])
    draws = sample_cone(
        np.repeat(f, 200_000, axis=0), np.repeat(t, 200_000), np.random.default_rng(1)
    )
    expected = np.cov(draws.T) - np.eye(3)
    np.testing.assert_allclose(probit.hessian(f, t)[0], expected, rtol=0, atol=0.012)


def test_shapes_broadcast_and_vectorise():
    f, t = scores(3)
    f, t = f[:6], t[:6]
    expected = log_probability(f, t)
    evaluate = {"mode": PYTHON}
    one = probit_log_probability(f[0], t[0]).eval(**evaluate)
    np.testing.assert_allclose(one, expected[0], rtol=1e-8)
    many = probit_log_probability(f[0], np.arange(3)).eval(**evaluate)
    np.testing.assert_allclose(many, log_probability(f[[0, 0, 0]], np.arange(3)), rtol=1e-8)
    stacked = probit_log_probability(f.reshape(2, 3, 3), t.reshape(2, 3)).eval(**evaluate)
    np.testing.assert_allclose(stacked.ravel(), expected, rtol=1e-8)
    x = pt.dmatrix()
    stack = pt.as_tensor(np.stack([f, f + np.arange(3)]))
    batch = vectorize_graph(probit_log_probability(x, t), {x: stack})
    shifted = log_probability(f + np.arange(3), t)
    np.testing.assert_allclose(batch.eval(**evaluate), [expected, shifted], rtol=1e-8)
    _, gradient = probit.log_probability_and_gradient(f + np.arange(3), t)
    np.testing.assert_allclose(pt.grad(batch.sum(), stack).eval(**evaluate)[1], gradient, rtol=1e-8)


def test_values_that_are_no_integers_are_no_class_below_zero():
    log_p = probit_log_probability(np.zeros(2), np.array([-0.5, 0.0, 1.0, 2.0])).eval(mode=PYTHON)
    np.testing.assert_allclose(np.exp(log_p), [0, 0.5, 0.5, 0], rtol=1e-8)


def test_log_probability_of_the_distribution():
    p = [
        np.exp(pm.logp(CategoricalProbit.dist(np.zeros(3)), c).eval(mode=PYTHON)) for c in range(4)
    ]
    np.testing.assert_allclose(p, [1 / 3, 1 / 3, 1 / 3, 0], rtol=1e-8)
