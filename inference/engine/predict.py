"""Prediction for new objects from any engine's result."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from xarray import DataArray, Dataset, DataTree

from ...user_warnings import numpy_warnings
from ...validation import Seed, argument_error, check_arguments, integer_seed
from .completions import of_completions, predict_each_completion
from .paper import models_with, paper_with
from .progress import track
from .provenance import check_fitted, check_model
from .result import check_store, pooled, returned_dataset, with_group


def predict(
    model: pm.Model,
    result: DataTree,
    kernels_new: Any = None,
    *,
    keep_draws: bool = False,
    progressbar: bool = True,
    store: str | PathLike[str] | None = None,
    random_seed: Seed = None,
    **options: Any,
) -> Dataset:
    """Predict new objects or missing entries, averaged over an engine's draws.

    Parameters
    ----------
    model : pm.Model
        The model that was fitted.
    result : DataTree
        Result of `fit` on it, by any engine.
    kernels_new : DataArray (kernel, obs, basis), dict of 2-D arrays, or array
        Kernels between the new objects (rows, whatever their ids) and the training objects
        (columns), normalised like these: ``kernels(X_new, X_train)``. A DataArray of a Dask array
        is computed chunk by chunk. For completed kernels, ``completion.of(new, train)``:
        ``..._between`` are standard deviations between completions. Leave out for kernel
        completion, whose kernel matrices contain the new objects already.
    keep_draws : bool, default=False
        Also keep the predictions of every draw, such as for ``az.mcse``, and, unless the kernels
        are in chunks, draw the observed variable ``t`` of the new objects, once per draw.
    progressbar : bool, default=True
        Show progress if the draws or the objects need several blocks.
    store : path, optional
        New folder for a zarr store (extra ``zarr``), to which predictions are written block by
        block, and from which the returned Dataset reads them.
    random_seed : int, SeedSequence or Generator, optional
        Seed of ``t``, as in `fit`; the integer used is the attribute ``random_seed``.
    **options
        Of `WishartCompletion`, `DiagonalWishartCompletion` and `WishartKernelMixture`: ``labels``,
        the classes (train,) of the training objects, where a Series is aligned by ids; and
        ``rule``, "nearest mean" (the default) or "nearest neighbour". Of `MutualKernelCompletion`:
        ``ci_prob``, the probability of the intervals with equal tails, by default 0.9.

    Returns
    -------
    Dataset
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
        CompositeKernelRegression, GaussianProcessRegression
        ----------------------------------------------------------------------------------------
        mean                obs                       posterior predictive; output last, if any
        target_sd           obs                       of a new target, with noise
        response_sd         obs                       of the response, without noise
        mean_draws          chain, draw, obs          mean of every draw, with `keep_draws`
        target_sd_draws     chain, draw, obs          sd of a target given the draw, likewise
        t                   chain, draw, obs          targets drawn, with `keep_draws`
        CompositeKernelClassification, MultinomialProbit, GaussianProcessClassification
        ----------------------------------------------------------------------------------------
        probability         obs, class                posterior predictive
        probability_sd      obs, class                posterior standard deviation of p
        label               obs                       the most probable class
        probability_draws   chain, draw, obs, class   p of every draw, with `keep_draws`
        t                   chain, draw, obs          codes of classes, with `keep_draws`
        ==================  ========================  ==========================================

        The attributes name the engine and the model; some models add attributes.

    Raises
    ------
    ValueError
        When the result is not of the model's current data, priors and likelihood, when the kernels
        do not match the model's, or when the result lacks finite draws that predictions need.
    TypeError
        For a model without predictions, an option that its predictions do not take, or a `result`
        that is not a DataTree.

    Examples
    --------
    >>> predictions = kz.predict(model, result, kernels(data.X_test, data.X_train))
    >>> predictions["probability"].sel(obs=0)
    >>> import dask.array as da
    >>> kz.predict(model, result, kernels(da.from_array(X_many), X_train), store="all.zarr")
    >>> kz.predict(model, result, kernels(X_test, X_train), keep_draws=True)["t"]
    >>> kz.predict(completion, exact, labels=y_train)["label"]
    """
    check_arguments(predict, locals())
    check_model(model, "predict")
    paper = paper_with("predict", model)
    if paper is None or (function := paper.predict) is None:
        raise TypeError(
            f"predict is not available for {type(model).__name__} (available for "
            f"{models_with('predict')}). pm.sample_posterior_predictive works on every PyMC model."
        )
    parameters = inspect.signature(function).parameters.values()
    taken = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "keep_draws"]
    if unknown := sorted(options.keys() - taken):
        own = [name for name in taken if name not in ("progressbar", "random_seed")]
        raise TypeError(
            f"predict of a {type(model).__name__} got unexpected {', '.join(map(repr, unknown))}; "
            f"its options are {', '.join(map(repr, ['keep_draws', *own]))}."
        )
    check_fitted(model, result, "predict")
    path = None if store is None else check_store(store, "predict")
    seed = integer_seed(random_seed, "random_seed", "predict")
    attributes = {key: result.attrs[key] for key in ("engine", "model") & result.attrs.keys()}
    # Chunks of objects would be drawn independently of each other.
    if keep_draws and "random_seed" in taken and not in_chunks(kernels_new):
        options["random_seed"] = attributes["random_seed"] = seed
    if "progressbar" in taken:
        # One bar suffices: over the objects in chunks, otherwise over the draws.
        options["progressbar"] = progressbar and not in_chunks(kernels_new)
    if "moments" in result.children:
        # A copy of the tree, which shares its arrays with the caller's.
        result = with_group(result.copy(), "moments", pooled(result["moments"].to_dataset()))

    def predicted(*args: Any) -> Dataset:
        return returned_dataset(function(*args, keep_draws=keep_draws, **options), "predict", model)

    def predict_one(kernels: Any) -> Dataset:
        if of_completions(result, kernels):
            predictions = predict_each_completion(predicted, model, result, kernels)
        else:
            predictions = predicted(model, result, kernels)
        return predictions.assign_attrs(attributes)

    with numpy_warnings():
        if not in_chunks(kernels_new):
            predictions = predict_one(kernels_new)
            return predictions if path is None else _written([predictions], path)
        chunks = _by_chunk(predict_one, kernels_new, progressbar)
        if path is not None:
            return _written(chunks, path)
        return xr.concat(
            [*chunks], "obs", data_vars="minimal", coords="minimal", compat="override",
            join="exact", combine_attrs="override",
        )  # fmt: skip


def in_chunks(kernels_new: Any) -> bool:
    """Whether kernels of new objects are a DataArray in chunks."""
    return isinstance(kernels_new, DataArray) and kernels_new.chunks is not None


def _by_chunk(
    predict_one: Callable[[Any], Dataset], kernels_new: DataArray, progressbar: bool
) -> Iterator[Dataset]:
    stops = np.cumsum(kernels_new.variable.chunksizes["obs"]).tolist()
    with track(kernels_new.sizes["obs"], "Predictions by object", visible=progressbar) as bar:
        for start, stop in zip([0, *stops], stops, strict=False):
            chunk = kernels_new.isel(obs=slice(start, stop))
            values = chunk.data.compute()
            if values.shape != chunk.shape:
                rule = f"of chunks of shape {chunk.shape}, as the array says"
                raise argument_error("kernels_new", "predict", rule, f"shape {values.shape}")
            yield predict_one(chunk.copy(data=values))
            bar.advance(stop - start)


def _written(predictions: Iterable[Dataset], path: Path) -> Dataset:
    """Append predictions to a new store and open it."""
    for number, chunk in enumerate(predictions):
        if number:
            fixed = [name for name, values in chunk.variables.items() if "obs" not in values.dims]
            chunk.drop_vars(fixed).to_zarr(path, append_dim="obs", consolidated=False)
        else:
            chunk.to_zarr(path, mode="w-", consolidated=False)
    return xr.open_zarr(path, consolidated=False, chunks=None)
