"""Prediction for new objects from any engine's result."""

import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial, singledispatch
from textwrap import dedent, indent
from typing import Any

import numpy as np
import pymc as pm
from xarray import Dataset, DataTree

from ...validation import check_count
from .completions import check_same_completions, pooled_predictions
from .description import explained_parameters, sections
from .moments import pooled
from .provenance import check_fitted
from .result import with_group

__all__ = ["document_predictions", "predict", "predictive"]

# Lines in the docstring of `predict` after which the docstrings of the registered functions are
# inserted, and the widths of its table's columns.
TAKEN = "What each model's predictions take."
HELD = "What each model's predictions hold, with ``<k>`` for the name of a kernel."
COLUMNS = 18, 24, 42


@singledispatch
def predictive(
    model: pm.Model, result: DataTree, kernels_new: Any, *, keep_draws: bool, **options: Any
) -> Dataset:
    """Predictions for a type of model: from a result to a Dataset (obs, ...).

    Each paper registers a function. A function that loops over the draws takes `progressbar`, gets
    only the draws that the user asked for, and reads them in blocks, so that its work arrays are of
    bounded size. The moments in `result` are pooled over chains, weighted by their numbers of
    draws.

    The docstring of a registered function has an entry for each option and, under Returns, a table
    of the returned variables; `document_predictions` copies both into the docstring of `predict`.
    """
    written = ", ".join(t.__name__ for t in predictive.registry if t is not object)
    raise TypeError(
        f"predict is written for {written}; this is a {type(model).__name__}. "
        "pm.sample_posterior_predictive works on every PyMC model."
    )


def predict(
    model: pm.Model,
    result: DataTree,
    kernels_new: Any = None,
    *,
    keep_draws: bool = False,
    draws: int | None = None,
    progressbar: bool = True,
    **options: Any,
) -> Dataset:
    """Predict new objects or missing entries, averaged over an engine's draws.

    Parameters
    ----------
    model : pm.Model
        The model that was fitted.
    result : DataTree
        Result of `fit` on it, by any engine.
    kernels_new : DataArray (kernel, obs, basis), dict of 2-D arrays, or array
        Kernels between the new objects (rows) and the training objects (columns), normalised like
        the training kernels: ``kernels(X_new, X_train)``. For completed kernels,
        ``completion.of(new, train)``: predictions are averaged over the completions, each with its
        own kernels, and ``..._between`` are their standard deviations between completions.
        Leave out for kernel completion, whose kernel matrices contain the new objects already.
    keep_draws : bool, default=False
        Also keep the predictions of every draw (draws x objects numbers), for example for the Monte
        Carlo error by ``az.mcse``.
    draws : int, optional
        Average over only so many draws, evenly spaced, equally many a chain, rounded up. Saves time
        with many objects. Default: all.
    progressbar : bool, default=True
        Show progress if the draws need several blocks.
    **options
        What each model's predictions take.

    Returns
    -------
    Dataset
        What each model's predictions hold, with ``<k>`` for the name of a kernel.

        The attributes name the engine and the model; some models add attributes. To store the
        predictions with the result: ``result["predictions"] = xarray.DataTree(predictions)``.

    Warns
    -----
    UserWarning
        When a monitored entry of a chain of `MutualKernelCompletion` has fewer than 100 effective
        draws.

    Raises
    ------
    ValueError
        When the result is not of the model's current data, priors and likelihood, when the kernels
        do not match the model's, or when the result lacks draws that predictions need.
    TypeError
        For a model without predictions, an option that its predictions do not take, or a `result`
        that is not a DataTree.

    Examples
    --------
    >>> predictions = kz.predict(model, result, kernels(data.X_test, data.X_train))
    >>> predictions["probability"].sel(obs=0)
    >>> kz.predict(completion, result, labels=data.y_train)["label"]
    """
    taken = _check_options(model, options)
    if not isinstance(result, DataTree):
        raise TypeError(
            f"The 'result' argument of predict must be a result of fit. Got {type(result)}."
        )
    check_fitted(model, result, "predict")
    check_same_completions(model, result, kernels_new)
    if "moments" in result.children:
        # A copy of the tree, which shares its arrays with the caller's.
        moments = result["moments"].to_dataset()
        result = with_group(result.copy(), "moments", pooled(moments))
    if "progressbar" in taken:
        options["progressbar"] = progressbar
    if draws is not None:
        check_count(draws, "draws", "predict")
        if "progressbar" not in taken:
            raise TypeError(
                f"predict of a {type(model).__name__} takes no 'draws': it does not go through "
                "them one by one."
            )
        result = _thinned(result, draws)
    predicted = partial(predictive, keep_draws=keep_draws, **options)
    if "completed_kernels" in result.attrs:
        predictions = pooled_predictions(model, result, kernels_new, predicted)
    else:
        predictions = predicted(model, result, kernels_new)
    predictions.attrs.update(
        {key: result.attrs[key] for key in ("engine", "model") if key in result.attrs}
    )
    return predictions


