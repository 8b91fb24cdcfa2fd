"""Objects left out of a model: their log scores, and the scale and weights chosen by them.

The bound of VB's paper scheme cannot choose the scale: on seven of seven data sets it falls as
upsilon grows from 1 to 1,000, while the log loss of held-out objects improves up to tenfold.
Weights that VB learns may likewise predict worse than equal ones. Predictions of objects that were
left out choose both.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
import pymc as pm
from arviz_stats.utils import ELPDDataLOOKFold
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import norm
from xarray import DataArray, Dataset

from ..models.combinations.sums import FixedWeights, WeightedSum
from ..models.declaration import source_of
from ..models.kernels.labels import counts_rows
from ..models.kernels.source import DIMS, LANDMARK, VARIANCE, CompletedRows
from ..models.kernels.stack import ORIGIN, Origin
from ..models.learned_scale import LearnedScale
from ..user_warnings import numpy_warnings, silent
from ..validation import Count, Seed, argument_error, check_arguments, check_positive, integer_seed
from .engine.engine import Engine, Run
from .engine.fit import fit
from .engine.paper import Paper, paper_with
from .engine.predict import predict
from .engine.progress import stopped_by_ctrl_c, track
from .engine.provenance import check_model
from .engine.result import draws_to_tree
from .engine.shared_settings import BlasLimits, quiet_libraries

type Rows = NDArray[np.intp]


def why_not_left_out(model: Any) -> str | None:
    """Why objects cannot be left out of a model; None when they can."""
    if not hasattr(model, "redeclared") or not {"obs", "basis"} <= set(model.coords):
        return f"not available for {type(model).__name__}"
    if "class" not in model.coords and "targets" not in model.named_vars:
        return f"{type(model).__name__} has neither classes nor data named 'targets'"
    source = source_of(model)
    if not source.in_memory or isinstance(source, CompletedRows):
        return "not available for kernels in a Dask array or completed kernels"
    if source.parameters:
        return "not available for kernels with parameters to learn"
    given = ["kernels", "targets"]
    if "class" in model.coords:
        given = ["kernels", "labels", "classes"]
        if "labels" not in model.named_vars or not hasattr(model, "label_codes"):
            return f"{type(model).__name__} has classes, but no data named 'labels' (label_codes)"
    taken = signature(type(model)).parameters
    if lacking := ", ".join(repr(name) for name in given if name not in taken):
        return f"its parts are declared by arguments that {type(model).__name__} lacks: {lacking}"
    if amended := ", ".join(map(repr, model.amendments())):
        return f"its parts would lack the added terms: {amended}"
    ids = np.unique(np.asarray(model.coords["obs"]), return_index=True)[1]
    if "class" in model.coords and (np.bincount(model.label_codes[ids]) > 1).sum() < 2:
        return "two classes must have two distinct objects each"
    return None if len(ids) > 1 else "it takes two distinct objects"


def kernels_of(model: Any) -> DataArray:
    """Kernels (kernel, obs, basis) of a model."""
    coords = {dim: np.asarray(model.coords[dim]) for dim in DIMS}
    return DataArray(model.kernel_values(), coords, DIMS)


def parts(
    model: Any, stack: DataArray, train: Rows, new: Rows, **settings: Any
) -> tuple[Any, DataArray]:
    """Declare the model of the objects `train`; return it and the kernels of the `new` ones."""
    columns = _columns_without(model, stack, train)
    if "class" in model.coords:
        classes = list(model.coords["class"])
        labels = [classes[code] for code in model.label_codes[train]]
        settings |= {"labels": labels, "classes": classes}
    else:
        settings["targets"] = model["targets"].get_value()[train]
    # Numbers, because the ids of an object's copies are the same. Columns have others than
    # rows: the matrices were checked as Gram matrices before.
    rows = np.arange(stack.sizes["obs"])
    if (landmarks := getattr(model, "landmarks", None)) is not None:
        columns = columns[np.isin(landmarks[columns], train)]
        if model.whole:
            own = np.einsum("knn->kn", stack.to_numpy())
            stack = stack.assign_coords({VARIANCE: (("kernel", "obs"), own)})
    numbered = stack.isel(basis=columns).assign_coords(obs=rows, basis=len(rows) + columns)
    if landmarks is not None:
        numbered = numbered.assign_coords({LANDMARK: ("basis", landmarks[columns])})
    part = model.redeclared(kernels=numbered.isel(obs=train), **settings)
    return part, numbered.isel(obs=new)


def _columns_without(model: Any, stack: DataArray, train: Rows) -> Rows:
    """Columns of a stack that are of objects in `train`, in their order, and those of no object."""
    ids, basis = stack["obs"].to_numpy(), stack["basis"].to_numpy()
    origins = json.loads(getattr(model, "origin", {}).get(ORIGIN, "{}")).values()
    of_objects = {*ids.tolist()} == {*basis.tolist()} or any(
        Origin(*each).n_train == len(basis) for each in origins
    )
    # Numbers of functions are the numbers of some rows, too.
    if counts_rows(basis) and not of_objects:
        return np.arange(len(basis))
    kept = np.flatnonzero(~np.isin(basis, ids) | np.isin(basis, ids[train]))
    trained = ids[train].tolist()
    places = dict(zip(reversed(trained), range(len(trained) - 1, -1, -1), strict=True))
    order = [places.get(label, len(trained)) for label in basis[kept].tolist()]
    return kept[np.argsort(order, kind="stable")]


def log_scores(model: Any, predicted: Dataset, new: Rows) -> NDArray:
    """Log scores (new,), in nats, of predictions of objects that were left out of the model.

    Those of targets are log densities of the mixture of normal laws over the draws, if predictions
    have the draws, else of the normal law with their mean and sd. Outputs are scored jointly.
    """
    if "probability" in predicted:
        p = predicted["probability"].to_numpy()
        own = p[np.arange(len(new)), model.label_codes[new]]
        return np.log(np.maximum(own, np.finfo(float).tiny))
    targets = model["targets"].get_value()[new]
    if "target_sd_draws" in predicted:
        laws = (predicted[name].to_numpy() for name in ("mean_draws", "target_sd_draws"))
        by_draw = norm.logpdf(targets, *laws)
        by_draw = by_draw.reshape(by_draw.shape[0] * by_draw.shape[1], len(new), -1).sum(axis=2)
        return logsumexp(by_draw, axis=0) - np.log(len(by_draw))
    scores = norm.logpdf(targets, predicted["mean"].to_numpy(), predicted["target_sd"].to_numpy())
    return scores.reshape(len(new), -1).sum(axis=1)


def objects_of(model: Any, stack: DataArray, *, by_ids: bool = False) -> Rows:
    """Return the number of the object of each row, whatever the order of the rows.

    Objects, whose copies have one number, are numbered by their kernels and responses, not by where
    they are. With `by_ids`, they are numbered by their ids, unless these only count the rows.
    """
    ids = np.asarray(model.coords["obs"])
    distinct, first, copy_of = np.unique(ids, return_index=True, return_inverse=True)
    if by_ids and not np.array_equal(distinct, np.arange(len(ids))):
        return copy_of
    K = stack.to_numpy()[:, first]
    # Sums over the columns, which are in the order of the rows; rounded, since they were added in
    # another order.
    contents = [*K.sum(axis=2), *np.einsum("kij,kij->ki", K, K)]
    contents = [np.round(each / (np.abs(each).max() or 1.0), 9) for each in contents]
    if "class" in model.coords:
        contents.append(model.label_codes[first])
    else:
        contents += [*model["targets"].get_value()[first].reshape(len(first), -1).T]
    number = np.empty(len(first), dtype=np.intp)
    number[np.lexsort(contents)] = np.arange(len(first))
    return number[copy_of]


def splits(
    model: Any, objects: Rows, folds: int, seed: int, most: int | None = None
) -> Iterator[tuple[Rows, Rows]]:
    """Rows of the training objects and of the objects left out, by fold, in the order of `objects`.

    `objects` are their numbers, see `objects_of`. Folds of two or more objects are stratified by
    class, and copies of an object are in one fold. Of more than `most` objects, so many take part.
    """
    # `import kernelzoo` does without scikit-learn, which takes half a second.
    from sklearn.model_selection import KFold, StratifiedKFold

    first, order = np.unique(objects, return_index=True)[1], np.argsort(objects, kind="stable")
    y, splitter = np.zeros(len(first), dtype=int), KFold
    if "class" in model.coords:
        y = model.label_codes[first]
        if folds < len(first):
            splitter, folds = StratifiedKFold, min(folds, int(np.bincount(y).max()))
    rng, share = np.random.default_rng(seed), 1.0 if most is None else min(1.0, most / len(y))
    members = [rng.permutation(np.flatnonzero(y == c)) for c in np.unique(y)]
    # Rare classes keep enough objects to be in every training part.
    kept = [m[: max(round(share * len(m)), folds)] for m in members]
    chosen = np.sort(np.concatenate(kept))
    split = splitter(min(folds, len(chosen)), shuffle=True, random_state=seed).split
    with quiet_libraries():
        folded = list(split(chosen, y[chosen]))
    for part in folded:
        train, new = (order[np.isin(objects[order], chosen[rows])] for rows in part)
        yield train, new


def loo_kfold(
    model: pm.Model,
    engine: str | Engine = "vb",
    *,
    k: Count = 10,
    random_seed: Seed = 0,
    progressbar: bool = True,
    **options: Any,
) -> ELPDDataLOOKFold:
    """Log predictive densities of all objects by K-fold cross-validation, with any engine.

    They are what ``az.loo`` estimates: the mean over the draws of the density of an object, in
    nats, by fits without it. Unlike ``az.loo`` this does not need posteriors that hardly change
    when one object leaves.

    Parameters
    ----------
    model : MultinomialProbit, or a composite kernel's or Gaussian process's model
        With kernels in memory that have no parameters. A landmark that is left out is none.
    engine : str or Engine, default="vb"
        As in `fit`.
    k : int, default=10
        Number of folds, with a fit each. They are stratified by class, at most as many as objects
        in the largest class; as many as objects leave out one each. Copies are in one fold.
    random_seed : int, SeedSequence or Generator, default=0
        Seed of the folds, which are the same for all models of the same ids (without ids: of the
        same kernels) in any order, and of each fit.
    progressbar : bool, default=True
        Show progress.
    **options
        Further arguments of `fit`, such as ``draws``.

    Returns
    -------
    ELPDDataLOOKFold
        For ``az.compare``, also beside ``az.loo(result, pointwise=True)``: ``elpd`` is the sum over
        the objects and ``elpd_i`` (obs) has the terms, in the order of the ids. ArviZ pairs them by
        position: sort those of ``az.loo``, which has the model's order, by
        ``loo.elpd_i = loo.elpd_i.sortby("obs")`` unless the ids are in order. Several outputs have
        one joint density per object, where ``az.loo`` leaves out single entries. Targets of a model
        whose predictions have no ``target_sd_draws`` have a normal density at the predicted mean
        and standard deviation. ``warning`` says that a fit did not converge. ``p`` is NaN.

    Raises
    ------
    ValueError
        For other models, for fewer than two folds, and for arguments that `fit` refuses.

    Examples
    --------
    >>> equal = model.redeclared(combination="fixed")
    >>> models = {"learned weights": model, "equal weights": equal}
    >>> az.compare({name: kz.scores.loo_kfold(each, k=3) for name, each in models.items()})
    """
    check_arguments(loo_kfold, locals())
    owner = "loo_kfold"
    check_model(model, owner)
    if reason := why_not_left_out(model):
        raise ValueError(f"{owner} does not apply to this model: {reason}.")
    if k < 2:
        raise argument_error("k", owner, "2 or more", repr(k))
    seed = integer_seed(random_seed, "random_seed", owner)
    stack = kernels_of(model)
    ids = np.asarray(model.coords["obs"])
    scores = DataArray(np.empty(len(ids)), {"obs": ids}, ("obs",))
    folds = list(splits(model, objects_of(model, stack, by_ids=True), k, seed))
    of_targets = "class" not in model.coords
    warned, draws = False, 0
    with stopped_by_ctrl_c(), track(len(folds), "Folds", visible=progressbar) as bar:
        for train, new in folds:
            with silent():
                part, kernels_new = parts(model, stack, train, new)
                result = fit(part, engine, random_seed=seed, progressbar=False, **options)
                predicted = predict(
                    part, result, kernels_new, keep_draws=of_targets, progressbar=False
                )
            scores.values[new] = log_scores(model, predicted, new)
            warned |= result.attrs.get("converged") != "yes"
            posterior = result["posterior"]
            draws = posterior.sizes["chain"] * posterior.sizes["draw"]
            bar.advance()
    return ELPDDataLOOKFold(
        elpd=float(scores.sum()),
        se=float(np.sqrt(len(scores)) * scores.std()),
        p=np.nan,
        n_samples=draws,
        n_data_points=len(scores),
        scale="log",
        warning=bool(warned),
        good_k=None,  # type: ignore[arg-type]
        elpd_i=scores[np.argsort(ids, kind="stable")],
        n_folds=len(folds),
    )


#: Scales that `select` tries by default.
SCALES = (0.1, 1.0, 10.0, 100.0, 1_000.0, 10_000.0)
# Objects that take part. Scales are a factor of ten apart: 400 objects tell them apart.
MOST = 400
# More with few columns, as the best scale grows with objects per column; then one fold suffices.
MOST_OF_A_BASIS, ONE_FOLD = 4_000, 1_600
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
    paper = paper_with("path", model)
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
        and for data without two classes of two objects.

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
    paper = paper_with("path", model)
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
    return selected(
        model, tried, objects_of(model, kernels_of(model)), choose_weights, folds, seed, progressbar
    )


def selected(
    model: Any,
    tried: Sequence[float],
    numbers: Rows,
    choose_weights: bool,
    folds: int = 4,
    seed: int = 0,
    progressbar: bool = False,
) -> Selection:
    """Choose as `select` does, with folds of the objects' `numbers`; see `objects_of`."""
    paper = paper_with("path", model)
    assert paper is not None
    stack = kernels_of(model)
    few = stack.sizes["basis"] <= MOST
    pairs = list(splits(model, numbers, folds, seed, MOST_OF_A_BASIS if few else MOST))
    if sum(len(new) for _, new in pairs) > ONE_FOLD:
        pairs = pairs[:1]
    compare = choose_weights and model.learned and len(model.coords["kernel"]) > 1
    weights = ["equal", "declared"] if compare else ["declared"]
    objects = np.sort(np.concatenate([new for _, new in pairs]))
    scored = DataArray(
        np.full((len(weights), len(tried), len(objects)), np.nan),
        {"weights": weights, "scale": tried, "obs": np.asarray(model.coords["obs"])[objects]},
        ("weights", "scale", "obs"),
    )
    total = len(pairs) * (len(tried) + 2 * compare)
    with (
        stopped_by_ctrl_c(),
        track(total, "Held-out log scores", visible=progressbar) as bar,
        numpy_warnings(),
        # As in `fit`: threads cost more than they save on a few hundred objects.
        BlasLimits(1),
    ):

        def fill(row: int, columns: Sequence[int], *, as_fitted: bool = False) -> None:
            chosen = [tried[column] for column in columns]
            equal = weights[row] == "equal"
            for fold in pairs:
                scores = _scored(
                    model, stack, paper, fold, chosen, equal=equal, as_fitted=as_fitted, seed=seed
                )
                for column, each in zip(columns, scores, strict=True):
                    scored.values[row, column, np.searchsorted(objects, fold[1])] = each
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
    return Selection(model.redeclared(**settings), settings, scored)


