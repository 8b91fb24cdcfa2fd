"""Classification from a kernel matrix alone: nearest mean and nearest neighbour.

The classifiers follow scikit-learn: ``fit(K11, labels)``, then ``predict(K21)``, where K11 is the
kernel among n1 training objects and K21 the kernel between n2 new objects (rows) and the training
objects (columns), aligned by ids if both have ids. The input is tagged as pairwise, so that
cross-validation splits rows and columns.

The classifiers do not need K22: a new object's similarity to itself adds the same number to its
distances to all classes. K21 may have leading dimensions (chain, draw), which the outputs keep.

References
----------
Zhang, Yeung and Kwok (2003), Probabilistic kernel matrix learning with a mixture model of kernels,
section 5.3: KNNC and KNMC.
"""

from abc import abstractmethod
from typing import Any, Self, override

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from ...models.kernels.labels import aligned, as_frame, labelled_gram, order_of
from ...validation import (
    argument_error,
    check_finite,
    check_labels,
    check_real,
    check_square_symmetric,
)


class KernelClassifier(ClassifierMixin, BaseEstimator):
    """Input validation and labels; a subclass learns from a kernel and scores the classes."""

    def fit(self, K11: ArrayLike, labels: ArrayLike) -> Self:
        """Learn from a symmetric kernel (n1, n1) and labels (n1,), aligned by ids if both have."""
        owner = type(self).__name__
        K11, self._ids = labelled_gram(K11, "K11", owner)
        labels = aligned(labels, self._ids, "labels", owner)
        K11 = check_real(K11, "K11", owner)
        if K11.ndim == 2:
            check_finite(K11, "K11", owner)
        check_square_symmetric(K11, "K11", owner)
        codes, self.classes_ = check_labels(labels, "labels", owner, n_objects=len(K11))
        self.n_features_in_ = len(K11)
        self._learn(K11, codes)
        return self

    def decision_function(self, K21: ArrayLike) -> NDArray:
        """Score (..., n2, C) of every class: the nearest class has the largest."""
        check_is_fitted(self)
        owner = type(self).__name__
        K21 = as_frame(K21)
        if isinstance(K21, pd.DataFrame):
            order = order_of(K21.columns, self._ids, "K21", owner, "of the training objects")
            K21 = K21 if order is None else K21.iloc[:, order]
        K21 = check_real(K21, "K21", owner)
        n1 = self.n_features_in_
        if K21.ndim < 2 or K21.shape[-1] != n1:
            hint = "; it looks transposed" if K21.ndim > 1 and K21.shape[-2] == n1 else ""
            got = f"shape {K21.shape}{hint}"
            raise argument_error("K21", owner, f"of shape (..., n2, {n1})", got)
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


class KernelNearestMean(KernelClassifier):
    """Nearest class mean in feature space (KNM, KNMC).

    The squared distance of object x to the mean of class c with members j, minus k(x, x), is
    ``mean_jl K11[j, l] - 2 mean_j K21[x, j]`` (eq 15 of the mixture model): linear in K21, so that
    the scores of a mean kernel are the mean of the scores. O(n1^2), and O(n2 n1 C) for predictions.
    """

    @override
    def _learn(self, K11: NDArray, codes: NDArray) -> None:
        members = np.eye(len(self.classes_))[codes]
        self._average = members / members.sum(axis=0)
        self._norms = np.einsum("jc,jc->c", self._average, K11 @ self._average)

    @override
    def _score(self, K21: NDArray) -> NDArray:
        return 2.0 * (K21 @ self._average) - self._norms


class KernelNearestNeighbour(KernelClassifier):
    """Class of the nearest training object in feature space (KNNC).

    The squared distance of x to training object j, minus k(x, x), is ``K11[j, j] - 2 K21[x, j]``
    (Figure 4 of the mixture model, where all K11[j, j] are equal). Prediction costs O(n2 n1).
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
