"""Prediction for new objects from any engine's result."""

import inspect
from collections.abc import Mapping
from functools import singledispatch
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from xarray import Dataset, DataTree

from ..models.checks import check_count
from .moments import pooled
from .result import with_group

__all__ = ["predict", "predictive"]


@singledispatch
def predictive(
    model: pm.Model, result: DataTree, kernels_new: Any, *, keep_draws: bool, **options: Any
) -> Dataset:
    """Predictions of a model's type: from a result to a Dataset (obs, ...).

    Each paper registers its own. One that goes through the draws takes `progressbar`, gets the
    draws that the user asks for, and reads so many of them at a time that its work arrays are of a
    bounded size, whatever their number. Moments in the
    result have no dimension "chain": they are pooled, weighted by the chains' numbers of draws.
    """
    written = ", ".join(t.__name__ for t in predictive.registry if t is not object)
    raise TypeError(
        f"predict is written for {written}; this is a {type(model).__name__}. "
        "pm.sample_posterior_predictive works on every PyMC model."
    )


def predict(
    model: pm.Model,
    result: DataTree,
    kernels_new: Any = None,
    *,
    keep_draws: bool = False,
    draws: int | None = None,
    progressbar: bool = True,
    **options: Any,
) -> Dataset:
    """Predictions for new objects, or of what is missing, averaged over an engine's draws.

    Parameters
    ----------
    model : pm.Model
        The model that was fitted.
    result : DataTree
        Result of `fit` on it, by any engine.
    kernels_new : DataArray (kernel, obs, basis), dict of 2-D arrays, or array
        Kernels between the new objects (rows) and the training objects (columns), normalised as
        the training kernels were: ``kernels(X_new, X_train)``. Models of kernel matrices that
        hold the new objects already (kernel completion) take none.
    keep_draws : bool, default=False
        Keep the predictions of every draw as well: draws x objects numbers, on which ``az.mcse``
        gives the Monte Carlo error.
    draws : int, optional
        Average over so many of the draws, evenly spaced and as many of each chain, rounded up:
        for many objects, whose predictions cost as much a draw. Default: all.
    progressbar : bool, default=True
        Show progress where the draws do not fit into one block of a bounded size.
    **options
        Of completion models. `WishartCompletion`, `DiagonalWishartCompletion` and
        `WishartKernelMixture` take ``labels`` (train), the classes of the training objects, which
        they need, and ``rule``, "nearest mean" (the default) or "nearest neighbour", the classifier
        in the feature space of the completed kernel. `MutualKernelCompletion` takes ``level``, the
        probability of its intervals with equal tails, 0.9 by default.

    Returns
    -------
    Dataset
        By model, with ``<k>`` for the name of a kernel:

        ==================  ========================  ==========================================
        variable            dims                      what it is
        ==================  ========================  ==========================================
        MultinomialProbit, CompositeKernelClassification
        ----------------------------------------------------------------------------------------
        probability         obs, class                posterior predictive
        probability_sd      obs, class                posterior standard deviation of p
        label               obs                       the most probable class
        probability_draws   chain, draw, obs, class   p of every draw, with `keep_draws`
        CompositeKernelRegression
        ----------------------------------------------------------------------------------------
        mean                obs                       posterior predictive
        sd                  obs                       of a new target
        response_sd         obs                       of the response, without noise
        mean_draws          chain, draw, obs          mean of every draw, with `keep_draws`
        WishartCompletion, DiagonalWishartCompletion, WishartKernelMixture
        ----------------------------------------------------------------------------------------
        label               test                      by the posterior mean of the kernel
        probability         test, class               share of the draws of K21 that say so, if the
                                                      result has them: ``var_names=["K21"]``
        label_draws         chain, draw, test         by every draw, with `keep_draws`
        MutualKernelCompletion
        ----------------------------------------------------------------------------------------
        kernel_mean         kernel, object, object_   completed, in the units given
        kernel_sd           kernel, object, object_   0 where visible; NaN elsewhere for a point or
                                                      a collapsed model
        model_matrix        object, object_           posterior mean of M
        mean_<k>            entry_<k>                 of the model's ``entries``, where drawn
        lower_<k>           entry_<k>                 where their intervals begin
        upper_<k>           entry_<k>                 where they end
        draws_<k>           chain, draw, entry_<k>    their draws, with `keep_draws`
        ==================  ========================  ==========================================

        The attributes name the engine and the model; of `MutualKernelCompletion` also ``level``
        and, of a chain, ``least_effective_draws`` and the entry that has them, ``slowest``. Store
        it beside the result: ``result["predictions"] = xarray.DataTree(predictions)``.

    Warns
    -----
    UserWarning
        When an entry that a chain of `MutualKernelCompletion` was judged on has fewer than 100
        effective draws.

    Raises
    ------
    ValueError
        When the kernels do not fit the model's, or the result lacks the draws that predictions
        are made of.
    TypeError
        For a model without predictions, an option that its predictions do not take, or what is no
        result.

    Examples
    --------
    >>> predictions = kz.predict(model, result, kernels(data.X_test, data.X_train))
    >>> predictions["probability"].sel(obs=0)
    >>> kz.predict(completion, result, labels=data.y_train)["label"]
    """
    taken = _check_options(model, options)
    if not isinstance(result, DataTree):
        raise TypeError(
            f"The 'result' argument of predict must be a result of fit. Got {type(result)}."
        )
    if "moments" in result.children:
        # A tree of its own, which shares its arrays with the caller's.
        moments = result["moments"].to_dataset()
        result = with_group(result.copy(), "moments", pooled(moments))
    if "progressbar" in taken:
        options["progressbar"] = progressbar
    if draws is not None:
        check_count(draws, "draws", "predict")
        if "progressbar" not in taken:
            raise TypeError(
                f"predict of a {type(model).__name__} takes no 'draws': it does not go through "
                "them one by one."
            )
        result = _thinned(result, draws)
    predictions: xr.Dataset = predictive(
        model, result, kernels_new, keep_draws=keep_draws, **options
    )
    predictions.attrs.update(
        {key: result.attrs[key] for key in ("engine", "model") if key in result.attrs}
    )
    return predictions


def _thinned(result: DataTree, draws: int) -> DataTree:
    """Keep evenly spaced draws, as many of each chain."""
    posterior = result["posterior"].to_dataset()
    n_draws = posterior.sizes["draw"]
    kept = min(-(-draws // posterior.sizes["chain"]), n_draws)
    spaced = ((np.arange(kept) + 0.5) * n_draws / kept).astype(int)
    return with_group(result.copy(), "posterior", posterior.isel(draw=spaced))


def _check_options(model: pm.Model, options: Mapping[str, Any]) -> list[str]:
    """List what the predictions of the model's type take; raise unless the options are of it."""
    function = predictive.dispatch(type(model))
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return list(options)
    taken = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "keep_draws"]
    if unknown := sorted(options.keys() - taken):
        own = [name for name in taken if name != "progressbar"]
        loops = ["draws"] * ("progressbar" in taken)
        raise TypeError(
            f"predict of a {type(model).__name__} takes no {', '.join(map(repr, unknown))}; its "
            f"options are {', '.join(map(repr, ['keep_draws', *loops, *own]))}."
        )
    return taken
