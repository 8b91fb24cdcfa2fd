"""Prediction for new objects from any engine's result."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import pymc as pm
import xarray as xr
from xarray import Dataset, DataTree

from ...models.kernels.dask_stack import computed
from ...models.kernels.learned import ParametricStack
from ...user_warnings import numpy_warnings
from ...validation import Count, Seed, argument_error, check_arguments, integer_seed
from .clock import track
from .completed_kernels import predict_each_completion
from .draws_on_disk import UNFINISHED, check_store, finish_store, make_store
from .extend import check_absent, with_groups
from .moments import pooled
from .paper import PAPERS, papers_of
from .predictions_by_draw import stack_of_new_objects
from .result import with_group
from .same_model import check_fitted, check_model

__all__ = [
    "in_chunks",
    "joined",
    "predict",
    "predict_chunks",
]


# Options of papers' functions that are arguments of `predict`.
GIVEN_ANYWAY = {"progressbar", "random_seed"}
# Groups that `predict` adds to a result.
ADDED = ("predictions", "predictions_constant_data")


@overload
def predict(
    model: pm.Model,
    result: DataTree,
    kernels_new: Any = None,
    *,
    extend: Literal[False] = False,
    **options: Any,
) -> Dataset: ...
@overload
def predict(
    model: pm.Model,
    result: DataTree,
    kernels_new: Any = None,
    *,
    extend: Literal[True],
    **options: Any,
) -> DataTree: ...
def predict(
    model: pm.Model,
    result: DataTree,
    kernels_new: Any = None,
    *,
    keep_draws: bool = False,
    draws: Count | None = None,
    progressbar: bool = True,
    store: str | PathLike[str] | None = None,
    extend: bool = False,
    overwrite: bool = False,
    random_seed: Seed = None,
    **options: Any,
) -> Dataset | DataTree:
    """Predict new objects or missing entries, averaged over an engine's draws.

    Parameters
    ----------
    model : pm.Model
        The model that was fitted.
    result : DataTree
        Result of `fit` on it, by any engine.
    kernels_new : DataArray (kernel, obs, basis), dict of 2-D arrays, or array
        Kernels between the new objects (rows) and the training objects (columns), normalised like
        the training kernels: ``kernels(X_new, X_train)``. A DataArray of a Dask array, for very
        many objects, is computed chunk by chunk. For completed kernels,
        ``completion.of(new, train)``: predictions are averaged over the completions, and
        ``..._between`` are their standard deviations between completions. Leave out for kernel
        completion, whose kernel matrices contain the new objects already.
    keep_draws : bool, default=False
        Also keep the predictions of every draw (draws x objects numbers), for example for the Monte
        Carlo error by ``az.mcse``.
    draws : int, optional
        Average over only so many draws, evenly spaced, equally many a chain, rounded up. Saves time
        with many objects. Default: all.
    progressbar : bool, default=True
        Show progress if the draws or the objects need several blocks.
    store : path, optional
        New folder for a zarr store, for predictions that do not fit into memory. Predictions are
        written block by block, and the returned Dataset reads them from there. A run that is
        interrupted leaves the blocks that are finished, and the attribute ``note`` "unfinished:
        ...". Needs the package zarr (extra ``zarr``).
    extend : bool, default=False
        Return the result with the predictions as groups of ArviZ's layout, as `extend` does for
        the training objects. The group ``predictions`` also has draws of the observed variable of
        new objects, ``t`` (chain, draw, obs): targets, or codes of classes as in
        ``observed_data``. The group ``predictions_constant_data`` has the kernels of the new
        objects. Not for a Dask array, nor with a `store`.
    overwrite : bool, default=False
        Replace these groups if the result has them; otherwise they are an error.
    random_seed : int, SeedSequence or Generator, optional
        Seed of ``t``; a Generator advances with each call. The integer used is the attribute
        ``random_seed`` of the group.
    **options
        What each model's predictions take.

        `WishartCompletion`, `DiagonalWishartCompletion`, `WishartKernelMixture`: ``labels``,
        ``rule``.

        labels : array_like or Series (train,)
            Classes of the training objects; required. A Series is aligned by ids, as for the
            models.
        rule : {"nearest mean", "nearest neighbour"}, default="nearest mean"
            Classifier in the feature space of the kernel.

        `MutualKernelCompletion`: ``ci_prob``.

        ci_prob : float, default=0.9
            Probability of the intervals, with equal tails.

    Returns
    -------
    Dataset, or DataTree with `extend`
        What each model's predictions hold, with ``<k>`` for the name of a kernel.

        ==================  ========================  ==========================================
        variable            dims                      what it is
        ==================  ========================  ==========================================
        WishartCompletion, DiagonalWishartCompletion, WishartKernelMixture
        ----------------------------------------------------------------------------------------
        label               test                      by the posterior mean of the kernel
        probability         test, class               share of the draws of K21 with this label, if
                                                      the result has them: ``var_names=["K21"]``
        label_draws         chain, draw, test         by every draw, with `keep_draws`
        MutualKernelCompletion
        ----------------------------------------------------------------------------------------
        kernel_mean         kernel, object, object_   completed kernel, in the units given; visible
                                                      entries as given, with the model's jitter
        kernel_sd           kernel, object, object_   0 where visible; NaN elsewhere for a point or
                                                      a collapsed model
        model_matrix        object, object_           posterior mean of M
        mean_<k>            entry_<k>                 mean of the model's ``entries``, if drawn
        lower_<k>           entry_<k>                 lower ends of their intervals
        upper_<k>           entry_<k>                 upper ends of their intervals
        draws_<k>           chain, draw, entry_<k>    their draws, with `keep_draws`
        CompositeKernelRegression
        ----------------------------------------------------------------------------------------
        mean                obs                       posterior predictive; output last, if any
        sd                  obs                       of a new target
        response_sd         obs                       of the response, without noise
        mean_draws          chain, draw, obs          mean of every draw, with `keep_draws`
        t                   chain, draw, obs          targets drawn, with `extend`
        CompositeKernelClassification, MultinomialProbit
        ----------------------------------------------------------------------------------------
        probability         obs, class                posterior predictive
        probability_sd      obs, class                posterior standard deviation of p
        label               obs                       the most probable class
        probability_draws   chain, draw, obs, class   p of every draw, with `keep_draws`
        t                   chain, draw, obs          codes of classes drawn, with `extend`
        ==================  ========================  ==========================================

        The attributes name the engine and the model; some models add attributes.

    Warns
    -----
    UserWarning
        When a monitored entry of a chain of `MutualKernelCompletion` has fewer than 100 effective
        draws.

    Raises
    ------
    ValueError
        When the result is not of the model's current data, priors and likelihood, when the kernels
        do not match the model's, when the result lacks draws that predictions need, or when it has
        groups that would be replaced.
    TypeError
        For a model without predictions, an option that its predictions do not take, or a `result`
        that is not a DataTree.

    Examples
    --------
    >>> predictions = kz.predict(model, result, kernels(data.X_test, data.X_train))
    >>> predictions["probability"].sel(obs=0)
    >>> import dask.array as da
    >>> kz.predict(model, result, kernels(da.from_array(X_many), X_train), store="all.zarr")
    >>> kz.predict(model, result, kernels(X_test, X_train), extend=True)["predictions"]["t"]
    >>> kz.predict(completion, exact, labels=y_train)["label"]
    """
    check_arguments(predict, locals())
    check_model(model, "predict")
    function = _predictive(model)
    taken = _check_options(model, function, options)
    check_fitted(model, result, "predict")
    seed, whole = integer_seed(random_seed, "random_seed", "predict"), result
    if extend and (store is not None or in_chunks(kernels_new)):
        rule = "False for a Dask array and with a store: groups of a result are in memory"
        raise argument_error("extend", "predict", rule, "True")
    if extend:
        check_absent(ADDED, () if overwrite else result.children, "predict")
        if "random_seed" in taken:
            options["random_seed"] = seed
    if "moments" in result.children:
        # A copy of the tree, which shares its arrays with the caller's.
        moments = result["moments"].to_dataset()
        result = with_group(result.copy(), "moments", pooled(moments))
    if draws is not None:
        if "progressbar" not in taken:
            raise TypeError(
                f"predict of a {type(model).__name__} takes no 'draws': it does not go through "
                "them one by one."
            )
        result = _thinned(result, draws)
    if "progressbar" in taken:
        # One bar suffices: over the objects of a Dask array, otherwise over the draws.
        options["progressbar"] = progressbar and not in_chunks(kernels_new)

    def predict_one(kernels: Any) -> Dataset:
        predicted = partial(function, keep_draws=keep_draws, **options)
        predictions = predict_each_completion(predicted, model, result, kernels)
        predictions.attrs.update(
            {key: result.attrs[key] for key in ("engine", "model") if key in result.attrs}
        )
        return predictions

    with numpy_warnings():
        predictions = predict_chunks(predict_one, kernels_new, store, progressbar)
    if not extend:
        return predictions
    if "random_seed" in taken:
        predictions.attrs["random_seed"] = seed
    groups = {"predictions": predictions}
    if kernels_new is not None:
        groups["predictions_constant_data"] = _stored(kernels_new, model)
    return with_groups(whole, groups)


def _stored(kernels_new: Any, model: pm.Model) -> Dataset:
    """Kernels of new objects as a group of a result."""
    if not isinstance(kernels_new, ParametricStack):
        return Dataset({"K": stack_of_new_objects(model, kernels_new)})
    data = {
        name: (("obs", f"feature_of_{name}"), values)
        for name, values in kernels_new.features.items()
    }
    stored = Dataset(data, {"obs": kernels_new.start["obs"]})
    if len(kernels_new.fixed):
        stored["K"] = kernels_new.fixed.rename(kernel="kernel_without_parameters")
    return stored


def _thinned(result: DataTree, draws: int) -> DataTree:
    """Keep evenly spaced draws, as many of each chain."""
    posterior = result["posterior"].to_dataset()
    n_draws = posterior.sizes["draw"]
    kept = min(-(-draws // posterior.sizes["chain"]), n_draws)
    spaced = ((np.arange(kept) + 0.5) * n_draws / kept).astype(int)
    return with_group(result.copy(), "posterior", posterior.isel(draw=spaced))


def _predictive(model: pm.Model) -> Callable[..., Dataset]:
    """Find the function of the model's paper that predicts."""
    for paper in papers_of(type(model)):
        if paper.predict is not None:
            return paper.predict
    written = ", ".join(p.model.__name__ for p in PAPERS.values() if p.predict)
    raise TypeError(
        f"predict is not available for {type(model).__name__} (available for {written}). "
        "pm.sample_posterior_predictive works on every PyMC model."
    )


