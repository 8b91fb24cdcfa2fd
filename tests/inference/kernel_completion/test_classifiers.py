"""Classifiers on a kernel: against explicit features, and what they refuse."""

import numpy as np
import pytest
from scipy.linalg import eigh
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid

from kernelzoo.inference.kernel_completion.classifiers import (
    KernelNearestMean,
    KernelNearestNeighbour,
)
from kernelzoo.inference.mutual_completion.scores import ideal_kernel, kernel_alignment
from studies.zhang2004 import KernelFisherDiscriminant

CLASSIFIERS = [KernelNearestMean, KernelNearestNeighbour, KernelFisherDiscriminant]


@pytest.fixture(scope="module")
def features():
    """Three overlapping classes of unequal size in six dimensions, far from the origin."""
    rng = np.random.default_rng(5)
    labels = np.repeat(["c", "a", "b"], [14, 25, 9])
    centres = {"a": 0.0, "b": 1.5, "c": -1.0}
    X = rng.normal(size=(48, 6)) * [1, 2, 0.5, 1, 1, 3] + 4.0
    X[:, :3] += np.array([centres[label] for label in labels])[:, None]
    return X, labels, rng.normal(size=(60, 6)) * 2 + 4.0


def test_nearest_mean_is_the_nearest_centroid_of_features(features):
    X, labels, new = features
    ours = KernelNearestMean().fit(X @ X.T, labels).predict(new @ X.T)
    np.testing.assert_array_equal(ours, NearestCentroid().fit(X, labels).predict(new))


def test_scores_are_squared_distances_up_to_the_objects_own_similarity(features):
    X, labels, new = features
    scores = KernelNearestMean().fit(X @ X.T, labels).decision_function(new @ X.T)
    means = np.array([X[labels == c].mean(axis=0) for c in "abc"])
    distances = ((new[:, None] - means) ** 2).sum(axis=-1)
    np.testing.assert_allclose((new**2).sum(axis=1)[:, None] - scores, distances)


def test_nearest_neighbour_is_that_of_features(features):
    X, labels, new = features
    ours = KernelNearestNeighbour().fit(X @ X.T, labels).predict(new @ X.T)
    theirs = KNeighborsClassifier(n_neighbors=1).fit(X, labels).predict(new)
    np.testing.assert_array_equal(ours, theirs)


def test_fisher_axes_solve_the_generalized_eigenproblem_of_features(features):
    X, labels, new = features
    ridge = 0.3
    means = np.array([X[labels == c].mean(axis=0) for c in "abc"])
    own = means[np.searchsorted(["a", "b", "c"], labels)]
    within = (X - own).T @ (X - own) / len(X) + ridge * np.eye(6)
    between = (own - X.mean(axis=0)).T @ (own - X.mean(axis=0)) / len(X)
    _, axes = eigh(between, within)
    axes = axes[:, -2:]
    distances = (((new @ axes)[:, None] - means @ axes) ** 2).sum(axis=-1)
    model = KernelFisherDiscriminant(ridge).fit(X @ X.T, labels)
    scores = model.decision_function(new @ X.T)
    # Scores are distances up to a number of the object's own.
    np.testing.assert_allclose(
        scores - scores[:, :1], distances[:, :1] - distances, rtol=1e-6, atol=1e-6
    )


def test_fisher_without_ridge_is_nearest_mean_after_linear_discriminant_analysis(features):
    X, labels, new = features
    ours = KernelFisherDiscriminant(1e-7).fit(X @ X.T, labels).predict(new @ X.T)
    lda = LinearDiscriminantAnalysis(solver="eigen").fit(X, labels)
    nearest = NearestCentroid().fit(lda.transform(X), labels)
    np.testing.assert_array_equal(ours, nearest.predict(lda.transform(new)))


