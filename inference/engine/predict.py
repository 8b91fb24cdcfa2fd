"""Prediction for new objects from any engine's result."""

import inspect
import re
from collections.abc import Callable, Mapping
from functools import singledispatch
from textwrap import dedent, indent
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from xarray import Dataset, DataTree

from ...validation import check_count
from .description import explained_parameters, sections
from .moments import pooled
from .result import with_group

__all__ = ["document_predictions", "predict", "predictive"]

# Where the docstring of `predict` goes on with what the registered functions say of themselves, and
# the widths of its table's columns.
TAKEN = "What each model's predictions take."
HELD = "What each model's predictions hold, with ``<k>`` for the name of a kernel."
COLUMNS = 18, 24, 42


@singledispatch
def predictive(
    model: pm.Model, result: DataTree, kernels_new: Any, *, keep_draws: bool, **options: Any
) -> Dataset:
    """Predictions of a model's type: from a result to a Dataset (obs, ...).

    Each paper registers its own. One that goes through the draws takes `progressbar`, gets the
    draws that the user asks for, and reads so many of them at a time that its work arrays are of a
    bounded size, whatever their number. Moments in the
    result have no dimension "chain": they are pooled, weighted by the chains' numbers of draws.

    Its docstring has an entry for each option and, under Returns, a table of what it returns:
    `document_predictions` copies them into the docstring of `predict`.
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
    """Predictions for new objects, or of what is missing, averaged over an engine's draws.

    Parameters
    ----------
    model : pm.Model
        The model that was fitted.
    result : DataTree
        Result of `fit` on it, by any engine.
    kernels_new : DataArray (kernel, obs, basis), dict of 2-D arrays, or array
        Kernels between the new objects (rows) and the training objects (columns), normalised as
        the training kernels were: ``kernels(X_new, X_train)``. Models of kernel matrices that
        hold the new objects already (kernel completion) take none.
    keep_draws : bool, default=False
        Keep the predictions of every draw as well: draws x objects numbers, on which ``az.mcse``
        gives the Monte Carlo error.
    draws : int, optional
        Average over so many of the draws, evenly spaced and as many of each chain, rounded up:
        for many objects, whose predictions cost as much a draw. Default: all.
    progressbar : bool, default=True
        Show progress where the draws do not fit into one block of a bounded size.
    **options
        What each model's predictions take.

    Returns
    -------
    Dataset
        What each model's predictions hold, with ``<k>`` for the name of a kernel.

        The attributes name the engine and the model, and what a model's predictions add. Store it
        beside the result: ``result["predictions"] = xarray.DataTree(predictions)``.

    Warns
    -----
    UserWarning
        When an entry that a chain of `MutualKernelCompletion` was judged on has fewer than 100
        effective draws.

    Raises
    ------
    ValueError
        When the kernels do not fit the model's, or the result lacks the draws that predictions
        are made of.
    TypeError
        For a model without predictions, an option that its predictions do not take, or what is no
        result.

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
    if "moments" in result.children:
        # A tree of its own, which shares its arrays with the caller's.
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
    predictions: xr.Dataset = predictive(
        model, result, kernels_new, keep_draws=keep_draws, **options
    )
    predictions.attrs.update(
        {key: result.attrs[key] for key in ("engine", "model") if key in result.attrs}
    )
    return predictions


# The docstring without what the registered functions say of themselves.
_GENERAL = inspect.getdoc(predict) or ""


def document_predictions() -> None:
    """Write what the predictions of every model take and hold into the docstring of `predict`.

    That is read from the docstrings of the functions that are registered: the entries of their
    options, and the table in their section Returns.
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
    """Options of a function, what it says of them, and the rows of the table of what it returns."""
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
    """Names of what a registered function takes beside `keep_draws`."""
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "keep_draws"]


def _check_options(model: pm.Model, options: Mapping[str, Any]) -> list[str]:
    """List what the predictions of the model's type take; raise unless the options are of it."""
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
