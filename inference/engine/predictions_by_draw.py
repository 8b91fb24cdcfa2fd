"""Functions and class probabilities of new objects, from posterior draws, for predictions."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from xarray import DataArray, Dataset, DataTree

from ...models.combinations.sums import Combination, WeightedSum
from ...models.kernels.rows import COMPARED_OBJECTS, evenly_spaced
from ...models.kernels.stack import as_stack, with_origin
from ...validation import argument_error
from .clock import track
from .moments import RunningMoments

__all__ = [
    "ProbabilityDraws",
    "check_draws",
    "combined_functions",
    "compared_rows",
    "composite_functions",
    "predict_classes",
    "stack_of_new_objects",
    "tracked_blocks",
]

# Largest block of functions held at once, in numbers (64 MB).
BLOCK = 8_000_000


def stack_of_new_objects(model: pm.Model, kernels_new: Any) -> xr.DataArray:
    """Kernels between new and training objects, checked against the model's kernels.

    Parameters
    ----------
    model : pm.Model
        Of kernels (kernel, obs, basis).
    kernels_new : stack of kernels (kernel, new obs, basis)
        As given to `predict`.

    Raises
    ------
    ValueError
        For None, and for kernels whose names or training objects differ from the model's.
    """
    if kernels_new is None:
        raise argument_error(
            "kernels_new", "predict", "kernels between new and training objects", "None"
        )
    dims = ("kernel", "obs", "basis")
    coords = {dim: np.asarray(model.coords[dim]) for dim in dims}
    # Names and labels alone count.
    entries = np.broadcast_to(np.nan, [len(labels) for labels in coords.values()])
    trained = xr.DataArray(entries, dims=dims, coords=coords)
    trained = with_origin(trained, getattr(model, "origin", {}))
    return as_stack(kernels_new, like=trained, owner="predict", argument="kernels_new")


def compared_rows(result: DataTree) -> xr.DataArray:
    """Rows (kernel, obs, basis) of a few training objects, on which functions are compared.

    Results whose kernels are a Dask array hold these rows only.
    """
    data = result["constant_data"]
    if "K_rows" in data:
        return data["K_rows"].rename(compared="obs").transpose("kernel", "obs", "basis")
    stack = data["K"].transpose("kernel", "obs", "basis")
    return stack.isel(obs=evenly_spaced(stack.sizes["obs"], COMPARED_OBJECTS))


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


def blocks(n_draws: int, numbers_a_draw: int) -> list[slice]:
    """Slices of the draws so that a block of functions has `BLOCK` numbers at most."""
    size = max(1, BLOCK // numbers_a_draw)
    return [slice(start, min(start + size, n_draws)) for start in range(0, n_draws, size)]


@contextmanager
def tracked_blocks(
    n_draws: int, numbers_a_draw: int, progressbar: bool
) -> Iterator[Iterator[slice]]:
    """Blocks of the draws, with a progress bar where there are several."""
    slices = blocks(n_draws, numbers_a_draw)

    def each() -> Iterator[slice]:
        for block in slices:
            yield block
            bar.advance(block.stop - block.start)

    visible = progressbar and len(slices) > 1
    with track(n_draws, "Predictions by draw", visible=visible) as bar:
        yield each()


class ProbabilityDraws(NamedTuple):
    """Class probabilities: a function of a slice of draws, and the labels of the objects."""

    of: Callable[[slice], NDArray]
    obs: DataArray


def predict_classes(
    probabilities_of: Callable[[Any, Dataset, Any], ProbabilityDraws],
    model: pm.Model,
    result: DataTree,
    kernels_new: Any,
    *,
    keep_draws: bool,
    progressbar: bool,
    random_seed: int | None = None,
) -> Dataset:
    """Class probabilities of new objects, averaged over blocks of draws; see `predict`.

    With a `random_seed`, classes of the new objects are drawn as well.
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
    mean, sd = moments.mean, moments.spread
    predictions = Dataset(
        {
            "probability": (("obs", "class"), mean, {"long_name": "posterior predictive"}),
            "probability_sd": (("obs", "class"), sd, {"long_name": "posterior sd of p"}),
            "label": ("obs", classes[mean.argmax(-1)]),
        },
        coords={"obs": obs, "class": classes},
    )
    by_draw = {dim: posterior[dim] for dim in ("chain", "draw")}
    if draws is not None:
        predictions["probability_draws"] = DataArray(
            draws.reshape(*chains, *shape), by_draw, ("chain", "draw", "obs", "class")
        )
    if codes is not None:
        # Further likelihoods that were added to the model come after its own.
        predictions[model.observed_RVs[0].name] = DataArray(
            codes.reshape(*chains, len(obs)), by_draw, ("chain", "draw", "obs")
        )
    return predictions
