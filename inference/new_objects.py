"""Predictions that papers share: functions of new objects, and classes averaged over draws."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from scipy.stats import norm
from xarray import DataArray, Dataset, DataTree

from ..models.combinations.sums import Combination, WeightedSum
from ..models.kernels.source import DIMS, LearnedKernel, ParametricStack
from ..models.kernels.stack import ORIGIN, as_stack, compared_objects
from ..models.kernels.warnings import warn_of_strangers
from ..validation import argument_error
from .engine.progress import track
from .engine.provenance import equal_but_for_rounding, has_new_kernels
from .engine.result import RunningMoments, check_finite_draws, joined_draws

# Probabilities with a smaller standard deviation are the same in all draws, to two decimals.
LEAST_PROBABILITY_SD = 1e-3
# Largest block of functions held at once, in numbers (64 MB).
BLOCK_NUMBERS = 8_000_000


def stack_of_new_objects(model: pm.Model, kernels_new: Any) -> DataArray:
    """Kernels of new objects in the order of the model's kernels and training objects.

    Parameters
    ----------
    model : pm.Model
        Model whose coords are "kernel", "obs" and "basis", as `Declaration.add_kernels` adds them.
    kernels_new : DataArray, dict of 2-D arrays, array
        The argument of `predict`.

    Returns
    -------
    DataArray (kernel, obs, basis)
        The labels of "obs" are those of the new objects.

    Raises
    ------
    ValueError
        For kernels against other training objects, of other names or with another normalisation.

    Warns
    -----
    KernelWarning
        When most new objects are like no training object, if the model's kernels are the data "K".

    Examples
    --------
    >>> stack = kz.inference.stack_of_new_objects(model, kernels(X_test, X_train))
    """
    if kernels_new is None:
        rule = "kernels between new and training objects"
        raise argument_error("kernels_new", "predict", rule, "None")
    labels = [tuple(model.coords[dim]) for dim in DIMS]
    # What was known of the declared kernels does not hold for those that were set since.
    origin = {} if has_new_kernels(model) else getattr(model, "origin", {})
    # 1 and 1.0 are one key, and different labels.
    types = tuple(type(label) for dim in labels for label in dim)
    trained = _labelled_alike(*labels, types, origin.get(ORIGIN, "{}"))
    stack = as_stack(kernels_new, like=trained, owner="predict", argument="kernels_new")
    if "K" in model.named_vars:
        warn_of_strangers(stack.values, model["K"].get_value(borrow=True)[:, 0], "predict")
    return stack


def kernels_of_new_objects(model: Any, kernels_new: Any) -> DataArray:
    """Validate kernels between new and training objects; parameters at their prior means."""
    source = model.kernel_source
    given = kernels_new
    if isinstance(source, ParametricStack):
        if getattr(given, "parameters", None) != source.parameters:
            rule = f"kernels(X_new, X_train) with the model's parameters {source.parameters}"
            raise argument_error("kernels_new", "predict", rule, type(given).__name__)
        own, new = (each.start["kernel"].values.tolist() for each in (source, given))
        if new != own:
            rule = f"kernels(X_new, X_train) with the kernels {own}, in this order"
            raise argument_error("kernels_new", "predict", rule, f"{new}")
        pairs = zip(given.learned, source.learned, strict=True)
        if other := [one.name for one, own in pairs if not _same_objects(one, own)]:
            rule = "kernels(X_new, X_train) of the model's specification and training objects"
            got = f"other training objects of {', '.join(other)}"
            raise argument_error("kernels_new", "predict", rule, got)
        given = as_stack(given.start, like=source.start, owner="predict", argument="kernels_new")
    else:
        given = stack_of_new_objects(model, given)
    model.combination.check(given)
    return given


def _same_objects(new: LearnedKernel, own: LearnedKernel) -> bool:
    """Whether two kernels have the same training objects, up to rounding."""
    return new.columns.shape == own.columns.shape and equal_but_for_rounding(
        own.columns, new.columns, axis=0
    )


@lru_cache(maxsize=1)
def _labelled_alike(
    kernel: tuple, obs: tuple, basis: tuple, types: tuple, origin: str
) -> DataArray:
    """Return a stack with these labels, of these types, and this origin, which alone count."""
    coords = dict(zip(DIMS, map(np.asarray, (kernel, obs, basis)), strict=True))
    entries = np.broadcast_to(np.nan, [len(labels) for labels in coords.values()])
    trained = DataArray(entries, dims=DIMS, coords=coords)
    trained["kernel"].attrs[ORIGIN] = origin
    return trained


def compared_rows(result: DataTree) -> DataArray:
    """Kernels (kernel, obs, basis) of a few training objects, on which results are compared."""
    stack = result["constant_data"]["K"].transpose("kernel", "obs", "basis")
    return stack.isel(obs=compared_objects(stack.sizes["obs"]))


def check_draws(model: pm.Model, posterior: Dataset, *names: str) -> None:
    """Raise unless a result has finite draws of all named variables that a model draws.

    Variables that are data in this model, such as fixed weights, need none.

    Parameters
    ----------
    model : pm.Model
    posterior : Dataset
        Group "posterior" of the result.
    *names : str

    Raises
    ------
    ValueError

    Examples
    --------
    >>> kz.inference.check_draws(model, result["posterior"].to_dataset(), "W", "beta")
    """
    free = {rv.name for rv in model.free_RVs}
    for name in names:
        if name not in free:
            continue
        if name not in posterior:
            raise argument_error("result", "predict", f"a result with draws of {name}", "none")
        check_finite_draws(posterior[name], "result", "predict")


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


def judged_probabilities(p: DataArray) -> Dataset:
    """Probabilities (chain, draw, ...) by which chains are judged: NaN for those that hardly move.

    Chains may disagree about a probability of 1e-9 without harm to predictions.
    """
    moving = p.std(("chain", "draw")) > LEAST_PROBABILITY_SD
    return Dataset({"probability": p.where(moving) if moving.any() else p})


@contextmanager
def tracked_blocks(
    n_draws: int, numbers_a_draw: int, progressbar: bool
) -> Iterator[Iterator[slice]]:
    """Slices of draws of at most `BLOCK_NUMBERS` numbers, and a bar where there are several."""
    size = max(1, BLOCK_NUMBERS // numbers_a_draw)
    slices = [slice(start, min(start + size, n_draws)) for start in range(0, n_draws, size)]

    def each() -> Iterator[slice]:
        for block in slices:
            yield block
            bar.advance(block.stop - block.start)

    visible = progressbar and len(slices) > 1
    with track(n_draws, "Predictions by draw", visible=visible) as bar:
        yield each()


def by_draw(values: NDArray, posterior: Dataset, coords: Mapping[str, Any]) -> DataArray:
    """Values (sample, ...) reshaped to (chain, draw, ...), with the dims and coords given."""
    chains = {"chain": posterior["chain"], "draw": posterior["draw"]}
    shape = (posterior.sizes["chain"], posterior.sizes["draw"], *values.shape[1:])
    return DataArray(values.reshape(shape), coords={**chains, **coords}, dims=[*chains, *coords])


class Responses(NamedTuple):
    """Responses of new objects by draw, all (draw, obs) or (draw, obs, output).

    `expected` and `variance` are their means and variances given a draw, `drawn` draws of them.
    """

    expected: NDArray
    variance: NDArray
    drawn: NDArray


def predict_targets(
    responses_of: Callable[
        [Any, Dataset, Any], tuple[Callable[[slice, np.random.Generator], Responses], DataArray]
    ],
    model: Any,
    result: DataTree,
    kernels_new: Any,
    *,
    keep_draws: bool,
    progressbar: bool,
    random_seed: int | None = None,
) -> Dataset:
    """Targets of new objects with noise of precision gamma, averaged over draws; see `predict`.

    `responses_of` gives the function that maps a slice of the draws to `Responses`, and the labels
    of the objects. With a `random_seed`, targets are drawn for the new objects, too.
    """
    posterior = result["posterior"].to_dataset()
    responses, obs = responses_of(model, posterior, kernels_new)
    coords: dict[str, Any] = {"obs": obs}
    if model.several:
        coords["output"] = list(model.coords["output"])
    shape = tuple(map(len, coords.values()))
    n_draws = posterior.sizes["chain"] * posterior.sizes["draw"]
    gamma = noise_precisions(model, posterior, n_draws)
    moments = RunningMoments()
    within = np.zeros(shape)
    rng = np.random.default_rng(random_seed)
    draws = np.empty((n_draws, *shape)) if keep_draws else None
    variances = np.empty((n_draws, *shape)) if keep_draws else None
    targets = None if random_seed is None else np.empty((n_draws, *shape))
    noise_sd = gamma.reshape(len(gamma), *[1] * (len(shape) - 1), -1) ** -0.5
    with tracked_blocks(n_draws, int(np.prod(shape)), progressbar) as blocks:
        for block in blocks:
            found = responses(block, rng)
            within += found.variance.sum(axis=0)
            moments.update(found.expected)
            if targets is not None:
                noise = noise_sd[block] * rng.standard_normal(found.drawn.shape)
                targets[block] = found.drawn + noise
            if draws is not None and variances is not None:
                draws[block] = found.expected
                variances[block] = found.variance
    mean = moments.mean
    variance = moments.spread**2 + within / n_draws
    dims = [*coords]
    variables: dict[str, Any] = {
        "mean": (dims, mean, {"long_name": "posterior predictive mean"}),
        "target_sd": (dims, target_sd(variance, gamma), {"long_name": "of a new target"}),
        "response_sd": (dims, np.sqrt(variance), {"long_name": "of the response, no noise"}),
    }
    if draws is not None and variances is not None:
        variables["mean_draws"] = by_draw(draws, posterior, coords)
        sds = np.sqrt(variances + noise_sd**2)
        variables["target_sd_draws"] = by_draw(sds, posterior, coords)
    if targets is not None:
        variables["t"] = by_draw(targets, posterior, coords)
    return Dataset(variables, coords)


def target_sd(variance: NDArray, gamma: NDArray) -> NDArray:
    """Add the noise of precision gamma, by draw, to the `variance` of responses."""
    return np.sqrt(variance + (1 / gamma).mean(axis=0))


def log_scores_of_targets(mean: NDArray, sd: NDArray, targets: NDArray) -> NDArray:
    """Log scores (obs,), in nats, of normal predictions (obs, ...); outputs are summed."""
    return norm.logpdf(targets, mean, sd).reshape(len(targets), -1).sum(axis=1)


def log_scores_of_classes(p: NDArray, codes: NDArray) -> NDArray:
    """Log scores (obs,), in nats, of class probabilities (obs, class)."""
    own = p[np.arange(len(codes)), codes]
    return np.log(np.maximum(own, np.finfo(float).tiny))


def noise_precisions(model: Any, posterior: Dataset, n_draws: int) -> NDArray:
    """Precisions of the noise by draw (draw,) or (draw, output), known ones repeated."""
    if "gamma" in posterior:
        return joined_draws(posterior["gamma"])
    outputs = [len(model.coords["output"])] if model.several else []
    return np.full((n_draws, *outputs), float(model.gamma))


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
    labels of the objects. Probabilities are (draw, obs, class), or (draw, point, obs, class) at
    points that represent what is not known given a draw. With a `random_seed`, classes of the new
    objects are drawn as well.
    """
    posterior = result["posterior"].to_dataset()
    probabilities, obs = probabilities_of(model, posterior, kernels_new)
    classes = np.asarray(model.coords["class"])
    chains = posterior.sizes["chain"], posterior.sizes["draw"]
    n_draws = chains[0] * chains[1]
    shape = (len(obs), len(classes))
    moments = RunningMoments()
    draws = np.empty((n_draws, *shape)) if keep_draws else None
    codes = None if random_seed is None else np.empty((n_draws, len(obs)), dtype=np.int64)
    rng = np.random.default_rng(random_seed)
    with tracked_blocks(n_draws, len(obs) * len(classes), progressbar) as blocks:
        for block in blocks:
            p = probabilities(block)
            if p.ndim == 4:
                moments.update(p.reshape(-1, *shape))
                p = p.mean(axis=1)
            else:
                moments.update(p)
            if draws is not None:
                draws[block] = p
            if codes is not None:
                # The last sum is one up to rounding.
                below = p.cumsum(axis=-1)[..., :-1] < rng.random((*p.shape[:2], 1))
                codes[block] = below.sum(axis=-1)
    mean = moments.mean
    dims = ("obs", "class")
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
