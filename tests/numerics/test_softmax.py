"""Sums of exponentials are those of SciPy."""

import numpy as np
import pytest
from scipy import special

from kernelzoo.numerics.softmax import log_sum_exp, softmax

VALUES = np.random.default_rng(1).normal(size=(3, 4, 5)) * [1.0, 10.0, 300.0, 1e3, 1e-3]
WEIGHTS = np.random.default_rng(2).uniform(size=5)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_log_sums_are_those_of_scipy(axis):
    assert np.allclose(log_sum_exp(VALUES, axis), special.logsumexp(VALUES, axis), rtol=1e-14)
    weighted = log_sum_exp(VALUES, axis, WEIGHTS)
    assert np.allclose(weighted, special.logsumexp(VALUES, axis, b=WEIGHTS), rtol=1e-13)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_shares_are_those_of_scipy(axis):
    assert np.allclose(softmax(VALUES, axis), special.softmax(VALUES, axis), rtol=1e-14)


def test_terms_that_vanish():
    nothing = np.array([-np.inf, -np.inf])
    assert log_sum_exp(nothing) == -np.inf
    assert log_sum_exp(np.array([-np.inf, 2.0])) == 2.0
    assert log_sum_exp(np.array([1.0, 2.0]), weights=np.zeros(2)) == -np.inf
