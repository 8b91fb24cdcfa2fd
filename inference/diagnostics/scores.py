"""Scores of predictions on held-out objects, and what each kernel contributes to a fit."""

from typing import Any

import arviz as az
import numpy as np
import pandas as pd
import xarray as xr
from arviz_stats.utils import ELPDDataLOO
from scipy.special import logsumexp
from scipy.stats import norm
from xarray import DataArray, Dataset, DataTree

from ...models.kernels.labels import aligned, as_frame, ids_along, order_of
from ...user_warnings import numpy_warnings
from ...validation import (
    argument_error,
    check_finite,
    check_labels,
    check_positive,
    check_probabilities,
    check_real,
)
from ..engine.convergence import is_unreliable, k_hat_of, units_of
from ..engine.provenance import check_result
from ..engine.result import check_finite_draws
from ..new_objects import tracked_blocks

OWNER = "held_out"


def held_out(predictions: Dataset, truth: Any) -> dict[str, float]:
    """Score predictions of classes or of real values on held-out objects.

    Parameters
    ----------
    predictions : Dataset
        Output of `predict`: ``probability`` (obs, class), ``label`` (obs) or both, with the
        coordinate "class"; or ``mean`` and ``target_sd``, (obs) or (obs, output).
    truth : array_like, Series or DataArray (obs,); array_like, DataFrame or DataArray (obs, output)
        True classes or true values. A Series or a table is aligned by the ids of the objects if
        both have ids, else by position; the columns of a table by the names of the outputs.

    Returns
    -------
    dict
        For classes: ``accuracy`` of the predicted label; with probabilities also ``log_score``, the
        mean log probability of the true class (higher is better), and ``brier``, the mean squared
        distance to the true class's indicator (0 to 2, lower is better). For values: ``rmse``, and
        ``log_score``, the mean log density of the normal law with the predicted mean and sd.

    Raises
    ------
    ValueError
        For predictions of neither kind, a truth of another length, a class that the predictions do
        not know, values that are not finite, standard deviations that are not positive, or
        probabilities that are negative or do not sum to one for each object (up to 1e-5).

    Examples
    --------
    >>> predictions = kz.predict(model, vb, kernels(X_test, X_train))
    >>> kz.scores.held_out(predictions, y_test)
    """
    if not isinstance(predictions, Dataset):
        got = f"a {type(predictions).__name__}"
        raise argument_error("predictions", OWNER, "a Dataset as predict returns it", got)
    if "class" in predictions.coords and {"probability", "label"} & set(predictions.data_vars):
        return _of_classes(predictions, truth)
    if {"mean", "target_sd"} <= set(predictions.data_vars):
        return _of_values(predictions, truth)
    rule = "with 'probability' or 'label' and the coordinate 'class', or 'mean' and 'target_sd'"
    got = f"the variables {', '.join(map(str, predictions.variables))}"
    raise argument_error("predictions", OWNER, rule, got)


def _of_classes(predictions: Dataset, truth: Any) -> dict[str, float]:
    known = predictions["class"].to_numpy()
    p = np.empty((0, 0))
    if "probability" in predictions:
        p = predictions["probability"].transpose(..., "class").to_numpy()
    label = predictions["label"].to_numpy() if "label" in predictions else known[p.argmax(-1)]
    truth = _aligned(truth, predictions, "label" if "label" in predictions else "probability")
    codes, _ = check_labels(truth, "labels_new", OWNER, classes=known, n_objects=len(label))
    found = {"accuracy": float((label == known[codes]).mean())}
    if "probability" not in predictions:
        return found
    check_finite(p, "predictions", OWNER)
    check_probabilities(p, _objects(predictions["probability"]), "predictions", OWNER)
    with np.errstate(divide="ignore"):
        log_score = np.log(p[np.arange(len(codes)), codes]).mean()
    squared = (p - np.eye(p.shape[1])[codes]) ** 2
    return found | {"log_score": float(log_score), "brier": float(squared.sum(1).mean())}


def _of_values(predictions: Dataset, truth: Any) -> dict[str, float]:
    mean, sd = (predictions[name].to_numpy() for name in ("mean", "target_sd"))
    check_finite(np.stack([mean, sd]), "predictions", OWNER)
    if (smallest := sd.min(initial=np.inf)) <= 0:
        got = f"a target_sd of {smallest:.3g}"
        raise argument_error("predictions", OWNER, "with a target_sd above 0", got)
    truth = _aligned(as_frame(truth), predictions, "mean")
    outputs = predictions["mean"].dims[1:]
    if outputs and isinstance(truth, pd.DataFrame):
        known = ids_along(predictions["mean"], outputs[0])
        rule = "labelled by the model's outputs"
        order = order_of(truth.columns, known, "labels_new", OWNER, rule)
        truth = truth if order is None else truth.iloc[:, order]
    values = check_real(truth, "labels_new", OWNER)
    check_finite(values, "labels_new", OWNER)
    if values.shape != mean.shape:
        raise argument_error("labels_new", OWNER, f"shape {mean.shape}", f"shape {values.shape}")
    return {
        "rmse": float(np.sqrt(np.mean((mean - values) ** 2))),
        "log_score": float(norm.logpdf(values, mean, sd).mean()),
    }


