"""Probit on columns at landmarks: the exact fit with all landmarks, near it with fewer."""

import numpy as np
import pytest

from kernelzoo import VB, MultinomialProbit, fit, gaussian
from kernelzoo.models.kernels import as_stack
from kernelzoo.numerics.probit import class_probabilities

RNG = np.random.default_rng(1)
LABELS = np.arange(90) % 3
X = RNG.normal(size=(90, 2)) + 2.5 * np.eye(3)[LABELS, :2]
TRAIN, NEW = slice(0, 60), slice(60, 90)
WIDTHS = (0.2, 1.0)


def probabilities(features, new):
    """Of the new objects, at the mean of q, which has no Monte Carlo error; and weights' means."""
    model = MultinomialProbit(features, LABELS[TRAIN])
    engine = VB(starts=1, tolerance=1e-4)
    result = fit(model, engine, draws=2, random_seed=1, progressbar=False, log_likelihood=False)
    weights, W = (result["variational"][f"{name}_mean"].to_numpy() for name in ("beta", "W"))
    f = np.tensordot(weights, as_stack(new).values, axes=1) @ W.T
    return class_probabilities(f), weights


def at_landmarks(m):
    kernels = (gaussian(WIDTHS[0]) | gaussian(WIDTHS[1])).landmarks(m, seed=4)
    return kernels(X[TRAIN]), kernels(X[NEW], X[TRAIN])


@pytest.fixture(scope="module")
def exact():
    """Fit on the whole kernels."""
    kernels = gaussian(WIDTHS[0]) | gaussian(WIDTHS[1])
    return probabilities(kernels(X[TRAIN]), kernels(X[NEW], X[TRAIN]))


def test_all_landmarks_are_the_fit_on_the_whole_kernel(exact):
    # The prior is blind to the order of the columns, in which alone the two differ.
    for ours, theirs in zip(probabilities(*at_landmarks(60)), exact, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_fewer_landmarks_come_nearer_with_their_number(exact):
    gaps = [np.abs(probabilities(*at_landmarks(m))[0] - exact[0]).mean() for m in (3, 10, 40)]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 0.02
