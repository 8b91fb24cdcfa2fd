"""Widths and scales are chosen at modes that need not be exact."""

import numpy as np
import pytest

from kernelzoo.inference.gaussian_process.choice import tried_for_classes
from kernelzoo.numerics.feature_precision import ByClass
from kernelzoo.numerics.likelihoods import Softmax


def test_the_search_for_modes_factorises_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    codes = np.arange(30) % 3
    X = rng.normal(size=(30, 2)) + codes[:, None]
    squares = ((X[:, None] - X[None]) ** 2).sum(-1)
    monkeypatch.setattr(ByClass, "solve_by_class", lambda *given: pytest.fail("conditioned"))
    tried = tried_for_classes(lambda times: (1 + times * squares) ** -0.5, Softmax(codes, 3))
    assert len(tried) >= 3
    assert all(np.isfinite(each.height) for each in tried)
