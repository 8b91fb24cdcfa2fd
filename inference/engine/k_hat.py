"""Pareto k-hat: whether the draws of an approximation represent the posterior."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
import pymc as pm
from arviz_stats.base import array_stats
from numpy.typing import NDArray
from xarray import DataTree

from ...user_warnings import warn_user
from .provenance import check_result
from .result import Converged, constant_variable

# Above this k-hat the importance ratios have no usable mean (Vehtari et al. 2024, JMLR 25).
LARGEST_USABLE = 0.7
# A Pareto tail is fitted to the largest fifth of the ratios, and to no fewer than five.
LEAST_DRAWS = 25
# Log ratios that differ by less, relative to the largest, are equal up to rounding: no tail.
CONSTANT = 1e-9


class ApproximationWarning(UserWarning):
    """Warning that an approximation's draws do not represent the posterior.

    ``warnings.filterwarnings("ignore", category=kz.ApproximationWarning)`` silences it, for
    instance where only predictions are of interest.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", category=kz.ApproximationWarning)
    ...     vb = kz.fit(model, "vb")
    """


def pareto_k(result: DataTree) -> float:
    """Shape of the Pareto tail of the importance ratios p/q of an approximation's draws.

    Parameters
    ----------
    result : DataTree
        With ``lp`` and ``lq`` in ``sample_stats``: log densities of the draws under the
        declaration and under the approximation.

    Returns
    -------
    float
        Above 0.7, the approximation misses so much of the posterior that its spread should not be
        trusted, though single summaries may be good. -inf when all ratios are equal: the
        approximation is the posterior. NaN when the result has no ``lq`` or fewer than 25 draws.

    References
    ----------
    Yao, Vehtari, Simpson and Gelman (2018), Yes, but did it work?, ICML.

    Examples
    --------
    >>> kz.pareto_k(kz.fit(model, "vb", random_seed=1))
    """
    check_result(result, "result", "pareto_k")
    if "sample_stats" not in result.children or "lq" not in result["sample_stats"]:
        return float("nan")
    stats = result["sample_stats"].to_dataset()
    return k_hat_of_ratios((stats["lp"] - stats["lq"]).to_numpy().ravel())


def k_hat_of_ratios(log_ratio: NDArray[np.float64]) -> float:
    """Shape of the Pareto tail of importance ratios, from their logarithms (draw,)."""
    if log_ratio.size < LEAST_DRAWS:
        return float("nan")
    if not np.isfinite(log_ratio).all():
        return float("inf")
    largest = max(1.0, float(np.abs(log_ratio).max()))
    if np.ptp(log_ratio) <= CONSTANT * largest:
        return -float("inf")
    # psislw takes the negative of the log weights, as loo takes the log likelihood.
    try:
        _, khat = array_stats.psislw(-log_ratio)
    except ValueError:  # The ratios of the tail are equal.
        return float("inf")
    # psislw finds no Pareto fit when a single draw carries the weight.
    return float(khat) if np.isfinite(khat) else float("inf")


def k_hat_of(result: DataTree) -> float:
    """Pareto k-hat from the attributes of a result, or else from its draws."""
    if "pareto_k" in result.attrs:
        return float(result.attrs["pareto_k"])
    return pareto_k(result)


def is_unreliable(k_hat: float) -> bool:
    """Whether draws with this k-hat do not represent the posterior; False for NaN."""
    return k_hat > LARGEST_USABLE


#: Whether only predictions are wanted of fits in this thread. `warnings.catch_warnings` would
#: change the filters of all threads.
_PREDICTIONS_ALONE: ContextVar[bool] = ContextVar("predictions alone", default=False)


@contextmanager
def predictions_alone() -> Iterator[None]:
    """Fit without `ApproximationWarning`, which is about parameters."""
    token = _PREDICTIONS_ALONE.set(True)
    try:
        yield
    finally:
        _PREDICTIONS_ALONE.reset(token)


def warn_of_poor_approximation(engine: str, k_hat: float, samplers: Sequence[str]) -> None:
    """Warn that draws do not represent the posterior, and name the `samplers`, best first."""
    if _PREDICTIONS_ALONE.get():
        return
    calls = [f'"{name.lower()}"' for name in samplers]
    instead = f" For these, run kz.fit(model, {calls[0]})" if calls else ""
    others = f" (also: {', '.join(calls[1:])})" if calls[1:] else ""
    warn_user(
        f"The Pareto k-hat of {engine} is {k_hat:.2g}, above {LARGEST_USABLE}: its draws are not a "
        "reliable approximation of the posterior. Means and intervals of parameters, including "
        "weights of kernels, may be far off and are usually much too narrow; predictions are often "
        f"still good: check them on held-out data.{instead}{others}{'.' if calls else ''}",
        ApproximationWarning,
    )


def convergence_of_ascent(
    tree: DataTree, model: pm.Model, k_hat: float, converged: bool
) -> Converged:
    """Apply the rule of coordinate ascent."""
    if converged and is_unreliable(k_hat) and (stuck := constant_variable(tree, model)):
        tree.attrs["note"] = f"All draws of {stuck} are the same, at a Pareto k-hat of {k_hat:.2g}."
        return "no"
    return "yes" if converged else "no"
