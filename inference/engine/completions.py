"""Fits and predictions of models whose kernels were completed: a mixture over the completions.

The model is fitted on each of M draws of the completed kernels, and the draws of the posteriors are
pooled. This cuts the feedback from the responses to the kernels: the completed kernels are drawn
without the responses. Where the training objects have no missing rows there is no such feedback.

Rubin's rules (Rubin 1987, Multiple imputation for nonresponse in surveys, section 3.1) for a mean,
with m the posterior mean and U the posterior variance given each completion:

========= ======================= ==================================
group     rule                    meaning
========= ======================= ==================================
_mean     mean of m               pooled mean
_within   mean of U               variance within completions
_between  sum (m - mean)^2/(M-1)  variance between completions
_total    within + (1 + 1/M)      total variance, with the error of
          between                 the mean of M completions
========= ======================= ==================================
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from xarray import Dataset, DataTree

from ...models.declaration import Declaration, source_of
from ...models.kernels.source import CompletedRows
from ...validation import argument_error
from .convergence import k_hat_of
from .engine import Run
from .progress import track
from .result import join_chains, suffixed, with_group

#: Why a result of several completions has no group of one model.
POOLED = "the draws are pooled over completions of the kernels"
COMPLETION = "completion"
#: Standard deviations among the predictions, and the means they belong to.
SPREADS = {"probability_sd": "probability", "target_sd": "mean", "response_sd": "mean"}


def fit_each_completion(
    fit_one: Callable[[pm.Model, Run], DataTree], model: pm.Model, run: Run
) -> DataTree:
    """Fit a model on each completion of its kernels, and pool the results."""
    rows = source_of(model)
    number = number_of_fits(model)
    assert isinstance(rows, CompletedRows)
    assert isinstance(model, Declaration)
    if run.store is not None:
        raise argument_error("store", "fit", "left out with completed kernels", str(run.store))
    others = np.random.SeedSequence(run.random_seed).spawn(number - 1)
    copy = model.copied()
    seeds = [run.random_seed, *(int(o.generate_state(1)[0]) for o in others)]
    run = replace(run, log_likelihood=run.log_likelihood and number == 1)
    results: list[DataTree] = []
    with track(number, "Completions", visible=run.progressbar and number > 1) as bar:
        for m, seed in enumerate(seeds):
            pressed = results and results[-1].attrs.get("ended_by") == "interrupt"
            if pressed or (results and run.clock.left <= 0):
                break
            copy.set_data("K", rows.draws[m])
            shown = run.progressbar and number == 1
            clock = run.clock.share(number - m - 1)
            results.append(
                fit_one(copy, replace(run, random_seed=seed, progressbar=shown, clock=clock))
            )
            bar.advance()
    pooled = _pooled(model, results)
    pooled.attrs |= {
        "random_seed": run.random_seed,
        "completed_kernels": rows.key,
        "completion_seeds": json.dumps(seeds[: len(results)]),
    }
    if len(results) < number:
        note = f"{len(results)} of {number} completions were fitted before the end."
        pooled.attrs |= {"converged": "no", "note": note}
        pooled.attrs.setdefault("ended_by", "max_seconds")
    return pooled


def number_of_fits(model: pm.Model) -> int:
    """Return the number of completions to fit a model on; 1 if its training kernels are known."""
    rows = source_of(model)
    return len(rows) if isinstance(rows, CompletedRows) and not rows.complete else 1


def _pooled(model: Declaration, results: Sequence[DataTree]) -> DataTree:
    """Pool results: the chains of all, numbered on, and Rubin's summary."""
    pooled = results[0].copy()
    for name in [n for n in pooled.children if n not in ("observed_data", "constant_data")]:
        with_group(pooled, str(name), _joined([result[name].to_dataset() for result in results]))
    data = pooled["constant_data"].to_dataset()
    means = data["K"].copy(data=model["K"].get_value())
    with_group(pooled, "constant_data", data.assign(K=means))
    with_group(pooled, "completions", rubin(pooled["posterior"].to_dataset()))
    states = {result.attrs["converged"] for result in results}
    pooled.attrs["converged"] = next(
        (state for state in ("no", "no fixed point", "unknown") if state in states), "yes"
    )
    for result in results:
        pooled.attrs |= {key: x for key, x in result.attrs.items() if key in ("ended_by", "note")}
    pooled.attrs["seconds"] = sum(result.attrs["seconds"] for result in results)
    k_hats = [k_hat for result in results if not np.isnan(k_hat := k_hat_of(result))]
    if k_hats:
        pooled.attrs["pareto_k"] = max(k_hats)
    return pooled


