"""Estimators of a model of choice, by default a Gaussian process."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, ClassVar, override

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from xarray import DataArray

from ..inference.engine.paper import PAPERS
from ..inference.engine.provenance import damaged, read_number
from ..inference.gaussian_process.choice import (
    SCALES,
    TIMES,
    Tried,
    mean_and_error,
    weights_at_mode,
)
from ..models import GaussianProcessClassification, GaussianProcessRegression
from ..models.combinations.sums import FixedWeights
from ..models.kernels import inverse_multiquadric
from ..models.kernels.functions import Radial
from ..models.kernels.labels import listed
from ..models.kernels.objects import Objects
from ..models.kernels.source import VARIANCE, ParametricStack
from ..numerics.groups import Groups
from ..user_warnings import silent
from ..validation import argument_error
from .blocks import RANK, FittedBlocks
from .predictor import AUTO, Candidate, KernelPredictor

GAUSSIAN_PROCESSES = (GaussianProcessClassification, GaussianProcessRegression)
#: Most objects by which kernels are chosen, drawn from all whatever their order.
MOST_OBJECTS = 1000
#: Most objects by which weights are learned.
MOST_LEARNED = 300
#: Columns of the default kernels of more objects.
LANDMARKS = 500
#: Digits to which objects' features are compared.
DECIMALS_COMPARED = 9

type Array = NDArray[np.float64]
type Rows = NDArray[np.intp]


@dataclass(eq=False, repr=False, kw_only=True)
class ModelPredictor(KernelPredictor):
    """What `KernelClassifier` and `KernelRegressor` share."""

    model: Any = None
    model_options: Any = None
    engine: Any = None
    #: Argument of a model that has the responses.
    _argument: ClassVar[str]

    @property
    @override
    def _declaration(self) -> Any:
        if self.model is None:
            return self._model
        known = [each for each in PAPERS if self._argument in signature(each).parameters]
        if self.model not in known:
            rule = f"the class of a model with {self._argument!r}, one of "
            rule += ", ".join(f"kz.{each.__name__}" for each in known)
            raise argument_error("model", type(self).__name__, rule, repr(self.model))
        return self.model

    @property
    def _of_gaussian_process(self) -> bool:
        return self._declaration in GAUSSIAN_PROCESSES

    @property
    @override
    def _engine(self) -> Any:
        if self.engine is not None:
            return self.engine
        return self._engine_of_gaussian_process if self._of_gaussian_process else "vb"

    @property
    @abstractmethod
    def _engine_of_gaussian_process(self) -> Any:
        """Engine of the default model."""

    @override
    def _rows_of_model(self, kernels: FittedBlocks, rows: Any) -> DataArray | ParametricStack:
        stack = super()._rows_of_model(kernels, rows)
        if rows is None or not self._of_gaussian_process or not is_gram(kernels):
            return stack
        assert isinstance(stack, DataArray)
        # An object without weight is none of the process.
        return stack.isel(basis=np.unique(rows))

    @override
    def kernel_stack(self, X: Any) -> DataArray | ParametricStack:
        stack = super().kernel_stack(X)
        if isinstance(stack, ParametricStack) or not self._of_gaussian_process:
            return stack
        basis = self.model_.coords["basis"]
        if len(basis) < stack.sizes["basis"]:
            stack = stack.sel(basis=list(basis))
        if VARIANCE in stack.coords or not self._fitted.pairwise:
            return stack
        # Precomputed similarities of a new object do not tell its own variance.
        mean = np.einsum("knn->k", self._fitted.table.to_numpy()) / self._fitted.table.sizes["obs"]
        variances = np.tile(mean[:, None], stack.sizes["obs"])
        return stack.assign_coords({VARIANCE: (("kernel", "obs"), variances)})

    @property
    @override
    def _sampler(self) -> str:
        return "nuts" if self._of_gaussian_process else super()._sampler

    @property
    @override
    def _note_of_weights(self) -> str:
        if not self._of_gaussian_process:
            return super()._note_of_weights
        if len(self.model_.coords["kernel"]) == 1:
            return ""
        if self.selection_ is not None and "weights" in self.selection_.attrs:
            return (
                "weights at the mode of their posterior, which predict left-out objects better "
                f"than equal ones; {self._learns_weights} learns their uncertainty"
            )
        return f"weights that were set, not learned; {self._learns_weights} learns them"

    @property
    def _without_choice(self) -> dict[str, Any]:  # type: ignore[override]
        paper = PAPERS[self._declaration]
        return {paper.scale: 1.0, "combination": "mean"} if paper.held_out else {}

    @property
    @override
    def _options(self) -> dict[str, Any]:
        given = self.model_options
        if given is not None and not isinstance(given, Mapping):
            rule = "a dict of arguments of the model by name, or None"
            raise argument_error("model_options", type(self).__name__, rule, repr(given))
        taken = {*signature(self._declaration).parameters}
        taken -= {"kernels", "classes", self._argument}
        if unknown := [name for name in given or {} if name not in taken]:
            rule = (
                f"a dict of arguments of {self._declaration.__name__}: {', '.join(sorted(taken))}"
            )
            raise argument_error("model_options", type(self).__name__, rule, listed(unknown))
        chosen = dict.fromkeys(self._without_choice, AUTO)
        return super()._options | chosen | dict(given or {})

    @override
    def _kernels_by_default(self, n_objects: int, times: float) -> Any:
        if not self._of_gaussian_process:
            return None
        kernels = inverse_multiquadric("median", times=times)
        return kernels.landmarks(LANDMARKS) if n_objects > MOST_OBJECTS else kernels

    @override
    def _choose(
        self, X: Any, first: FittedBlocks, response: Any, order: pd.Index | None, rows: Any
    ) -> tuple[Candidate, DataArray | None]:
        if not self._of_gaussian_process:
            return super()._choose(X, first, response, order, rows)
        if self.kernels is not None and not is_gram(first):
            return Candidate(first, self._options), None
        tried = {str(first.standardize): first}
        if self.standardize == AUTO and first.heavy_tailed:
            kernels = self.kernels
            if kernels is None:
                kernels = self._kernels_by_default(len(first.objects.labels), 1.0)
            tried[RANK] = self._fit_kernels(X, kernels, RANK, order)
        found = {name: self._tried_on(fitted, response, rows) for name, fitted in tried.items()}
        best = {name: max(each, key=lambda one: one.height) for name, each in found.items()}
        features = max(best, key=lambda name: best[name].height)
        chosen = self._with_weights(tried[features], response, rows, best[features])
        if chosen is not best[features]:
            found[features].append(chosen)
        kernels = tried[features]
        if self.kernels is None:
            by_default = self._kernels_by_default(len(first.objects.labels), chosen.times)
            kernels = self._respecified(kernels, by_default)
        settings = self._settings(chosen)
        family = "inverse_multiquadric" if self.kernels is None else "given"
        scores = scores_of(found).assign_attrs(
            features=f"{family}, {RANK}" if features == RANK else family,
            times=chosen.times,
            scale=chosen.scale if "scale" in settings else np.nan,
        )
        if chosen.weights is not None:
            scores.attrs["weights"] = chosen.weights
        if chosen.noise is not None:
            scores.attrs["noise"] = chosen.noise
        if "scale" in settings and chosen.scale in (SCALES[0], SCALES[-1]):
            note = f"scale={chosen.scale:g} is at the end of the scales that were tried"
            scores.attrs["note"] = note
        return Candidate(kernels, self._options | settings), scores

    @property
    def importance_(self) -> pd.DataFrame:
        """How well each kernel alone, all of them, and all without it predict left-out objects.

        Log scores of a Gaussian process with equal weights, or with those that were given, and the
        scale that serves each set of kernels best, whatever the model of the fit: means over at
        most 1,000 distinct training objects, in nats. ``alone_se`` and ``without_se`` are standard
        errors of the means; ``gain`` is what the kernel adds to the others, and ``gain_se`` the
        standard error of the paired differences. The attribute ``all`` has the score of all
        kernels. Computed when it is read: O(K (N^3 + C N m^2)) for K kernels.
        """
        check_is_fitted(self)
        fitted = self._fitted
        if self.kernels is not None and not is_gram(fitted):
            rule = "of kernels with a column for each training object, without parameters to learn"
            raise AttributeError(f"{type(self).__name__} has 'importance_' only {rule}.")
        responses = self._responses_of_model()
        places = pd.Index(fitted.objects.labels, tupleize_cols=False)
        at = places.get_indexer(pd.Index(self.model_.coords["obs"], tupleize_cols=False))
        chosen = distinct_objects(fitted.objects, at, self._as_numbers(responses), self._groups)
        groups = self._groups_at(chosen)
        stack = self._kernels_of(fitted, at[chosen])
        weights = self._weights_for(stack)
        responses = responses[chosen]

        def scored(kept: Any) -> Array:
            K = np.tensordot(weights[kept], stack.to_numpy()[kept], axes=1)
            return max(self._tried(lambda _: K, responses, (1.0,), groups), key=_height).log_scores

        positions = np.arange(len(stack))
        together = scored(positions)
        several = len(stack) > 1
        rows = []
        for position in positions:
            alone = scored([position]) if several else together
            without = scored(np.delete(positions, position)) if several else together * np.nan
            gain = together - without
            row = [mean_and_error(scores, groups) for scores in (alone, without, gain)]
            rows.append(np.concatenate(row))
        columns = ["alone", "alone_se", "without", "without_se", "gain", "gain_se"]
        table = pd.DataFrame(rows, pd.Index(stack["kernel"].values, name="kernel"), columns)
        table.attrs["all"], table.attrs["all_se"] = mean_and_error(together, groups)
        return table

    def _tried_on(self, fitted: FittedBlocks, response: Any, rows: Rows | None) -> list[Tried]:
        """Widths of kernels of some features, and the scale that serves each best."""
        at, values, groups = self._objects_tried(fitted, response, rows)

        def covariance(times: float) -> Array:
            stack = self._kernels_of(fitted, at, times)
            return np.tensordot(self._weights_for(stack), stack.to_numpy(), axes=1)

        times = TIMES if self.kernels is None else (1.0,)
        return self._tried(covariance, values, times, groups)

    def _objects_tried(
        self, fitted: FittedBlocks, response: Any, rows: Rows | None
    ) -> tuple[Rows, NDArray, Groups | None]:
        """Rows of the training objects by which kernels are chosen, responses and groups."""
        values = np.asarray(response)
        at = np.arange(len(values)) if rows is None else rows
        chosen = distinct_objects(fitted.objects, at, self._as_numbers(values), self._groups)
        return at[chosen], values[chosen], self._groups_at(chosen)

    def _groups_at(self, chosen: Rows) -> Groups | None:
        """Take the groups of some objects of the model, numbered without gaps."""
        if self._groups is None:
            return None
        return np.unique(self._groups[chosen], return_inverse=True)[1]

    def _with_weights(
        self, fitted: FittedBlocks, response: Any, rows: Rows | None, equal: Tried
    ) -> Tried:
        """Put learned weights in place of equal ones where they predict better."""
        at, values, groups = self._objects_tried(fitted, response, rows)
        stack = self._kernels_of(fitted, at, equal.times).to_numpy()
        if len(stack) == 1 or "combination" in self._options or not self._sets_weights:
            return equal
        some = slice(MOST_LEARNED)
        with silent():
            weights = weights_at_mode(self._process_of(stack[:, some, some], values[some]))
        K = np.tensordot(weights, stack, axes=1)
        (learned,) = self._tried(lambda _: K, values, (equal.times,), groups)
        gain, error = mean_and_error(learned.log_scores - equal.log_scores, groups)
        return replace(learned, weights=weights) if gain > error else equal

    def _kernels_of(self, fitted: FittedBlocks, at: Rows, times: float | None = None) -> DataArray:
        """Gram matrices (kernel, n, n) of some training objects."""
        if self.kernels is not None:
            return fitted.table[:, at, at]
        if times is None:
            times = _times_of(fitted)
        kernels = inverse_multiquadric("median", times=times)
        return self._respecified(fitted, kernels, taken(fitted.objects, at)).table

    def _weights_for(self, stack: DataArray) -> Array:
        """Given weights of kernels, or equal ones."""
        rule = self._options.get("combination")
        known = rule if isinstance(rule, FixedWeights) else FixedWeights()
        return known.for_kernels(stack["kernel"].values).each(len(stack))

    @abstractmethod
    def _responses_of_model(self) -> NDArray:
        """Responses of the objects of the model."""

    @abstractmethod
    def _as_numbers(self, response: NDArray) -> Array:
        """Responses (N, P) as numbers."""

    @abstractmethod
    def _tried(
        self,
        covariance: Callable[[float], Array],
        response: NDArray,
        times: Any,
        groups: Groups | None,
    ) -> list[Tried]:
        """Widths, compared by the scores of these responses."""

    @property
    def _learns_weights(self) -> str:
        """What to write for learned weights."""
        return "model_options={'combination': 'mean'}"

    @property
    @abstractmethod
    def _sets_weights(self) -> bool:
        """Whether the weights are set by the choice, and not learned by the engine."""

    @abstractmethod
    def _process_of(self, stack: Array, response: NDArray) -> Any:
        """Gaussian process of kernels (kernel, n, n) and responses, with what it learns."""

    @abstractmethod
    def _settings(self, chosen: Tried) -> dict[str, Any]:
        """Arguments of the model that the choice decides."""

    @override
    def _saved_times(self, saved: Mapping[Any, Any]) -> float:
        if not self._of_gaussian_process:
            return super()._saved_times(saved)
        if not read_number(saved, "times") > 0:
            raise damaged("times", saved.get("times"))
        return float(saved["times"])

    @override
    def _saved_settings(self, saved: Mapping[Any, Any]) -> dict[str, Any]:
        if not self._of_gaussian_process:
            return super()._saved_settings(saved)
        times, scale = (read_number(saved, name) for name in ("times", "scale"))
        weights = None if "weights" not in saved else np.atleast_1d(saved["weights"])
        noise = None if "noise" not in saved else read_number(saved, "noise")
        return self._settings(Tried(times, scale, np.empty(0), np.nan, weights, noise))


def _times_of(fitted: FittedBlocks) -> float:
    """Factor of gamma of default kernels."""
    kernel = fitted.specification.members[0]
    assert isinstance(kernel, Radial)
    return kernel.times


def _height(tried: Tried) -> float:
    return tried.height


def is_gram(fitted: FittedBlocks) -> bool:
    """Whether kernels without parameters to learn have a column for each training object."""
    if isinstance(fitted.stack, ParametricStack):
        return False
    return np.array_equal(fitted.stack["obs"], fitted.stack["basis"])


def distinct_objects(
    objects: Objects, at: Rows, responses: Array, groups: Groups | None = None
) -> Rows:
    """Positions in `at` of distinct objects, at most `MOST_OBJECTS`, whatever their order.

    An object is its features and its response; copies in groups are left out with these, and stay.
    Any number of the first ones are a random sample.
    """
    columns = [np.asarray(features)[at] for features in objects.features.values()]
    contents = np.hstack([*columns, responses]).astype(float)
    # Adding 0.0 turns -0.0 into 0.0, so that equal rows have equal bytes.
    contents = np.ascontiguousarray(np.round(contents, DECIMALS_COMPARED)) + 0.0
    as_bytes = contents.view(np.dtype((np.void, contents.itemsize * contents.shape[1]))).ravel()
    if groups is None:
        first = np.unique(as_bytes, return_index=True)[1]
    else:
        first = np.argsort(as_bytes, kind="stable")
    # In the order of their contents, the first ones would be no sample.
    return np.random.default_rng(0).permutation(first)[:MOST_OBJECTS]


def taken(objects: Objects, at: Rows) -> Objects:
    """Take some of the objects."""
    features = {block: np.asarray(each)[at] for block, each in objects.features.items()}
    return replace(objects, features=features, labels=objects.labels[at])


def scores_of(found: Mapping[str, list[Tried]]) -> DataArray:
    """Log scores (candidate, obs) of all that was tried, with what each candidate is."""
    tried = [(features, each) for features, some in found.items() for each in some]
    coords = {
        "features": ("candidate", [features for features, _ in tried]),
        "times": ("candidate", [each.times for _, each in tried]),
        "scale": ("candidate", [each.scale for _, each in tried]),
        "height": ("candidate", [each.height for _, each in tried]),
        "weights": ("candidate", ["equal" if e.weights is None else "learned" for _, e in tried]),
    }
    values = np.stack([each.log_scores for _, each in tried])
    return DataArray(values, coords, ("candidate", "obs"))
