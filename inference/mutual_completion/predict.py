"""What a result says about the completed kernels of `MutualKernelCompletion`."""

from numbers import Real
from typing import Any, NamedTuple

import arviz as az
import numpy as np
import xarray as xr
from xarray import Dataset, DataTree

from ...models.mutual_kernel_completion import MutualKernelCompletion
from ...user_warnings import warn_user
from ...validation import argument_error
from ..engine.predict import predictive
from ..engine.provenance import data_in, data_of, differing_data

__all__ = ["completed_kernels"]

OWNER = "predict"
DIMS = ("kernel", "object", "object_")
#: With fewer effective draws of some entry, its deviation and interval are said to be rough.
ENOUGH_DRAWS = 100


@predictive.register(MutualKernelCompletion)
def completed_kernels(
    model: MutualKernelCompletion,
    result: DataTree,
    kernels_new: Any = None,
    *,
    keep_draws: bool = False,
    level: float = 0.9,
) -> Dataset:
    """Completed kernels, how sure they are, and intervals of the entries whose draws were kept.

    Parameters
    ----------
    model : MutualKernelCompletion
    result : DataTree
        Result of any engine: with moments or draws of the completed kernels, or a point.
    kernels_new : None
        The model holds all its objects already.
    keep_draws : bool, default=False
        Hand on the draws of the model's `entries`, which the result has, as well.
    level : float, default=0.9
        Probability of the intervals, with equal tails.

    Returns
    -------
    Dataset
        ==================  ========================  ==========================================
        kernel_mean         kernel, object, object_   completed, in the units given; visible entries
                                                      as given, with the model's jitter
        kernel_sd           kernel, object, object_   0 where visible; NaN elsewhere for a point or
                                                      a collapsed model
        model_matrix        object, object_           posterior mean of M
        mean_<k>            entry_<k>                 of the model's ``entries``, where drawn
        lower_<k>           entry_<k>                 where their intervals begin
        upper_<k>           entry_<k>                 where they end
        draws_<k>           chain, draw, entry_<k>    their draws, with `keep_draws`
        ==================  ========================  ==========================================

        The attribute ``level`` is that of the intervals. Of a chain ``least_effective_draws`` and
        ``slowest`` say how many effective draws it has of which of the entries and correlations of
        pairs that it was judged on (`entries`, ``missing_Q``, ``unseen_M``), where they were kept.

    Warns
    -----
    UserWarning
        When these are fewer than 100.

    Raises
    ------
    ValueError
        For kernels of new objects, a level outside (0, 1), a result without any of these, or of
        other data than the model has now.
    """
    if kernels_new is not None:
        raise argument_error(
            "kernels_new",
            OWNER,
            "left out for a MutualKernelCompletion: it holds its objects already",
            "kernels",
        )
    if not (isinstance(level, Real) and 0 < level < 1):
        raise argument_error("level", OWNER, "one number between 0 and 1", repr(level))
    if differ := differing_data(data_of(model), data_in(result)):
        raise argument_error(
            "result", OWNER, "a fit of the model as it is now", f"one of other {', '.join(differ)}"
        )
    kernels = model.problem.kernels
    objects = np.asarray(model.coords["object"])
    mean = np.stack([kernel.unit * kernel.with_zeros() for kernel in kernels])
    sd = np.zeros_like(mean)
    for k, kernel in enumerate(kernels):
        if len(kernel.hidden):
            mean[k], spread = _moments(result, f"{model.completion}_{kernel.name}")
            drawn = spread is not None and not model.collapsed
            sd[k] = spread if drawn else np.nan
            if not drawn:
                sd[k][np.ix_(kernel.visible, kernel.visible)] = 0.0
    coords = {"kernel": [kernel.name for kernel in kernels], "object": objects, "object_": objects}
    predictions = Dataset(
        {
            "kernel_mean": (DIMS, mean),
            "kernel_sd": (DIMS, sd),
            "model_matrix": (DIMS[1:], _moments(result, "M")[0]),
        },
        coords=coords,
    )
    for kernel in kernels:
        entries = _draws(result, f"entries_{kernel.name}")
        if entries is None or model.collapsed:
            continue
        tail = (1 - level) / 2
        bounds = entries.quantile([tail, 1 - tail], dim=("chain", "draw"))
        predictions[f"mean_{kernel.name}"] = entries.mean(("chain", "draw"))
        predictions[f"lower_{kernel.name}"] = bounds.isel(quantile=0, drop=True)
        predictions[f"upper_{kernel.name}"] = bounds.isel(quantile=1, drop=True)
        if keep_draws:
            predictions[f"draws_{kernel.name}"] = entries
    predictions.attrs["level"] = level
    if (slowest := _slowest(model, result)) is not None:
        predictions.attrs |= slowest._asdict()
        _warn_of(slowest)
    return predictions


class _Slowest(NamedTuple):
    """What has the least effective draws in a chain, and how many."""

    least_effective_draws: float
    slowest: str


def _slowest(model: MutualKernelCompletion, result: DataTree) -> _Slowest | None:
    """Judge a chain by the model's entries; None without a chain or entries."""
    attributes = result.attrs
    # Particles have the kind of chains, and say whether they are independent.
    if attributes.get("kind") != "mcmc" or "independent" in attributes:
        return None
    if "posterior" not in result.children:
        return None
    judged = {f"missing_{model.completion}", "unseen_M"}
    judged |= {f"entries_{kernel.name}" for kernel in model.problem.kernels}
    found = []
    for name, values in result["posterior"].to_dataset().data_vars.items():
        if name in judged:
            ess = az.ess(values)
            ess = ess.where(np.isfinite(ess), drop=True)
            if ess.size:
                label = str(ess.idxmin().item())
                found.append(_Slowest(float(ess.min()), f"{name}[{label}]"))
    return min(found, default=None)


def _warn_of(slowest: _Slowest) -> None:
    ess, name = slowest
    if ess < ENOUGH_DRAWS:
        warn_user(
            f"Of {name}, which moves slowest of the entries that were kept, there are {ess:.0f} "
            "effective draws: deviations and intervals of such entries are rough. More draws, in "
            "more chains, make them better: fit(..., draws=, chains=)."
        )


def _draws(result: DataTree, name: str) -> xr.DataArray | None:
    """Draws of a variable; None when there are none or one."""
    if "posterior" not in result.children or name not in result["posterior"]:
        return None
    draws = result["posterior"].to_dataset()[name]
    return draws if draws.sizes["chain"] * draws.sizes["draw"] > 1 else None


def _moments(result: DataTree, name: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Mean and standard deviation of a variable; no deviation for a point."""
    moments = result["moments"].to_dataset() if "moments" in result.children else Dataset()
    if f"{name}_mean" in moments:
        sd = moments[f"{name}_sd"].to_numpy() if f"{name}_sd" in moments else None
        return moments[f"{name}_mean"].to_numpy(), sd
    if (draws := _draws(result, name)) is not None:
        dims = ("chain", "draw")
        return draws.mean(dims).to_numpy(), draws.std(dims, ddof=1).to_numpy()
    if "point" in result.children and name in result["point"]:
        return result["point"][name].to_numpy(), None
    raise argument_error("result", OWNER, f"a result with moments or draws of {name}", "neither")
