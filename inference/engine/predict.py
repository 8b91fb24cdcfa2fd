"""Prediction for new objects from any engine's result; and what papers' predictions share."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from xarray import DataArray, Dataset, DataTree

from ...models.combinations.sums import Combination, WeightedSum
from ...models.kernels.dask_stack import compared_objects
from ...models.kernels.stack import as_stack
from ...user_warnings import numpy_warnings
from ...validation import Seed, argument_error, check_arguments, integer_seed
from .completions import predict_each_completion
from .paper import models_with, paper_with
from .progress import track
from .provenance import check_fitted, check_model
from .result import RunningMoments, check_store, pooled, with_group

# Largest block of functions held at once, in numbers (64 MB).
BLOCK = 8_000_000


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
        Kernels between the new objects (rows) and the training objects (columns), normalised like
        the training kernels: ``kernels(X_new, X_train)``. A DataArray of a Dask array is computed
        chunk by chunk. For completed kernels, ``completion.of(new, train)``: ``..._between`` are
        standard deviations between completions. Leave out for kernel completion, whose kernel
        matrices contain the new objects already.
    keep_draws : bool, default=False
        Also keep the predictions of every draw, such as for ``az.mcse``, and, unless the kernels
        are a Dask array, draw the observed variable ``t`` of the new objects, once per draw.
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
        CompositeKernelRegression
        ----------------------------------------------------------------------------------------
        mean                obs                       posterior predictive; output last, if any
        target_sd           obs                       of a new target, with noise
        response_sd         obs                       of the response, without noise
        mean_draws          chain, draw, obs          mean of every draw, with `keep_draws`
        t                   chain, draw, obs          targets drawn, with `keep_draws`
        CompositeKernelClassification, MultinomialProbit
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
        do not match the model's, or when the result lacks draws that predictions need.
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
            f"predict of a {type(model).__name__} takes no {', '.join(map(repr, unknown))}; its "
            f"options are {', '.join(map(repr, ['keep_draws', *own]))}."
        )
    check_fitted(model, result, "predict")
    path = None if store is None else check_store(store, "predict")
    seed = integer_seed(random_seed, "random_seed", "predict")
    attributes = {key: result.attrs[key] for key in ("engine", "model") & result.attrs.keys()}
    # Chunks of objects would be drawn independently of each other.
    if keep_draws and "random_seed" in taken and not in_chunks(kernels_new):
        options["random_seed"] = attributes["random_seed"] = seed
    if "progressbar" in taken:
        # One bar suffices: over the objects of a Dask array, otherwise over the draws.
        options["progressbar"] = progressbar and not in_chunks(kernels_new)
    if "moments" in result.children:
        # A copy of the tree, which shares its arrays with the caller's.
        moments = result["moments"].to_dataset()
        result = with_group(result.copy(), "moments", pooled(moments))
    predicted = partial(function, keep_draws=keep_draws, **options)

    def predict_one(kernels: Any) -> Dataset:
        predictions = predict_each_completion(predicted, model, result, kernels)
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
    """Whether kernels of new objects are a DataArray of a Dask array."""
    return isinstance(kernels_new, DataArray) and kernels_new.chunks is not None


def _by_chunk(
    predict_one: Callable[[Any], Dataset], kernels_new: DataArray, progressbar: bool
) -> Iterator[Dataset]:
    """Predictions of each chunk of objects."""
    stops = np.cumsum(kernels_new.chunksizes["obs"]).tolist()
    with track(kernels_new.sizes["obs"], "Predictions by object", visible=progressbar) as bar:
        for start, stop in zip([0, *stops], stops, strict=False):
            chunk = kernels_new.isel(obs=slice(start, stop))
            values = chunk.data.compute()
            if values.shape != chunk.shape:
                rule = f"of chunks of shape {chunk.shape}, as the Dask array says"
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


def stack_of_new_objects(model: pm.Model, kernels_new: Any) -> DataArray:
    """Kernels (kernel, new obs, basis) of new objects, aligned to the model's, or ValueError."""
    if kernels_new is None:
        rule = "kernels between new and training objects"
        raise argument_error("kernels_new", "predict", rule, "None")
    dims = ("kernel", "obs", "basis")
    coords = {dim: np.asarray(model.coords[dim]) for dim in dims}
    # Names and labels alone count.
    entries = np.broadcast_to(np.nan, [len(labels) for labels in coords.values()])
    trained = DataArray(entries, dims=dims, coords=coords)
    trained["kernel"].attrs.update(getattr(model, "origin", {}))
    return as_stack(kernels_new, like=trained, owner="predict", argument="kernels_new")


def compared_rows(result: DataTree) -> DataArray:
    """Rows (kernel, obs, basis) of a few training objects: all that results on Dask hold."""
    data = result["constant_data"]
    if "K_rows" in data:
        return data["K_rows"].rename(compared="obs").transpose("kernel", "obs", "basis")
    stack = data["K"].transpose("kernel", "obs", "basis")
    return stack.isel(obs=compared_objects(stack.sizes["obs"]))