def _aligned(truth: Any, predictions: Dataset, name: str) -> Any:
    """Truth in the order of the predicted objects."""
    ids = _objects(predictions[name])
    return truth if ids is None else aligned(truth, ids, "labels_new", OWNER)


def _objects(values: DataArray) -> Any:
    """Ids along the first dim other than "class"; None if there is no other."""
    dims = [dim for dim in values.dims if dim != "class"]
    return ids_along(values, dims[0]) if dims else None


def inclusion(result: DataTree, *, threshold: float | None = None) -> Dataset:
    """Posterior probability of each kernel that it is selected, or that its weight is large.

    Parameters
    ----------
    result : DataTree
        Result of `fit` on a model with learned weights ``beta``.
    threshold : float, optional
        For weights that are not selections, which are never exactly zero: the probability is that
        of a weight above the threshold, and depends on it. On the simplex, 1 / K is the weight
        that K equal kernels have. Selections take none.

    Returns
    -------
    Dataset
        ``probability`` (kernel), the mean of the indicator over the draws, and ``mcse`` (kernel),
        its Monte Carlo standard error, by ArviZ from means over 100 runs of each chain or more;
        with the dim output before kernel if each output has its own weights. The attribute
        ``event`` names the event. The error is NaN for a kernel whose indicator is the same in all
        draws: they do not tell how far the probability is from 0 or 1. Draws of VB are of its
        approximation, whose bias the error leaves out.

    Raises
    ------
    ValueError
        For a point, a result without draws of the weights (a single kernel, fixed weights), weights
        without a threshold, a threshold that is not positive, or a threshold for selections.

    Examples
    --------
    >>> model = kz.CompositeKernelRegression(kernels(X), y, combination="binary")
    >>> kz.inclusion(kz.fit(model, "gibbs", random_seed=1))["probability"]
    """
    owner = "inclusion"
    check_result(result, "result", owner)
    if result.attrs.get("kind") == "point":
        engine = result.attrs.get("engine", "an engine of kind 'point'")
        raise argument_error("result", owner, "a result with draws", f"the point of {engine}")
    weights = drawn_weights(result, "result", owner)
    if np.issubdtype(weights.dtype, np.integer):
        if threshold is not None:
            raise argument_error("threshold", owner, "None for selections", repr(threshold))
        included = weights == 1
        event = "beta = 1"
    elif threshold is None:
        rule = "a positive number for weights, which are never zero"
        raise argument_error("threshold", owner, rule, "None")
    else:
        level = check_positive(threshold, "threshold", owner)
        included = weights > level
        event = f"beta > {level:g}"
    independent = result.attrs.get("independent") == 1
    units = (included if independent else units_of(included)).astype(float)
    values = units.to_dataset(name="probability")
    moved = included.any(("chain", "draw")) & ~included.all(("chain", "draw"))
    return Dataset(
        {
            "probability": included.mean(("chain", "draw")),
            "mcse": az.mcse(values)["probability"].where(moved),
        },
        attrs={"event": event, "engine": result.attrs.get("engine", "")},
    )


def loo(result: DataTree) -> ELPDDataLOO:
    """Leave-one-out log predictive densities that an engine computed, for ``az.compare``.

    INLA has them in closed form given the hyperparameters, without the error of the importance
    ratios of ``az.loo(result)``, which estimates the same. Of other engines use ``az.loo``.

    Parameters
    ----------
    result : DataTree
        Result of `fit` by INLA, with the groups ``left_out`` and ``log_likelihood``
        (``log_likelihood=True``).

    Returns
    -------
    ELPDDataLOO
        For ``az.compare``, also beside ``az.loo(other, pointwise=True)``: ``elpd_i`` has the terms
        in the model's order, ``elpd`` is their sum, ``p`` the effective number of parameters: the
        log predictive density of the training data minus ``elpd``. ``warning`` says that the
        result's ``pareto_k`` is above 0.7.

    Raises
    ------
    ValueError
        For other results.

    Examples
    --------
    >>> equal = process.redeclared(combination="fixed")
    >>> models = {"learned weights": process, "equal weights": equal}
    >>> inla = {name: kz.fit(each, "inla", random_seed=1) for name, each in models.items()}
    >>> az.compare({name: kz.scores.loo(result) for name, result in inla.items()})
    """
    owner = "loo"
    check_result(result, "result", owner)
    if lacking := [name for name in ("left_out", "log_likelihood") if name not in result.children]:
        rule = "a result of INLA with log_likelihood=True (of other engines, use az.loo)"
        raise argument_error("result", owner, rule, f"one without {', '.join(lacking)}")
    (scores,) = result["left_out"].to_dataset().data_vars.values()
    by_draw = result["log_likelihood"].to_dataset()[scores.name]
    draws = by_draw.sizes["chain"] * by_draw.sizes["draw"]
    fitted = logsumexp(by_draw, axis=(0, 1)).sum() - scores.size * np.log(draws)
    elpd = float(scores.sum())
    return ELPDDataLOO(
        elpd=elpd,
        se=float(np.sqrt(scores.size) * scores.std()),
        p=float(fitted - elpd),
        n_samples=draws,
        n_data_points=scores.size,
        scale="log",
        warning=is_unreliable(k_hat_of(result)),
        good_k=None,  # type: ignore[arg-type]
        elpd_i=scores,
    )


