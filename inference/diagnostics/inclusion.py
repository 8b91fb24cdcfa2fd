"""Posterior probability of each kernel that it takes part."""

import arviz as az
import numpy as np
from xarray import DataArray, Dataset, DataTree

from ...validation import argument_error, check_positive
from ..engine.provenance import check_result

OWNER = "inclusion"


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
        its Monte Carlo standard error by ArviZ; with the dim output before kernel if each output
        has its own weights. The attribute ``event`` names the event. The error is NaN for a kernel
        whose indicator is the same in all draws: they do not tell how far the probability is from 0
        or 1. Draws of VB are of its approximation, whose bias the error leaves out.

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
    check_result(result, "result", OWNER)
    included, event = _indicators(result, threshold)
    values = included.to_dataset(name="probability")
    moved = included.any(("chain", "draw")) & ~included.all(("chain", "draw"))
    return Dataset(
        {
            "probability": included.mean(("chain", "draw")),
            "mcse": az.mcse(values)["probability"].where(moved),
        },
        attrs={"event": event, "engine": result.attrs.get("engine", "")},
    )


def _indicators(result: DataTree, threshold: float | None) -> tuple[DataArray, str]:
    """Whether each draw includes each kernel (chain, draw, ..., kernel), as 0 or 1; the event."""
    if result.attrs.get("kind") == "point":
        engine = result.attrs.get("engine", "an engine of kind 'point'")
        raise argument_error("result", OWNER, "a result with draws", f"the point of {engine}")
    weights = result["posterior"].get("beta") if "posterior" in result.children else None
    if weights is None or "kernel" not in weights.dims:
        rule = "a result with draws of the weights 'beta' (kernel)"
        raise argument_error("result", OWNER, rule, "none")
    weights = weights.transpose("chain", "draw", ..., "kernel")
    if np.issubdtype(weights.dtype, np.integer):
        if threshold is not None:
            raise argument_error("threshold", OWNER, "None for selections", repr(threshold))
        return (weights == 1).astype(float), "beta = 1"
    if threshold is None:
        rule = "a positive number for weights, which are never zero"
        raise argument_error("threshold", OWNER, rule, "None")
    level = check_positive(threshold, "threshold", OWNER)
    return (weights > level).astype(float), f"beta > {level:g}"
