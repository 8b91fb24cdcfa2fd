"""Probit on Nystroem features: the exact fit with all landmarks, near it with fewer."""

import numpy as np
import pytest
from scipy.linalg import sqrtm

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


def nystroem(m):
    kernels = (gaussian(WIDTHS[0]) | gaussian(WIDTHS[1])).nystroem(m, seed=4)
    return kernels(X[TRAIN]), kernels(X[NEW], X[TRAIN])


@pytest.fixture(scope="module")
def exact():
    """Fit on the whole kernels: their symmetric roots, and new objects on the same axes."""
    kernels = [gaussian(width) for width in WIDTHS]
    roots = [sqrtm(kernel(X[TRAIN]).values[0]).real for kernel in kernels]
    new = [
        kernel(X[NEW], X[TRAIN]).values[0] @ np.linalg.inv(root)
        for kernel, root in zip(kernels, roots, strict=True)
    ]
    return probabilities({"wide": roots[0], "narrow": roots[1]}, {"wide": new[0], "narrow": new[1]})


def test_all_landmarks_are_the_fit_on_the_whole_kernel(exact):
    # The prior is blind to the order of the features, in which alone the two differ.
    for ours, theirs in zip(probabilities(*nystroem(60)), exact, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_fewer_landmarks_come_nearer_with_their_number(exact):
    gaps = [np.abs(probabilities(*nystroem(m))[0] - exact[0]).mean() for m in (3, 10, 40)]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 0.02