# The docstring without those of the registered functions.
_GENERAL = inspect.getdoc(predict) or ""


def document_predictions() -> None:
    """Write every model's options and returned variables into the docstring of `predict`.

    The source is the docstrings of the registered functions: the entries of their options, and the
    table in their section Returns.
    """
    models: dict[tuple[str, ...], list[str]] = {}
    for model_type, function in predictive.registry.items():
        if model_type is not object:
            models.setdefault(_documentation(function), []).append(model_type.__name__)
    line = "  ".join("=" * width for width in COLUMNS)
    head = "  ".join(map(str.ljust, ("variable", "dims", "what it is"), COLUMNS)).rstrip()
    taken, held = [""], ["", line, head, line]
    for (options, entries, rows), names in models.items():
        held += [", ".join(names), "-" * len(line), *rows.splitlines()]
        if options:
            taken += [f"{', '.join(f'`{name}`' for name in names)}: {options}.", ""]
            taken += [*entries.splitlines(), ""]
    told = _GENERAL
    for said, lines in ((TAKEN, taken[:-1]), (HELD, [*held, line])):
        told = told.replace(f"    {said}", indent("\n".join([said, *lines]), "    "))
    predict.__doc__ = told


def _documentation(function: Callable[..., Any]) -> tuple[str, str, str]:
    """Options of a function, their explanations, and its table of returned variables."""
    explained, options = explained_parameters(function), _options(function)
    own = [name for name in options if name != "progressbar"]
    table = re.search(
        r"^ *={3}[= ]+\n(.*?)\n *={3}[= ]+$",
        sections(function).get("Returns", ""),
        re.MULTILINE | re.DOTALL,
    )
    return (
        ", ".join(f"``{name}``" for name in own),
        "\n".join(explained.get(name, name) for name in own),
        dedent(table[1]) if table else "",
    )


def _thinned(result: DataTree, draws: int) -> DataTree:
    """Keep evenly spaced draws, as many of each chain."""
    posterior = result["posterior"].to_dataset()
    n_draws = posterior.sizes["draw"]
    kept = min(-(-draws // posterior.sizes["chain"]), n_draws)
    spaced = ((np.arange(kept) + 0.5) * n_draws / kept).astype(int)
    return with_group(result.copy(), "posterior", posterior.isel(draw=spaced))


def _options(function: Callable[..., Any]) -> list[str]:
    """Names of the options of a registered function, without `keep_draws`."""
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "keep_draws"]


def _check_options(model: pm.Model, options: Mapping[str, Any]) -> list[str]:
    """List the options of the model's predictions; raise TypeError for any other option."""
    function = predictive.dispatch(type(model))
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return list(options)
    taken = _options(function)
    if unknown := sorted(options.keys() - taken):
        own = [name for name in taken if name != "progressbar"]
        loops = ["draws"] * ("progressbar" in taken)
        raise TypeError(
            f"predict of a {type(model).__name__} takes no {', '.join(map(repr, unknown))}; its "
            f"options are {', '.join(map(repr, ['keep_draws', *loops, *own]))}."
        )
    return taken
