"""Comparison of engines on one model: moments, distances, cost, held-out scores."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from arviz_stats import wasserstein
from scipy.stats import norm
from xarray import Dataset, DataTree

from ...user_warnings import numpy_warnings
from ...validation import argument_error, check_name, check_names
from ..engine.convergence import (
    LARGEST_USABLE,
    convergence_of_chains,
    effective_draws,
    is_unreliable,
    judge,
    k_hat_of,
)
from ..engine.paper import identified, predicted
from ..engine.predict import predict
from ..engine.provenance import (
    check_fitted,
    check_results,
    data_in,
    differing_data,
    differing_terms,
    read_number,
)
from ..engine.result import pooled, stamp
from .scores import held_out

OWNER = "compare_engines"
WASSERSTEIN_DRAWS = 1000
# Relative standard deviation below which an element is known, and has rounding errors alone.
KNOWN = 1e-12
# Probability that any element of a quantity exceeds the bound on z when engines agree.
ERROR_RATE = 0.01
# Marks an engine with a Pareto k-hat that is too large.
DAGGER = "\N{DAGGER}"

type Table = dict[Hashable, dict[str, xr.DataArray]]


@dataclass(frozen=True)
class Comparison:
    """Comparison of engines with a reference; prints as two tables.

    In print, a dagger marks engines whose k-hat is above 0.7: draws unlike the posterior.

    Attributes
    ----------
    reference : str
        Name of the reference result.
    engines : DataFrame
        One row per result: ``kind``, ``seconds``, ``draws``, ``converged``, ``ess_per_second`` (the
        least over the quantities), ``pareto_k``, ``log_evidence`` where a result has it, "read for
        weights" where weights of kernels are learned, "read for predictions", and held-out scores
        when asked for. Chains can be read for weights if their R-hat and effective draws suffice,
        and for predictions if those of the class probabilities or responses of training objects
        do, whatever else has not converged; approximations for weights if their k-hat is at most
        0.7. "unknown": predictions of other approximations, which held-out scores judge, single
        chains and points.
    variables : DataFrame
        One row per quantity and result, over the quantity's elements that have a spread in the
        reference, in its standard deviations: ``difference``, the largest difference of means;
        ``z``, the largest difference divided by its Monte Carlo standard error; ``z_bound``, which
        ``z`` exceeds with probability 1 % when the two results agree (less if elements are
        dependent); ``least_sd_ratio`` and ``largest_sd_ratio``; ``wasserstein``, the mean distance
        of marginals. ``z`` and ``wasserstein`` are NaN for a result with fewer than two draws, and
        ``z`` if the draws are neither independent nor chains (SMC, Pathfinder).
    elements : DataFrame
        One row per element: mean, sd, difference, ratio, Monte Carlo error, effective draws.
    left_out : tuple of str
        Quantities that some result lacks.
    """

    reference: str
    engines: pd.DataFrame
    variables: pd.DataFrame
    elements: pd.DataFrame
    left_out: tuple[str, ...] = ()

    def _parts(self, form: str) -> list[str]:
        """Table of engines, caption, table of variables, and footnote of marked engines if any."""
        caption = f"against {self.reference}, in its standard deviations"
        if self.left_out:
            names = ", ".join(self.left_out)
            caption += f" (not compared: {names}, which some result lacks; pm.sample's need model=)"
        unreliable = self.engines.index[self.engines["pareto_k"].map(is_unreliable)]
        marks = {name: f"{name} {DAGGER}" for name in unreliable}
        footnote = (
            f"{DAGGER} k-hat above {LARGEST_USABLE}: the draws are not a reliable approximation of "
            "the posterior. Do not read their means and intervals (including weights of kernels)."
        )
        tables = self.engines.rename(index=marks).T, self.variables.rename(marks, level="engine")
        engines, variables = (
            getattr(table, form)(float_format="{:.3g}".format) for table in tables
        )
        return [engines, caption, variables, *([footnote] if marks else [])]

    def __repr__(self) -> str:
        return "\n\n".join(self._parts("to_string"))

    def _repr_html_(self) -> str:
        return "".join(f"<div>{part}</div>" for part in self._parts("to_html"))


@numpy_warnings()
def compare_engines(
    results: Mapping[str, DataTree],
    *,
    reference: str | None = None,
    var_names: Iterable[str] | None = None,
    model: pm.Model | None = None,
    kernels_new: Any = None,
    labels_new: Any = None,
) -> Comparison:
    """Compare results of several engines on one model and the same data.

    The compared quantities are those that the data identify (for the multinomial probit: weights,
    and contrasts of the regression functions between classes), and variables for which results hold
    moments only.

    Parameters
    ----------
    results : mapping of str to DataTree
        Results of `fit` by name.
    reference : str, optional
        Name of the reference result. Default: an exact result, else the Markov chain with the most
        effective draws, else the first result.
    var_names : iterable of str, optional
        Quantities to compare. Default: all.
    model : pm.Model, optional
        Model of results that do not name it, such as those of ``pm.sample``: their identified
        quantities and convergence are then judged as those of `fit`. Needed for held-out scores.
    kernels_new, labels_new : optional
        Kernels between held-out and training objects, and the held-out labels. They add the scores
        of `scores.held_out`. Models that contain the new objects need no kernels.

    Returns
    -------
    Comparison

    Raises
    ------
    ValueError
        For no result, an unknown reference or quantity, results of different models, data or priors
        or without a common quantity, or an incomplete held-out set.

    Examples
    --------
    >>> kz.compare_engines({"VB": vb, "Gibbs": gibbs})
    >>> new = {"kernels_new": kernels(X_test, X_train), "labels_new": y_test}
    >>> kz.compare_engines({"VB": vb, "Gibbs": gibbs}, model=model, **new)
    """
    check_results(results, OWNER)
    _check_comparable(results)
    if labels_new is None:
        if kernels_new is not None:
            raise ValueError("compare_engines needs 'labels_new' with 'kernels_new'.")
    elif model is None:
        raise ValueError("compare_engines needs 'model' with 'labels_new'.")
    if model is not None:
        results = {name: _of_model(tree, model) for name, tree in results.items()}
    quantities = {name: identified(tree) for name, tree in results.items()}
    moments = {name: _moments(quantities[name], tree) for name, tree in results.items()}
    known = list(dict.fromkeys(str(v) for table in moments.values() for v in table))
    if var_names is not None:
        known = check_names(var_names, known, "var_names", OWNER)
    common = [v for v in known if all(v in table for table in moments.values())]
    if not common:
        raise _refused("with a quantity in common", ", ".join(known))
    moments = {name: {v: table[v] for v in common} for name, table in moments.items()}
    if reference is None:
        reference = _default_reference(results, moments)
    check_name(reference, results, "reference", OWNER)

    frames = [_elements(moments[name], moments[reference], name) for name in results]
    elements = pd.concat(frames, ignore_index=True).set_index(["variable", "element", "engine"])
    distances = {
        (v, name): _mean_wasserstein(dataset, quantities[reference], moments[reference], v)
        for name, dataset in quantities.items()
        for v in common
    }
    variables = elements.groupby(level=["variable", "engine"], sort=False).agg(
        difference=("difference", lambda x: x.abs().max()),
        z=("z", "max"),
        z_bound=("z", _z_bound),
        least_sd_ratio=("sd_ratio", "min"),
        largest_sd_ratio=("sd_ratio", "max"),
    )
    variables["wasserstein"] = pd.Series(distances)
    rows = {
        name: _cost(tree, moments[name]) | _readable(tree, quantities[name])
        for name, tree in results.items()
    }
    if model is not None and labels_new is not None:
        for name, tree in results.items():
            rows[name] |= held_out(predict(model, tree, kernels_new), labels_new)
    left_out = tuple(v for v in known if v not in common)
    engines = pd.DataFrame([{"engine": name, **row} for name, row in rows.items()])
    return Comparison(reference, engines.set_index("engine"), variables, elements, left_out)


def _of_model(tree: DataTree, model: pm.Model) -> DataTree:
    """Return the result with attributes that name its model; ValueError for another model's."""
    check_fitted(model, tree, OWNER)
    if "family" in tree.attrs:
        return tree
    named = tree.copy()
    sizes = tree["posterior"].sizes if "posterior" in tree.children else {}
    if sizes.get("chain", 1) > 1 and "converged" not in tree.attrs:
        named.attrs["converged"] = convergence_of_chains(named, model, sizes["draw"])
    return stamp(named, model)


