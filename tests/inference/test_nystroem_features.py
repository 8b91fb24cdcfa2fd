"""Probit on Nystroem features: the exact fit with all landmarks, near it with fewer."""

import numpy as np
from scipy.linalg import sqrtm

from kernelzoo import VB, MultinomialProbit, fit, gaussian, predict

RNG = np.random.default_rng(1)
LABELS = np.arange(90) % 3
X = RNG.normal(size=(90, 2)) + 2.5 * np.eye(3)[LABELS, :2]
TRAIN, NEW = slice(0, 60), slice(60, 90)
WIDTHS = (0.2, 1.0)


QUICK = VB(starts=1, tolerance=1e-4)


def probabilities(features, new):
    """Of the new objects, and the result; VB's draws have a Monte Carlo error of .03 at most."""
    model = MultinomialProbit(features, LABELS[TRAIN])
    result = fit(model, QUICK, random_seed=1, progressbar=False, log_likelihood=False)
    return predict(model, result, new)["probability"].to_numpy(), result


def nystroem(m):
    kernels = (gaussian(WIDTHS[0]) | gaussian(WIDTHS[1])).nystroem(m, seed=4)
    return kernels(X[TRAIN]), kernels(X[NEW], X[TRAIN])


def roots():
    """Features of the whole kernel: its symmetric root, and new objects on the same axes."""
    kernels = [gaussian(width) for width in WIDTHS]
    root = [sqrtm(kernel(X[TRAIN]).values[0]).real for kernel in kernels]
    new = [
        kernel(X[NEW], X[TRAIN]).values[0] @ np.linalg.inv(half)
        for kernel, half in zip(kernels, root, strict=True)
    ]
    names = ("narrow", "wide")
    return dict(zip(names, root, strict=True)), dict(zip(names, new, strict=True))


def test_all_landmarks_are_the_fit_on_the_whole_kernel():
    # The prior is blind to the order of the features, in which alone the two differ.
    ours, exact = probabilities(*nystroem(60)), probabilities(*roots())
    for name in ("beta_mean", "y_mean"):
        np.testing.assert_allclose(
            ours[1]["variational"][name].values, exact[1]["variational"][name].values, atol=1e-5
        )
    np.testing.assert_allclose(ours[0], exact[0], atol=0.05)


def test_fewer_landmarks_come_nearer_with_their_number():
    exact = probabilities(*roots())[0]
    gaps = [np.abs(probabilities(*nystroem(m))[0] - exact).mean() for m in (3, 10, 40)]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 0.02
