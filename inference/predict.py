"""Prediction for new objects from any engine's result."""

from functools import singledispatch
from typing import Any

import pymc as pm
import xarray as xr
from xarray import Dataset, DataTree

__all__ = ["predict", "predictive"]


@singledispatch
def predictive(
    model: pm.Model, posterior: Dataset, kernels_new: Any, *, keep_draws: bool
) -> Dataset:
    """Predictions of a model's type: posterior draws (chain, draw, ...) to a Dataset (obs, ...).

    Each paper registers its own; it works in blocks, so that memory stays bounded.
    """
    written = ", ".join(t.__name__ for t in predictive.registry if t is not object)
    raise TypeError(
        f"predict is written for {written}; this is a {type(model).__name__}. "
        "pm.sample_posterior_predictive works on every PyMC model."
    )


def predict(
    model: pm.Model, result: DataTree, kernels_new: Any, *, keep_draws: bool = False
) -> Dataset:
    """Predictions for new objects, averaged over an engine's draws.

    Parameters
    ----------
    model : pm.Model
        The model that was fitted.
    result : DataTree
        Result of `fit` on it, by any engine.
    kernels_new : DataArray (kernel, obs, basis), dict of 2-D arrays, or array
        Kernels between the new objects (rows) and the training objects (columns), normalised as
        the training kernels were: ``kernels(X_new, X_train)``.

    keep_draws : bool, default=False
        Keep the predictions of every draw as well: draws x objects numbers, on which ``az.mcse``
        gives the Monte Carlo error.

    Returns
    -------
    Dataset (obs, ...)
        For classifiers ``probability`` and its posterior ``probability_sd`` (obs, class),
        ``label`` (obs), and ``probability_draws`` (chain, draw, obs, class) on request. Store
        it beside the result: ``result["predictions"] = xarray.DataTree(predictions)``.

    Raises
    ------
    ValueError
        When the kernels do not fit the model's.

    Examples
    --------
    >>> predictions = kz.predict(model, result, kernels(data.X_test, data.X_train))
    >>> predictions["probability"].sel(obs=0)
    """
    posterior = result["posterior"].to_dataset()
    predictions: xr.Dataset = predictive(model, posterior, kernels_new, keep_draws=keep_draws)
    predictions.attrs.update(
        {key: result.attrs[key] for key in ("engine", "model") if key in result.attrs}
    )
    return predictions