def _check_options(
    model: pm.Model, function: Callable[..., Dataset], options: Mapping[str, Any]
) -> list[str]:
    """List the options of the model's predictions; raise TypeError for any other option."""
    parameters = inspect.signature(function).parameters.values()
    taken = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "keep_draws"]
    if unknown := sorted(options.keys() - taken):
        own = [name for name in taken if name not in GIVEN_ANYWAY]
        loops = ["draws"] * ("progressbar" in taken)
        raise TypeError(
            f"predict of a {type(model).__name__} takes no {', '.join(map(repr, unknown))}; its "
            f"options are {', '.join(map(repr, ['keep_draws', *loops, *own]))}."
        )
    return taken


def in_chunks(kernels_new: Any) -> bool:
    """Whether kernels of new objects are a DataArray of a Dask array."""
    return isinstance(kernels_new, xr.DataArray) and kernels_new.chunks is not None


def predict_chunks(
    predict_one: Callable[[Any], Dataset],
    kernels_new: Any,
    store: str | PathLike[str] | None,
    progressbar: bool,
) -> Dataset:
    """Predict chunk by chunk if `kernels_new` have chunks; write to a store if one is named."""
    path = None if store is None else check_store(store, "predict")
    if not in_chunks(kernels_new):
        predictions = predict_one(kernels_new)
        return predictions if path is None else _written(iter([predictions]), path)

    def each() -> Iterator[Dataset]:
        n_obs = kernels_new.sizes["obs"]
        stops = np.cumsum(kernels_new.chunksizes["obs"]).tolist()
        with track(n_obs, "Predictions by object", visible=progressbar) as bar:
            for start, stop in zip([0, *stops], stops, strict=False):
                yield predict_one(_in_memory(kernels_new.isel(obs=slice(start, stop))))
                bar.advance(stop - start)

    if path is not None:
        return _written(each(), path)
    return joined(list(each()))


