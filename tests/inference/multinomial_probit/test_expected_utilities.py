"""The pass over the objects against the equations, whatever its blocks and threads."""

import numpy as np
import pytest

from kernelzoo.inference.multinomial_probit.vb_kernels import ExpectedKernels
from kernelzoo.numerics import probit, threads
from kernelzoo.numerics.probit import log_probability_and_gradient
from probit_moments import truncated_moments

N, M, S, C = 2500, 7, 2, 4  # two blocks and a part of one


@pytest.fixture(scope="module")
def given():
    rng = np.random.default_rng(1)
    kernels = rng.normal(size=(S, N, M))
    return kernels, np.array([0.3, 0.7]), rng.normal(size=(C, M)), rng.integers(C, size=N)


def expected_utilities(kernels, weights, regressors, labels):
    return ExpectedKernels(kernels, None).utilities(weights, regressors, labels)


def test_sums_are_those_of_all_objects_at_once(given):
    kernels, beta, W, labels = given
    found = expected_utilities(*given)
    f = np.einsum("s,snm,cm->nc", beta, kernels, W)
    log_z, y = truncated_moments(f, labels)
    np.testing.assert_allclose(found.log_z, log_z.sum(), rtol=1e-9)
    np.testing.assert_allclose(found.square, np.sum(f**2), rtol=1e-12)
    np.testing.assert_allclose(found.mean, y, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(
        found.products, np.einsum("nc,snm->scm", y, kernels), rtol=1e-7, atol=1e-6
    )


def test_number_of_threads_does_not_matter(given, monkeypatch):
    several = []
    for processors in (1, 3):
        monkeypatch.setattr(threads, "_processors", lambda n=processors: n)
        several.append(expected_utilities(*given))
    for one, other in zip(*several, strict=True):
        np.testing.assert_array_equal(one, other)


def test_compiled_loops_in_threads_fill_every_object(monkeypatch):
    rng = np.random.default_rng(2)
    f, t = 3 * rng.normal(size=(N, C)), rng.integers(C, size=N)
    t[[0, 1500]] = C  # no class
    at_once = log_probability_and_gradient(f, t)
    monkeypatch.setattr(probit, "THREADS_FROM", 0)
    monkeypatch.setattr(threads, "_processors", lambda: 3)
    for one, other in zip(log_probability_and_gradient(f, t), at_once, strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_error_in_a_thread_is_raised(monkeypatch):
    monkeypatch.setattr(threads, "_processors", lambda: 2)

    def fails(objects):
        raise FloatingPointError(objects.start)

    with pytest.raises(FloatingPointError, match="0"):
        list(threads.in_blocks(fails, N))


def test_scores_that_are_not_finite_have_no_probability(given):
    kernels, beta, W, labels = given
    wrong = W.copy()
    wrong[0, 0] = np.nan
    assert expected_utilities(kernels, beta, wrong, labels).log_z == -np.inf
