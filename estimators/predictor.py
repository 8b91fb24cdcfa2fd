"""What classifiers and regressors share: kernels, model, engine and result."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from copy import deepcopy
from numbers import Integral
from typing import Any, ClassVar, Self, override

import numpy as np
import pandas as pd
import pymc as pm
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data
from xarray import DataArray, Dataset, DataTree, concat

from ..inference import fit, predict, select
from ..inference.engine.predict import joined
from ..inference.engine.result import check_fitted, check_result
from ..inference.selection import SCALES, why_no_selection
from ..models.kernels import inverse_multiquadric
from ..models.kernels.labels import (
    aligned,
    as_frame,
    check_distinct,
    check_repeated,
    labels_of,
    listed,
)
from ..validation import argument_error, check_undated, check_unmasked
from .blocks import KernelReader
from .reading import ids_of
from .saving import as_bytes, from_bytes

__all__ = ["KernelPredictor", "document"]

#: Arguments of ``kz.fit`` that are parameters of the estimators, or follow from them.
OWN_OPTIONS = ("engine", "draws", "tune", "chains", "cores", "random_seed", "progressbar")
#: Value of the parameters that `select` chooses.
AUTO = "auto"
#: Kernels that classifiers and regressors choose from where none are given.
DEFAULT_KERNELS = ("gaussian", "inverse_multiquadric")
#: Parameters and attributes that all estimators have.
PARAMETERS = """kernels : Kernels, dict or "precomputed", optional
    Kernels of each block of features. See `KernelBlocks`, which describes `X`, `blocks`,
    `normalize` and `standardize` too. Default: ``kz.gaussian("median")`` or
    ``kz.kernels.inverse_multiquadric("median")``, whichever ``kz.select`` finds to predict better;
    the first where ``kz.select`` chooses nothing.
blocks : dict, optional
    Columns of each block, where `X` is one array or frame.
normalize : {"trace", "unit"} or None, default="trace"
    Normalisation of the kernels that have none of their own.
standardize : bool, default=True
    Bring each feature to mean 0 and standard deviation 1 over the training objects.
engine : str or Engine, default="vb"
    As in ``kz.fit``: "vb" for predictions, which it makes in seconds; "gibbs" or "nuts" for
    weights, which VB's draws may show far too sure (`ApproximationWarning` says where).
draws, tune, chains, cores : int
    As in ``kz.fit``.
random_state : int, RandomState or None, default=None
    An integer is the ``random_seed`` of ``kz.fit``. By default a seed is chosen, and recorded in
    the attributes of `result_`.
fit_options : dict, optional
    Further arguments of ``kz.fit`` by name, such as ``{"max_seconds": 60}`` or ``start``.
progressbar : bool, default=False
    Show progress."""
ATTRIBUTES = """model_ : pm.Model
    Declared on the training kernels.
result_ : DataTree
    Result of ``kz.fit``; ``result_.to_netcdf(path)`` saves it, `from_result` reads it back.
weights_ : Dataset (kernel)
    Posterior ``mean`` and ``sd`` of the weights of the kernels; the standard deviation is 0 for
    known weights and NaN for engines that give a point. The coordinate ``description`` has the
    widths chosen for kernels that are named after their block.
selection_ : DataArray (weights, scale, obs) or None
    Held-out log scores of what was chosen for "auto"; see ``kz.select``. None where nothing was.
    With the dimension "kernels" first, where these were chosen too.
kernel_names_ : ndarray (kernel,)
n_features_in_ : int
    Number of features of all blocks; of training objects, for precomputed kernels.