def _check_comparable(results: Mapping[str, DataTree]) -> None:
    """Raise unless results have one model, and the data, priors and likelihood that both hold."""
    each = [(tree.attrs, data_in(tree)) for tree in results.values()]
    named = {attributes.get("family", attributes.get("model")) for attributes, _ in each}
    if len(models := named - {None}) > 1:
        raise _refused("on the same model", ", ".join(sorted(map(str, models))))
    for (mine, own), (theirs, others) in combinations(each, 2):
        if differ := differing_data(own, others):
            raise _refused("on the same data", f"others of {differ}")
        if terms := differing_terms(mine, theirs):
            rule = "under the same priors and likelihood"
            raise _refused(rule, f"results that differ in {', '.join(terms)}")


def _refused(rule: str, got: str) -> ValueError:
    return argument_error("results", OWNER, f"results {rule}", got)


def _z_bound(z: pd.Series) -> float:
    """Bound on the largest |z| at `ERROR_RATE` (Sidak); NaN if all are missing."""
    count = int(z.notna().sum())
    return float(norm.isf(-np.expm1(np.log1p(-ERROR_RATE) / count) / 2)) if count else np.nan


def _moments(dataset: Dataset, tree: DataTree) -> Table:
    """Mean, sd and effective draws of every quantity, from draws or from the group "moments"."""
    table: Table = {}
    for name, values in dataset.data_vars.items():
        n_draws = _count_draws(values)
        mean = values.mean(("chain", "draw"))
        sd = values.std(("chain", "draw"), ddof=1) if n_draws > 1 else xr.zeros_like(mean)
        table[name] = {"mean": mean, "sd": sd, "ess": _effective_draws(values, tree.attrs)}
    stored = pooled(tree["moments"].to_dataset()) if "moments" in tree.children else Dataset()
    for key, mean in stored.data_vars.items():
        name = str(key).removesuffix("_mean")
        if name != key and name not in table:
            unknown = xr.full_like(mean, np.nan)
            table[name] = {"mean": mean, "sd": stored.get(f"{name}_sd", unknown), "ess": unknown}
    return table


