"""A positive number to learn, with a broad prior, inside a PyMC model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm

from ..validation import argument_error, check_positive, number_or_nan


@dataclass(frozen=True)
class LearnedScale:
    r"""A positive number to learn, in place of a given one: log-normal(log `median`, `sigma`).

    Models on basis functions take it as the rate of the precisions of the regression weights, whose
    prior scale is :math:`\sqrt{\text{rate} / \text{shape}}`; Gaussian processes as the variance of
    the functions, and as the precision of the noise.

    Parameters
    ----------
    median, sigma : float
        Median of the prior, and standard deviation of the logarithm. By default the prior gives
        95 % to values between 0.01 and 10,000.

    Examples
    --------
    >>> model = kz.MultinomialProbit(kernels(X_train), y_train, upsilon=kz.LearnedScale())
    >>> kz.fit(model, "gibbs", draws=50, tune=50)["posterior"]["upsilon"]
    """

    median: float = 10.0
    sigma: float = 3.5

    def __post_init__(self) -> None:
        check_positive(self.median, "median", "LearnedScale")
        check_positive(self.sigma, "sigma", "LearnedScale")

    def log_density(self, log_rate: float) -> tuple[float, float]:
        """Log density of the logarithm of the rate, up to a constant, and its derivative."""
        z = (log_rate - np.log(self.median)) / self.sigma
        return -0.5 * z * z, -z / self.sigma


#: A number to learn with the default prior.
LEARNED = LearnedScale()


def declared_rate(rate: float | LearnedScale, name: str, dims: Sequence[str] = ()) -> Any:
    """Return a given rate, or declare one to learn in the current model, or one per label."""
    if not isinstance(rate, LearnedScale):
        return rate
    return pm.LogNormal(name, mu=np.log(rate.median), sigma=rate.sigma, dims=tuple(dims) or None)


def prior_scale(shape: float, rate: float | LearnedScale) -> float:
    """Scale of a regressor whose precision has this shape and rate; of one to learn, its median."""
    return ((rate.median if isinstance(rate, LearnedScale) else rate) / shape) ** 0.5


def check_rate(rate: Any, argument: str, owner: str) -> float | LearnedScale:
    """Return a positive number or a `LearnedScale`; raise for anything else."""
    if isinstance(rate, LearnedScale):
        return rate
    if not 0 < number_or_nan(rate) < np.inf:
        rule = "a finite number above 0, or kz.LearnedScale() to learn it"
        raise argument_error(argument, owner, rule, repr(rate))
    return float(rate)
