"""Predictions of `MutualKernelCompletion`: the completed kernels."""

from typing import Any

import arviz as az
import numpy as np
from xarray import Dataset, DataTree

from ...models.mutual_kernel_completion import MutualKernelCompletion
from ...user_warnings import warn_user
from ...validation import Fraction, argument_error, check_arguments
from ..engine.result import kept_draws, kept_moments

OWNER = "predict"
DIMS = ("kernel", "object", "object_")
#: With fewer effective draws of an entry, a warning says that its sd and interval are rough.
ENOUGH_DRAWS = 100


def completed_kernels(
    model: MutualKernelCompletion,
    result: DataTree,
    kernels_new: Any = None,
    *,
    keep_draws: bool = False,
    ci_prob: Fraction = 0.9,
) -> Dataset:
    """Completed kernels, their sds, and intervals of the monitored entries; see `predict`.

    For chains, the attributes ``slowest`` and ``least_effective_draws`` give the monitored quantity
    with the fewest effective draws, and their number; below 100 it warns.
    """
    if kernels_new is not None:
        rule = "left out for a MutualKernelCompletion: it contains its objects"
        raise argument_error("kernels_new", OWNER, rule, "kernels")
    check_arguments(completed_kernels, locals(), OWNER)
    kernels = model.problem.kernels
    objects = np.asarray(model.coords["object"])
    mean = np.stack([kernel.unit * kernel.with_zeros() for kernel in kernels])
    sd = np.zeros_like(mean)
    for k, kernel in enumerate(kernels):
        if len(kernel.hidden):
            mean[k], spread = kept_moments(result, f"{model.completion}_{kernel.name}", OWNER)
            sd[k] = np.nan if spread is None or model.collapsed else spread
            sd[k][np.ix_(kernel.visible, kernel.visible)] = 0.0
    coords = {"kernel": [kernel.name for kernel in kernels], "object": objects, "object_": objects}
    predictions = Dataset(
        {
            "kernel_mean": (DIMS, mean),
            "kernel_sd": (DIMS, sd),
            "model_matrix": (DIMS[1:], kept_moments(result, "M", OWNER)[0].to_numpy()),
        },
        coords=coords,
    )
    for kernel in kernels:
        entries = kept_draws(result, f"entries_{kernel.name}")
        if entries is None or model.collapsed:
            continue
        tail = (1 - ci_prob) / 2
        bounds = entries.quantile([tail, 1 - tail], dim=("chain", "draw"))
        predictions[f"mean_{kernel.name}"] = entries.mean(("chain", "draw"))
        predictions[f"lower_{kernel.name}"] = bounds.isel(quantile=0, drop=True)
        predictions[f"upper_{kernel.name}"] = bounds.isel(quantile=1, drop=True)
        if keep_draws:
            predictions[f"draws_{kernel.name}"] = entries
    predictions.attrs["ci_prob"] = ci_prob
    if (slowest := _slowest(model, result)) is not None:
        ess, name = slowest
        predictions.attrs |= {"least_effective_draws": ess, "slowest": name}
        if ess < ENOUGH_DRAWS:
            warn_user(
                f"{name}, the slowest monitored entry, has only {ess:.0f} effective draws: "
                "standard deviations and intervals of such entries are rough. Use more draws or "
                "more chains: fit(..., draws=, chains=), complete_kernels(..., chains=, thin=)."
            )
    return predictions


def _slowest(model: MutualKernelCompletion, result: DataTree) -> tuple[float, str] | None:
    """Fewest effective draws of the monitored quantities in a chain, and whose they are."""
    # SMC has the kind "mcmc", too, but also the attribute "independent".
    chains = result.attrs.get("kind") == "mcmc" and "independent" not in result.attrs
    if not chains or "posterior" not in result.children:
        return None
    judged = {f"missing_{model.completion}", "unseen_M"}
    judged |= {f"entries_{kernel.name}" for kernel in model.problem.kernels}
    found = []
    for name, values in result["posterior"].to_dataset().data_vars.items():
        if name in judged:
            ess = az.ess(values)
            ess = ess.where(np.isfinite(ess), drop=True)
            if ess.size:
                found.append((float(ess.min()), f"{name}[{ess.idxmin().item()}]"))
    return min(found, default=None)
