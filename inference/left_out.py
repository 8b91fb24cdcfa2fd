"""Objects left out of a model, and their log scores by K-fold cross-validation with any engine."""

import json
from collections.abc import Iterator
from inspect import signature
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
from arviz_stats.utils import ELPDDataLOOKFold
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import norm
from xarray import DataArray, Dataset

from ..models.declaration import source_of
from ..models.kernels.labels import aligned, check_repeated, counts_rows, listed
from ..models.kernels.source import DIMS, LANDMARK, VARIANCE, CompletedRows
from ..models.kernels.stack import ORIGIN, Origin
from ..numerics.groups import Groups
from ..user_warnings import silent, warn_user
from ..validation import (
    Count,
    Seed,
    argument_error,
    check_arguments,
    check_unmasked,
    integer_seed,
)
from .engine.engine import Engine, why_not_in_memory
from .engine.fit import fit
from .engine.predict import predict
from .engine.progress import stopped_by_ctrl_c, track
from .engine.provenance import check_model
from .engine.shared_settings import quiet_libraries
from .new_objects import log_scores_of_classes, log_scores_of_targets

type Rows = NDArray[np.intp]


def why_not_left_out(model: Any) -> str | None:
    """Why objects cannot be left out of a model; None when they can."""
    if not hasattr(model, "redeclared") or not {"obs", "basis"} <= set(model.coords):
        return f"not available for {type(model).__name__}"
    if "class" not in model.coords and "targets" not in model.named_vars:
        return f"{type(model).__name__} has neither classes nor data named 'targets'"
    if reason := why_not_in_memory(model):
        return reason
    source = source_of(model)
    if isinstance(source, CompletedRows):
        return "not available for completed kernels"
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


def labels_of_classes(model: Any) -> NDArray | None:
    """Label of the class of each object; None of a model of targets."""
    if "class" not in model.coords:
        return None
    return np.asarray(model.coords["class"])[model.label_codes]


def kernels_of(model: Any) -> DataArray:
    """Kernels (kernel, obs, basis) of a model."""
    coords = {dim: np.asarray(model.coords[dim]) for dim in DIMS}
    return DataArray(model.kernel_values(), coords, DIMS)


def parts(
    model: Any, stack: DataArray, train: Rows, new: Rows, **settings: Any
) -> tuple[Any, DataArray]:
    """Declare the model of the objects `train`; return it and the kernels of the `new` ones."""
    columns = columns_without(model, train)
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


def columns_without(model: Any, train: Rows) -> Rows:
    """Columns of the kernels of objects in `train`, in their order, and those of no object."""
    ids, basis = (np.asarray(model.coords[dim]) for dim in ("obs", "basis"))
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
        return log_scores_of_classes(predicted["probability"].to_numpy(), model.label_codes[new])
    targets = model["targets"].get_value()[new]
    if "target_sd_draws" in predicted:
        laws = (predicted[name].to_numpy() for name in ("mean_draws", "target_sd_draws"))
        by_draw = norm.logpdf(targets, *laws)
        by_draw = by_draw.reshape(by_draw.shape[0] * by_draw.shape[1], len(new), -1).sum(axis=2)
        return logsumexp(by_draw, axis=0) - np.log(len(by_draw))
    mean, sd = (predicted[name].to_numpy() for name in ("mean", "target_sd"))
    return log_scores_of_targets(mean, sd, targets)


def objects_of(model: Any, *, by_ids: bool = False) -> Rows:
    """Return the number of the object of each row, whatever the order of the rows.

    Objects, whose copies have one number, are numbered by their kernels and responses, not by where
    they are. With `by_ids`, they are numbered by their ids, unless these only count the rows.
    """
    ids = np.asarray(model.coords["obs"])
    distinct, first, copy_of = np.unique(ids, return_index=True, return_inverse=True)
    if by_ids and not np.array_equal(distinct, np.arange(len(ids))):
        return copy_of
    K = model.kernel_values()[:, first]
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