feature_names_in_ : ndarray
    Names of the features, where `X` names them; pairs (block, feature) if it names blocks too."""


def document(cls: type) -> type:
    """Insert what the estimators share into the docstring of one."""
    told = cls.__doc__ or ""
    for place, text in (("{parameters}", PARAMETERS), ("{attributes}", ATTRIBUTES)):
        told = told.replace(place, text.replace("\n", "\n    "))
    cls.__doc__ = told
    return cls


class KernelPredictor(KernelReader):
    """Estimator that declares a model on the kernels and infers it with an engine."""

    engine: Any
    draws: int
    tune: int
    chains: int
    cores: int | None
    random_state: Any
    fit_options: Any
    progressbar: bool
    #: Parameters of the estimator that are arguments of the model.
    _of_model: ClassVar[tuple[str, ...]]
    #: What "auto" stands for where `select` does not apply.
    _without_choice: ClassVar[dict[str, Any]]
    _model: ClassVar[Callable[..., pm.Model]]

    def fit(self, X: Any, y: Any) -> Self:
        """Compute the kernels of the training objects, declare the model and infer it.

        Parameters
        ----------
        X : dict, DataFrame or array
            Training objects; see `KernelBlocks`. Rows of one id must be equal in `X` and `y`, as in
            a bootstrap sample.
        y : array_like or Series (obs,)
            Response. A Series goes by its index, where `X` has ids too. Regression takes tables
            (obs, output) of several outputs.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For kernels, responses and settings that the model or the engine refuses.

        Warns
        -----
        ApproximationWarning, KernelWarning
            As ``kz.fit`` and the model do.
        """
        options = _options_of_fit(self.fit_options, type(self).__name__)
        log_scores = self._declare(X, y)
        result = fit(
            self.model_,
            self.engine,
            draws=self.draws,
            tune=self.tune,
            chains=self.chains,
            cores=self.cores,
            random_seed=seed_of(self.random_state),
            progressbar=self.progressbar,
            **options,
        )
        if log_scores is not None:
            # In the result, which saved estimators keep.
            result["selection"] = DataTree(Dataset({"log_score": log_scores}))
        return self._accept(result)

    @property
    def selection_(self) -> DataArray | None:
        """Held-out log scores of what was chosen for "auto", or None."""
        check_is_fitted(self)
        if "selection" not in self.result_.children:
            return None
        return self.result_["selection"].to_dataset()["log_score"]

    @classmethod
    def from_result(cls, result: DataTree, X: Any, y: Any, **parameters: Any) -> Self:
        """Make a fitted estimator from a saved result, without running the engine.

        Parameters
        ----------
        result : DataTree
            `result_` of an estimator with the same parameters on the same objects, for example from
            ``az.from_netcdf``.
        X, y : as in `fit`
            The training objects, in any order if `X` and the result have their ids.
        **parameters
            Of the estimator that was fitted: those that it was given, or its ``get_params()``.

        Returns
        -------
        Fitted estimator

        Raises
        ------
        ValueError
            When the result is of other kernels, objects, responses or priors.

        Examples
        --------
        >>> classifier.result_.to_netcdf("result.nc")
        >>> result = az.from_netcdf("result.nc")
        >>> classifier = type(classifier).from_result(result, X, y, **classifier.get_params())
        """
        check_result(result, "result", f"{cls.__name__}.from_result")
        estimator = cls(**parameters)
        ids, order = ids_of(X), _fitted_objects(result)
        if ids is None or order is None or not ids.is_unique or {*ids} != {*order}:
            order = None
        elif labels_of(as_frame(y)) is None and len(y) == len(ids):
            y = (pd.Series if np.ndim(y) == 1 else pd.DataFrame)(np.asarray(y), index=ids)
        estimator._declare(X, y, order)
        try:
            check_fitted(estimator.model_, result, f"{cls.__name__}.from_result")
        except ValueError as error:
            raise ValueError(
                f"{error} The parameters must be those of the estimator that was fitted, too: "
                f"{cls.__name__}.from_result(result, X, y, **fitted.get_params())."
            ) from error
        return estimator._accept(result)

    def _declare(self, X: Any, y: Any, order: pd.Index | None = None) -> DataArray | None:
        """Set `model_`, declared on training objects in the order of `X` or of ids.

        Return the held-out log scores of what was chosen, if anything was.
        """
        owner = type(self).__name__
        y = as_frame(y)
        _check_responses(y, owner)
        # Before X, because it deletes the names of the features.
        checked = validate_data(self, y=y, **self._checks_of_response)
        stack = self._fit_kernels(X, order)
        ids, table = labels_of(y), pd.Series if np.ndim(checked) == 1 else pd.DataFrame
        given = checked if ids is None else table(checked, index=ids)
        ordered = np.asarray(aligned(given, self._training.labels, "y", owner))
        check_consistent_length(self._training.labels, ordered)
        check_repeated(self._training.labels, ordered, "y", owner)
        # A copy: the caller may change y in place.
        self._values = np.array(self._response(ordered))
        # Of classifiers, scikit-learn's check has taken the only column of a table.
        several = isinstance(y, pd.DataFrame) and ordered.ndim == 2
        self._outputs = y.columns.tolist() if several else None
        self._options = {name: deepcopy(getattr(self, name)) for name in self._of_model}
        log_scores = self._choose(stack)
        if self.kernels is None and log_scores is not None:
            stack, log_scores = self._choose_kernels(X, order, stack, log_scores)
        self.model_ = self._declared(stack)
        return log_scores

    def _choose_kernels(
        self, X: Any, order: pd.Index | None, stack: Any, log_scores: DataArray
    ) -> tuple[Any, DataArray]:
        """Compare the default kernels, whose choice is made, with those of the second kind."""
        options = self._options
        self._options = {name: deepcopy(getattr(self, name)) for name in self._of_model}
        other = self._fit_kernels(X, order, inverse_multiquadric("median"))
        others = self._choose(other)
        assert others is not None
        both = concat([log_scores, others], pd.Index(DEFAULT_KERNELS, name="kernels"))
        first, second = both.mean("obs").max(("weights", "scale")).to_numpy()
        if second > first:
            return other, both
        self._options = options
        return self._fit_kernels(X, order), both

    def _choose(self, stack: Any) -> DataArray | None:
        """Replace "auto" by what predicts objects best that are left out."""
        options = self._options
        chosen = [
            name
            for name in self._without_choice
            if isinstance(options[name], str) and options[name] == AUTO
        ]
        if not chosen:
            return None
        options |= {name: self._without_choice[name] for name in chosen}
        model = self._declared(stack)
        if why_no_selection(model) is not None:
            return None
        scale, rule = self._without_choice
        selection = select(
            model,
            scales=SCALES if scale in chosen else [options[scale]],
            choose_weights=rule in chosen,
            progressbar=self.progressbar,
        )
        options |= selection.settings
        return selection.log_scores

    def _declared(self, stack: Any) -> pm.Model:
        """Model of the training objects, with the parameters that it had in `fit`."""
        values: Any = self._values
        if self._outputs is not None:
            values = pd.DataFrame(values, index=self._training.labels, columns=self._outputs)
        return type(self)._model(stack, values, **self._options)

    @override
    def __getstate__(self) -> dict[str, Any]:
        """State without the model, which `__setstate__` declares again."""
        state = super().__getstate__()
        if "result_" not in state:
            return state
        del state["model_"], state["weights_"]
        return state | {"result_": as_bytes(state["result_"])}

    @override
    def __setstate__(self, state: dict[str, Any]) -> None:
        """Declare the model on the training objects again, and read the result."""
        stored = dict(state)
        result = stored.pop("result_", None)
        super().__setstate__(stored)
        if result is not None:
            self.model_ = self._declared(self._training_kernels())
            self._accept(from_bytes(result))

    def _accept(self, result: DataTree) -> Self:
        self.result_ = result
        self.weights_ = weights_of(self.model_, result)
        told = [self._descriptions.get(name, name) for name in self.kernel_names_]
        if told != list(self.kernel_names_):
            self.weights_ = self.weights_.assign_coords(description=("kernel", told))
        return self

    _checks_of_response: ClassVar[dict[str, Any]] = {}

    @abstractmethod
    def _response(self, y: np.ndarray) -> np.ndarray:
        """Check the response and bring it onto the scale of the model."""

    def _predictions(self, X: Any) -> Dataset:
        """Predictions of ``kz.predict`` for new objects."""
        check_is_fitted(self)
        parts = [
            predict(self.model_, self.result_, kernels, progressbar=self.progressbar)
            for kernels in self._new_stacks(X)
        ]
        return parts[0] if len(parts) == 1 else joined(parts)

    def _in_order_of(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any]:
        """Responses and their weights in the order of the objects of X, where they have ids."""
        ids, owner, y = ids_of(X), type(self).__name__, as_frame(y)
        ordered = y if ids is None else aligned(y, ids, "y", owner)
        if ids is not None and len(ids) == len(ordered):
            check_repeated(ids, ordered, "y", owner)
        if sample_weight is None:
            return ordered, None
        sample_weight = as_frame(sample_weight)
        if labels_of(sample_weight) is None and ordered is not y:
            requirement = "labelled like y, because y is reordered to match X"
            got = type(sample_weight).__name__
            raise argument_error("sample_weight", owner, requirement, got)
        # Where X has no ids, y and the weights may have them.
        ids = labels_of(ordered) or ids
        if ids is None:
            return ordered, sample_weight
        return ordered, aligned(sample_weight, ids, "sample_weight", owner)


def _fitted_objects(result: DataTree) -> pd.Index | None:
    """Ids of the objects of a result, or None."""
    if "observed_data" not in result.children:
        return None
    return result["observed_data"].to_dataset().indexes.get("obs")


def _options_of_fit(options: Any, owner: str) -> dict[str, Any]:
    """Further arguments of ``kz.fit``, which checks their names; none is one of the estimator's."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise argument_error("fit_options", owner, "a dict of arguments of kz.fit", repr(options))
    if own := sorted({"model", *OWN_OPTIONS} & options.keys()):
        required = f"without {', '.join(['model', *OWN_OPTIONS])}, which the estimator sets"
        raise argument_error("fit_options", owner, required, listed(own))
    return dict(options)


