"""Scale of the regressors, and learned or equal weights, chosen by objects that are left out.

The bound of VB's paper scheme cannot choose the scale: on seven of seven data sets it falls as
upsilon grows from 1 to 1,000, while the log loss of held-out objects improves up to tenfold.
Weights that VB learns may likewise predict worse than equal ones. Predictions of objects that were
left out choose both.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
from xarray import DataArray

from ..models.combinations.sums import FixedWeights, WeightedSum
from ..models.learned_scale import LearnedScale
from ..numerics.groups import Groups
from ..user_warnings import numpy_warnings, silent
from ..validation import Count, Seed, argument_error, check_arguments, check_positive, integer_seed
from .engine.engine import Run
from .engine.paper import Fold, paper_with
from .engine.progress import stopped_by_ctrl_c, track
from .engine.provenance import check_model
from .engine.shared_settings import BlasLimits
from .left_out import (
    Rows,
    checked_groups,
    columns_without,
    labels_of_classes,
    objects_of,
    splits,
    why_not_left_out,
)

#: Scales that `select` tries by default.
SCALES = (0.1, 1.0, 10.0, 100.0, 1_000.0, 10_000.0)
# Objects that take part. Scales are a factor of ten apart: 400 objects tell them apart.
MOST_OBJECTS = 400
# More with few columns, as the best scale grows with objects per column; then one fold suffices.
MOST_OBJECTS_OF_FEW_COLUMNS = 4_000
OBJECTS_OF_ONE_FOLD = 1_600
# Draws from q for each prediction, from the same random numbers for all candidates.
DRAWS_OF_PREDICTIONS = 100


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
        if note := at_the_end(self.log_scores, next(iter(self.settings.values()))):
            chosen += f", where {note}"
        best = float(self.log_scores.mean("obs").max())
        return f"Selection({chosen}; held-out log score {best:.3f})"


def at_the_end(log_scores: DataArray, scale: float) -> str | None:
    """Say that the chosen scale is at the end of those tried, beyond which may be better ones."""
    tried = log_scores["scale"].values.tolist()
    if scale in (tried[0], tried[-1]) and len(tried) > 1:
        return f"{scale:g} is at the end of the scales"
    return None


def why_no_selection(model: Any) -> str | None:
    """Why `select` does not apply to a model; None when it does."""
    paper = paper_with("held_out", model)
    if paper is None or paper.vb is None:
        return f"not available for {type(model).__name__}"
    if reason := paper.why_not(model) or paper.vb.unless(model) or why_not_left_out(model):
        return reason
    return None if isinstance(model.combination, WeightedSum) else "not available for products"


def select(
    model: Any,
    *,
    scales: Sequence[float] = SCALES,
    choose_weights: bool = True,
    folds: Count = 4,
    groups: Any = None,
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
    groups : array_like or Series (obs,), optional
        Group of each object, such as the person whose sample it is: objects of a group are in one
        fold. A Series is aligned by its index, where the model has ids.
    random_seed : int, SeedSequence or Generator, default=0
        Seed of the folds, which do not depend on the order of the objects, and of the draws.
    progressbar : bool, default=True
        Show progress.

    Returns
    -------
    Selection

    Raises
    ------
    ValueError
        For other models, for scales that are not positive and increasing, for fewer than two folds,
        for data without two classes of two objects, and for groups that are not one per object.

    Warns
    -----
    UserWarning
        For classes all of whose objects are in one group.

    Notes
    -----
    Each fold is fitted by VB, learned weights at last from several starts as in ``fit``. At most
    400 objects take part, drawn at random; of kernels with at most 400 columns 4,000, in one fold
    if there are more than 1,600. Cost: for each fold, a fit at each scale with one kernel and at
    most two with learned weights; without `choose_weights`, one with these at each scale.

    Examples
    --------
    >>> selection = kz.select(model, random_seed=1)
    >>> result = kz.fit(selection.model, "vb", random_seed=1)
    """
    check_arguments(select, locals())
    check_model(model, "select")
    paper = paper_with("held_out", model)
    if paper and isinstance(getattr(model, paper.scale), LearnedScale) and not model.amendments():
        model = model.redeclared(**{paper.scale: SCALES[1]})
    if reason := why_no_selection(model):
        raise ValueError(f"select does not apply to this model: {reason}.")
    tried = [check_positive(scale, "scales", "select") for scale in scales]
    if not tried or sorted({*tried}) != tried:
        raise argument_error("scales", "select", "increasing numbers", repr(scales))
    if folds < 2:
        raise argument_error("folds", "select", "2 or more", repr(folds))
    seed = integer_seed(random_seed, "random_seed", "select")
    numbers = objects_of(model)
    ids = np.asarray(model.coords["obs"])
    together = checked_groups(groups, ids, labels_of_classes(model), "select")
    settings, scored = selected(
        model, tried, numbers, choose_weights, folds, seed, progressbar, groups=together
    )
    return Selection(model.redeclared(**settings), settings, scored)


