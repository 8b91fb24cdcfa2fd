"""When draws can be trusted: the attribute ``converged``, and Pareto k-hat of approximations.

There is one rule for each kind of engine, see the table in ``docs/choose.md``. A run that was
interrupted or ended by max_seconds is "no"; what cannot be judged, as a single chain, is "unknown".
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, NamedTuple

import arviz as az
import numpy as np
import pymc as pm
import xarray as xr
from arviz_stats.base import array_stats
from numpy.typing import NDArray
from pymc.stats.convergence import (
    SamplerWarning,
    WarningType,
    log_warnings,
    warn_divergences,
    warn_treedepth,
)
from xarray import DataArray, Dataset, DataTree

from ...user_warnings import warn_user
from .engine import Run
from .paper import identified
from .provenance import check_result, read_number
from .result import Converged, constant_variable

RHAT_BOUND = 1.01
# Chains with a larger R-hat explore different regions.
APART = 1.2
# Largest fall of a bound by rounding, relative to it.
FALL = 1e-6
# Least effective number of draws, and largest share of diverging draws.
LEAST_ESS = 100
DIVERGING = 1e-3
# Selections are judged by their means over so many runs of draws per chain, or up to twice as many.
RUNS_OF_STATES = 100
# Least number of particles per chain, and least acceptance of their last moves.
LEAST_PARTICLES = 100
LEAST_ACCEPTANCE = 0.1
# Largest error, in nats, of the means of a noisy bound.
NOISE = 1.0
# Above this k-hat the importance ratios have no usable mean (Vehtari et al. 2024, JMLR 25).
LARGEST_USABLE = 0.7
# A Pareto tail is fitted to the largest fifth of the ratios, and to no fewer than five.
LEAST_DRAWS = 25
# Log ratios that differ by less, relative to the largest, are equal up to rounding: no tail.
CONSTANT = 1e-9
# Standard deviations below this part of the mean are rounding errors of a constant.
SAME_DRAWS = 1e-12


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
    if np.ptp(log_ratio) <= CONSTANT * max(1.0, np.abs(log_ratio).max()):
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
        return read_number(result.attrs, "pareto_k")
    return pareto_k(result)


def is_unreliable(k_hat: float) -> bool:
    """Whether draws with this k-hat do not represent the posterior; False for NaN."""
    return k_hat > LARGEST_USABLE


def note_of_poor_approximation(result: DataTree, k_hat: float) -> None:
    """Say in a result what has converged, where k-hat says that its draws are not reliable."""
    if result.attrs.get("converged") != "yes":
        return
    said = f"{result.attrs['note']} " if "note" in result.attrs else ""
    result.attrs["note"] = (
        f"{said}What has converged is the search for the approximation. Its draws are not a "
        f"reliable approximation of the posterior: their Pareto k-hat is {k_hat:.2g}, above "
        f"{LARGEST_USABLE}."
    )


#: Whether only predictions are wanted of fits in this thread. `warnings.catch_warnings` would
#: change the filters of all threads.
_PREDICTIONS_ALONE: ContextVar[bool] = ContextVar("predictions alone", default=False)


@contextmanager
def predictions_alone() -> Iterator[None]:
    """Fit, or display, without `ApproximationWarning`, which is about parameters."""
    token = _PREDICTIONS_ALONE.set(True)
    try:
        yield
    finally:
        _PREDICTIONS_ALONE.reset(token)


def warn_of_approximation(message: str) -> None:
    """Warn that draws do not represent the posterior, unless only predictions are wanted."""
    if not _PREDICTIONS_ALONE.get():
        warn_user(message, ApproximationWarning)


def warn_of_poor_approximation(engine: str, k_hat: float, samplers: Sequence[str]) -> None:
    """Warn that draws do not represent the posterior, and name the best of the `samplers`."""
    instead = f' Read them from kz.fit(model, "{samplers[0].lower()}").' if samplers else ""
    warn_of_approximation(
        f"The Pareto k-hat of {engine} is {k_hat:.2g}, above {LARGEST_USABLE}: its predictions may "
        f"be good, its parameters (weights of kernels too) are unreliable.{instead}"
    )


def convergence_of_ascent(
    tree: DataTree, model: pm.Model, k_hat: float, converged: bool, bound: np.ndarray
) -> Converged:
    """Apply the rule of coordinate ascent, whose `bound` (iteration,) never falls."""
    if np.isnan(bound).any():
        name = type(model).__name__
        first = int(np.isnan(bound).argmax())
        raise ValueError(f"The bound of VB on {name} is NaN from iteration {first} on.")
    fall = bound.max() - bound[-1] if bound.size else 0.0
    if fall > FALL * (1 + abs(bound.max())):
        return _no(tree, f"The bound ends {fall:.2g} below its maximum, which ascent cannot do.")
    if converged and is_unreliable(k_hat) and (stuck := constant_variable(tree, model)):
        return _no(tree, f"All draws of {stuck} are the same, at a Pareto k-hat of {k_hat:.2g}.")
    return "yes" if converged else "no"


def rhat_of_moments(moments: Dataset) -> Dataset:
    """R-hat of Gelman and Rubin (1992), from means and standard deviations by chain.

    It does not see chains that drift together or that differ in their tails alone. NaN for
    constants and where no chain has moments; infinite for chains that do not move and stand apart,
    and where some chains have no moments.
    """
    draws = moments["draws"].min().item()
    names = [name.removesuffix("_sd") for name in map(str, moments) if name.endswith("_sd")]
    found = {}
    for name in names:
        means = moments[f"{name}_mean"]
        variances = moments[f"{name}_sd"] ** 2
        within = variances.mean("chain", skipna=False)
        between = means.var("chain", ddof=1)
        rounding = (SAME_DRAWS * abs(means).max("chain")) ** 2
        ratio = (draws - 1) / draws + between / within.where(within > rounding)
        lacks = variances.isnull()
        apart = (within <= rounding) & (between > rounding)
        apart |= lacks.any("chain") & ~lacks.all("chain")
        found[name] = xr.where(apart, np.inf, np.sqrt(ratio))
    return Dataset(found)


class Judgement(NamedTuple):
    """Whether draws can be read, why not, and the largest R-hat of each quantity."""

    state: Converged
    reason: str = ""
    rhat: Mapping[str, float] = MappingProxyType({})


def judge_chains_of(
    quantities: Dataset, rhat_of_others: Dataset | None = None, *, ess: bool = True
) -> Judgement:
    """Judge two or more chains by the element with the largest R-hat, then by the least ESS."""
    # R-hat is NaN for constants and for states that no chain has left.
    with np.errstate(invalid="ignore"):
        rhat = az.rhat(quantities)
    if rhat_of_others is not None:
        rhat = rhat.assign(rhat_of_others)
    largest = {str(name): rhat[name].max().item() for name in rhat if rhat[name].notnull().any()}
    if not largest:
        return Judgement("unknown")
    worst = max(largest, key=lambda name: largest[name])
    if not largest[worst] <= RHAT_BOUND:
        name = _element(rhat[worst], rhat[worst].fillna(0).argmax(...))
        return Judgement("no", f"R-hat is {largest[worst]:.4g} at {name}", largest)
    units = {str(name): units_of(values) for name, values in quantities.items()} if ess else {}
    effective = {name: az.ess(each.to_dataset(name=name))[name] for name, each in units.items()}
    least = {name: each.min().item() for name, each in effective.items()}
    fewest = min(least, key=lambda name: least[name], default="")
    if fewest and least[fewest] < LEAST_ESS:
        name = _element(effective[fewest], effective[fewest].argmin(...))
        length = quantities.sizes["draw"] // units[fewest].sizes["draw"]
        unit = "draws" if length == 1 else f"runs of {length} draws"
        few = f"The effective number of {unit} of {name} is {least[fewest]:.0f}"
        return Judgement("no", f"{few}; {LEAST_ESS} are needed", largest)
    return Judgement("yes", rhat=largest)


def units_of(draws: DataArray) -> DataArray:
    """Draws (chain, draw, ...), or of selections their means over runs of successive draws.

    Most of the spread of a selection is noise between successive draws. A slow change of its
    probability is so small a part of the autocorrelations that estimates of ESS cut it off; of the
    means over runs it is a large part.
    """
    if not _is_discrete(draws):
        return draws
    length = max(1, draws.sizes["draw"] // RUNS_OF_STATES)
    whole = draws.isel(draw=slice(draws.sizes["draw"] % length, None)).astype(float)
    return whole.coarsen(draw=length).mean()


def effective_draws(draws: DataArray, method: str = "bulk") -> DataArray:
    """Effective draws of each element of a quantity (chain, draw, ...) of chains.

    Those of selections have the variance of the mean over their runs, see `units_of`.
    """
    if not _is_discrete(draws):
        return az.ess(draws.to_dataset(name="x"), method=method)["x"]
    error = az.mcse(units_of(draws).to_dataset(name="x"))["x"]
    variance = draws.var(("chain", "draw"), ddof=1)
    number = draws.sizes["chain"] * draws.sizes["draw"]
    return (variance / error.where(error > 0) ** 2).where(error != 0, number)


def _is_discrete(draws: DataArray) -> bool:
    return draws.dtype.kind in "bui"


def _element(values: DataArray, where: Mapping[Any, Any]) -> str:
    """Name of an element of a quantity, with its labels."""
    labels = ", ".join(str(values[dim].values[i]) for dim, i in where.items())
    return f"{values.name}[{labels}]" if labels else str(values.name)


def judge(result: DataTree, quantities: Dataset, *, matrices: bool = False) -> Judgement:
    """Judge whether some quantities (chain, draw, ...) of a result can be read.

    Chains are judged by these quantities alone, whatever else has not converged; with `matrices`
    also by those that have moments only; pooled chains within each completion. Approximations are
    judged by k-hat, and by whether they converged. A point, a single chain and an approximation
    without k-hat are "unknown".
    """
    kind = result.attrs.get("kind", "mcmc")
    engine = result.attrs.get("engine", "the engine")
    if is_unreliable(k_hat := k_hat_of(result)):
        return Judgement("no", f"the Pareto k-hat of {engine} is {k_hat:.3g}")
    if kind == "exact":
        return Judgement("yes")
    if kind != "mcmc":
        if str(result.attrs.get("converged")).startswith("no"):
            return Judgement("no", f"{engine} did not converge")
        return Judgement("unknown" if np.isnan(k_hat) else "yes")
    if not quantities or quantities.sizes["chain"] * quantities.sizes["draw"] < 2:
        return Judgement("unknown")
    if wrong := _why_chains_are_wrong(result):
        return Judgement("no", wrong)
    if stuck := next((n for n in quantities if (quantities[n] == quantities[n][0, 0]).all()), ""):
        return Judgement("no", f"no draw of {stuck} differs from another")
    others = _rhat_of_matrices(result) if matrices else None
    coords = result["posterior"].coords
    of_completion = np.asarray(coords.get("completion", np.zeros(quantities.sizes["chain"])))
    found = []
    for number in np.unique(of_completion):
        chains = quantities.isel(chain=np.flatnonzero(of_completion == number))
        if chains.sizes["chain"] < 2:
            return Judgement("unknown", "R-hat needs two or more chains")
        found.append(judge_chains_of(chains, others, ess=not _are_particles(result)))
    return min(found, key=lambda each: ("no", "unknown", "yes").index(each.state))


def _are_particles(result: DataTree) -> bool:
    """Whether draws share ancestors in random order, so that their effective number is unknown."""
    return result.attrs.get("independent") == 0


def _why_chains_are_wrong(result: DataTree) -> str:
    """Why no quantity of chains or particles can be read, or an empty string."""
    stats = result["sample_stats"].to_dataset() if "sample_stats" in result.children else Dataset()
    diverged = float(stats["diverging"].mean()) if "diverging" in stats else 0.0
    if diverged > DIVERGING:
        return f"{100 * diverged:.1f} % of the draws diverged"
    if not (_are_particles(result) and stats):
        return ""
    return _why_particles_are_wrong(result["posterior"].sizes["draw"], last_acceptance(stats))


def _rhat_of_matrices(tree: DataTree) -> Dataset:
    """R-hat of variables of which the result has moments by chain, and no draws."""
    moments = tree["moments"].to_dataset() if "moments" in tree.children else Dataset()
    if "draws" not in moments.coords:
        return Dataset()
    of_moments = rhat_of_moments(moments)
    return of_moments.drop_vars([name for name in of_moments if name in tree["posterior"]])


def convergence_of_chains(
    tree: DataTree, model: pm.Model, draws: int, *, ess: bool = True
) -> Converged:
    """Apply the rule of chains to draws, and to moments by chain of matrices without draws."""
    posterior = tree["posterior"]
    if posterior.sizes["draw"] < draws:
        return "no"
    if posterior.sizes["chain"] < 2:
        tree.attrs["note"] = "R-hat needs two or more chains: run fit again with chains=2."
        return "unknown"
    if not (quantities := identified(tree, model)).data_vars:
        return "unknown"
    if wrong := _why_chains_are_wrong(tree):
        return _no(tree, f"{wrong}: raise target_accept.")
    if stuck := constant_variable(tree, model):
        return _no(tree, f"No draw of {stuck} differs from another: chains cannot be compared.")
    found = judge_chains_of(quantities, _rhat_of_matrices(tree), ess=ess)
    if found.state != "no":
        return found.state
    largest = max(found.rhat.values())
    more = max(4 * draws, 5 * LEAST_ESS)
    if largest <= RHAT_BOUND:
        return _no(tree, f"{found.reason}. Run fit again with draws={more}.")
    cure = f"more draws are needed. Run fit again with draws={more}"
    if largest > APART:
        cure = f"the chains are apart. Try draws={more}; chains that stay apart are in other modes"
    each = ", ".join(f"{quantity} {value:.4g}" for quantity, value in found.rhat.items())
    return _no(
        tree,
        f"{found.reason}: {cure}; kz.recommend(model) names other engines. Largest R-hat of each "
        f"quantity of kz.inference.identified(result): {each}.",
    )


def _no(tree: DataTree, note: str) -> Converged:
    """Verdict of a result that has not converged, and why."""
    tree.attrs["note"] = note
    return "no"


def convergence_of_particles(
    tree: DataTree, model: pm.Model, particles: int, acceptance: float
) -> Converged:
    """Apply the rule of particles to those of all chains."""
    if wrong := _why_particles_are_wrong(particles, acceptance):
        return _no(tree, f"{wrong}.")
    return convergence_of_chains(tree, model, particles, ess=False)


def _why_particles_are_wrong(particles: int, acceptance: float) -> str:
    if particles >= LEAST_PARTICLES and acceptance >= LEAST_ACCEPTANCE:
        return ""
    found = f"{particles} particles per chain; {acceptance:.2g} of the last moves were accepted"
    return f"{found} (at least {LEAST_PARTICLES} and {LEAST_ACCEPTANCE} are needed)"


def last_acceptance(stats: Dataset) -> float:
    """Return the acceptance of the last moves in the chain of particles where it is lowest."""
    rates = stats.get("mean_accept_rate", stats.get("accept_rate"))
    if rates is None:
        return np.nan
    return min(float(row[np.isfinite(row)][-1]) for row in rates.to_numpy())


def convergence_of_noisy_ascent(elbo: np.ndarray) -> Converged:
    """Apply the rule of stochastic ascent to its bound (iteration,)."""
    before, after = np.array_split(elbo[-max(len(elbo) // 2, 4) :], 2)
    noise = np.hypot(before.std() / len(before) ** 0.5, after.std() / len(after) ** 0.5)
    return "yes" if after.mean() - before.mean() <= 3 * noise <= NOISE else "no"


def judge_chains(tree: DataTree, model: pm.Model, run: Run) -> None:
    """Record whether the chains converged, and log what is wrong with them, as PyMC does."""
    tree.attrs["converged"] = convergence_of_chains(tree, model, run.draws)
    tree.attrs["lp_measure"] = "unconstrained"
    if "compute_convergence_checks" not in run.sampler_options:
        wrong = [*warn_divergences(tree), *warn_treedepth(tree)]
        if "note" in tree.attrs:
            wrong.append(SamplerWarning(WarningType.CONVERGENCE, tree.attrs["note"], "warn"))
        log_warnings(wrong)
