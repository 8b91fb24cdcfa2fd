"""Engines on one model side by side: moments, distances, cost, held-out scores."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from arviz_stats import wasserstein
from xarray import Dataset, DataTree

from ..models.checks import argument_error, check_labels, check_name
from .diagnostics import pareto_k
from .identified import identified
from .predict import predict

__all__ = ["Comparison", "compare_engines", "scores"]

WASSERSTEIN_DRAWS = 1000


@dataclass(frozen=True)
class Comparison:
    """Engines compared with a reference; prints as two tables.

    Attributes
    ----------
    reference : str
        Name of the result the others are measured against.
    engines : DataFrame
        One row a result: ``kind``, ``seconds``, ``draws``, ``converged``, ``ess_per_second`` (the
        least over the quantities), ``pareto_k``, and held-out scores when asked for.
    variables : DataFrame
        One row a quantity and result, over the quantity's elements, in standard deviations of the
        reference: ``difference``, the largest difference of means; ``mcse``, the largest Monte
        Carlo standard error of a difference (below twice that it is noise); ``least_sd_ratio``
        and ``largest_sd_ratio``; ``wasserstein``, the mean distance of marginals.
    elements : DataFrame
        One row an element: mean, sd, difference, ratio, Monte Carlo standard error, effective
        draws.
    """

    reference: str
    engines: pd.DataFrame
    variables: pd.DataFrame
    elements: pd.DataFrame

    def __repr__(self) -> str:
        with pd.option_context("display.width", 160, "display.max_columns", None):
            return (
                f"{self.engines.T.to_string(float_format='{:.3g}'.format)}\n\n"
                f"against {self.reference}, in its standard deviations\n"
                f"{self.variables.to_string(float_format='{:.3g}'.format)}"
            )

    def _repr_html_(self) -> str:
        return (
            self.engines.T.to_html(float_format="{:.3g}".format)
            + f"<p>against {self.reference}, in its standard deviations</p>"
            + self.variables.to_html(float_format="{:.3g}".format)
        )


def scores(probability: xr.DataArray, labels: Any) -> dict[str, float]:
    """Held-out scores of class probabilities.

    Parameters
    ----------
    probability : DataArray (obs, class)
    labels : array_like (obs,)
        True classes, among those of the coordinate "class".

    Returns
    -------
    dict
        ``accuracy``; ``log_score``, the mean log probability of the true class (higher is
        better); ``brier``, the mean squared distance to the true class's indicator (0 to 2, lower
        is better).
    """
    codes, _ = check_labels(
        labels,
        "labels_new",
        "compare_engines",
        classes=probability["class"].values,
        n_objects=probability.sizes["obs"],
    )
    p = probability.transpose("obs", "class").values
    of_truth = p[np.arange(len(codes)), codes]
    indicator = np.eye(p.shape[1])[codes]
    with np.errstate(divide="ignore"):
        log_score = float(np.log(of_truth).mean())
    return {
        "accuracy": float((p.argmax(1) == codes).mean()),
        "log_score": log_score,
        "brier": float(((p - indicator) ** 2).sum(1).mean()),
    }


def compare_engines(
    results: Mapping[str, DataTree],
    *,
    reference: str | None = None,
    var_names: Iterable[str] | None = None,
    model: pm.Model | None = None,
    kernels_new: Any = None,
    labels_new: Any = None,
) -> Comparison:
    """Compare results of several engines on one model.

    Quantities are those that the data identify (for the multinomial probit: weights, and contrasts
    of the regression functions between classes).

    Parameters
    ----------
    results : mapping of str to DataTree
        Results of `fit`, by a name for each.
    reference : str, optional
        Name of the result the others are measured against. Default: an exact one, else the Markov
        chain with the most effective draws, else the first.
    var_names : iterable of str, optional
        Quantities to compare. Default: all.
    model, kernels_new, labels_new : optional
        The model, kernels between held-out and training objects, and the held-out labels: adds
        accuracy, log score and Brier score of every engine.

    Returns
    -------
    Comparison

    Raises
    ------
    ValueError
        For fewer than one result, an unknown reference or quantity, results of different models,
        or an incomplete held-out set.
    """
    if not results:
        raise argument_error("results", "compare_engines", "at least one result", "none")
    names = {tree.attrs.get("model") for tree in results.values()}
    if len(names) > 1:
        raise argument_error(
            "results", "compare_engines", "results of one model", ", ".join(map(str, names))
        )
    held_out = (model, kernels_new, labels_new)
    if any(x is not None for x in held_out) and any(x is None for x in held_out):
        raise ValueError(
            "The 'model', 'kernels_new' and 'labels_new' arguments of compare_engines must be "
            "given together."
        )
    quantities = {name: identified(tree) for name, tree in results.items()}
    if var_names is not None:
        known = [str(v) for v in next(iter(quantities.values())).data_vars]
        chosen = [check_name(v, known, "var_names", "compare_engines") for v in var_names]
        quantities = {name: dataset[chosen] for name, dataset in quantities.items()}
    moments = {
        name: _moments(dataset, results[name].attrs.get("kind", "mcmc"))
        for name, dataset in quantities.items()
    }
    if reference is None:
        reference = _default_reference(results, moments)
    check_name(reference, results, "reference", "compare_engines")

    elements = pd.concat(
        [_elements(moments[name], moments[reference], name) for name in results],
        ignore_index=True,
    ).set_index(["variable", "element", "engine"])
    distances = {
        (str(v), name): _mean_wasserstein(dataset, quantities[reference], moments[reference], v)
        for name, dataset in quantities.items()
        for v in dataset.data_vars
    }
    variables = elements.groupby(level=["variable", "engine"], sort=False).agg(
        difference=("difference", lambda x: x.abs().max()),
        mcse=("mcse_of_difference", "max"),
        least_sd_ratio=("sd_ratio", "min"),
        largest_sd_ratio=("sd_ratio", "max"),
    )
    variables["wasserstein"] = pd.Series(distances)
    rows = []
    for name, tree in results.items():
        row = {"engine": name, **_cost(tree, moments[name])}
        if model is not None:
            row |= scores(predict(model, tree, kernels_new)["probability"], labels_new)
        rows.append(row)
    return Comparison(reference, pd.DataFrame(rows).set_index("engine"), variables, elements)


def _moments(dataset: Dataset, kind: str) -> dict[Hashable, dict[str, xr.DataArray]]:
    """Mean, sd and effective draws of every quantity; independent draws count in full."""
    n_draws = dataset.sizes["chain"] * dataset.sizes["draw"]
    table = {}
    for name, values in dataset.data_vars.items():
        sd = values.std(("chain", "draw"), ddof=1) if n_draws > 1 else 0 * values[0, 0]
        if kind == "mcmc":
            ess = az.ess(values.to_dataset(name="x"), method="mean")["x"]
        else:
            ess = xr.full_like(sd, n_draws)
        table[name] = {"mean": values.mean(("chain", "draw")), "sd": sd, "ess": ess}
    return table


def _default_reference(results: Mapping[str, DataTree], moments: Mapping[str, dict]) -> str:
    for kind in ("exact", "mcmc"):
        of_kind = [name for name in results if results[name].attrs.get("kind") == kind]
        if of_kind:
            return max(of_kind, key=lambda name: _least_ess(moments[name]))
    return next(iter(results))


def _least_ess(moments: dict[Hashable, dict[str, xr.DataArray]]) -> float:
    return min(float(entry["ess"].min()) for entry in moments.values())


def _elements(moments: dict, reference: dict, engine: str) -> pd.DataFrame:
    frames = []
    for name, entry in moments.items():
        other = reference[name]
        unit = other["sd"].where(other["sd"] > 0)
        error = np.hypot(
            entry["sd"] / np.sqrt(entry["ess"]),
            0.0 if moments is reference else other["sd"] / np.sqrt(other["ess"]),
        )
        dataset = Dataset(
            {
                "mean": entry["mean"],
                "sd": entry["sd"],
                "difference": (entry["mean"] - other["mean"]) / unit,
                "mcse_of_difference": error / unit,
                "sd_ratio": entry["sd"] / unit,
                "ess": entry["ess"],
            }
        )
        flat = dataset.stack(element=[*entry["mean"].dims]) if entry["mean"].ndim else dataset
        labels = (
            [", ".join(map(str, index)) for index in flat.indexes["element"]]
            if entry["mean"].ndim
            else [""]
        )
        columns = {key: np.atleast_1d(flat[key].values) for key in dataset.data_vars}
        frames.append(
            pd.DataFrame({"variable": str(name), "element": labels, "engine": engine} | columns)
        )
    return pd.concat(frames, ignore_index=True)


def _mean_wasserstein(dataset: Dataset, reference: Dataset, moments: dict, name: Hashable) -> float:
    """Mean over elements of the distance between marginals, in sds of the reference."""
    sd = moments[name]["sd"]
    unit = sd.where(sd > 0)
    return (
        wasserstein(
            (dataset[[name]] / unit).fillna(0.0),
            (reference[[name]] / unit).fillna(0.0),
            joint=False,
            num_samples=min(
                WASSERSTEIN_DRAWS,
                dataset.sizes["chain"] * dataset.sizes["draw"],
                reference.sizes["chain"] * reference.sizes["draw"],
            ),
            round_to="none",
        )
        / sd.size
    )


def _cost(tree: DataTree, moments: dict) -> dict[str, Any]:
    posterior = tree["posterior"]
    seconds = float(tree.attrs.get("seconds", np.nan))
    kind = tree.attrs.get("kind", "mcmc")
    return {
        "kind": kind,
        "seconds": seconds,
        "draws": posterior.sizes["chain"] * posterior.sizes["draw"],
        "converged": tree.attrs.get("converged", "unknown"),
        "ess_per_second": _least_ess(moments) / seconds if kind == "mcmc" else np.nan,
        "pareto_k": pareto_k(tree),
    }