def _effective_draws(values: xr.DataArray, attributes: Mapping[Hashable, Any]) -> xr.DataArray:
    """Count independent draws or effective draws of chains; NaN for other draws."""
    n_draws = _count_draws(values)
    independent = attributes.get("independent")
    if independent is None and attributes.get("kind", "mcmc") == "mcmc":
        return effective_draws(values, method="mean")
    number = n_draws if independent == 1 and n_draws > 1 else np.nan
    return xr.full_like(values.isel(chain=0, draw=0, drop=True), number, dtype=float)


def _count_draws(values: xr.DataArray | Dataset) -> int:
    return int(values.sizes["chain"] * values.sizes["draw"])


def _default_reference(results: Mapping[str, DataTree], moments: Mapping[str, Table]) -> str:
    for kind in ("exact", "mcmc"):
        if of_kind := [name for name, tree in results.items() if tree.attrs.get("kind") == kind]:
            return max(of_kind, key=lambda name: np.nan_to_num(_least_ess(moments[name])))
    return next(iter(results))


def _least_ess(moments: Table) -> float:
    """Smallest known number of effective draws of any element."""
    least = [float(entry["ess"].min()) for entry in moments.values()]
    return float(np.nanmin(least)) if np.isfinite(least).any() else np.nan


def _elements(moments: Table, reference: Table, engine: str) -> pd.DataFrame:
    frames = []
    for name, entry in moments.items():
        other = reference[name]
        if not same_elements(entry["mean"], other["mean"]):
            got = f"other elements in {engine!r} than in the reference"
            raise _refused(f"with the same elements of {name}", got)
        unit = other["sd"].where(_moving(other))
        difference = (entry["mean"] - other["mean"]) / unit
        error = (entry["sd"] ** 2 / entry["ess"] + other["sd"] ** 2 / other["ess"]) ** 0.5 / unit
        itself = moments is reference
        dataset = Dataset(
            {
                "mean": entry["mean"],
                "sd": entry["sd"],
                "difference": difference,
                "mcse_of_difference": xr.zeros_like(error) if itself else error,
                "z": abs(difference) / error.where((error > 0) & (not itself)),
                "sd_ratio": entry["sd"] / unit,
                "ess": entry["ess"],
            }
        )
        named = {"variable": str(name), "engine": engine, "element": elements_of(entry["mean"])}
        ordered = dataset.transpose(*entry["mean"].dims)
        frames.append(pd.DataFrame(named | {key: v.values.ravel() for key, v in ordered.items()}))
    return pd.concat(frames, ignore_index=True)


