"""What classifiers and regressors share: kernels, model, engine and result."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pandas as pd
import pymc as pm
from numpy.typing import NDArray
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data
from xarray import DataArray, Dataset, DataTree, concat

from ..inference import fit, predict
from ..inference.choice import SCALES, at_the_end, selected, why_no_selection
from ..inference.engine.convergence import judge, predictions_alone, warn_of_approximation
from ..inference.engine.engine import as_engine
from ..inference.engine.provenance import check_fitted, check_result, damaged, read_number
from ..inference.left_out import Rows, checked_groups, objects_of
from ..models.combinations.sums import FixedWeights
from ..models.kernels import inverse_multiquadric
from ..models.kernels.labels import (
    aligned,
    as_frame,
    check_distinct,
    check_repeated,
    labels_of,
    listed,
)
from ..models.kernels.source import ParametricStack
from ..numerics.groups import Groups
from ..user_warnings import warn_user
from ..validation import argument_error, check_real, check_undated, check_unmasked
from .blocks import RANK, SCALE, FittedBlocks, KernelReader, attempt, ids_of
from .near_copies import warn_of_near_copies

#: Value of the parameters that `select` chooses.
AUTO = "auto"
#: Largest number of entries of kernels with copies of rows, and how many times as many as without
#: copies these may be.
MOST_ENTRIES = 10**8
MOST_COPIES = 10
#: Draws of an estimator by default, in each chain and of engines without chains. On 200 objects of
#: ten kernels, 1,000 independent draws take 40 % of a fit by VB, and change the held-out log score
#: of 100 by less than .003 nats.
DRAWS_OF_CHAINS = 1000
INDEPENDENT_DRAWS = 100
#: Scale, upsilon / tau, from which chains of the probit mix slowly: on 35 wines, 1,200 draws have
#: 603 effective draws of the contrasts at a scale of 1, 229 at 100 and 137 at 1,000.
SLOW = 100.0


class Candidate(NamedTuple):
    """Kernels, the arguments of a model on them, and how these were chosen, if they were.

    `objects` are the numbers by which objects were left out, the same for all candidates.
    """

    kernels: FittedBlocks
    options: dict[str, Any]
    log_scores: DataArray | None = None
    objects: Rows | None = None

    @property
    def best(self) -> float:
        """Mean log score with the best scale and weights."""
        assert self.log_scores is not None
        return float(self.log_scores.mean("obs").max())


@dataclass(eq=False, repr=False, kw_only=True)
class KernelPredictor(KernelReader):
    """Estimator that declares a model on the kernels and infers it with an engine."""

    standardize: bool | str = AUTO
    engine: Any = "vb"
    draws: int | None = None
    tune: int = 1000
    chains: int = 4
    cores: int | None = None
    random_state: Any = None
    fit_options: Any = None
    #: Parameters of the estimator that are arguments of the model.
    _of_model: ClassVar[tuple[str, ...]] = ()
    #: What "auto" stands for where `select` does not apply: the scale, then the rule.
    _without_choice: ClassVar[dict[str, Any]]
    _model: ClassVar[type[pm.Model]]
    _checks_of_response: ClassVar[dict[str, Any]] = {}

    def __new__(cls, *_: Any, **parameters: Any) -> Self:
        """Refuse what other classifiers have and this one has not, with what to write."""
        if "class_weight" in parameters:
            raise TypeError(
                f"{cls.__name__} has no 'class_weight'. Where objects count several times, write "
                "fit(X, y, sample_weight=...) with whole numbers; where errors have unequal costs, "
                "compare predict_proba with another threshold."
            )
        return super().__new__(cls)

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Compute the kernels of the training objects, declare the model and infer it.

        Parameters
        ----------
        X : dict, DataFrame or array
            Training objects; see `KernelBlocks`. Rows of one id must be equal in `X` and `y`, as in
            a bootstrap sample.
        y : array_like or Series (obs,)
            Response. A Series is aligned by its index, where `X` has ids too. Regression takes
            tables (obs, output) of several outputs.
        sample_weight : array_like or Series of whole numbers (obs,), optional
            Power of the likelihood of each object: 0 leaves its response out, 2 counts it twice.
            Kernels are those of all objects, and classes those of all of `y`. A Series is aligned
            by its index, where `X` has ids.
        groups : array_like or Series (obs,), optional
            Group of each object, such as the person whose sample it is. What predicts left-out
            objects best is then what predicts left-out groups best. A Series is aligned by its
            index, where `X` has ids.

        Raises
        ------
        ValueError
            For kernels, responses, groups and settings that the model or the engine refuses.

        Warns
        -----
        UserWarning
            For classes all of whose objects are in one group, for groups where nothing is chosen by
            left-out objects, and for rows that are nearly copies where `groups` are not given.
        KernelWarning
            As the model does. `weights_` warns of weights that cannot be read, not `fit`.
        """
        owner = type(self).__name__
        given = self.fit_options
        if given is not None and not isinstance(given, Mapping):
            rule = "a dict of arguments of kz.fit by name, or None"
            raise argument_error("fit_options", owner, rule, repr(given))
        options = {"progressbar": False} | dict(given or {})
        if options.keys() & {"draws", "tune", "chains", "cores", "random_seed"}:
            rule = "without draws, tune, chains, cores and seed: the estimator's own parameters"
            raise argument_error("fit_options", owner, rule, repr(given))
        options |= {name: getattr(self, name) for name in ("draws", "tune", "chains", "cores")}
        with attempt(self) as trial:
            log_scores = trial._declare(X, y, sample_weight, groups)
            if log_scores is None and trial._groups is not None:
                warn_user(
                    f"'groups' change nothing in this fit: {type(self).__name__} chooses nothing "
                    "by left-out objects, because everything is given, or its kernels have no "
                    "column for each training object. What the engine learns, such as the noise, "
                    "takes objects of a group as independent."
                )
            if trial.draws is None:
                chains = as_engine(trial._engine, "fit").kind == "mcmc"
                options["draws"] = DRAWS_OF_CHAINS if chains else INDEPENDENT_DRAWS
            seed = self.random_state
            if isinstance(seed, np.random.RandomState):
                seed = int(seed.randint(np.iinfo(np.int32).max))
            with predictions_alone():
                trial.result_ = fit(trial.model_, trial._engine, random_seed=seed, **options)
            if log_scores is not None:
                # In the result, which saved estimators keep.
                scores = Dataset({"log_score": log_scores}, attrs=log_scores.attrs)
                trial.result_["selection"] = DataTree(scores)
        return self

    @property
    def weights_(self) -> Dataset:
        """Posterior mean and standard deviation of the weights of the kernels.

        The attribute ``note`` says that equal weights were chosen and not learned.

        Warns
        -----
        ApproximationWarning
            For learned weights that did not converge, whatever other quantities did, and for those
            of an approximation whose Pareto k-hat is above 0.7; the attribute ``unreliable`` says
            the same.
        """
        check_is_fitted(self)
        weights = weights_of(self.model_, self.result_)
        described = [str(self._fitted.table.attrs.get(name, name)) for name in self.kernel_names_]
        if described != list(self.kernel_names_):
            weights = weights.assign_coords(description=("kernel", described))
        if not self.model_.learned and (note := self._note_of_weights):
            weights.attrs["note"] = note
        if why := weights.attrs.get("unreliable"):
            is_sampled = self.result_.attrs.get("kind") == "mcmc"
            better = "more draws" if is_sampled else f"engine={self._sampler!r}"
            model: Any = self.model_
            scale = getattr(model, "upsilon", None)
            if isinstance(scale, float) and scale >= SLOW * model.tau:
                better += f", perhaps also with a smaller upsilon (chains mix slowly at {scale:g})"
            warn_of_approximation(
                f"The weights are unreliable, because {why}. Fit with {better} to read them."
            )
        return weights

    def _get_fitted_attr_html(self, *arguments: Any, **options: Any) -> Any:
        """Read all attributes for scikit-learn's display of an estimator, without warnings."""
        with predictions_alone():
            return super()._get_fitted_attr_html(*arguments, **options)

    @property
    def selection_(self) -> DataArray | None:
        """Held-out log scores of what was chosen for "auto", or None.

        The attribute ``note`` says that the chosen scale is at the end of those tried.
        """
        check_is_fitted(self)
        if "selection" not in self.result_.children:
            return None
        return self.result_["selection"].to_dataset()["log_score"]

    @classmethod
    def from_result(
        cls,
        result: DataTree,
        X: Any,
        y: Any,
        *,
        sample_weight: Any = None,
        groups: Any = None,
        **parameters: Any,
    ) -> Self:
        """Make a fitted estimator from a saved result, without running the engine.

        Parameters
        ----------
        result : DataTree
            `result_` of an estimator with the same parameters on the same objects, for example from
            ``az.from_netcdf``.
        X, y, sample_weight, groups : as in `fit`
            The training objects, in any order if `X` and the result have their ids.
        **parameters
            Of the estimator that was fitted: those that it was given, or its ``get_params()``.

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
        ids = ids_of(X)
        if (order := _order_in(result, ids)) is not None:
            y, sample_weight, groups = (_with_ids(each, ids) for each in (y, sample_weight, groups))
        # Results of earlier versions do not name the choice, which is then made again.
        saved = _saved_choice(result)
        estimator._declare(X, y, sample_weight, groups, order, saved)
        try:
            check_fitted(estimator.model_, result, f"{cls.__name__}.from_result")
        except ValueError as error:
            raise ValueError(
                f"{error} The parameters must be those of the estimator that was fitted, too: "
                f"{cls.__name__}.from_result(result, X, y, **fitted.get_params())."
            ) from error
        estimator.result_ = result
        return estimator

    def _declare(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        groups: Any,
        order: pd.Index | None = None,
        saved: Mapping[Any, Any] | None = None,
    ) -> DataArray | None:
        """Set `model_` and what describes its kernels; return the log scores of what was chosen."""
        responses = self._checked_responses(y)
        kernels = self.kernels
        features = SCALE if self.standardize == AUTO else self.standardize
        if kernels is None:
            times = self._saved_times(saved) if saved else 1.0
            kernels = self._kernels_by_default(len(responses), times)
        if saved:
            name, _, ranks = str(saved["features"]).partition(", ")
            if kernels is None and name == "inverse_multiquadric":
                kernels = inverse_multiquadric("median")
            features = ranks if ranks and self.standardize == AUTO else features
        fitted = self._fit_kernels(X, kernels, features, order)
        rows = None if sample_weight is None else self._copies(X, y, sample_weight, fitted)
        response = self._in_order(responses, fitted, rows)
        self._groups = self._groups_of(X, y, groups, fitted, response, rows)
        log_scores: DataArray | None = None
        if saved:
            # The choice of a saved result is not made again.
            chosen = Candidate(fitted, self._options | self._saved_settings(saved))
        else:
            chosen, log_scores = self._choose(X, fitted, response, order, rows)
        self._keep(chosen.kernels)
        stack = self._rows_of_model(chosen.kernels, rows)
        self.model_ = self._declaration(stack, response, **chosen.options)
        return log_scores

    def _rows_of_model(self, kernels: FittedBlocks, rows: Any) -> DataArray | ParametricStack:
        """Kernels with a row for each response."""
        return kernels.weighted(rows)

    @property
    def _sampler(self) -> str:
        """Engine whose weights can be read where those of an approximation cannot."""
        return "gibbs"

    @property
    def _note_of_weights(self) -> str:
        """What to say of weights that were not learned, or nothing."""
        scores = self.selection_
        chosen = scores is not None and "equal" in scores.coords.get("weights", [])
        return "equal weights, chosen by held-out scores, not learned" if chosen else ""

    @property
    def _declaration(self) -> Any:
        """Class of the model."""
        return self._model

    @property
    def _engine(self) -> Any:
        """Engine, or its name."""
        return self.engine

    def _kernels_by_default(self, n_objects: int, times: float) -> Any:
        """Kernels of so many objects where none are given, with a factor of their gamma."""
        return None

    def _saved_times(self, saved: Mapping[Any, Any]) -> float:
        """Factor of gamma that a saved result has."""
        return 1.0

    def _saved_settings(self, saved: Mapping[Any, Any]) -> dict[str, Any]:
        """Arguments of the model that a saved result has for "auto"."""
        if saved.get("weights") not in ("fixed", "mean"):
            raise damaged("weights", saved.get("weights"))
        if not read_number(saved, "scale") > 0:
            raise damaged("scale", saved.get("scale"))
        scale, rule = self._without_choice
        found = {scale: float(saved["scale"]), rule: saved["weights"]}
        # Parameters that are given are those of this estimator: `check_fitted` compares them.
        return {name: each for name, each in found.items() if _is_auto(self._options[name])}

    @property
    def _options(self) -> dict[str, Any]:
        """Arguments of the model as the estimator has them, "auto" among them."""
        return {name: getattr(self, name) for name in self._of_model}

    def _checked_responses(self, y: Any) -> Any:
        """Responses after scikit-learn's checks, with the labels of rows and columns that y has."""
        owner = type(self).__name__
        y = as_frame(y)
        _check_responses(y, owner)
        # Called before X is read: the checks delete the names of the features.
        checked = validate_data(self, y=y, **self._checks_of_response)
        # Of classifiers, scikit-learn's check has taken the only column of a table.
        if isinstance(y, pd.DataFrame) and checked.ndim == 2:
            return pd.DataFrame(checked, labels_of(y), y.columns.tolist())
        return checked if labels_of(y) is None else pd.Series(checked, labels_of(y))

    def _copies(
        self, X: Any, y: Any, sample_weight: Any, kernels: FittedBlocks
    ) -> NDArray[np.intp]:
        """Rows of the training objects, each as often as its weight says."""
        owner = type(self).__name__
        objects = kernels.objects
        weights = self._in_order_of(X, y, sample_weight, "sample_weight")[1]
        weights = aligned(weights, objects.labels, "sample_weight", owner)
        powers = check_real(weights, "sample_weight", owner)
        check_consistent_length(objects.labels, powers)
        whole = (powers >= 0) & (powers == np.floor(powers)) & np.isfinite(powers)
        if not (whole.all() and powers.any()):
            # The first that is wrong, or the first zero of zeros.
            first = int(np.argmin(whole))
            rule = "whole numbers, the powers of the likelihoods, and not all zero"
            got = f"{powers[first]:g} for {objects.labels[first]!r}"
            raise argument_error("sample_weight", owner, rule, got)
        # A row of the kernels is repeated as often as its weight says.
        entries = kernels.table.size
        copies = float(powers.mean())
        if copies * entries > max(MOST_ENTRIES, MOST_COPIES * entries):
            rule = "numbers of copies that memory holds"
            got = f"a sum of {powers.sum():g} for {len(powers)} objects"
            raise argument_error("sample_weight", owner, rule, got)
        return np.repeat(np.arange(len(powers)), powers.astype(int))

    def _groups_of(
        self, X: Any, y: Any, groups: Any, kernels: FittedBlocks, response: Any, rows: Any
    ) -> Groups | None:
        """Group of each response of the model; a warning where groups seem to be missing."""
        if groups is None:
            # Labels of groups, and similarities, are no features; a repeated id is a bootstrap.
            known = kernels.specification.grams | kernels.specification.labelled
            if rows is None and not known and pd.Index(kernels.objects.labels).is_unique:
                tables = [*map(np.asarray, kernels.objects.features.values())]
                warn_of_near_copies(tables, self._targets_of(response))
            return None
        owner = type(self).__name__
        ids = kernels.objects.labels
        ordered = aligned(self._in_order_of(X, y, groups, "groups")[1], ids, "groups", owner)
        check_unmasked(ordered, "groups", owner)
        taken = slice(None) if rows is None else rows
        labels = self._labels_of_classes(response)
        return checked_groups(np.asarray(ordered)[taken], ids[taken], labels, owner)

    def _labels_of_classes(self, response: Any) -> NDArray | None:
        """Labels of the classes of the responses of the model, or None."""
        return None

    def _targets_of(self, response: Any) -> NDArray | None:
        """Targets (N, P) that are the responses of the model, or None."""
        return None

    def _in_order(self, responses: Any, kernels: FittedBlocks, rows: Any) -> Any:
        """Responses of the model, in the order of the training objects or of copies of them."""
        owner = type(self).__name__
        objects = kernels.objects.labels
        ordered = aligned(responses, objects, "y", owner)
        check_consistent_length(objects, ordered)
        check_repeated(objects, ordered, "y", owner)
        rows = slice(None) if rows is None else rows
        objects = pd.Index(objects, tupleize_cols=False)[rows]
        # A copy: the caller may change y in place.
        response = np.array(self._response(np.asarray(ordered), rows))
        if isinstance(ordered, pd.DataFrame):
            return pd.DataFrame(response, index=objects, columns=ordered.columns)
        return response

    def _choose(
        self, X: Any, first: FittedBlocks, response: Any, order: pd.Index | None, rows: Any
    ) -> tuple[Candidate, DataArray | None]:
        """Choose what is left to us by the log scores of left-out objects, which are returned."""
        # Inverse multiquadric kernels replace Gaussian ones if their mean log score is higher, and
        # so do ranks scaled features where these are heavy-tailed: attribute "features" names it.
        name = "gaussian" if self.kernels is None else "given"
        kernels = self.kernels
        tried = {name: self._candidate(first, response, rows)}
        if tried[name].log_scores is None:
            return tried[name], None
        objects = tried[name].objects
        if kernels is None:
            other = inverse_multiquadric("median")
            fitted = self._fit_kernels(X, other, first.standardize, order)
            tried["inverse_multiquadric"] = self._candidate(fitted, response, rows, objects)
            if tried["inverse_multiquadric"].best > tried[name].best:
                name = "inverse_multiquadric"
                kernels = other
        if self.standardize == AUTO and first.heavy_tailed:
            ranks = self._fit_kernels(X, kernels, RANK, order)
            tried[f"{name}, rank"] = self._candidate(ranks, response, rows, objects)
        chosen = max(tried, key=lambda each: tried[each].best)
        log_scores = [each.log_scores for each in tried.values() if each.log_scores is not None]
        together = log_scores[0]
        if len(tried) > 1:
            together = concat(log_scores, pd.Index(list(tried), name="features"))
        scale, rule = (tried[chosen].options[argument] for argument in self._without_choice)
        weights = "fixed" if isinstance(rule, FixedWeights) else "mean"
        attributes = {"features": chosen, "scale": float(scale), "weights": weights}
        if note := at_the_end(together, float(scale)):
            attributes["note"] = f"{next(iter(self._without_choice))}={note} that were tried"
        return tried[chosen], together.assign_attrs(attributes)

    def _candidate(
        self, kernels: FittedBlocks, response: Any, rows: Any, objects: Rows | None = None
    ) -> Candidate:
        """Replace "auto" by the arguments of the model that predict left-out objects best."""
        options = self._options
        chosen = [name for name in self._without_choice if _is_auto(options[name])]
        if not chosen:
            return Candidate(kernels, options)
        options |= {name: self._without_choice[name] for name in chosen}
        model = self._declaration(kernels.weighted(rows), response, **options)
        if why_no_selection(model) is not None:
            return Candidate(kernels, options)
        scale, rule = self._without_choice
        scales = list(SCALES) if scale in chosen else [float(options[scale])]
        if objects is None:
            objects = objects_of(model)
        settings, log_scores = selected(model, scales, objects, rule in chosen, groups=self._groups)
        return Candidate(kernels, options | settings, log_scores, objects)

    @abstractmethod
    def _response(self, y: np.ndarray, rows: Any) -> np.ndarray:
        """Check the response and bring that of these rows onto the scale of the model."""

    def _predictions(self, X: Any) -> Dataset:
        kernels = self.kernel_stack(X)  # raises unless fitted
        return predict(self.model_, self.result_, kernels, progressbar=False)

    def _in_order_of(self, X: Any, y: Any, values: Any, argument: str) -> tuple[Any, Any]:
        """Responses and values of theirs in the order of the objects of X, where they have ids."""
        ids = ids_of(X)
        owner = type(self).__name__
        y = as_frame(y)
        ordered = y if ids is None else aligned(y, ids, "y", owner)
        if ids is not None and len(ids) == len(ordered):
            check_repeated(ids, ordered, "y", owner)
        if values is None:
            return ordered, None
        values = as_frame(values)
        n = len(np.asarray(ordered))
        shape = np.asarray(values).shape
        if shape != (n,):
            rule = f"one for each of the {n} objects"
            raise argument_error(argument, owner, rule, f"shape {shape}")
        if labels_of(values) is None and ordered is not y:
            requirement = "labelled like y, because y is reordered to match X"
            raise argument_error(argument, owner, requirement, type(values).__name__)
        # Where X has no ids, y and these values may have them.
        ids = labels_of(ordered) or ids
        if ids is None:
            return ordered, values
        return ordered, aligned(values, ids, argument, owner)


