"""Diagnostics of approximations: how far draws from q are from the posterior."""

import numpy as np
from arviz_stats.base import array_stats
from xarray import DataTree

__all__ = ["pareto_k"]

# A Pareto tail is fitted to the largest fifth of the ratios, and to no fewer than five.
LEAST_DRAWS = 25


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
        Below 0.7 importance sampling can mend the approximation; above, it misses so much of the
        posterior that its spread should not be trusted. NaN when the result has no ``lq`` or fewer
        than 25 draws.

    Notes
    -----
    It judges the joint density in all dimensions; single summaries may be good where it is bad.

    References
    ----------
    Yao, Vehtari, Simpson and Gelman (2018), Yes, but did it work?, ICML.
    """
    if "sample_stats" not in result.children or "lq" not in result["sample_stats"]:
        return float("nan")
    stats = result["sample_stats"].to_dataset()
    log_ratio = (stats["lp"] - stats["lq"]).to_numpy().ravel()
    if log_ratio.size < LEAST_DRAWS:
        return float("nan")
    if not np.isfinite(log_ratio).all():
        return float("inf")
    # psislw takes the negative of the log weights, as loo takes the log likelihood.
    _, khat = array_stats.psislw(-log_ratio)
    # No Pareto fit at all means that a single draw carries the weight.
    return float(khat) if np.isfinite(khat) else float("inf")
