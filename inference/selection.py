"""Scale of the regressors, and learned or equal weights, chosen by held-out log scores.

The rate of the regressors' precisions (upsilon of `MultinomialProbit`, varsigma of the
composite-kernel models) is the scale of their functions. VB's bound cannot choose it: on seven of
seven data sets the bound falls as upsilon grows from 1 to 1,000, while the log loss of held-out
objects improves up to tenfold. Weights that VB learns may likewise predict worse than equal ones.
Predictions of objects that were left out choose both.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from scipy.stats import norm
from threadpoolctl import threadpool_limits
from xarray import DataArray, Dataset, DataTree

from ..models.combinations.sums import FixedWeights, WeightedSum
from ..user_warnings import numpy_warnings
from ..validation import Count, Seed, argument_error, check_arguments, check_positive, integer_seed
from .engine.clock import track
from .engine.paper import Paper, papers_of
from .engine.same_model import check_model

__all__ = ["SCALES", "Selection", "select", "why_no_selection"]

#: Scales that `select` tries by default.
SCALES = (0.1, 1.0, 10.0, 100.0, 1_000.0, 10_000.0)
# Objects that take part. Scales are a factor of ten apart: 400 objects tell them apart.
MOST = 400
# Draws from q for each prediction, from the same random numbers for all candidates.
DRAWS = 100

type Rows = NDArray[np.intp]


@dataclass(frozen=True, repr=False)
class Selection:
    """Held-out log scores of scales and weights, and the model declared with the best of them.

    Attributes
    ----------
    model : pm.Model
        The declaration with the best scale, and with equal weights if they predict better.
    settings : dict
        The arguments of the model that were chosen, by name.
    log_scores : DataArray (weights, scale, obs)
        Log score of each object by fits without it, NaN for pairs that were not tried. "weights"
        are "equal" and "declared".

    Examples
    --------
    >>> selection = kz.select(model, random_seed=1)
    >>> selection.log_scores.mean("obs").to_pandas()
    """

    model: pm.Model
    settings: dict[str, Any]
    log_scores: DataArray

    def __repr__(self) -> str:
        chosen = ", ".join(f"{name}={value!r}" for name, value in self.settings.items())
        best = float(self.log_scores.mean("obs").max())
        return f"Selection({chosen}; held-out log score {best:.3f})"


def why_no_selection(model: Any) -> str | None:
    """Why `select` does not apply to a model; None when it does."""
    paper = _paper(model)
    if paper is None or paper.vb is None:
        return f"not available for {type(model).__name__}"
    if reason := paper.why_not(model) or paper.vb.unless(model):
        return reason
    if model.blocks is not None or model.completed_rows is not None:
        return "not available for kernels in a Dask array or completed kernels"
    if getattr(model, "parametric", None) or not isinstance(model.combination, WeightedSum):
        return "not available for products and for kernels with parameters to learn"
    if getattr(model, "apart", False):
        return "not available for outputs that share nothing"
    ids = np.unique(np.asarray(model.coords["obs"]), return_index=True)[1]
    if "class" in model.coords and (np.bincount(model.label_codes[ids]) > 1).sum() < 2:
        return "two classes must have two distinct objects each"
    return None if len(ids) > 1 else "it takes two distinct objects"


def select(
    model: pm.Model,
    *,
    scales: Sequence[float] = SCALES,
    choose_weights: bool = True,
    folds: Count = 4,
    random_seed: Seed = 0,
    progressbar: bool = True,
) -> Selection:
    """Choose the scale of the regressors, and learned or equal weights, by held-out log scores.

    Parameters
    ----------
    model : MultinomialProbit, CompositeKernelClassification or CompositeKernelRegression
        With kernels in memory that have no parameters, and a weighted sum of them.
    scales : sequence of float, default=(0.1, 1, 10, 100, 1e3, 1e4)
        Values of upsilon (`MultinomialProbit`) or varsigma (composite kernels) to try.
    choose_weights : bool, default=True
        Choose the scale with equal weights, then compare them at this scale with the declared rule.
        Otherwise, and for known weights, the scale is chosen with the declared rule.
    folds : int, default=4
        Number of folds, stratified by class. Copies of an object are in one fold.
    random_seed : int, SeedSequence or Generator, default=0
        Seed of the folds and of the draws.
    progressbar : bool, default=True
        Show progress.

    Returns
    -------
    Selection

    Raises
    ------
    ValueError
        For other models, for scales that are not positive and increasing, for fewer than two folds,
        and for data without two classes of two objects.

    Notes
    -----
    Each fold is fitted by VB with one start; the solution at a scale is the start at the next. At
    most 400 objects take part, drawn at random. Cost: a fit of these objects for each fold and
    scale with one kernel, and for each fold with learned weights.

    Examples
    --------
    >>> selection = kz.select(model, random_seed=1)
    >>> result = kz.fit(selection.model, "vb", random_seed=1)
    """
    check_arguments(select, locals())
    check_model(model, "select")
    if reason := why_no_selection(model):
        raise ValueError(f"select does not apply to this model: {reason}.")
    tried = [check_positive(scale, "scales", "select") for scale in scales]
    if not tried or any(second <= first for first, second in pairwise(tried)):
        raise argument_error("scales", "select", "increasing numbers", repr(scales))
    if folds < 2:
        raise argument_error("folds", "select", "2 or more", repr(folds))
    seed = integer_seed(random_seed, "random_seed", "select")
    candidate = _Candidate.of(model, seed)
    splits = list(_splits(candidate.model, folds, seed))
    compare = choose_weights and candidate.model.learned and len(model.coords["kernel"]) > 1
    weights = ["equal", "declared"] if compare else ["declared"]
    objects = np.sort(np.concatenate([new for _, new in splits]))
    log_scores = DataArray(
        np.full((len(weights), len(tried), len(objects)), np.nan),
        {"weights": weights, "scale": tried, "obs": np.asarray(model.coords["obs"])[objects]},
        ("weights", "scale", "obs"),
    )
    total = len(splits) * (len(tried) + compare)
    with (
        track(total, "Held-out log scores", visible=progressbar) as bar,
        numpy_warnings(),
        # As in `fit`: threads cost more than they save on a few hundred objects.
        threadpool_limits(1, user_api="blas"),
    ):

        def fill(row: int, columns: Sequence[int]) -> None:
            for train, new in splits:
                places = np.searchsorted(objects, new)
                chosen = [tried[column] for column in columns]
                scores = candidate.log_scores(train, new, chosen, equal=weights[row] == "equal")
                for column, each in zip(columns, scores, strict=True):
                    log_scores.values[row, column, places] = each
                    bar.advance()

        fill(0, range(len(tried)))
        best = int(log_scores[0].mean("obs").to_numpy().argmax())
        settings: dict[str, Any] = {candidate.paper.scale: tried[best]}
        if compare:
            fill(1, [best])
            equal, declared = log_scores[:, best].mean("obs").to_numpy()
            if equal >= declared:
                settings["combination"] = FixedWeights()
    return Selection(candidate.model.redeclared(**settings), settings, log_scores)


@dataclass(frozen=True)
class _Candidate:
    """A model whose objects are left out in turn.

    Parameters
    ----------
    model : Declaration
    paper : Paper
    stack : DataArray (kernel, obs, basis)
    seed : int
    """

    model: Any
    paper: Paper
    stack: DataArray
    seed: int

    @classmethod
    def of(cls, model: Any, seed: int) -> "_Candidate":
        """Read the kernels of a model."""
        dims = ("kernel", "obs", "basis")
        coords = {dim: np.asarray(model.coords[dim]) for dim in dims}
        paper = _paper(model)
        assert paper is not None
        return cls(model, paper, DataArray(model.values_of("K"), coords, dims), seed)

    def log_scores(
        self, train: Rows, new: Rows, scales: Sequence[float], *, equal: bool
    ) -> Iterator[NDArray]:
        """Log scores (new,) of left-out objects, one scale after another.

        With known weights, here also `equal` ones, the composite kernel is the only kernel.
        """
        model, stack = self.model, self.stack
        settings: dict[str, Any] = {}
        if equal or not model.learned:
            n = len(stack)
            known = np.full(n, 1 / n) if model.learned else model["beta"].get_value()
            total = np.tensordot(known, stack.to_numpy(), axes=1)[None]
            coords = {"kernel": ["sum"], "obs": stack["obs"], "basis": stack["basis"]}
            stack = DataArray(total, coords, stack.dims)
            settings["combination"] = FixedWeights([1.0])
        is_gram = np.array_equal(stack["obs"], stack["basis"])
        columns = train if is_gram else np.arange(stack.sizes["basis"])
        if "class" in model.coords:
            classes = list(model.coords["class"])
            settings |= {
                "labels": [classes[code] for code in model.label_codes[train]],
                "classes": classes,
            }
        else:
            settings["targets"] = model["targets"].get_value()[train]
        # Numbers, because the ids of an object's copies are the same. Columns have others than
        # rows: the matrices were checked as Gram matrices before.
        rows = np.arange(stack.sizes["obs"])
        numbered = stack.isel(basis=columns).assign_coords(obs=rows, basis=len(rows) + columns)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            part = model.redeclared(kernels=numbered.isel(obs=train), **settings)
            assert self.paper.path is not None
            for sample in self.paper.path(part, scales):
                draws, _ = sample(DRAWS, np.random.default_rng(self.seed))
                yield self._scores(part, draws, numbered.isel(obs=new), new)

    def _scores(self, part: Any, draws: Any, kernels_new: DataArray, new: Rows) -> NDArray:
        """Log scores of objects from draws of a model without them."""
        variables = {
            name: (("chain", "draw", *part.named_vars_to_dims.get(name, ())), values[None])
            for name, values in draws.items()
        }
        result = DataTree.from_dict({"posterior": Dataset(variables)})
        assert self.paper.predict is not None
        predicted = self.paper.predict(
            part, result, kernels_new, keep_draws=False, progressbar=False
        )
        if "probability" in predicted:
            p = predicted["probability"].to_numpy()[
                np.arange(len(new)), self.model.label_codes[new]
            ]
            return np.log(np.maximum(p, np.finfo(float).tiny))
        targets = self.model["targets"].get_value()[new]
        scores = norm.logpdf(targets, predicted["mean"].to_numpy(), predicted["sd"].to_numpy())
        return scores.reshape(len(new), -1).sum(axis=1)


def _paper(model: Any) -> Paper | None:
    """Find the most specific paper of a model that has a path of scales."""
    return next((paper for paper in papers_of(type(model)) if paper.path is not None), None)


def _splits(model: Any, folds: int, seed: int) -> Iterator[tuple[Rows, Rows]]:
    """Rows of the training objects and of the objects left out, by fold."""
    # `import kernelzoo` does without scikit-learn, which takes half a second.
    from sklearn.model_selection import KFold, StratifiedKFold

    ids = np.asarray(model.coords["obs"])
    _, first, copy_of = np.unique(ids, return_index=True, return_inverse=True)
    y, splitter = np.zeros(len(first), dtype=int), KFold
    if "class" in model.coords:
        y, splitter = model.label_codes[first], StratifiedKFold
        folds = min(folds, int(np.bincount(y).max()))
    rng, share = np.random.default_rng(seed), min(1.0, MOST / len(y))
    members = [rng.permutation(np.flatnonzero(y == c)) for c in np.unique(y)]
    # Rare classes keep enough objects to be in every training part.
    kept = [m[: max(round(share * len(m)), folds)] for m in members]
    chosen = np.sort(np.concatenate(kept))
    with warnings.catch_warnings():
        # A class with fewer objects than folds is not in every fold.
        warnings.simplefilter("ignore", UserWarning)
        folds = min(folds, len(chosen))
        split = splitter(folds, shuffle=True, random_state=seed).split(chosen, y[chosen])
        for part in split:
            train, new = (np.flatnonzero(np.isin(copy_of, chosen[rows])) for rows in part)
            yield train, new
