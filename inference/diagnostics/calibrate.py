"""Simulation-based calibration of any engine on any model."""

import json
from collections.abc import Mapping
from contextlib import closing, suppress
from os import PathLike
from typing import Any, Literal

import numpy as np
import pymc as pm
import xarray as xr
from xarray import DataTree

from ...validation import (
    Count,
    Seed,
    argument_error,
    check_arguments,
    check_count,
    integer_seed,
)
from ..engine.engine import Engine, applicable, variables_drawn
from ..engine.replicate import records
from ..engine.result import versions
from .replicates import DRAWS, OWNER, Record, Replicates
from .simulation import augmented
from .uniformity import Band, detectable_bias, detectable_scale

__all__ = ["calibrate"]

# Probability that a calibrated engine's ranks leave any of the bands.
ERROR_RATE = 0.01
# Probability with which the stated errors are found.
POWER = 0.8


def calibrate(
    model: pm.Model,
    engine: str | Engine,
    *,
    replicates: int,
    method: Literal["prior", "posterior"] = "prior",
    cores: Count | None = None,
    random_seed: Seed = None,
    store: str | PathLike[str] | None = None,
    progressbar: bool = True,
    **options: Any,
) -> DataTree:
    """Check an engine on a model by simulation-based calibration.

    Each replicate draws parameters and data, fits the data, and ranks the true parameters among
    independent draws of the posterior. The ranks are uniform if the engine is right. Ranked are the
    quantities that the data identify (as in `compare_engines`) and, for engines that draw all free
    variables, ``log_likelihood``, the sum over all data.

    Parameters
    ----------
    model : pm.Model
        Its observed variables are simulated. The model itself is not changed.
    engine : Engine or str
        An engine whose result has draws.
    replicates : int
        Number of fits, 20 or more.
    method : {"prior", "posterior"}, default="prior"
        "prior" draws the truths from the prior. "posterior" draws them from the posterior of the
        model's data, by the engine, and fits these data and the replicated ones together: it checks
        the engine near the data at hand, takes priors that cannot be drawn from, and is for the
        engines of any PyMC model (NUTS, SMC, Laplace, ADVI, Pathfinder).
    cores : int, default=1
        Number of processes; with an active Dask client, its workers take their place. The result
        does not depend on it.
    random_seed : int, SeedSequence or Generator, optional
        The seed of a replicate depends on this and on the replicate's number only.
    store : path, optional
        Folder for a file for each finished replicate. Those that were made by the same call (model,
        data, engine, options, seed and versions) are not made again; a call with more replicates
        goes on from them.
    progressbar : bool, default=True
    **options
        Arguments of `fit`, by default one chain, one core, and draws of all variables; `var_names`
        chooses among them.

    Returns
    -------
    DataTree
        Group ``prior_sbc`` or ``posterior_sbc``: fractional ranks (chain, draw, ...) in (0, 1),
        with one replicate per draw, as ``az.plot_ecdf_pit`` takes them. Attributes: ``verdict``,
        the text that is printed; ``calibrated`` (0 or 1); ``leaves_bands``, the quantities whose
        ranks leave their bands, and by how many of their elements, as JSON; ``bias`` and ``scale``,
        the smallest bias in posterior standard deviations, and the largest ratio of standard
        deviations below one, that are detected with a probability of 80 %; ``draws``, the median
        number of draws among which a truth was ranked; ``failures``, the messages of failed fits by
        replicate, as JSON; ``not_converged``, the number of fits that said so.

    Raises
    ------
    ValueError
        When an argument is out of range, the engine does not apply, data cannot be simulated, or
        no replicate could be fitted.
    KeyboardInterrupt
        At Ctrl-C. The finished replicates are in `store`.

    Notes
    -----
    Chains are thinned to half their effective number of draws, 31 at most, for each quantity.
    Ranks are spread uniformly over their intervals, and equal values share their ranks.

    The bands hold for all elements of all quantities together with a probability of 99 % (exact
    for an element, Bonferroni over elements). The stated power is of an error in one element whose
    posterior is normal, for truths from the prior: with "posterior", the truths have the engine's
    bias, too, and a part of it cancels. Failed fits have no ranks: those of the others are uniform
    only if failures do not depend on the truth.

    Cost: `replicates` fits; "posterior" one more.

    References
    ----------
    S. Talts, M. Betancourt, D. Simpson, A. Vehtari, A. Gelman (2018). Validating Bayesian inference
    algorithms with simulation-based calibration. arXiv:1804.06788. Theorem 1.
    M. Modrák, A. H. Moon, S. Kim, P.-C. Bürkner, N. Huurre, K. Faltejsková, A. Gelman, A. Vehtari
    (2025). Simulation-based calibration checking for Bayesian computation: the choice of test
    quantities shapes sensitivity. Bayesian Analysis 20. For the log likelihood.
    T. Säilynoja, P.-C. Bürkner, A. Vehtari (2022). Graphical test for discrete uniformity and its
    applications in goodness-of-fit evaluation and multiple sample comparison. Statistics and
    Computing 32, 32.
    T. Säilynoja, M. Schmitt, P.-C. Bürkner, A. Vehtari (2025). Posterior SBC: simulation-based
    calibration checking conditional on data. arXiv:2502.03279.

    Examples
    --------
    >>> model = kz.CompositeKernelRegression.example()
    >>> checked = kz.calibrate(model, "vb", replicates=20, draws=50, random_seed=1)
    >>> checked.attrs["calibrated"]
    """
    check_arguments(calibrate, locals())
    check_count(replicates, "replicates", OWNER, least=20)
    engine = _checked_engine(model, engine, method)
    seed = integer_seed(random_seed, "random_seed", OWNER)
    if own := sorted({"start", "log_likelihood"} & options.keys()):
        raise argument_error("options", OWNER, "arguments of fit other than these", ", ".join(own))
    options = {"chains": 1, "cores": 1, "var_names": variables_drawn(model), **options}
    runs = Replicates(model, engine, method, seed, options)
    names = {f"{runs.recipe}-{number}": number for number in range(replicates)}
    found = records(
        lambda: runs.prepared(replicates),
        names,
        title=f"Calibration of {engine.name}",
        owner=OWNER,
        store=store,
        cores=cores or 1,
        progressbar=progressbar,
    )
    with closing(found):
        by_number = {names[name]: record for name, record in found}
    tree = _tree(dict(sorted(by_number.items())), model, method)
    verdict = f"{engine.name} on {type(model).__name__}: {tree.attrs['verdict']}"
    tree.attrs |= {
        "engine": engine.name,
        "settings": json.dumps(engine.settings_on(model), default=repr),
        "random_seed": seed,
        "versions": json.dumps(versions()),
        "verdict": verdict,
    }
    if progressbar:
        # An output that is closed or has no reader must not cost the result.
        with suppress(OSError, ValueError):
            print(verdict, flush=True)
    return tree


