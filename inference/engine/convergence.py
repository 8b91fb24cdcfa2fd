"""When the attribute ``converged`` of chains, particles and noisy ascents is "yes".

There is one rule for each kind of engine, see the table in ``docs/choose.md``. A run that was
interrupted or ended by max_seconds is "no"; what cannot be judged, as a single chain, is "unknown".
"""

import arviz as az
import numpy as np
import pymc as pm
from pymc.stats.convergence import (
    SamplerWarning,
    WarningType,
    log_warnings,
    warn_divergences,
    warn_treedepth,
)
from xarray import DataTree

from .engine import Run
from .moments import rhat_of_moments
from .paper import identified
from .result import Converged, constant_variable

RHAT_BOUND = 1.01
# Least effective number of draws, and largest share of diverging draws.
LEAST_ESS, DIVERGING = 100, 1e-3
# Least number of particles per chain, and least acceptance of their last moves.
LEAST_PARTICLES, LEAST_ACCEPTANCE = 100, 0.1
# Largest error, in nats, of the means of a noisy bound.
NOISE = 1.0


def convergence_of_chains(
    tree: DataTree, model: pm.Model, draws: int, *, ess: bool = True
) -> Converged:
    """Apply the rule of chains to draws, and to moments by chain of matrices without draws."""
    posterior = tree["posterior"]
    if posterior.sizes["draw"] < draws:
        return "no"
    if posterior.sizes["chain"] < 2 or not (quantities := identified(tree, model)).data_vars:
        return "unknown"
    stats = tree["sample_stats"].to_dataset() if "sample_stats" in tree.children else {}
    if "diverging" in stats and float(stats["diverging"].mean()) > DIVERGING:
        tree.attrs["note"] = (
            f"{float(stats['diverging'].mean()):.1%} of the draws diverged: raise target_accept."
        )
        return "no"
    if stuck := constant_variable(tree, model):
        tree.attrs["note"] = f"No draw of {stuck} differs from another: chains cannot be compared."
        return "no"
    # R-hat is NaN for constants and for states that no chain has left.
    with np.errstate(invalid="ignore"):
        rhat = az.rhat(quantities)
    if "moments" in tree.children:
        of_moments = rhat_of_moments(tree["moments"].to_dataset())
        rhat = rhat.assign({k: v for k, v in of_moments.items() if k not in posterior})
    largest = {name: rhat[name].max().item() for name in rhat if rhat[name].notnull().any()}
    if not largest:
        return "unknown"
    worst = max(largest, key=lambda name: largest[name])
    if largest[worst] <= RHAT_BOUND:
        least = az.ess(quantities).to_array().min().item() if ess else np.inf
        if not least < LEAST_ESS:
            return "yes"
        tree.attrs["note"] = (
            f"The least effective number of draws is {least:.0f}; {LEAST_ESS} are needed. Run fit "
            f"again with draws={4 * draws}."
        )
        return "no"
    where = rhat[worst].fillna(0).argmax(...)
    labels = ", ".join(str(rhat[worst][dim].values[i]) for dim, i in where.items())
    name = f"{worst}[{labels}]" if labels else worst
    tree.attrs["note"] = (
        f"R-hat is {largest[worst]:.4g} at {name}: more draws are needed. Run fit again with "
        f"draws={4 * draws}; kz.recommend(model) names other engines."
    )
    return "no"


def convergence_of_particles(
    tree: DataTree, model: pm.Model, particles: int, acceptance: float
) -> Converged:
    """Apply the rule of particles to those of all chains."""
    if particles < LEAST_PARTICLES or not acceptance >= LEAST_ACCEPTANCE:
        tree.attrs["note"] = (
            f"{particles} particles per chain, of whose last moves {acceptance:.2g} were accepted: "
            f"{LEAST_PARTICLES} and {LEAST_ACCEPTANCE} are needed."
        )
        return "no"
    return convergence_of_chains(tree, model, particles, ess=False)


def convergence_of_noisy_ascent(elbo: np.ndarray) -> Converged:
    """Apply the rule of stochastic ascent to its bound (iteration,)."""
    before, after = np.array_split(elbo[-max(len(elbo) // 2, 4) :], 2)
    noise = np.hypot(before.std() / len(before) ** 0.5, after.std() / len(after) ** 0.5)
    return "yes" if after.mean() - before.mean() <= 3 * noise <= NOISE else "no"


# PyMC's own checks compute no R-hat of fewer draws.
FEWEST_TO_MONITOR = 100


def is_monitored(run: Run) -> bool:
    """Whether R-hat is computed here, and not by PyMC."""
    asked = "compute_convergence_checks" not in run.sampler_options
    return asked and run.chains > 1 and run.draws >= FEWEST_TO_MONITOR


def judge_chains(tree: DataTree, model: pm.Model, run: Run) -> None:
    """Record whether the chains converged, and log what is wrong with them, as PyMC does."""
    tree.attrs["converged"] = convergence_of_chains(tree, model, run.draws)
    tree.attrs["lp_measure"] = "unconstrained"
    if is_monitored(run):
        wrong = [*warn_divergences(tree), *warn_treedepth(tree)]
        if "note" in tree.attrs:
            wrong.append(SamplerWarning(WarningType.CONVERGENCE, tree.attrs["note"], "warn"))
        log_warnings(wrong)