def check_draws(model: pm.Model, posterior: Dataset, *names: str) -> None:
    """Raise unless the result holds draws of those named variables that are random."""
    free = {rv.name for rv in model.free_RVs}
    for name in names:
        if name in free and name not in posterior:
            raise argument_error("result", "predict", f"a result with draws of {name}", "none")


def composite_functions(stack: NDArray, beta: NDArray, W: NDArray) -> NDArray:
    """Functions f (draw, obs, class) = sum_s beta_s K_s w_c of draws of the weights.

    The objects are the first axis in memory, so that no array is transposed: O(draws S N M C).
    """
    n_draws, n_classes, n_basis = W.shape
    f = np.zeros((stack.shape[1], n_draws * n_classes))
    for kernel, weight in zip(stack, beta.T, strict=True):
        f += kernel @ (weight[:, None, None] * W).reshape(-1, n_basis).T
    return f.reshape(-1, n_draws, n_classes).transpose(1, 0, 2)


def combined_functions(
    rule: Combination, stack: NDArray, beta: NDArray, W: NDArray
) -> NDArray[np.float64]:
    """Functions f (draw, obs, class) on the composite kernel of any rule: O(draws N M (S + C))."""
    if isinstance(rule, WeightedSum):
        return composite_functions(stack, beta, W)
    terms = rule.terms(stack)
    f = np.empty((len(W), stack.shape[1], W.shape[1]))
    for values, weights, regressors in zip(f, beta, W, strict=True):
        np.matmul(rule.from_terms(np.tensordot(weights, terms, axes=1)), regressors.T, out=values)
    return f


@contextmanager
def tracked_blocks(
    n_draws: int, numbers_a_draw: int, progressbar: bool
) -> Iterator[Iterator[slice]]:
    """Slices of the draws with at most `BLOCK` numbers each, and a bar where there are several."""
    size = max(1, BLOCK // numbers_a_draw)
    slices = [slice(start, min(start + size, n_draws)) for start in range(0, n_draws, size)]

    def each() -> Iterator[slice]:
        for block in slices:
            yield block
            bar.advance(block.stop - block.start)

    visible = progressbar and len(slices) > 1
    with track(n_draws, "Predictions by draw", visible=visible) as bar:
        yield each()


def predict_classes(
    probabilities_of: Callable[[Any, Dataset, Any], tuple[Callable[[slice], NDArray], DataArray]],
    model: pm.Model,
    result: DataTree,
    kernels_new: Any,
    *,
    keep_draws: bool,
    progressbar: bool,
    random_seed: int | None = None,
) -> Dataset:
    """Class probabilities of new objects, averaged over blocks of draws; see `predict`.

    `probabilities_of` gives the function that maps a slice of the draws to probabilities, and the
    labels of the objects. With a `random_seed`, classes of the new objects are drawn as well.
    """
    posterior = result["posterior"].to_dataset()
    probabilities, obs = probabilities_of(model, posterior, kernels_new)
    classes = np.asarray(model.coords["class"])
    chains = posterior.sizes["chain"], posterior.sizes["draw"]
    n_draws, shape = chains[0] * chains[1], (len(obs), len(classes))
    moments = RunningMoments()
    draws = np.empty((n_draws, *shape)) if keep_draws else None
    codes = None if random_seed is None else np.empty((n_draws, len(obs)), dtype=np.int64)
    rng = np.random.default_rng(random_seed)
    with tracked_blocks(n_draws, len(obs) * len(classes), progressbar) as blocks:
        for block in blocks:
            p = probabilities(block)
            moments.update(p)
            if draws is not None:
                draws[block] = p
            if codes is not None:
                # The last sum is one up to rounding.
                below = p.cumsum(axis=-1)[..., :-1] < rng.random((*p.shape[:2], 1))
                codes[block] = below.sum(axis=-1)
    mean, dims = moments.mean, ("obs", "class")
    variables: dict[str, Any] = {
        "probability": (dims, mean, {"long_name": "posterior predictive"}),
        "probability_sd": (dims, moments.spread, {"long_name": "posterior sd of p"}),
        "label": ("obs", classes[mean.argmax(-1)]),
    }
    coords: dict[str, Any] = {"obs": obs, "class": classes}
    if keep_draws or random_seed is not None:
        coords |= {dim: posterior[dim] for dim in ("chain", "draw")}
    if draws is not None:
        variables["probability_draws"] = ("chain", "draw", *dims), draws.reshape(*chains, *shape)
    if codes is not None:
        # Further likelihoods that were added to the model come after its own.
        by_draw = codes.reshape(*chains, len(obs))
        variables[model.observed_RVs[0].name] = ("chain", "draw", "obs"), by_draw
    return Dataset(variables, coords)
