"""Regressors on several kernels."""

from dataclasses import dataclass
from typing import Any, ClassVar, override

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import MultiOutputMixin, RegressorMixin

from ..inference.gaussian_process.choice import Tried, tried_for_targets
from ..inference.paper_engines import INLA
from ..models import CompositeKernelRegression, GaussianProcessRegression
from ..models.kernels.labels import order_of
from ..models.learned_scale import LEARNED, LearnedScale, check_rate
from ..numerics.groups import Groups
from ..validation import check_flag, standard_deviation
from .of_model import ModelPredictor
from .predictor import KernelPredictor

#: Points of the hyperparameters, of which few are learned.
INLA_POINTS = 64


@dataclass(eq=False, repr=False, kw_only=True)
class _Regressor(MultiOutputMixin, RegressorMixin, KernelPredictor):
    """Targets of every regressor: how they are scaled, predicted and scored."""

    _checks_of_response: ClassVar[dict[str, Any]] = {"y_numeric": True, "multi_output": True}

    @override
    def _response(self, y: np.ndarray, rows: Any) -> np.ndarray:
        values = np.asarray(y[rows], dtype=float)
        # One number, or one per output.
        self._mean = np.asarray(values.mean(axis=0))
        self._scale = standard_deviation(values)
        self._scale[self._scale == 0] = 1.0
        return (values - self._mean) / self._scale

    @override
    def _targets_of(self, response: Any) -> NDArray:
        return np.asarray(response).reshape(len(response), -1)

    def predict(
        self, X: Any, return_std: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Mean of the posterior predictive distribution of each target.

        Parameters
        ----------
        X : as in `fit`
        return_std : bool, default=False
            Also return the standard deviation of a new target, noise included.

        Returns
        -------
        ndarray (obs,), or (obs, output) if `y` had outputs, or a pair of them
        """
        check_flag(return_std, "return_std", type(self).__name__)
        predictions = self._predictions(X)
        mean = self._mean + self._scale * predictions["mean"].to_numpy()
        return (mean, self._scale * predictions["target_sd"].to_numpy()) if return_std else mean

    @override
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Coefficient of determination of the predicted means.

        Parameters
        ----------
        X : as in `fit`
        y : array_like or Series (obs,), or a table (obs, output)
            Aligned by its index, where `X` has ids too, and by its columns, where those of `fit`
            had names. The score is the mean of those of the outputs.
        sample_weight : array_like or Series (obs,), optional
            A Series is aligned by its index too. Unlabelled ones raise where `y` is reordered.
        """
        y, sample_weight = self._in_order_of(X, y, sample_weight, "sample_weight")
        if isinstance(y, pd.DataFrame) and self.model_.several:
            owner = type(self).__name__
            rule = "labelled by the outputs given to fit"
            order = order_of(y.columns, self.model_.coords["output"], "y", owner, rule)
            y = y if order is None else y.iloc[:, order]
        return super().score(X, y, sample_weight)


@dataclass(eq=False, repr=False, kw_only=True)
class KernelRegressor(ModelPredictor, _Regressor):
    """Regression on several kernels: `GaussianProcessRegression`, or another model.

    The model is fitted to targets of mean 0 and standard deviation 1, for which its priors are
    made. Predictions are on the scale of `y`, `model_` and `result_` are not. By default the
    evidence chooses the kernels' width; scale, noise and weights are learned.

    The evidence does not know of groups: where the samples of a person have one target, the learned
    noise is far too small. With ``fit(X, y, groups=persons)``, width, scale and noise (one for all
    outputs) are those that predict left-out groups best, unless `model_options` has them. Weights
    are then equal, or those at the mode of their posterior where these predict left-out groups
    better by more than a standard error.

    Parameters
    ----------
    kernels, blocks, normalize, standardize
        As in `KernelClassifier`; the evidence takes the place of the leave-one-out scores.
    model : class of a model, optional
        Such as ``kz.CompositeKernelRegression``, whose parameters "auto" are chosen as by
        `CompositeKernelRegressor`. Default: ``kz.GaussianProcessRegression``.
    model_options : dict, optional
        Arguments of the model by name, such as ``{"combination": "fixed"}``.
    engine : str or Engine, optional
        As in ``kz.fit``. Default: ``kz.INLA(max_points=64)`` of the Gaussian process, "vb" of other
        models.
    draws, tune, chains, cores, random_state, fit_options
        As in `KernelClassifier`.

    Attributes
    ----------
    model_, result_, weights_, selection_, kernel_names_, n_features_in_, feature_names_in_
        As in `KernelClassifier`.

    References
    ----------
    C. E. Rasmussen and C. K. I. Williams (2006), Gaussian processes for machine learning, MIT
    Press: chapters 2 and 5.

    Examples
    --------
    >>> regressor = KernelRegressor(random_state=1).fit(X, y)
    >>> mean, sd = regressor.predict(X_new, return_std=True)
    """

    _model = GaussianProcessRegression
    _argument = "targets"

    @property
    @override
    def _engine_of_gaussian_process(self) -> Any:
        return INLA(max_points=INLA_POINTS)

    @override
    def _responses_of_model(self) -> NDArray:
        return self.model_["targets"].get_value()

    @override
    def _as_numbers(self, response: NDArray) -> NDArray[np.float64]:
        return response.reshape(len(response), -1).astype(float)

    @override
    def _tried(
        self, covariance: Any, response: NDArray, times: Any, groups: Groups | None
    ) -> list[Tried]:
        scale, precision = (self._known(name) for name in ("scale", "gamma"))
        noise = None if precision is None else 1.0 / precision
        return tried_for_targets(
            covariance, self._as_numbers(response), times, groups, scale=scale, noise=noise
        )

    def _known(self, name: str) -> float | None:
        """Return the number that `model_options` have for an argument, or None."""
        given = check_rate(self._options.get(name, LEARNED), name, self._declaration.__name__)
        return None if isinstance(given, LearnedScale) else given

    @override
    def _process_of(self, stack: NDArray, response: NDArray) -> Any:
        return GaussianProcessRegression(stack, response)

    @property
    @override
    def _sets_weights(self) -> bool:
        return self._groups is not None

    @override
    def _settings(self, chosen: Tried) -> dict[str, Any]:
        # The evidence, by which the engine learns, does not know of groups.
        if chosen.noise is None:
            return {}
        given = self._options
        found = {
            "scale": chosen.scale,
            "gamma": 1.0 / chosen.noise,
            "combination": chosen.combination,
        }
        return {name: value for name, value in found.items() if name not in given}


@dataclass(eq=False, repr=False, kw_only=True)
class CompositeKernelRegressor(_Regressor):
    """Regression on a weighted combination of kernels: `CompositeKernelRegression` in scikit-learn.

    The model is fitted to targets of mean 0 and standard deviation 1, for which its priors are
    made. Predictions are on the scale of `y`, `model_` and `result_` are not.

    Parameters
    ----------
    kernels, blocks, normalize, standardize
        As in `KernelProbitClassifier`.
    engine, draws, tune, chains, cores, random_state, fit_options
        As in `KernelProbitClassifier`.
    combination : {"auto", "mean", "fixed"} or Combination, default="auto"
        Rule that combines the kernels; see `CompositeKernelRegression`, also for the parameters
        below. "auto": learned weights ("mean") or equal ones ("fixed"), whichever
        ``kz.select`` finds to predict better; "mean" where it does not apply. Give
        "mean" to read the weights.
    bias : bool, default=True
        Whether to add a constant to the basis functions.
    sigma : float, default=1
    varsigma : float or "auto", default="auto"
        Shape and rate of the precisions of the regression weights. "auto": by ``kz.select``; 1
        where it does not apply.
    rho, varrho : float, default=1
        Shape and rate of the noise precision.
    collapsed : bool, default=False
        Integrate the regression weights out, for NUTS and one output.
    shared : {"weights", "all"}, default="weights"
        What several outputs share: the weights of the kernels, or the noise, too.

    Attributes
    ----------
    model_, result_, weights_, selection_, kernel_names_, n_features_in_, feature_names_in_
        As in `KernelProbitClassifier`.

    References
    ----------
    M. Girolami and S. Rogers (2005), Hierarchic Bayesian models for kernel learning, ICML: section
    3.

    Examples
    --------
    >>> regressor = CompositeKernelRegressor(kz.gaussian("median") | kz.linear()).fit(X, y)
    >>> mean, sd = regressor.predict(X_new, return_std=True)
    """

    _model = CompositeKernelRegression
    _of_model = ("combination", "bias", "sigma", "varsigma", "rho", "varrho", "collapsed", "shared")
    _without_choice: ClassVar[dict[str, Any]] = {"varsigma": 1.0, "combination": "mean"}

    combination: Any = "auto"
    bias: bool = True
    sigma: float = 1.0
    varsigma: float | str = "auto"
    rho: float = 1.0
    varrho: float = 1.0
    collapsed: bool = False
    shared: str = "weights"
