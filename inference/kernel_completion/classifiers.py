"""Classification from a kernel matrix alone: nearest mean, nearest neighbour, Fisher discriminant.

The classifiers follow scikit-learn: ``fit(K11, labels)``, then ``predict(K21)``, where K11 is the
kernel among n1 training objects and K21 the kernel between n2 new objects (rows) and the training
objects (columns). The input is tagged as pairwise, so that cross-validation splits rows and
columns.

The classifiers do not need K22: a new object's similarity to itself adds the same number to its
distances to all classes. K21 may have leading dimensions (chain, draw), which the outputs keep;
`class_frequencies` turns the labels of many draws into frequencies.

scikit-learn's ``SVC(kernel="precomputed")`` takes the same K11 and K21.

References
----------
Zhang, Yeung and Kwok (2003), Probabilistic kernel matrix learning with a mixture model of kernels,
section 5.3: KNNC and KNMC. Baudat and Anouar (2000), Generalized discriminant analysis using a
kernel approach.
"""

from abc import abstractmethod
from typing import Any, Self, override

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from ...models.kernels.labels import aligned, as_frame, labelled_gram, order_of
from ...validation import (
    argument_error,
    check_finite,
    check_labels,
    check_positive,
    check_square_symmetric,
    check_undated,
    check_unmasked,
)

__all__ = [
    "KernelFisherDiscriminant",
    "KernelNearestMean",
    "KernelNearestNeighbour",
    "class_frequencies",
]


