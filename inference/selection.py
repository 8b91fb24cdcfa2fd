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
from threadpoolctl import threadpool_limits
from xarray import DataArray, Dataset, DataTree

from ..models.combinations.sums import FixedWeights, WeightedSum
from ..user_warnings import numpy_warnings
from ..validation import Count, Seed, argument_error, check_arguments, check_positive, integer_seed
from .engine.paper import Paper, paper_with
from .engine.progress import track
from .engine.provenance import check_model
from .left_out import kernels_of, log_scores, parts, splits, why_not_left_out

__all__ = ["SCALES", "Selection", "select", "why_no_selection"]

#: Scales that `select` tries by default.
SCALES = (0.1, 1.0, 10.0, 100.0, 1_000.0, 10_000.0)
# Objects that take part. Scales are a factor of ten apart: 400 objects tell them apart.
MOST = 400
# Draws from q for each prediction, from the same random numbers for all candidates.
DRAWS = 100


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
    paper = paper_with("path", model)
    if paper is None or paper.vb is None:
        return f"not available for {type(model).__name__}"
    if reason := paper.why_not(model) or paper.vb.unless(model):
        return reason
    if reason := why_not_left_out(model):
        return reason
    if not isinstance(model.combination, WeightedSum):
        return "not available for products"
    return (
        "not available for outputs that share nothing" if getattr(model, "apart", False) else None
    )


def select(
    model: Any,
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
    paper = paper_with("path", model)
    assert paper is not None
    stack = kernels_of(model)
    pairs = list(splits(model, folds, seed, MOST))
    compare = choose_weights and model.learned and len(model.coords["kernel"]) > 1
    weights = ["equal", "declared"] if compare else ["declared"]
    objects = np.sort(np.concatenate([new for _, new in pairs]))
    scored = DataArray(
        np.full((len(weights), len(tried), len(objects)), np.nan),
        {"weights": weights, "scale": tried, "obs": np.asarray(model.coords["obs"])[objects]},
        ("weights", "scale", "obs"),
    )
    total = len(pairs) * (len(tried) + compare)
    with (
        track(total, "Held-out log scores", visible=progressbar) as bar,
        numpy_warnings(),
        # As in `fit`: threads cost more than they save on a few hundred objects.
        threadpool_limits(1, user_api="blas"),
    ):

        def fill(row: int, columns: Sequence[int]) -> None:
            chosen, equal = [tried[column] for column in columns], weights[row] == "equal"
            for fold in pairs:
                scores = _scored(model, stack, paper, fold, chosen, equal=equal, seed=seed)
                for column, each in zip(columns, scores, strict=True):
                    scored.values[row, column, np.searchsorted(objects, fold[1])] = each
                    bar.advance()

        fill(0, range(len(tried)))
        best = int(scored[0].mean("obs").to_numpy().argmax())
        settings: dict[str, Any] = {paper.scale: tried[best]}
        if compare:
            fill(1, [best])
            equal, learned = scored[:, best].mean("obs").to_numpy()
            if equal >= learned:
                settings["combination"] = FixedWeights()
    return Selection(model.redeclared(**settings), settings, scored)


def _scored(
    model: Any,
    stack: DataArray,
    paper: Paper,
    fold: tuple[NDArray, NDArray],
    scales: Sequence[float],
    *,
    equal: bool,
    seed: int,
) -> Iterator[NDArray]:
    """Log scores (new,) of the left-out objects of a fold, one scale after another.

    With known weights, here also `equal` ones, the composite kernel is the only kernel.
    """
    settings: dict[str, Any] = {}
    if equal or not model.learned:
        n = len(stack)
        known = np.full(n, 1 / n) if model.learned else model["beta"].get_value()
        total = np.tensordot(known, stack.to_numpy(), axes=1)[None]
        coords = {"kernel": ["sum"], "obs": stack["obs"], "basis": stack["basis"]}
        stack = DataArray(total, coords, stack.dims)
        settings["combination"] = FixedWeights([1.0])
    assert paper.path is not None
    assert paper.predict is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        part, kernels_new = parts(model, stack, *fold, **settings)
        for sample in paper.path(part, scales):
            draws, _ = sample(DRAWS, np.random.default_rng(seed))
            variables = {
                name: (("chain", "draw", *part.named_vars_to_dims.get(name, ())), values[None])
                for name, values in draws.items()
            }
            result = DataTree.from_dict({"posterior": Dataset(variables)})
            predicted = paper.predict(
                part, result, kernels_new, keep_draws=False, progressbar=False
            )
            yield log_scores(model, predicted, fold[1])
