"""Classifier on several kernels."""

from dataclasses import dataclass
from typing import Any, ClassVar, override

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from ..models import MultinomialProbit
from ..validation import argument_error
from .predictor import KernelPredictor


@dataclass(eq=False, repr=False, kw_only=True)
class KernelProbitClassifier(ClassifierMixin, KernelPredictor):
    """Classifier on a weighted combination of kernels: `MultinomialProbit` in scikit-learn.

    Parameters
    ----------
    kernels : Kernels, dict or "precomputed", optional
        Kernels of each block of features. See `KernelBlocks`, which describes `X` too. Default:
        ``kz.gaussian("median")`` or ``kz.kernels.inverse_multiquadric("median")``, whichever
        ``kz.select`` finds to predict better; the first where ``kz.select`` chooses nothing.
    blocks, normalize
        As in `KernelBlocks`.
    standardize : {"auto", "scale", "rank"} or bool, default="auto"
        Bring each feature to mean 0 and standard deviation 1 over the training objects, as it is
        or, with "rank", by its ranks. "auto": ranks, for all blocks, if the features of one have
        heavy tails or many zeros (a median excess kurtosis above 6) and ``kz.select``, where it
        chooses `upsilon` or the weights, finds ranks to predict better; otherwise "scale".
    engine : str or Engine, default="vb"
        As in ``kz.fit``: "vb" for predictions, which it makes in seconds; "gibbs" or "nuts" for
        weights, whose uncertainty VB may understate (`ApproximationWarning` says where).
    draws : int, optional
        As in ``kz.fit``. Default: 1,000 for chains; 100 for engines without chains, such as "vb",
        whose draws are independent.
    tune, chains, cores : int
        As in ``kz.fit``.
    random_state : int, RandomState or None, default=None
        An integer is the ``random_seed`` of ``kz.fit``. By default a seed is chosen, and recorded
        in the attributes of `result_`.
    fit_options : dict, optional
        Further arguments of ``kz.fit`` by name, such as ``{"max_seconds": 60}``, ``var_names`` or
        ``progressbar``, which is off by default.
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
    model_ : pm.Model
        Declared on the training kernels.
    result_ : DataTree
        Result of ``kz.fit``; ``result_.to_netcdf(path)`` saves it, `from_result` reads it back.
    weights_ : Dataset (kernel)
        Posterior ``mean`` and ``sd`` of the weights of the kernels; the standard deviation is NaN
        for weights that were not learned, as equal ones that were chosen (the attribute ``note``
        says so), and for engines that give a point. The coordinate ``description`` has the widths
        chosen for kernels that are named after their block.
    selection_ : DataArray (weights, scale, obs) or None
        Held-out log scores of what was chosen for "auto"; see ``kz.select``. None where nothing
        was. The attribute ``note`` says that the scale is at the end of those tried, beyond which
        may be better ones. With the dimension "features" first, where kernels or ranks were tried
        too.
    kernel_names_, standardize_, n_features_in_, feature_names_in_
        As in `KernelBlocks`; for precomputed kernels, `n_features_in_` counts training objects.
    classes_ : ndarray (class,)
        Sorted, as the columns of ``predict_proba``; those of an ordered Categorical have their own
        order in `model_` and `result_`.

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

    combination: Any = "auto"
    tau: float = 1.0
    upsilon: float | str = "auto"

    @override
    def _checked_responses(self, y: Any) -> Any:
        dtype: Any = getattr(y, "dtype", None)
        self._ranked = list(dtype.categories) if getattr(dtype, "ordered", False) else None
        return super()._checked_responses(y)

    @override
    def _response(self, y: np.ndarray, rows: Any) -> np.ndarray:
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        for argument, labels in (("y", self.classes_), ("sample_weight", np.unique(y[rows]))):
            if len(labels) < 2:
                rule, got = "of at least two classes", f"only {labels.tolist()[0]!r}"
                rule = rule if argument == "y" else f"above 0 for objects {rule}"
                raise argument_error(argument, type(self).__name__, rule, got)
        return y[rows]

    @property
    @override
    def _options(self) -> dict[str, Any]:
        classes = list(self.classes_)
        if self._ranked is not None:
            classes = [each for each in self._ranked if each in set(classes)]
        return super()._options | {"classes": classes}

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities (obs, class) over the posterior, with classes as in `classes_`."""
        p = self._predictions(X)["probability"].to_numpy()
        classes = list(self.model_.coords["class"])
        return p[:, [classes.index(each) for each in self.classes_]]

    def predict(self, X: Any) -> np.ndarray:
        """Most probable class of each object, ndarray (obs,)."""
        codes = self.predict_proba(X).argmax(axis=1)  # raises unless fitted
        return self.classes_[codes]

    @override
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Fraction of the objects whose most probable class is theirs.

        Parameters
        ----------
        X : as in `fit`
        y : array_like or Series (obs,)
            A Series is aligned by its index, where `X` has ids too.
        sample_weight : array_like or Series (obs,), optional
            A Series is aligned by its index too. Unlabelled ones raise where `y` is reordered.
        """
        return super().score(X, *self._in_order_of(X, y, sample_weight))