class _KernelClassifier(ClassifierMixin, BaseEstimator):
    """Input validation and labels; a subclass learns from a kernel and scores the classes."""

    def fit(self, K11: ArrayLike, labels: ArrayLike) -> Self:
        """Learn from the training kernel.

        Parameters
        ----------
        K11 : array-like or DataFrame of shape (n1, n1)
            Symmetric kernel.
        labels : array-like or Series of shape (n1,)
            Labels of at least two classes. A Series is aligned by ids if K11 has ids, too.

        Raises
        ------
        ValueError
            For a kernel that is not square, symmetric and finite, and for labels of another length,
            of a single class, or missing.
        """
        owner = type(self).__name__
        K11, self._ids = labelled_gram(K11, "K11", owner)
        labels = aligned(labels, self._ids, "labels", owner)
        check_unmasked(K11, "K11", owner)
        check_undated(K11, "K11", owner)
        K11 = np.asarray(K11, dtype=float)
        if K11.ndim == 2:
            check_finite(K11, "K11", owner)
        check_square_symmetric(K11, "K11", owner)
        codes, self.classes_ = check_labels(labels, "labels", owner, n_objects=len(K11))
        self.n_features_in_ = len(K11)
        self._learn(K11, codes)
        return self

    def decision_function(self, K21: ArrayLike) -> NDArray:
        """Score of every class; the nearest class has the largest score.

        Parameters
        ----------
        K21 : array-like of shape (..., n2, n1), or DataFrame
            Columns of a DataFrame are aligned by the ids of K11.

        Returns
        -------
        ndarray of shape (..., n2, C)
        """
        check_is_fitted(self)
        owner = type(self).__name__
        K21 = as_frame(K21)
        if isinstance(K21, pd.DataFrame):
            requirement = "of the training objects"
            order = order_of(K21.columns, self._ids, "K21", owner, requirement)
            K21 = K21 if order is None else K21.iloc[:, order]
        check_unmasked(K21, "K21", owner)
        check_undated(K21, "K21", owner)
        K21 = np.asarray(K21, dtype=float)
        n1 = self.n_features_in_
        if K21.ndim < 2 or K21.shape[-1] != n1:
            hint = "; it looks transposed" if K21.ndim > 1 and K21.shape[-2] == n1 else ""
            raise argument_error(
                "K21", owner, f"of shape (..., n2, {n1})", f"shape {K21.shape}{hint}"
            )
        check_finite(K21, "K21", owner)
        return self._score(K21)

    def predict(self, K21: ArrayLike) -> NDArray:
        """Labels of new objects, of shape (..., n2), from K21 of shape (..., n2, n1)."""
        return self.classes_[self.decision_function(K21).argmax(axis=-1)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = True
        return tags

    @abstractmethod
    def _learn(self, K11: NDArray, codes: NDArray) -> None: ...

    @abstractmethod
    def _score(self, K21: NDArray) -> NDArray: ...


class KernelNearestMean(_KernelClassifier):
    """Nearest class mean in feature space (KNM, KNMC).

    The squared distance of object x to the mean of class c with members j, minus k(x, x), is
    ``mean_jl K11[j, l] - 2 mean_j K21[x, j]`` (eq 15 of the mixture model). It is linear in K21, so
    that the scores of a mean kernel are the mean of the scores.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)

    Notes
    -----
    `fit` costs O(n1^2), prediction O(n2 n1 C).
    """

    @override
    def _learn(self, K11: NDArray, codes: NDArray) -> None:
        members = np.eye(len(self.classes_))[codes]
        self._average = members / members.sum(axis=0)
        self._norms = np.einsum("jc,jc->c", self._average, K11 @ self._average)

    @override
    def _score(self, K21: NDArray) -> NDArray:
        return 2.0 * (K21 @ self._average) - self._norms


class KernelNearestNeighbour(_KernelClassifier):
    """Class of the nearest training object in feature space (KNNC).

    The squared distance of x to training object j, minus k(x, x), is ``K11[j, j] - 2 K21[x, j]``
    (Figure 4 of the mixture model, where all K11[j, j] are equal).

    Attributes
    ----------
    classes_ : ndarray of shape (C,)

    Notes
    -----
    `fit` costs O(n1), prediction O(n2 n1).
    """

    @override
    def _learn(self, K11: NDArray, codes: NDArray) -> None:
        # Sorted by class, so that the members of a class are one slice for `reduceat`.
        self._order = np.argsort(codes, kind="stable")
        self._starts = np.searchsorted(codes[self._order], np.arange(len(self.classes_)))
        self._norms = np.diagonal(K11)[self._order].copy()

    @override
    def _score(self, K21: NDArray) -> NDArray:
        nearness = 2.0 * K21[..., self._order] - self._norms
        return np.maximum.reduceat(nearness, self._starts, axis=-1)


class KernelFisherDiscriminant(_KernelClassifier):
    """Regularised Fisher discriminant in feature space (KFDA), with the nearest mean on its axes.

    The axes maximise the scatter between classes relative to the scatter within classes plus
    ``ridge`` times the identity of feature space. At most C - 1 axes have scatter between classes.
    Each axis is scaled to unit regularised scatter within classes, so that distances are
    Mahalanobis distances.

    Parameters
    ----------
    ridge : float, default=1e-3
        Ridge on the scale of the kernel: scatters are divided by n1.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)

    Notes
    -----
    Scatter within classes and total scatter give the same axes, so `fit` needs one Cholesky
    factorisation of the centred kernel plus ``n1 ridge I`` and an eigenproblem of size C:
    O(n1^3 / 3 + n1^2 C). Prediction costs O(n2 n1 C).
    """

    def __init__(self, ridge: float = 1e-3):
        self.ridge = ridge

    @override
    def _learn(self, K11: NDArray, codes: NDArray) -> None:
        owner = type(self).__name__
        ridge = check_positive(self.ridge, "ridge", owner)
        n1 = len(K11)
        members = np.eye(len(self.classes_))[codes]
        indicators = members / np.sqrt(members.sum(axis=0))
        indicators -= indicators.mean(axis=0)
        row_means = K11.mean(axis=0)
        centred = K11 - row_means - row_means[:, None] + row_means.mean()
        penalised = centred.copy()
        penalised.flat[:: n1 + 1] += n1 * ridge
        try:
            factor = cho_factor(penalised, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            raise argument_error(
                "K11", owner, "positive semidefinite", f"a negative eigenvalue below -{n1 * ridge}"
            ) from None
        solved = cho_solve(factor, indicators, check_finite=False)
        # Share of the total (regularised) scatter that lies between the classes, along each axis.
        share, rotation = eigh(indicators.T @ centred @ solved)
        keep = share > len(share) * np.finfo(float).eps
        share, rotation = share[keep], rotation[:, keep]
        axes = solved @ (rotation * np.sqrt(n1 / (share * (1.0 - share))))
        # With centred coefficients, new rows need not be centred.
        self._axes = axes - axes.mean(axis=0)
        self._means = (members / members.sum(axis=0)).T @ (K11 @ self._axes)
        self._norms = (self._means**2).sum(axis=1)

    @override
    def _score(self, K21: NDArray) -> NDArray:
        return 2.0 * (K21 @ self._axes) @ self._means.T - self._norms


def class_frequencies(labels: ArrayLike, classes: ArrayLike) -> NDArray:
    """Frequency of each class among an object's labels by draw.

    Parameters
    ----------
    labels : array-like of shape (..., n2)
        Labels by draw, as `predict` returns them for K21 of shape (..., n2, n1).
    classes : array-like of shape (C,)

    Returns
    -------
    ndarray of shape (n2, C)
        Rows sum to one when every label is among `classes`.

    Notes
    -----
    Costs O(draws n2 C).
    """
    labels = np.asarray(labels)
    return np.stack(
        [(labels == c).reshape(-1, labels.shape[-1]).mean(axis=0) for c in np.asarray(classes)],
        axis=-1,
    )
