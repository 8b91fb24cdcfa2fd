"""Classifiers on several kernels."""

from typing import Any, ClassVar, override

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from ..models import CompositeKernelClassification, MultinomialProbit
from .predictor import KernelPredictor, document

__all__ = ["CompositeKernelClassifier", "KernelProbitClassifier"]


class _KernelClassifier(ClassifierMixin, KernelPredictor):
    """Predictions of a classifier."""

    @override
    def _response(self, y: np.ndarray) -> np.ndarray:
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        return y

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, averaged over the posterior.

        Parameters
        ----------
        X : as in `fit`

        Returns
        -------
        ndarray (obs, class)
            Columns in the order of `classes_`.
        """
        return self._predictions(X)["probability"].to_numpy()

    def predict(self, X: Any) -> np.ndarray:
        """Most probable class of each object, ndarray (obs,)."""
        codes = self.predict_proba(X).argmax(axis=1)
        return self.classes_[codes]

    @override
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Fraction of the objects whose most probable class is theirs.

        Parameters
        ----------
        X : as in `fit`
        y : array_like or Series (obs,)
            A Series goes by its index, where `X` has ids too.
        sample_weight : array_like or Series (obs,), optional
            A Series goes by its index too. Unlabelled ones raise where `y` is reordered.
        """
        return super().score(X, *self._in_order_of(X, y, sample_weight))


@document
class KernelProbitClassifier(_KernelClassifier):
    """Classifier on a weighted combination of kernels: `MultinomialProbit` in scikit-learn.

    Parameters
    ----------
    {parameters}
    combination : str or Combination, default="auto"
        Rule that combines the kernels; see `MultinomialProbit`, also for `tau` and `upsilon`.
        "auto": learned weights ("mean") or equal ones ("fixed"), whichever ``kz.select`` finds to
        predict better; "mean" where it does not apply. Give "mean" to read the weights.
    tau : float, default=1
    upsilon : float or "auto", default="auto"
        Shape and rate of the precisions of the regressors. "auto": by ``kz.select``; 1 where it
        does not apply.

    Attributes
    ----------
    {attributes}
    classes_ : ndarray (class,)
        Sorted.

    References
    ----------
    T. Damoulas and M. A. Girolami (2009), Combining feature spaces for classification, Pattern
    Recognition 42.

    Examples
    --------
    >>> X = pd.concat({"rna": rna, "protein": protein}, axis=1)
    >>> classifier = KernelProbitClassifier(kz.gaussian("median"), random_state=1).fit(X, y)
    >>> classifier.predict_proba(X)
    >>> sampled = classifier.set_params(engine="gibbs", draws=50, tune=50, chains=2).fit(X, y)
    >>> sampled.weights_.to_dataframe()
    """

    _model = MultinomialProbit
    _of_model = ("combination", "tau", "upsilon")
    _without_choice: ClassVar[dict[str, Any]] = {"upsilon": 1.0, "combination": "mean"}

    def __init__(
        self,
        kernels: Any = None,
        *,
        blocks: Any = None,
        normalize: Any = "trace",
        standardize: bool = True,
        combination: Any = "auto",
        tau: float = 1.0,
        upsilon: float | str = "auto",
        engine: Any = "vb",
        draws: int = 1000,
        tune: int = 1000,
        chains: int = 4,
        cores: int | None = None,
        random_state: Any = None,
        fit_options: Any = None,
        progressbar: bool = False,
    ):
        self.kernels = kernels
        self.blocks = blocks
        self.normalize = normalize
        self.standardize = standardize
        self.combination = combination
        self.tau = tau
        self.upsilon = upsilon
        self.engine = engine
        self.draws = draws
        self.tune = tune
        self.chains = chains
        self.cores = cores
        self.random_state = random_state
        self.fit_options = fit_options
        self.progressbar = progressbar


@document
class CompositeKernelClassifier(_KernelClassifier):
    """Classifier of two classes: `CompositeKernelClassification` in scikit-learn.

    Parameters
    ----------
    {parameters}
    combination : {"auto", "dirichlet", "fixed"} or Combination, default="auto"
        Rule that combines the kernels; see `CompositeKernelClassification`, also for `bias`,
        `sigma` and `varsigma`. "auto": learned weights ("dirichlet") or equal ones ("fixed"),
        whichever ``kz.select`` finds to predict better; "dirichlet" where it does not apply. Give
        "dirichlet" to read the weights.
    bias : bool, default=True
        Whether to add a constant to the basis functions.
    sigma : float, default=1
    varsigma : float or "auto", default="auto"
        Shape and rate of the precisions of the regression weights. "auto": by ``kz.select``; 1
        where it does not apply.

    Attributes
    ----------
    {attributes}
    classes_ : ndarray (2,)
        Sorted.

    References
    ----------
    M. Girolami and S. Rogers (2005), Hierarchic Bayesian models for kernel learning, ICML: section
    4.4.

    Examples
    --------
    >>> blocks = {"sequence": slice(0, 5), "structure": slice(5, 13)}
    >>> classifier = CompositeKernelClassifier(blocks=blocks, random_state=1).fit(X, y)
    >>> classifier.predict_proba(X_new)
    """

    _model = CompositeKernelClassification
    _of_model = ("combination", "bias", "sigma", "varsigma")
    _without_choice: ClassVar[dict[str, Any]] = {"varsigma": 1.0, "combination": "dirichlet"}

    def __init__(
        self,
        kernels: Any = None,
        *,
        blocks: Any = None,
        normalize: Any = "trace",
        standardize: bool = True,
        combination: Any = "auto",
        bias: bool = True,
        sigma: float = 1.0,
        varsigma: float | str = "auto",
        engine: Any = "vb",
        draws: int = 1000,
        tune: int = 1000,
        chains: int = 4,
        cores: int | None = None,
        random_state: Any = None,
        fit_options: Any = None,
        progressbar: bool = False,
    ):
        self.kernels = kernels
        self.blocks = blocks
        self.normalize = normalize
        self.standardize = standardize
        self.combination = combination
        self.bias = bias
        self.sigma = sigma
        self.varsigma = varsigma
        self.engine = engine
        self.draws = draws
        self.tune = tune
        self.chains = chains
        self.cores = cores
        self.random_state = random_state
        self.fit_options = fit_options
        self.progressbar = progressbar

    @override
    def _response(self, y: np.ndarray) -> np.ndarray:
        check_classification_targets(y)
        kind = type_of_target(y, input_name="y", raise_unknown=True)
        if kind != "binary":
            raise ValueError(
                "Only binary classification is supported. The type of the target is "
                f"{kind}. Use KernelProbitClassifier for more classes."
            )
        return super()._response(y)

    @override
    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
