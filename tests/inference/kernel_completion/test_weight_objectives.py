"""Objectives of the weights: values against the model's evidence and refits, exact derivatives."""

import numpy as np
import pytest
from scipy.optimize import nnls

from kernelzoo.inference.kernel_completion import weights as weight_objectives
from kernelzoo.inference.kernel_completion.classifiers import KernelNearestMean
from kernelzoo.inference.kernel_completion.weights import OBJECTIVES, leave_one_out_rows

N, N1 = 9, 6
ETAS = np.array([10.0, 12.5, 9.4])
# Classes of two and four objects: the size of the other class shows.
LABELS = np.array(["a", "b", "b", "b", "b", "a"])


@pytest.fixture(scope="module")
def theta():
    x = np.random.default_rng(3).normal(size=(N, 4))
    squared = ((x[:, None] - x) ** 2).sum(-1)
    kernels = np.array([np.exp(-squared / 2), (1 + x @ x.T) ** 2, x @ x.T])
    return kernels + 0.2 * np.eye(N)


@pytest.fixture(scope="module")
def K11(theta):
    ideal = np.equal.outer(LABELS, LABELS).astype(float)
    return ideal + theta[0, :N1, :N1] / 3 + np.diag(np.linspace(0, 0.6, N1))


def criterion(name, K11, labels=LABELS):
    return OBJECTIVES[name](K11, np.unique(labels, return_inverse=True)[1])


def random_kernel(seed=0):
    """A positive definite Theta11 that is no mixture."""
    factor = np.random.default_rng(seed).normal(size=(N1, N1 + 2))
    return factor @ factor.T


@pytest.mark.parametrize("name", OBJECTIVES)
def test_derivatives(name, K11):
    evaluate = criterion(name, K11)
    at = random_kernel()
    _, slope = evaluate(at)
    np.testing.assert_allclose(slope, slope.T, rtol=1e-9, atol=1e-9)
    direction = np.random.default_rng(1).normal(size=(N1, N1))
    direction += direction.T
    h = 1e-5
    up, down = (evaluate(at + s * h * direction)[0] for s in (1, -1))
    assert np.vdot(slope, direction) == pytest.approx((up - down) / (2 * h), rel=1e-6)


def refitted_rows(at, K11):
    rows = np.full((N1, N1), np.nan)
    for i in range(N1):
        kept = np.delete(np.arange(N1), i)
        block = np.ix_(kept, kept)
        rows[i, kept] = at[i, kept] @ np.linalg.solve(at[block], K11[block])
    return rows


def test_leave_one_out_rows_are_refits(theta, K11):
    at = random_kernel()
    rows = leave_one_out_rows(at, K11)
    np.testing.assert_allclose(rows, refitted_rows(at, K11), rtol=1e-9)
    np.testing.assert_allclose(leave_one_out_rows(7 * at, K11), rows, rtol=1e-9)


def test_leave_one_out_log_score_is_that_of_refitted_nearest_means(theta, K11):
    at = random_kernel()
    rows, codes = refitted_rows(at, K11), (LABELS == "b").astype(int)
    scores = np.empty((N1, 2))
    for i in range(N1):
        kept = np.delete(np.arange(N1), i)
        classifier = KernelNearestMean().fit(K11[np.ix_(kept, kept)], codes[kept])
        scores[i] = classifier.decision_function(rows[[i]][:, kept])[0] / 2
    margin = np.take_along_axis(scores, codes[:, None], 1) - scores

    def log_score(sharpness):
        return -np.log(np.exp(-sharpness * margin).sum(axis=1)).mean()

    sharpest = weight_objectives.SHARPEST / np.diagonal(K11).mean()
    grid = np.linspace(0, sharpest, 200_001)
    best = max(log_score(s) for s in grid[:: len(grid) // 2000])
    value = criterion("leave-one-out log score", K11)(at)[0]
    assert value == pytest.approx(best, abs=1e-4)
    assert value >= best - 1e-12


def test_log_score_of_useless_scores_is_that_of_guessing(theta, K11):
    """Predictions that point to the wrong class are best ignored."""
    wrong = np.where(np.equal.outer(LABELS, LABELS), -0.1, 0.1) + np.eye(N1)
    at = np.linalg.inv(np.eye(N1) * 2 - wrong)
    value, slope = criterion("leave-one-out log score", K11)(at)
    assert value == pytest.approx(-np.log(2))
    np.testing.assert_allclose(slope, 0, atol=1e-12)


def test_alignment_has_the_maximum_of_its_quadratic_programme(theta, K11):
    """Non-negative least squares of the centred target on the centred kernels."""
    centring = np.eye(N1) - 1 / N1
    centred = np.array([centring @ kernel[:N1, :N1] @ centring for kernel in theta])
    target = centring @ K11 @ centring
    weights, _ = nnls(centred.reshape(3, -1).T, target.ravel())
    evaluate = criterion("alignment", K11)
    best = evaluate(np.tensordot(weights, theta[:, :N1, :N1], axes=1))[0]
    rng = np.random.default_rng(0)
    for alpha in rng.dirichlet(np.ones(3), 200):
        assert evaluate(np.tensordot(alpha, theta[:, :N1, :N1], axes=1))[0] <= best + 1e-12


@pytest.mark.parametrize("name", OBJECTIVES)
def test_order_of_objects_does_not_matter(name, K11):
    at = random_kernel()
    order = np.random.default_rng(2).permutation(N1)
    block = np.ix_(order, order)
    value, _ = criterion(name, K11[block], LABELS[order])(at[block])
    assert value == pytest.approx(criterion(name, K11)(at)[0], rel=1e-9)


def test_one_object_classes_are_refused(K11):
    with pytest.raises(ValueError, match=r"at least two objects in each class\. Got a class of 1"):
        criterion("leave-one-out log score", K11, ["a", "b", "a", "c", "b", "a"])