@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_draws_are_classified_one_by_one(features, classifier):
    X, labels, new = features
    model = classifier().fit(X @ X.T, labels)
    draws = new @ X.T + np.random.default_rng(1).normal(scale=9.0, size=(2, 3, 60, 48))
    together = model.predict(draws)
    assert together.shape == (2, 3, 60)
    for chain in range(2):
        for draw in range(3):
            np.testing.assert_array_equal(together[chain, draw], model.predict(draws[chain, draw]))


@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_order_of_the_training_objects_does_not_matter(features, classifier):
    X, labels, new = features
    order = np.random.default_rng(2).permutation(len(X))
    scores = classifier().fit(X @ X.T, labels).decision_function(new @ X.T)
    Z = X[order]
    permuted = classifier().fit(Z @ Z.T, labels[order]).decision_function(new @ Z.T)
    np.testing.assert_allclose(permuted, scores, rtol=1e-6, atol=1e-8)


def test_cross_validation_divides_rows_and_columns(features):
    X, labels, _ = features
    search = GridSearchCV(KernelFisherDiscriminant(), {"ridge": [1e-3, 1.0]}, cv=3)
    search.fit(X @ X.T, labels)
    assert search.best_estimator_.n_features_in_ == len(X)
    assert clone(KernelFisherDiscriminant(0.5)).ridge == 0.5


def test_alignment():
    labels = np.array([0, 0, 1, 1, 1])
    K = ideal_kernel(labels)
    assert kernel_alignment(K, 3 * K) == pytest.approx(1)
    # Of 13 pairs of one class, 5 are on the diagonal.
    assert kernel_alignment(K, np.eye(5)) == pytest.approx(5 / np.sqrt(13 * 5))
    assert kernel_alignment(np.stack([K, np.eye(5)]), K).shape == (2,)
    # Entry by entry, also of matrices that are not symmetric.
    assert kernel_alignment([[1, 2, 0]], [[2, 0, 5]]) == pytest.approx(2 / np.sqrt(5 * 29))


NAN = np.full((2, 2), np.nan)


@pytest.mark.parametrize("classifier", CLASSIFIERS)
@pytest.mark.parametrize(
    ("K11", "labels", "message"),
    [
        (np.eye(3), [1, 1, 1], "only 1"),
        (np.eye(3), [1, 2], "of length 3"),
        (np.eye(3), [1, 2, np.nan], "missing"),
        (np.ones((3, 2)), [1, 2, 1], "square"),
        (np.array([[1.0, 0.5], [0.0, 1.0]]), [1, 2], "symmetric"),
        (NAN, [1, 2], "finite"),
    ],
)
def test_bad_training_input_is_refused(classifier, K11, labels, message):
    with pytest.raises(ValueError, match=message):
        classifier().fit(K11, labels)


@pytest.mark.parametrize("classifier", CLASSIFIERS)
@pytest.mark.parametrize(
    ("K21", "message"),
    [
        (np.ones((2, 3)), "transposed"),
        (np.ones((3, 3)), "of shape"),
        (np.ones(2), "of shape"),
        (NAN, "finite"),
    ],
)
def test_new_rows_that_do_not_fit_are_refused(classifier, K21, message):
    model = classifier().fit(np.eye(2), ["a", "b"])
    with pytest.raises(ValueError, match=message):
        model.predict(K21)


def test_other_bad_input_is_refused():
    with pytest.raises(ValueError, match="'ridge'"):
        KernelFisherDiscriminant(0).fit(np.eye(2), [0, 1])
    with pytest.raises(ValueError, match="positive semidefinite"):
        KernelFisherDiscriminant().fit(-np.eye(2), [0, 1])
    with pytest.raises(ValueError, match="zeros"):
        kernel_alignment(np.zeros((2, 2)), np.eye(2))
    with pytest.raises(ValueError, match="size of K"):
        kernel_alignment(np.eye(2), np.eye(3))
    with pytest.raises(ValueError, match="only 'a'"):
        ideal_kernel(["a", "a"])
