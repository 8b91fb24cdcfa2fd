"""Classifiers on several kernels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, override

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from ..inference.engine.engine import as_engine
from ..inference.gaussian_process.choice import (
    SCALES,
    Tried,
    tried_for_classes,
)
from ..models import GaussianProcessClassification, MultinomialProbit
from ..models.learned_scale import LEARNED, LearnedScale, check_rate
from ..numerics.groups import Groups
from ..numerics.likelihoods import Likelihood, likelihood_of
from ..validation import argument_error
from .of_model import ModelPredictor
from .predictor import KernelPredictor


@dataclass(eq=False, repr=False, kw_only=True)
class _Classifier(ClassifierMixin, KernelPredictor):
    """Classes of every classifier: how they are read, predicted and scored."""

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
                rule = "of at least two classes"
                got = f"only {labels.tolist()[0]!r}"
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

    @override
    def _labels_of_classes(self, response: Any) -> NDArray:
        return np.asarray(response)

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
        return super().score(X, *self._in_order_of(X, y, sample_weight, "sample_weight"))


@dataclass(eq=False, repr=False, kw_only=True)
class KernelClassifier(ModelPredictor, _Classifier):
    """Classifier on several kernels: `GaussianProcessClassification`, or another model.

    By default kernels are chosen by leave-one-out scores, which one fit has for all objects, and
    the scores of all classes are at their mode: a fit is made for predictions, in a second or so.
    ``engine="inla"`` learns the scale and the weights of the kernels, with their uncertainty.

    Where objects are samples of persons, or come in other groups, ``fit(X, y, groups=persons)``
    leaves groups out together. They count once each, and the default prior of the scale counts too.

    Parameters
    ----------
    kernels : Kernels, dict or "precomputed", optional
        Kernels of each block of features. See `KernelBlocks`, which describes `X` too. Default: an
        inverse multiquadric of each block, with the best of six multiples of the width
        ``kz.kernels.inverse_multiquadric("median")``; of more than 1,000 objects its columns at
        500 landmarks.
    blocks, normalize
        As in `KernelBlocks`.
    standardize : {"auto", "scale", "rank"} or bool, default="auto"
        Bring each feature to mean 0 and standard deviation 1 over the training objects, as it is
        or, with "rank", by its ranks. "auto": ranks, for all blocks, if the features of one have
        heavy tails or many zeros (a median excess kurtosis above 6) and left-out objects are
        predicted better; otherwise "scale".
    model : class of a model, optional
        Such as ``kz.MultinomialProbit``, whose parameters "auto" are chosen as by
        `KernelProbitClassifier`. Default: ``kz.GaussianProcessClassification``.
    model_options : dict, optional
        Arguments of the model by name, such as ``{"combination": "mean", "upsilon": 10.0}``.
        Default, with engines that give a point, of the Gaussian process: the scale that predicts
        left-out objects best, and equal weights, or those at the mode of their posterior where
        these predict left-out objects better by more than a standard error; with other engines
        those of the model, which learns both.
    engine : str or Engine, optional
        As in ``kz.fit``. Default: "map" of the Gaussian process, "inla" where hyperparameters are
        learned, "vb" of other models.
    draws, tune, chains, cores, random_state, fit_options
        As in `KernelProbitClassifier`.

    Attributes
    ----------
    model_, result_, kernel_names_, standardize_, n_features_in_, feature_names_in_, classes_
        As in `KernelProbitClassifier`.
    weights_ : Dataset (kernel)
        As in `KernelProbitClassifier`; the attribute ``note`` says how weights were set.
    selection_ : DataArray (candidate, obs) or None
        Log scores of left-out objects for the kernels that were tried: of at most 1,000 objects,
        drawn from all, copies and groups left out together. Coordinates say what each candidate is.

    Notes
    -----
    A choice costs O(N^3 + C N m^2) for each kernel and scale that is tried, about 20 of them, with
    m = min(N, 200), and O(C n^3) for each group of n objects; N is at most 1,000 there. The fit
    itself is that of the engine. New objects of precomputed kernels are taken to have the training
    objects' mean variance, k(x, x).

    References
    ----------
    C. E. Rasmussen and C. K. I. Williams (2006), Gaussian processes for machine learning, MIT
    Press: chapters 3 and 5.

    Examples
    --------
    >>> X = pd.concat({"rna": rna, "protein": protein}, axis=1)
    >>> classifier = KernelClassifier().fit(X, y)
    >>> classifier.predict_proba(X)
    >>> learned = KernelClassifier(engine="inla", random_state=1).fit(X, y)
    >>> learned.weights_.to_dataframe()
    """

    _model = GaussianProcessClassification
    _argument = "labels"

    @property
    @override
    def _engine_of_gaussian_process(self) -> Any:
        learned = [variable.name for variable in self.model_.free_RVs] != ["v"]
        return "inla" if learned else "map"

    @override
    def _responses_of_model(self) -> NDArray:
        model: Any = self.model_
        return np.asarray(model.coords["class"])[model.label_codes]

    @override
    def _as_numbers(self, response: NDArray) -> NDArray[np.float64]:
        return np.searchsorted(self.classes_, response)[:, None].astype(float)

    @override
    def _tried(
        self, covariance: Any, response: NDArray, times: Any, groups: Groups | None
    ) -> list[Tried]:
        likelihood = self._likelihood(response)
        return tried_for_classes(covariance, likelihood, times, self._scales(), groups)

    def _likelihood(self, response: NDArray) -> Likelihood:
        return likelihood_of(np.searchsorted(self.classes_, response), len(self.classes_))

    def _scales(self) -> Sequence[float]:
        """Scales that are tried: all of them, or the one that is given."""
        owner = self._declaration.__name__
        scale = check_rate(self._options.get("scale", LEARNED), "scale", owner)
        return SCALES if isinstance(scale, LearnedScale) else (scale,)

    @override
    def _process_of(self, stack: NDArray, response: NDArray) -> Any:
        codes = np.searchsorted(self.classes_, response)
        return GaussianProcessClassification(stack, codes, classes=list(range(len(self.classes_))))

    @property
    @override
    def _sets_weights(self) -> bool:
        return self._gives_a_point or self._groups is not None

    @property
    @override
    def _learns_weights(self) -> str:
        return "engine='inla'" if self._groups is None else super()._learns_weights

    @property
    def _gives_a_point(self) -> bool:
        return self.engine is None or as_engine(self.engine).kind == "point"

    @override
    def _settings(self, chosen: Tried) -> dict[str, Any]:
        # What the engine would learn takes objects of a group as independent.
        if not self._gives_a_point and self._groups is None:
            return {}
        given = self._options
        found = {"scale": chosen.scale, "combination": chosen.combination}
        return {name: value for name, value in found.items() if name not in given}


@dataclass(eq=False, repr=False, kw_only=True)
class KernelProbitClassifier(_Classifier):
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