def _joined(groups: Sequence[Dataset]) -> Dataset:
    """Join a group of all completions, along the chains if it has any."""
    if "chain" not in groups[0].dims:
        return xr.concat(groups, COMPLETION, join="outer")
    numbers = [m for m, group in enumerate(groups) for _ in range(group.sizes["chain"])]
    return join_chains(groups).assign_coords({COMPLETION: ("chain", numbers)})


def rubin(posterior: Dataset) -> Dataset:
    """Means and variances of a pooled posterior by Rubin's rules, see the module."""
    split = posterior.groupby(COMPLETION)
    means = split.mean(("chain", "draw"))
    variances = split.var(("chain", "draw"), ddof=1)
    many = means.sizes[COMPLETION]
    mean = means.mean(COMPLETION)
    within = variances.mean(COMPLETION)
    # It contains the Monte Carlo error of each completion's mean.
    between = means.var(COMPLETION, ddof=1) if many > 1 else np.nan * mean
    total = within + (1 + 1 / many) * between
    return suffixed(by_completion=means, mean=mean, within=within, between=between, total=total)


def of_completions(result: DataTree, kernels_new: Any) -> bool:
    """Whether a result, or the kernels of new objects, are of completed kernels."""
    return "completed_kernels" in result.attrs or isinstance(kernels_new, CompletedRows)


def _check_same_completions(model: pm.Model, result: DataTree, kernels_new: Any) -> None:
    """Raise ValueError unless model, result and new kernels are of the same completions."""
    own = getattr(source_of(model), "key", None)
    drawn = result.attrs.get("completed_kernels")
    if drawn is not None and own != drawn:
        rule = "a result of fit on the model's completed kernels"
        raise argument_error("result", "predict", rule, "a result of others")
    new = kernels_new.key if isinstance(kernels_new, CompletedRows) else None
    foreign = new is not None and new != own
    if foreign or (drawn is not None and new is None):
        rule = "completion.of(new, train) of the completion that gave the model its kernels"
        raise argument_error("kernels_new", "predict", rule, type(kernels_new).__name__)


def predict_each_completion(
    predicted: Callable[[pm.Model, DataTree, Any], Dataset],
    model: pm.Model,
    result: DataTree,
    kernels_new: Any,
) -> Dataset:
    """Predictions averaged over completions, each with its own kernels of the new objects.

    Standard deviations are those of the mixture; ``{mean}_between`` is that between the
    completions' means (divisor M - 1, NaN for one completion).
    """
    _check_same_completions(model, result, kernels_new)
    if "completed_kernels" not in result.attrs:
        return predicted(model, result, kernels_new)
    rows = source_of(model)
    posterior = result["posterior"].to_dataset()
    assert isinstance(rows, CompletedRows)
    assert isinstance(model, Declaration)
    copy = model.copied()
    each = []
    for m in range(len(kernels_new)) if rows.complete else np.unique(posterior[COMPLETION]):
        part = result
        if not rows.complete:
            copy.set_data("K", rows.draws[m])
            drawn = posterior.isel({"chain": (posterior[COMPLETION] == m).to_numpy()})
            part = with_group(result.copy(), "posterior", drawn.drop_vars(COMPLETION))
        each.append(predicted(copy, part, kernels_new[m]))
    together = xr.concat(each, COMPLETION, join="override", data_vars="all")
    # The chains of one completion would cut those of all.
    pooled = each[0].drop_dims("chain", errors="ignore").copy()
    for name in map(str, each[0].data_vars):
        values = together[name]
        if "chain" in each[0][name].dims:
            pooled[name] = join_chains([one[[name]] for one in each])[name]
        elif name in SPREADS:
            variance = (values**2).mean(COMPLETION) + together[SPREADS[name]].var(COMPLETION)
            pooled[name] = (variance**0.5).assign_attrs(values.attrs)
        elif values.dtype.kind == "f":
            pooled[name] = values.mean(COMPLETION).assign_attrs(values.attrs)
            pooled[f"{name}_between"] = (
                values.std(COMPLETION, ddof=1) if len(each) > 1 else np.nan * pooled[name]
            )
    if "label" in pooled:
        winners = pooled["probability"].argmax("class").to_numpy()
        pooled["label"] = pooled["label"].copy(data=pooled["class"].to_numpy()[winners])
    return pooled