def _order_in(result: DataTree, ids: pd.Index | None) -> pd.Index | None:
    """Ids of the training objects in the order of a result; None if it has others."""
    # Along "obs", weights repeat objects or leave them out.
    for group, dim in (("constant_data", "basis"), ("observed_data", "obs")):
        known = result[group].to_dataset().indexes.get(dim) if group in result.children else None
        if ids is not None and known is not None and ids.is_unique and {*ids} == {*known}:
            return known.unique()
    return None


def _with_ids(values: Any, ids: Any) -> Any:
    """Values with the ids of the objects, whose order they have, unless they are labelled."""
    if values is None or labels_of(as_frame(values)) is not None or len(values) != len(ids):
        return values
    return (pd.Series if np.ndim(values) == 1 else pd.DataFrame)(np.asarray(values), index=ids)


def _is_auto(parameter: Any) -> bool:
    return isinstance(parameter, str) and parameter == AUTO


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


def _saved_choice(result: DataTree) -> Mapping[Any, Any]:
    """Return what an estimator chose, from its saved result; empty without, as in old ones."""
    saved = result["selection"].attrs if "selection" in result.children else {}
    if saved and not isinstance(features := saved.get("features"), str):
        raise damaged("features", features)
    return saved


def weights_of(model: Any, result: DataTree) -> Dataset:
    """Mean and standard deviation (kernel) of the weights of the kernels.

    The attribute ``converged`` of chains is that of the weights alone.
    """
    kept = ("engine", "converged", "pareto_k")
    attributes = {name: result.attrs[name] for name in kept if name in result.attrs}
    if not model.learned:
        mean = DataArray(model["beta"].get_value(), {"kernel": np.asarray(model.coords["kernel"])})
        return Dataset({"mean": mean, "sd": mean * np.nan}, attrs=attributes)
    draws: DataArray = result["posterior"].to_dataset()["beta"]
    mean = draws.mean(("chain", "draw"))
    sd = draws.std(("chain", "draw"))
    sd = sd if draws.sizes["chain"] * draws.sizes["draw"] > 1 else sd * np.nan
    judgement = judge(result, Dataset({"beta": draws}))
    if result.attrs.get("kind") == "mcmc":
        attributes["converged"] = judgement.state
    if judgement.state == "no":
        attributes["unreliable"] = judgement.reason
    return Dataset({"mean": mean, "sd": sd}, attrs=attributes)
