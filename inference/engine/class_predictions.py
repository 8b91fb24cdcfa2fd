"""Predicted class probabilities of new objects, averaged over the draws of a posterior."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from xarray import DataArray, Dataset, DataTree

from .composite_functions import tracked_blocks
from .moments import RunningMoments

__all__ = ["ProbabilityDraws", "predict_classes"]


class ProbabilityDraws(NamedTuple):
    """Class probabilities of new objects by draw.

    Attributes
    ----------
    of : callable (slice) -> array (draw, obs, class)
        Evaluates a block of the draws, chains joined.
    obs : DataArray (obs,)
        Coordinate of the new objects; its attributes say whether its labels are only numbers.
    """

    of: Callable[[slice], NDArray]
    obs: DataArray


def predict_classes(
    model: pm.Model,
    result: DataTree,
    drawn: ProbabilityDraws,
    *,
    keep_draws: bool,
    progressbar: bool,
    random_seed: int | None = None,
) -> Dataset:
    """Class probabilities of new objects, averaged over the draws of a result in blocks.

    Parameters
    ----------
    model, result, keep_draws, progressbar
        As in `predict`.
    drawn : ProbabilityDraws
    random_seed : int, optional
        Seed of the classes drawn for the new objects; by default none are drawn.

    Returns
    -------
    Dataset
        See `predict`.
    """
    posterior = result["posterior"].to_dataset()
    probabilities, obs = drawn
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