def elements_of(values: xr.DataArray) -> list[str]:
    """Labels of the elements of an array, in their order in memory."""
    return [", ".join(map(str, each)) for each in product(*(values[d].values for d in values.dims))]


def same_elements(one: xr.DataArray, other: xr.DataArray) -> bool:
    """Whether two arrays have the same dims and labels, in any order of the dims."""
    try:
        xr.align(one, other, join="exact")
    except ValueError:
        return False
    return set(one.dims) == set(other.dims)


def _moving(moments: Mapping[str, xr.DataArray]) -> xr.DataArray:
    """Elements with a spread beyond the rounding of running moments, as known entries have none."""
    return moments["sd"] > KNOWN * abs(moments["mean"])


def _mean_wasserstein(dataset: Dataset, reference: Dataset, moments: Table, name: str) -> float:
    """Mean distance between the elements' marginals, in sds of the reference."""
    unit = moments[name]["sd"]
    moving = _moving(moments[name])
    if name not in dataset or name not in reference or not bool(moving.any()):
        return np.nan
    taken = min(WASSERSTEIN_DRAWS, *map(_count_draws, (dataset, reference)))
    if taken == 1:
        return np.nan
    # Elements without spread would be divided by zero; with 0 they add nothing.
    ours, theirs = ((d[[name]] / unit.where(moving)).fillna(0.0) for d in (dataset, reference))
    total = wasserstein(ours, theirs, joint=False, num_samples=taken, round_to="none")
    return float(total) / int(moving.sum())


def _cost(tree: DataTree, moments: Table) -> dict[str, Any]:
    posterior = tree["posterior"].sizes if "posterior" in tree.children else {}
    seconds = read_number(tree.attrs, "seconds")
    kind = tree.attrs.get("kind", "mcmc")
    row = {
        "kind": kind,
        "seconds": seconds,
        "draws": posterior.get("chain", 0) * posterior.get("draw", 0),
        "converged": tree.attrs.get("converged", "unknown"),
        "ess_per_second": _least_ess(moments) / seconds if kind == "mcmc" else np.nan,
        "pareto_k": k_hat_of(tree),
    }
    if "log_evidence" in tree.attrs:
        row["log_evidence"] = read_number(tree.attrs, "log_evidence")
    return row


def _readable(tree: DataTree, quantities: Dataset) -> dict[str, str]:
    """Whether a result can be read for weights, if it has any, and for predictions."""
    row: dict[str, str] = {}
    if names := _names_of_weights(quantities):
        row["read for weights"] = judge(tree, quantities[names]).state
    chains = tree.attrs.get("kind", "mcmc") == "mcmc"
    predictions = predicted(tree, quantities) if chains else quantities
    found = judge(tree, predictions, matrices=predictions is quantities).state
    # Predictions of poor approximations are often good: k-hat does not tell.
    unknown = is_unreliable(k_hat_of(tree))
    return row | {"read for predictions": "unknown" if unknown else found}


def _names_of_weights(quantities: Dataset) -> list[str]:
    """Names of the quantities that are weights of kernels."""
    names = [str(n) for n in quantities if quantities[n].dims[-1] == "kernel"]
    return ["beta"] if "beta" in names else names