def checked_groups(groups: Any, ids: Any, labels: NDArray | None, owner: str) -> Groups | None:
    """Return the number of the group of each object, in the order of the `ids`.

    It is None if no two objects are in one group. Raises a ValueError for groups of other objects,
    missing ones, a single one, and groups that hold all but one of the classes of the `labels`
    whole; warns of other classes that a group holds whole.
    """
    if groups is None:
        return None
    check_unmasked(groups, "groups", owner)
    values = np.asarray(aligned(groups, ids, "groups", owner))
    if values.shape != (len(ids),):
        rule = f"one group for each of the {len(ids)} objects"
        raise argument_error("groups", owner, rule, f"shape {values.shape}")
    check_repeated(ids, values, "groups", owner)
    # Sorted, so that numbers do not depend on the order of the objects.
    codes, distinct = pd.factorize(values, sort=True)
    if (absent := np.flatnonzero(codes < 0)).size:
        got = f"none for {listed(np.asarray(ids)[absent].tolist())}"
        raise argument_error("groups", owner, "a group for every object", got)
    if len(distinct) == 1:
        rule = "at least two groups, because each is left out"
        raise argument_error("groups", owner, rule, f"only {listed(distinct.tolist())}")
    if len(distinct) == len(values):
        return None
    if labels is not None:
        _check_groups_of_classes(codes, labels, owner)
    return codes


def _check_groups_of_classes(groups: Groups, labels: NDArray, owner: str) -> None:
    classes = np.unique(labels)
    alone = [c for c in classes if len(np.unique(groups[labels == c])) == 1]
    named = listed(np.array(alone).tolist())
    if len(classes) - len(alone) < 2:
        rule = "such that two classes or more have objects in two groups each"
        raise argument_error("groups", owner, rule, f"one group for all objects of {named}")
    if alone:
        warn_user(
            f"All objects of the class are in one group: {named}. Where {owner} leaves this group "
            "out, no object of the class is left."
        )


def splits(
    model: Any,
    objects: Rows,
    folds: int,
    seed: int,
    most: int | None = None,
    groups: Groups | None = None,
) -> Iterator[tuple[Rows, Rows]]:
    """Rows of the training objects and of the objects left out, by fold, in the order of `objects`.

    `objects` are their numbers, see `objects_of`. Folds of two or more objects are stratified by
    class, and copies of an object are in one fold, as are all of one of the `groups` (rows of the
    model). Of more than `most` objects, so many take part.
    """
    # `import kernelzoo` does without scikit-learn, which takes half a second.
    from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold

    first = np.unique(objects, return_index=True)[1]
    order = np.argsort(objects, kind="stable")
    together = np.arange(len(first)) if groups is None else groups[first]
    y = np.zeros(len(first), dtype=int)
    splitter = KFold if groups is None else GroupKFold
    if "class" in model.coords:
        y = model.label_codes[first]
        if folds < len(np.unique(together)):
            splitter = StratifiedKFold if groups is None else StratifiedGroupKFold
            folds = min(folds, int(np.bincount(y).max()))
    rng = np.random.default_rng(seed)
    share = 1.0 if most is None else min(1.0, most / len(y))
    members = [rng.permutation(np.flatnonzero(y == c)) for c in np.unique(y)]
    # Rare classes keep enough objects to be in every training part.
    kept = [m[: max(round(share * len(m)), folds)] for m in members]
    chosen = np.sort(np.concatenate(kept))
    together = together[chosen]
    split = splitter(min(folds, len(np.unique(together))), shuffle=True, random_state=seed).split
    with quiet_libraries():
        folded = list(split(chosen, y[chosen], None if groups is None else together))
    for part in folded:
        train, new = (order[np.isin(objects[order], chosen[rows])] for rows in part)
        yield train, new


def loo_kfold(
    model: pm.Model,
    engine: str | Engine = "vb",
    *,
    k: Count = 10,
    groups: Any = None,
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
    groups : array_like or Series (obs,), optional
        Group of each object, such as the person whose sample it is: objects of a group are in one
        fold, and as many folds as groups leave out one each. A Series is aligned by its index,
        where the model has ids. ``se`` is that of independent objects.
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
        For other models, for fewer than two folds, for groups that are not one per object, and for
        arguments that `fit` refuses.

    Warns
    -----
    UserWarning
        For classes all of whose objects are in one group.

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
    together = checked_groups(groups, ids, labels_of_classes(model), owner)
    folds = list(splits(model, objects_of(model, by_ids=True), k, seed, groups=together))
    of_targets = "class" not in model.coords
    warned = False
    draws = 0
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