def drawn_weights(result: DataTree, argument: str, owner: str) -> DataArray:
    """Draws of the weights (chain, draw, kernel), or (chain, draw, output, kernel)."""
    posterior = result["posterior"].to_dataset() if "posterior" in result.children else Dataset()
    if "beta" not in posterior or "kernel" not in posterior["beta"].dims:
        rule = "a result with draws of learned weights 'beta' (kernel)"
        got = f"draws of {', '.join(map(str, posterior)) or 'nothing'}"
        raise argument_error(argument, owner, rule, got)
    check_finite_draws(posterior["beta"], argument, owner)
    return posterior["beta"].transpose("chain", "draw", ..., "kernel")


@numpy_warnings()
def variance_explained(result: DataTree) -> Dataset:
    r"""Part of the variance of a regression's targets that each kernel explains, at each draw.

    With the contributions :math:`f_k = \beta_k K_k \alpha` of the kernels to the responses of the
    training objects, :math:`f = \sum_k f_k` and noise of precision :math:`\gamma`, kernel k
    explains

    .. math:: R^2_k = \frac{\mathrm{Cov}(f_k, f)}{\mathrm{Var}(f) + 1/\gamma},

    where covariance and variance are over the training objects. The kernels add up to the Bayesian
    :math:`R^2` of Gelman et al. (2019), The American Statistician 73, equation 3.

    Parameters
    ----------
    result : DataTree
        Result of `fit` on a `CompositeKernelRegression`, with draws of alpha.

    Returns
    -------
    Dataset
        ``explained`` (chain, draw, kernel), and ``total`` (chain, draw), their sum, between 0 and
        1. Both have the dim output before kernel if the targets have it. ``az.summary`` gives means
        and intervals.

    Raises
    ------
    ValueError
        For a result of another model, and for one without finite draws of alpha
        (``collapsed=True`` keeps none), beta or gamma.

    Notes
    -----
    A kernel's part is negative where it takes back what others contribute, and kernels that say the
    same share what they explain in ways that the data do not determine: intervals show it. Draws of
    VB are too sure of it where they are too sure of the weights. O(draws K N M) time for each
    output, memory for a block of draws.

    Examples
    --------
    >>> model = kz.CompositeKernelRegression(kernels(X_train), response)
    >>> explained = kz.scores.variance_explained(kz.fit(model, "gibbs", random_seed=1))
    >>> az.summary(explained)
    """
    owner = "variance_explained"
    family = result.attrs.get("family", "") if isinstance(result, DataTree) else ""
    if family != (model := "CompositeKernelRegression"):
        got = f"one of {family}" if family else f"a {type(result).__name__} of no model"
        raise argument_error("result", owner, f"a result of fit on {model}", got)
    posterior = result["posterior"].to_dataset() if "posterior" in result.children else Dataset()
    if lacking := [name for name in ("alpha", "gamma") if name not in posterior]:
        rule = "a result with draws of alpha and gamma (collapsed=False)"
        raise argument_error("result", owner, rule, f"none of {', '.join(lacking)}")
    for name in ("alpha", "beta", "gamma"):
        if name in posterior:
            check_finite_draws(posterior[name], "result", owner)
    data = result["constant_data"].to_dataset()
    # Contributions of centred functions have mean zero over the objects; the bias has none.
    stack = data["K"].drop_vars("basis", errors="ignore")
    stack = stack - stack.mean("obs")
    samples = posterior.stack(sample=("chain", "draw")).drop_vars("function", errors="ignore")
    numbers = samples.sizes.get("output", 1) * stack.isel(basis=0).size
    parts = []
    with tracked_blocks(samples.sizes["sample"], numbers, progressbar=False) as blocks:
        for block in blocks:
            some = samples.isel(sample=block, function=slice(-stack.sizes["basis"], None))
            alpha = some["alpha"].rename(function="basis")
            beta = some.get("beta", data.get("beta"))
            f = beta * xr.dot(stack, alpha, dim="basis", optimize=True)
            parts.append(xr.dot(f, f.sum("kernel"), dim="obs") / f.sizes["obs"])
    explained = xr.concat(parts, "sample")
    variance = explained.sum("kernel")
    explained = (explained / (variance + 1 / samples["gamma"])).unstack("sample")
    explained = explained.transpose("chain", "draw", ..., "kernel")
    attributes = {"engine": result.attrs.get("engine", "")}
    return Dataset({"explained": explained, "total": explained.sum("kernel")}, attrs=attributes)