def selected(
    model: Any,
    tried: Sequence[float],
    numbers: Rows,
    choose_weights: bool,
    folds: int = 4,
    seed: int = 0,
    progressbar: bool = False,
    groups: Groups | None = None,
) -> tuple[dict[str, Any], DataArray]:
    """Choose as `select` does, with folds of the objects' `numbers`, which `objects_of` gives.

    Returns the settings and the log scores. With known weights, here also equal ones, the composite
    kernel is the only kernel. Learned weights have several starts as VB fits them, whose best may
    predict far worse than one alone.
    """
    paper = paper_with("held_out", model)
    assert paper is not None
    assert paper.held_out is not None
    held_out = paper.held_out
    few = len(model.coords["basis"]) <= MOST_OBJECTS
    most = MOST_OBJECTS_OF_FEW_COLUMNS if few else MOST_OBJECTS
    pairs = list(splits(model, numbers, folds, seed, most, groups))
    if sum(len(new) for _, new in pairs) > OBJECTS_OF_ONE_FOLD:
        pairs = pairs[:1]
    several = len(model.coords["kernel"]) > 1
    compare = choose_weights and model.learned and several
    weights = ["equal", "declared"] if compare else ["declared"]
    objects = np.sort(np.concatenate([new for _, new in pairs]))
    scored = DataArray(
        np.full((len(weights), len(tried), len(objects)), np.nan),
        {"weights": weights, "scale": tried, "obs": np.asarray(model.coords["obs"])[objects]},
        ("weights", "scale", "obs"),
    )
    total = len(pairs) * (len(tried) + 2 * compare)
    run = Run(draws=DRAWS_OF_PREDICTIONS, random_seed=seed, progressbar=False)
    with (
        stopped_by_ctrl_c(),
        track(total, "Held-out log scores", visible=progressbar) as bar,
        numpy_warnings(),
        silent(),
        # As in `fit`: threads cost more than they save on a few hundred objects.
        BlasLimits(1),
    ):

        def fill(row: int, columns: Sequence[int], *, as_fitted: bool = False) -> None:
            scales = [tried[column] for column in columns]
            learned = model.learned and weights[row] == "declared"
            starts = as_fitted and learned and several
            for (_, new), fold in zip(pairs, _folds(model, pairs, learned=learned), strict=True):
                scores = held_out(model, fold, scales, run, several_starts=starts)
                for column, each in zip(columns, scores, strict=True):
                    scored.values[row, column, np.searchsorted(objects, new)] = each
                    bar.advance()

        fill(0, range(len(tried)), as_fitted=True)
        best = int(scored[0].mean("obs").to_numpy().argmax())
        settings: dict[str, Any] = {paper.scale: tried[best]}
        # One start, which costs less, has to predict better than equal weights first.
        for as_fitted in (False, True) if compare else ():
            fill(1, [best], as_fitted=as_fitted)
            equal, learned = scored[:, best].mean("obs").to_numpy()
            if equal >= learned:
                settings["combination"] = FixedWeights()
                bar.skip(total)
                break
    return settings, scored


def _folds(model: Any, pairs: Sequence[tuple[Rows, Rows]], *, learned: bool) -> Iterator[Fold]:
    """Arrays of the rows to fit and of those to leave out, with weights that are learned or not."""
    K = model.kernel_values()
    rule = model.combination
    if not learned:
        known = np.full(len(K), 1 / len(K)) if model.learned else model["beta"].get_value()
        K = np.tensordot(known, K, axes=1)[None]
        rule = FixedWeights([1.0])
    responses = model.label_codes if "class" in model.coords else model["targets"].get_value()
    for train, new in pairs:
        columns = columns_without(model, train)
        parts = [np.stack([each[np.ix_(rows, columns)] for each in K]) for rows in (train, new)]
        yield Fold(rule, parts[0], parts[1], responses[train], responses[new])