def _checked_engine(model: pm.Model, engine: str | Engine, method: str) -> Engine:
    """Engine that can be calibrated on the model; raise ValueError otherwise."""
    engine = applicable(model, engine, OWNER)
    if engine.kind == "point":
        raise argument_error("engine", OWNER, "one whose result has draws", engine.name)
    if method == "posterior" and (reason := engine.why_not(augmented(model))):
        rule = "'posterior' adds replicated data to the model, to which it then does not apply"
        rule = f"'prior' for {engine.name}: {rule}"
        raise argument_error("method", OWNER, rule, f"'posterior' ({reason})")
    return engine


def _tree(replicated: Mapping[int, Record], model: pm.Model, method: str) -> DataTree:
    """Collect the replicates by number, and compare their ranks with the bands."""
    failures = {n: record["error"] for n, record in replicated.items() if "error" in record}
    if len(failures) == len(replicated):
        raise ValueError(f"No replicate could be fitted. The first error: {failures[0]}")
    numbers = [n for n in replicated if n not in failures]
    made = [replicated[n] for n in numbers]
    names = list(made[0]["ranks"])
    group = xr.Dataset(coords={"chain": [0], "draw": numbers})
    for name in names:
        dims, *_ = made[0]["ranks"][name]
        values = np.array([record["ranks"][name][1] for record in made])
        known = {
            dim: list(model.coords[dim])
            for dim, size in zip(dims, values.shape[1:], strict=True)
            if len(model.coords.get(dim) or ()) == size
        }
        group[name] = xr.DataArray(values[None], known, ("chain", "draw", *dims))
    draws = int(np.median([record["ranks"][name][2] for record in made for name in names]))
    n_elements = sum(group[name][0, 0].size for name in names)
    band = Band(len(made), 1 - ERROR_RATE / n_elements)
    outside = {
        name: sum(map(band.left_by, group[name].values.reshape(len(made), -1).T)) for name in names
    }
    wrong = {name: number for name, number in outside.items() if number}
    bias, scale = (find(band, draws, POWER) for find in (detectable_bias, detectable_scale))
    tree = DataTree.from_dict({f"{method}_sbc": group})
    tree.attrs |= {
        "calibrated": int(not wrong),
        "leaves_bands": json.dumps(wrong),
        "bias": bias,
        "scale": scale,
        "draws": draws,
        "failures": json.dumps(failures),
        "not_converged": sum(record["converged"] == "no" for record in made),
    }
    listed = ", ".join(f"{name} ({n} of {group[name][0, 0].size})" for name, n in wrong.items())
    kept = f"{', '.join(names)} ({n_elements} elements)"
    within = f"the ranks of {listed} leave" if wrong else f"the ranks of {kept} stay within"
    level, power = 100 * (1 - ERROR_RATE), 100 * POWER
    lines = [
        f"{within} their bands ({level:g} % simultaneous, {len(made)} replicates).",
        f"The check detects a bias of {bias:.2g} posterior standard deviations, or standard "
        f"deviations too small by a factor of {scale:.2g}, with a probability of {power:g} %.",
    ]
    if failures:
        lines.append(f"{len(failures)} fits failed: see the attribute 'failures'.")
    if unfinished := tree.attrs["not_converged"]:
        lines.append(f"{unfinished} fits did not converge; their ranks are included.")
    if draws < DRAWS:
        lines.append(f"Ranks are among {draws} effective draws: use more 'draws' to detect more.")
    tree.attrs["verdict"] = "\n".join(lines)
    return tree
