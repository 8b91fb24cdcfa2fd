"""What proves an engine: each check takes results of public functions and returns a `Finding`.

A random check fails a correct engine with the probability `ALPHA`, so that all of them together
have a false alarm with the probability `ERROR_RATE` at most.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import arviz as az
import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import minimize
from xarray import DataTree

from kernelzoo.inference import identified

#: x (D,) -> (log density, gradient (D,)).
type Density = Callable[[NDArray], tuple[float, NDArray]]

ERROR_RATE = 0.01
#: There are fewer random checks than this.
MOST_CHECKS = 500
ALPHA = ERROR_RATE / MOST_CHECKS
#: Probability with which the bias that a check is said to find is found.
POWER = 0.8
#: A check that would not find a bias of so many standard deviations proves little.
WEAK_BIAS = 0.5
#: Largest bias in standard deviations, ratios of standard deviations, and Pareto k-hat of an engine
#: that is not called biased.
MOST_BIAS = 0.3
SD_RATIOS = (0.8, 1.25)
MOST_K_HAT = 0.7
#: Standard errors from the effective sample size are right up to this R-hat, above that of `fit`.
MOST_RHAT = 1.05
#: Relative rounding error of a bound.
BOUND_ROUNDING = 1e-7
#: Relative error of slopes, and of standard deviations from a Hessian, by central differences.
SLOPE_ERROR = 1e-5
SD_ERROR = 1e-3
#: Largest slope at a mode, relative to those at points around.
FLAT = 1e-3
#: Largest increase of a log density, in nats, that a search from near a mode may find.
MOST_GAIN = 1e-3


class Finding(NamedTuple):
    """What a check found.

    Attributes
    ----------
    verdict : {"passed", "weak", "biased", "failed", "not run"}
        "weak": passed, but a bias of `WEAK_BIAS` would not have been found. "biased": an error that
        an approximation has by design.
    statistic, threshold : float
        A p-value must be at least the threshold, errors at most.
    bias : float
        Largest bias of a mean, with its sign, in standard deviations of the posterior.
    least_sd_ratio, largest_sd_ratio : float
        Standard deviations relative to the posterior's.
    detects : float
        Bias, in standard deviations, that the check finds in any element with probability `POWER`.
    pareto_k : float
    note : str
    """

    verdict: str
    statistic: float = np.nan
    threshold: float = np.nan
    bias: float = np.nan
    least_sd_ratio: float = np.nan
    largest_sd_ratio: float = np.nan
    detects: float = np.nan
    pareto_k: float = np.nan
    note: str = ""


def passed_if(right: bool, statistic: float, threshold: float, note: str = "") -> Finding:
    """Finding of a check that computes the answer itself."""
    return Finding("passed" if right else "failed", statistic, threshold, note=note)


def gradient(density: Density, start: NDArray, rng: np.random.Generator) -> Finding:
    """Slopes along random directions against central differences, at points around a start."""
    gaps = []
    for x in start + rng.normal(scale=0.5, size=(5, len(start))):
        _, slopes = density(x)
        for direction in rng.normal(size=(5, len(start))):
            unit = direction / np.linalg.norm(direction)
            slope = _difference(lambda x: density(x)[0], x, unit, 1e-4)
            gaps.append(abs(slope - slopes @ unit) / max(1.0, np.linalg.norm(slopes)))
    worst = float(np.max(gaps))
    return passed_if(worst <= SLOPE_ERROR, worst, SLOPE_ERROR)


def _difference(f: Callable[[NDArray], Any], x: NDArray, unit: NDArray, step: float) -> Any:
    """Derivative by central differences of two steps, extrapolated to a step of zero."""
    fine, coarse = ((f(x + h * unit) - f(x - h * unit)) / (2 * h) for h in (step, 2 * step))
    return (4 * fine - coarse) / 3


def agreement(result: DataTree, reference: DataTree, *, approximate: bool = False) -> Finding:
    """Means and spreads of draws against those of a reference, over all identified quantities.

    A draw's normal score is the standard normal quantile of its place among the reference's draws:
    the mean score is a bias in standard deviations, and its standard deviation a ratio of them.
    Scores have all moments, which draws of covariance matrices often have not.
    """
    for whose, tree in (("the reference", reference), ("the engine", result)):
        if (largest := _rhat(tree)) > MOST_RHAT:
            return Finding("not run", note=f"chains of {whose} have R-hat {largest:.2f}")
    names, known, drawn = _varying(identified(reference), identified(result))
    before = _scores(known, known)
    after = _scores(drawn, known)
    sd = before.std(("chain", "draw"))
    ratio = after.std(("chain", "draw")) / sd
    shift, error, freedom, p = _compared(before, after, reference, result)
    *_, p_of_spread = _compared(abs(before), abs(after), reference, result)
    bias = np.asarray(shift / sd)
    worst = int(np.argmax(np.abs(bias)))
    # Two tests of each element.
    tests = 2 * len(names)
    p_value = min(1.0, tests * float(min(p.min(), p_of_spread.min())))
    quantile = stats.t.isf(ALPHA / (2 * tests), freedom) + stats.norm.ppf(POWER)
    figures: dict[str, Any] = {
        "statistic": p_value,
        "threshold": ALPHA,
        "bias": float(bias[worst]),
        "least_sd_ratio": float(ratio.min()),
        "largest_sd_ratio": float(ratio.max()),
        "detects": float(quantile * (error / sd).max()),
        "pareto_k": float(result.attrs.get("pareto_k", np.nan)),
        "note": f"against {reference.attrs['engine']}; bias of {names[worst]}",
    }
    return Finding(_verdict(figures, approximate), **figures)


def _verdict(figures: dict[str, Any], approximate: bool) -> str:
    differs = figures["statistic"] < ALPHA
    if differs and not approximate:
        return "failed"
    low, high = SD_RATIOS
    beyond = abs(figures["bias"]) > MOST_BIAS or figures["pareto_k"] > MOST_K_HAT
    if differs or beyond or figures["least_sd_ratio"] < low or figures["largest_sd_ratio"] > high:
        return "biased"
    return "passed" if figures["detects"] <= WEAK_BIAS else "weak"


def _rhat(result: DataTree) -> float:
    """Largest R-hat of the identified quantities; 1 where draws are no chains."""
    if result.attrs["kind"] != "mcmc" or "independent" in result.attrs:
        return 1.0
    return float(az.rhat(identified(result)).to_array().max())


def _varying(theirs: xr.Dataset, ours: xr.Dataset) -> tuple[list[str], xr.DataArray, xr.DataArray]:
    """Names and draws (element, chain, draw) of the common elements that vary."""
    names = [str(name) for name in theirs.data_vars if name in ours]
    each = [
        [values[name].transpose(..., "chain", "draw").to_numpy() for name in names]
        for values in (theirs, ours)
    ]
    of_element = np.repeat(names, [np.prod(values.shape[:-2], dtype=int) for values in each[0]])
    joined = [
        np.concatenate([values.reshape(-1, *values.shape[-2:]) for values in arrays])
        for arrays in each
    ]
    if len(joined[0]) != len(joined[1]) or not np.isfinite(joined[1]).all():
        raise ValueError("The result has other elements than the reference, or is not finite.")
    size = np.abs(joined[0]).max(axis=(1, 2))
    varies = np.ptp(joined[0], axis=(1, 2)) > 1e-9 * size
    dims = ("element", "chain", "draw")
    known, drawn = (xr.DataArray(values[varies].astype(float), dims=dims) for values in joined)
    return list(of_element[varies]), known, drawn


def _scores(draws: xr.DataArray, known: xr.DataArray) -> xr.DataArray:
    """Compute normal scores of draws; equal draws share their place."""
    scores = draws.copy()
    for one, other in zip(scores.values, known.values, strict=True):
        places = np.sort(other, axis=None)
        below, upto = (np.searchsorted(places, one, side=side) for side in ("left", "right"))
        one[...] = stats.norm.ppf(((below + upto) / 2 + 0.5) / (len(places) + 1))
    return scores


def _compared(
    before: xr.DataArray, after: xr.DataArray, reference: DataTree, result: DataTree
) -> tuple[NDArray, NDArray, float, NDArray]:
    """Differences of means, their errors, degrees of freedom, and p-values of no difference."""
    shift = (after.mean(("chain", "draw")) - before.mean(("chain", "draw"))).to_numpy()
    of_reference, _ = standard_errors(before, reference)
    own, freedom = standard_errors(after, result)
    error = np.hypot(of_reference, own)
    if not np.isfinite(error).all():
        raise ValueError("The result has too few draws or populations for standard errors.")
    return shift, error, freedom, 2 * stats.t.sf(np.abs(shift) / error, freedom)


def standard_errors(draws: xr.DataArray, result: DataTree) -> tuple[NDArray, float]:
    """Standard errors (element,) of means of draws, and their degrees of freedom."""
    if result.attrs.get("independent") == 0:
        # Particles of one population are dependent in an unknown way; populations are not.
        populations = draws.mean("draw")
        return stats.sem(populations.to_numpy(), axis=1), populations.sizes["chain"] - 1
    return az.mcse(draws).to_numpy(), np.inf


def calibration(ranks: DataTree, *, approximate: bool = False) -> Finding:
    """Ranks of true parameters among posterior draws, which are uniform for a correct engine.

    Normal scores of uniform ranks are standard normal. Three tests of each element are exact: of
    the scores' mean, of their sum of squares, and of the ranks' distribution.
    """
    failures = json.loads(ranks.attrs["failures"])
    if failures:
        return Finding(
            "failed", note=f"{len(failures)} fits failed: {next(iter(failures.values()))}"
        )
    columns = [
        (str(name), column)
        for name, values in ranks["prior_sbc"].to_dataset().data_vars.items()
        for column in values.to_numpy().reshape(values.sizes["draw"], -1).T
    ]
    p_values = [p_value_of_ranks(column) for _, column in columns]
    p = min(1.0, len(columns) * min(p_values))
    quantity, column = columns[int(np.argmin(p_values))]
    scores = stats.norm.ppf(column)
    quantile = stats.norm.isf(ALPHA / (6 * len(columns))) + stats.norm.ppf(POWER)
    detects = float(quantile / np.sqrt(len(column)))
    if p < ALPHA:
        verdict = "biased" if approximate else "failed"
    else:
        verdict = "passed" if detects <= WEAK_BIAS else "weak"
    # Truths that spread wider than draws are draws that are too narrow.
    ratio = float(1 / scores.std())
    note = f"{len(column)} replicates; least uniform: {quantity}"
    return Finding(verdict, p, ALPHA, float(-scores.mean()), ratio, ratio, detects, note=note)


def p_value_of_ranks(ranks: NDArray) -> float:
    """Probability that uniform ranks (replicate,) in (0, 1) are as extreme in any of three ways."""
    scores = stats.norm.ppf(ranks)
    number = len(scores)
    of_mean = 2 * stats.norm.sf(abs(scores.sum()) / np.sqrt(number))
    squares = stats.chi2(number)
    total = np.square(scores).sum()
    of_spread = 2 * min(squares.cdf(total), squares.sf(total))
    of_shape = stats.kstest(ranks, "uniform").pvalue
    return float(min(1.0, 3 * min(of_mean, of_spread, of_shape)))


def bound(result: DataTree, *, last: int = 1, drift: float = 0.0, looser: bool = False) -> Finding:
    """Reported bound against the mean of log p - log q over the result's draws.

    A noisy bound is the mean of its `last` values, with an error of `drift` nats since q still
    moves. `looser`: it may lie below, since it has variables or factors of its own.
    """
    noisy = reported(result)[-last:]
    value = float(noisy.mean())
    ratios = (result["sample_stats"]["lp"] - result["sample_stats"]["lq"]).to_numpy().ravel()
    errors = [
        ratios.std() / np.sqrt(len(ratios)),
        noisy.std() / np.sqrt(len(noisy)),
        BOUND_ROUNDING * max(1.0, abs(value)),
        drift,
    ]
    z = (value - ratios.mean()) / np.sqrt(np.sum(np.square(errors)))
    p = float(stats.norm.sf(z) if looser else 2 * stats.norm.sf(abs(z)))
    note = f"bound {value:.4f}, by draws {ratios.mean():.4f} nats"
    return passed_if(p >= ALPHA, p, ALPHA, note)


def bound_rises(result: DataTree) -> Finding:
    """Largest fall of the bound between two iterations of any start, relative to the bound."""
    table = result["trajectory"]["elbo"].to_numpy()
    # NaNs at the end of a row stand for iterations after the start had converged.
    rows = [row[: np.flatnonzero(~np.isnan(row)).max(initial=-1) + 1] for row in table]
    falls = np.concatenate([-np.diff(row) for row in rows])
    if not len(falls):
        return Finding("not run", note="the posterior has a closed form, without iterations")
    fall = float(np.max(falls, initial=0.0)) / max(1.0, float(np.nanmax(np.abs(table))))
    return passed_if(fall <= BOUND_ROUNDING, fall, BOUND_ROUNDING, f"{len(falls)} iterations")


def below_evidence(result: DataTree, log_evidence: float) -> Finding:
    """Reported bound less the log evidence, in nats."""
    above = float(reported(result)[-1]) - log_evidence
    most = BOUND_ROUNDING * max(1.0, abs(log_evidence))
    return passed_if(above <= most, above, most)


def reported(result: DataTree) -> NDArray:
    """Bound by iteration (iteration,) of the best start of a result."""
    trajectory = result["trajectory"].to_dataset()
    row = trajectory["elbo"].isel(start=trajectory.attrs["best_start"]).to_numpy()
    return row[np.isfinite(row)]


def stationary(density: Density, x: NDArray, rng: np.random.Generator) -> Finding:
    """Largest slope at an answer x (D,), relative to the slopes at points around it."""
    steepest = float(np.abs(density(x)[1]).max())
    steps = rng.normal(scale=0.1, size=(9, len(x)))
    around = np.median([np.abs(density(x + step)[1]).max() for step in steps])
    ratio = steepest / around if np.isfinite(around) else np.nan
    return passed_if(ratio <= FLAT, ratio, FLAT)


def highest_nearby(density: Density, x: NDArray, rng: np.random.Generator) -> Finding:
    """Increase of the density that searches from around an answer x (D,) find, in nats."""
    own, _ = density(x)
    searches = [
        minimize(
            lambda x: tuple(-part for part in density(x)),
            x + step,
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 2_000, "ftol": 0.0, "gtol": 1e-6},
        )
        for step in rng.normal(scale=0.3, size=(5, len(x)))
    ]
    gains = np.array([-search.fun - own for search in searches])
    back = int(np.sum(np.abs(gains) <= MOST_GAIN))
    note = f"{back} of {len(searches)} searches come back"
    return passed_if(gains.max() <= MOST_GAIN, float(gains.max()), MOST_GAIN, note)


def curvature(density: Density, x: NDArray, sd: NDArray) -> Finding:
    """Standard deviations (D,) against those of the inverse Hessian at the mode x (D,)."""
    units = np.eye(len(x))
    hessian = np.array([_difference(lambda x: density(x)[1], x, unit, 1e-3) for unit in units])
    own = np.sqrt(np.diagonal(np.linalg.inv(-(hessian + hessian.T) / 2)))
    worst = float(np.max(np.abs(sd / own - 1)))
    return passed_if(worst <= SD_ERROR, worst, SD_ERROR)