def _check_responses(y: Any, owner: str) -> None:
    """Raise if responses are masked, missing or of several types; the message names the objects."""
    check_unmasked(y, "y", owner)
    if isinstance(y, pd.DataFrame):
        check_distinct(y.columns, "y", owner, "of outputs with distinct names")
    values = np.asarray(y, dtype=object)
    if values.ndim not in (1, 2):
        return
    check_undated(y, "y", owner)
    absent = np.flatnonzero(pd.isna(values.reshape(len(values), -1)).any(axis=1))
    if len(absent):
        ids = labels_of(y) or range(len(values))
        got = f"none for {listed([ids[row] for row in absent])}"
        raise argument_error("y", owner, "a response for every object", got)
    types = {type(value).__name__ for value in values.flat}
    if len(types) > 1 and types & {"str", "str_"}:
        # NumPy would turn the others into strings.
        got = " and ".join(sorted(types))
        raise argument_error("y", owner, "labels of one type, so that classes can be sorted", got)


def seed_of(random_state: Any) -> int | None:
    """Seed for ``kz.fit``; a RandomState moves on by one draw."""
    if random_state is None:
        return None
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def weights_of(model: Any, result: DataTree) -> Dataset:
    """Mean and standard deviation (kernel) of the weights of the kernels."""
    dims, names = ("kernel",), np.asarray(model.coords["kernel"])
    if model.learned:
        draws = result["posterior"]["beta"]
        mean, sd = draws.mean(("chain", "draw")), draws.std(("chain", "draw"))
        sd = sd if draws.sizes["chain"] * draws.sizes["draw"] > 1 else sd * np.nan
    else:
        mean = DataArray(model["beta"].get_value(), dims=dims, coords={"kernel": names})
        sd = mean * 0.0
    kept = ("engine", "converged", "pareto_k")
    attributes = {name: result.attrs[name] for name in kept if name in result.attrs}
    return Dataset({"mean": mean, "sd": sd}, attrs=attributes)
