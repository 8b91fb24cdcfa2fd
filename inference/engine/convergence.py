"""When a result's attribute ``converged`` is "yes": one rule for each kind of engine.

============================ ====================================================================
engine                       "yes" if
============================ ====================================================================
chains (NUTS, Gibbs)         all draws were made by two chains or more; of every identified quantity
                             R-hat is at most 1.01, with 100 effective draws or more; at most one
                             draw in 1,000 diverged; every variable did change
particles (SMC)              the same, but for effective draws; 100 particles or more a chain; the
                             last moves of every chain accepted a tenth of the proposals
ADVI                         over its last half the bound rises by at most three standard errors of
                             its means, and these are within one nat
VB (coordinate ascent), MAP  the best start met the tolerance, and the bound did not fall beyond
                             rounding; with a Pareto k-hat above 0.7, a selection is not certain
EM, Laplace                  the gradient, or the distance to the limit, is within the tolerance
Exact                        all draws were made
complete_features            the features' estimated remaining change is within the tolerance
============================ ====================================================================

A run that was interrupted or ended by max_seconds is "no"; what cannot be judged, as a single
chain, is "unknown".
"""

import arviz as az
import numpy as np
import pymc as pm
from xarray import DataTree

from .moments import rhat_of_moments
from .pareto_k import is_unreliable
from .quantities import identified
from .result import Converged

__all__ = [
    "convergence_of_ascent",
    "convergence_of_chains",
    "convergence_of_noisy_ascent",
    "convergence_of_particles",
]

RHAT_BOUND = 1.01
# Least effective number of draws, and largest share of diverging draws.
LEAST_ESS, DIVERGING = 100, 1e-3
# Least number of particles a chain, and least acceptance of their last moves.
LEAST_PARTICLES, LEAST_ACCEPTANCE = 100, 0.1
# Largest error, in nats, of the means of a noisy bound.
NOISE = 1.0


def convergence_of_chains(
    tree: DataTree, model: pm.Model, draws: int, *, ess: bool = True
) -> Converged:
    """Apply the rule of chains, see the module.

    For entries of matrices that have moments in place of draws, R-hat is Gelman and Rubin's ratio
    of variances. If R-hat is above the bound, the attribute ``note`` names the quantity with the
    largest R-hat.
    """
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


def constant_variable(tree: DataTree, model: pm.Model) -> str:
    """Name the first variable of which all draws are the same; empty if there is none."""
    for rv in model.free_RVs:
        if rv.name in tree["posterior"]:
            draws = tree["posterior"].to_dataset()[rv.name]
            if (draws == draws[0, 0]).all():
                return str(rv.name)
    return ""


def convergence_of_particles(
    tree: DataTree, model: pm.Model, particles: int, acceptance: float
) -> Converged:
    """Apply the rule of particles to those of all chains, see the module."""
    if particles < LEAST_PARTICLES or not acceptance >= LEAST_ACCEPTANCE:
        tree.attrs["note"] = (
            f"{particles} particles a chain, of whose last moves {acceptance:.2g} were accepted: "
            f"{LEAST_PARTICLES} and {LEAST_ACCEPTANCE} are needed."
        )
        return "no"
    return convergence_of_chains(tree, model, particles, ess=False)


def convergence_of_noisy_ascent(elbo: np.ndarray) -> Converged:
    """Apply the rule of stochastic ascent to its bound (iteration,), see the module."""
    before, after = np.array_split(elbo[-max(len(elbo) // 2, 4) :], 2)
    noise = np.hypot(before.std() / len(before) ** 0.5, after.std() / len(after) ** 0.5)
    return "yes" if after.mean() - before.mean() <= 3 * noise <= NOISE else "no"


def convergence_of_ascent(
    tree: DataTree, model: pm.Model, k_hat: float, converged: bool
) -> Converged:
    """Apply the rule of coordinate ascent, see the module."""
    if converged and is_unreliable(k_hat) and (stuck := constant_variable(tree, model)):
        tree.attrs["note"] = f"All draws of {stuck} are the same, at a Pareto k-hat of {k_hat:.2g}."
        return "no"
    return "yes" if converged else "no"