def _in_memory(kernels: xr.DataArray) -> xr.DataArray:
    """Kernels of a chunk, which need not have the shape that the Dask array promises."""
    (values,) = computed(kernels.data)
    if values.shape != kernels.shape:
        rule = f"of chunks of shape {kernels.shape}, as the Dask array says"
        raise argument_error("kernels_new", "predict", rule, f"shape {values.shape}")
    return kernels.copy(data=values)


def joined(predictions: Sequence[Dataset]) -> Dataset:
    """Join predictions of different objects."""
    return xr.concat(
        predictions, "obs", data_vars="minimal", coords="minimal", compat="override",
        join="exact", combine_attrs="override",
    )  # fmt: skip


def _written(predictions: Iterator[Dataset], path: Path) -> Dataset:
    """Append predictions to a new store and open it."""
    for number, chunk in enumerate(predictions):
        marked = chunk.assign_attrs(note=UNFINISHED)
        if number:
            fixed = [name for name, values in chunk.variables.items() if "obs" not in values.dims]
            marked.drop_vars(fixed).to_zarr(path, append_dim="obs", consolidated=False)
        else:
            make_store(path, "predict")
            marked.to_zarr(path, mode="w", consolidated=False)
    finish_store(path, chunk.attrs)
    return xr.open_zarr(path, consolidated=False, chunks=None)