def _scored(
    model: Any,
    stack: DataArray,
    paper: Paper,
    fold: tuple[NDArray, NDArray],
    scales: Sequence[float],
    *,
    equal: bool,
    as_fitted: bool,
    seed: int,
) -> Iterator[NDArray]:
    """Log scores (new,) of the left-out objects of a fold, one scale after another.

    With known weights, here also `equal` ones, the composite kernel is the only kernel. Learned
    weights have several starts `as_fitted` by VB, whose best may predict far worse than one alone.
    """
    settings: dict[str, Any] = {}
    if equal or not model.learned:
        known = np.full(len(stack), 1 / len(stack)) if model.learned else model["beta"].get_value()
        total = np.tensordot(known, stack.to_numpy(), axes=1)[None]
        stack = stack[:1].assign_coords(kernel=["sum"]).copy(data=total)
        settings["combination"] = FixedWeights([1.0])
    assert paper.path is not None
    assert paper.vb is not None
    assert paper.predict is not None
    with silent():
        part, kernels_new = parts(model, stack, *fold, **settings)
        samples = paper.path(part, scales)
        if as_fitted and part.learned and len(stack) > 1:
            vb, run = paper.vb.function, Run(random_seed=seed, progressbar=False)
            samples = (vb(part.redeclared(**{paper.scale: s}), run).sample for s in scales)
        for sample in samples:
            result = draws_to_tree(part, sample(DRAWS, np.random.default_rng(seed))[0])
            predicted = paper.predict(
                part, result, kernels_new, keep_draws=False, progressbar=False
            )
            yield log_scores(model, predicted, fold[1])
