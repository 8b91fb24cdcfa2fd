"""Simulation-based calibration of any engine on any model whose observed variable is data."""

from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
from matplotlib.figure import Figure
from scipy import stats

import kernelzoo as kz
from kernelzoo.inference.engine.identified import identified
from kernelzoo.inference.engine.result import draws_to_tree, stamp

DRAWS = 31  # independent posterior draws a rank is taken among


def calibration_ranks(model, engine, n, *, data="labels", kept=None, random_seed=0, **options):
    """Ranks 0..DRAWS of the identified quantities of n prior draws among posterior draws.

    `data` names the model's pm.Data that holds what is observed, or maps the name of each observed
    variable to it; `kept` makes of a simulated observation what the fit is told of it.

    Each replicate draws parameters and data from the prior, fits the data, and thins the
    posterior draws to DRAWS that are independent as far as their effective number says.
    """
    names = [variable.name for variable in (*model.free_RVs, *model.deterministics)]
    if isinstance(data, str):
        (observed,) = model.observed_RVs
        data = {observed.name: data}
    prior = pm.sample_prior_predictive(n, model=model, random_seed=random_seed)
    ranks: dict[str, list[np.ndarray]] = {}
    for i in range(n):
        truth = {name: prior["prior"][name].values[:, i] for name in names}
        simulated = {name: prior["prior_predictive"][name].values[0, i] for name in data}
        if kept is not None:
            simulated = {name: kept(value) for name, value in simulated.items()}
        with model:
            pm.set_data({data[name]: value for name, value in simulated.items()})
        result = kz.fit(
            model,
            engine,
            random_seed=i,
            progressbar=False,
            log_likelihood=False,
            **options,
        )
        known = stamp(draws_to_tree(model, truth), model)
        fitted, known = identified(result), identified(known)
        for name, values in fitted.data_vars.items():
            draws = values.stack(sample=("chain", "draw")).transpose("sample", ...).values
            thinned = np.linspace(0, len(draws) - 1, DRAWS).round().astype(int)
            below = (draws[thinned] < known[name].values[0, 0]).sum(0)
            ranks.setdefault(str(name), []).append(below)
    return {name: np.array(rows) for name, rows in ranks.items()}


def least_effective_draws(model, engine, **options):
    """Effective draws of the slowest identified quantity on the model's present data."""
    result = kz.fit(model, engine, progressbar=False, log_likelihood=False, **options)
    ess = az.ess(identified(result))
    return min(float(ess[name].min()) for name in ess.data_vars)


def plot_ranks(ranks, path: Path):
    """Histogram of the ranks of each quantity's elements, with the band of uniform ranks."""
    figure = Figure(figsize=(9, 3), layout="constrained")
    for axis, (name, rows) in zip(
        figure.subplots(1, len(ranks), squeeze=False)[0], ranks.items(), strict=True
    ):
        bins = 8
        flat = rows.reshape(len(rows), -1)
        counts = np.stack([np.histogram(c, bins, (-0.5, DRAWS + 0.5))[0] for c in flat.T])
        axis.plot(counts.T, color="C0", alpha=0.5)
        low, high = stats.binom.interval(0.99, len(rows), 1 / bins)
        axis.axhspan(low, high, color="0.9", zorder=0)
        axis.set(title=name, xlabel="bin of ranks", ylabel="replicates")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
