"""Completion of kernels with missing rows, with draws that classifiers and regressions take."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ...models.completion.completed import CompletedKernels
from ...models.completion.incomplete import IncompleteKernel, IncompleteKernels
from ...models.kernels.labels import counts_rows
from ...models.kernels.specification import NORMALIZATIONS
from ...models.mutual_kernel_completion import MutualKernelCompletion
from ...validation import Count, argument_error, check_arguments, check_name
from ..engine.chains import each_draw
from ..engine.fit import fit
from ..engine.predict import predict

type Drawn = tuple[NDArray, NDArray | None, NDArray]

OWNER = "complete_kernels"
#: Sweeps of Gibbs between two draws that are kept.
THIN = 25

METHODS: dict[str, Callable[[IncompleteKernel], NDArray]] = {
    "zero": IncompleteKernel.with_zeros,
    "mean": IncompleteKernel.with_means,
}


def impute_kernels(
    kernels: Any, visible: Any = None, *, method: Literal["zero", "mean"] = "mean"
) -> xr.DataArray:
    """Complete each kernel from its own visible entries.

    Parameters
    ----------
    kernels, visible
        As in `MutualKernelCompletion`.
    method : {"zero", "mean"}, default="mean"
        A missing object is the origin of feature space, or the mean of the visible objects
        (appendix B of the paper).

    Returns
    -------
    DataArray (kernel, obs, basis)
        Positive semidefinite kernels of all objects, in the units given.

    Raises
    ------
    ValueError
        As in `MutualKernelCompletion`, for kernels without objects, and for an unknown method.

    Notes
    -----
    O(K l^2), and O(K l^3) for the checks.

    Examples
    --------
    >>> kz.completion.impute_kernels({"a": A, "b": B}, method="zero").sel(kernel="a")
    """
    owner = "impute_kernels"
    check_name(method, METHODS, "method", owner)
    given = IncompleteKernels.of(kernels, visible, owner=owner)
    given.check_seen(owner)
    return given.stacked([METHODS[method](kernel) for kernel in given.kernels])


def complete_kernels(
    kernels: Any,
    visible: Any = None,
    *,
    method: Literal["mutual", "mean", "zero"] = "mutual",
    engine: Literal["gibbs", "exact", "em"] = "gibbs",
    draws: Count = 20,
    thin: Count = THIN,
    normalize: str | Sequence[str] | None = "trace",
    random_seed: int | None = None,
    progressbar: bool = True,
    model: Mapping[str, Any] | None = None,
    **options: Any,
) -> CompletedKernels:
    """Complete kernels with missing rows, and keep several draws of them.

    Objects to be predicted later must be among the objects: they are completed together with the
    training objects, without labels.

    Parameters
    ----------
    kernels, visible
        As in `MutualKernelCompletion`.
    method : {"mutual", "mean", "zero"}, default="mutual"
        "mutual" completes all kernels together by `MutualKernelCompletion`. The others are
        `impute_kernels`, without uncertainty.
    engine : {"gibbs", "exact", "em"}, default="gibbs"
        Engine of "mutual". "exact" needs nested masks; "em" gives a point without uncertainty.
    draws : int, default=20
        Draws of the completed kernels.
    thin : int, default=25
        Sweeps of Gibbs between two draws.
    normalize : {"trace", "unit"}, sequence of them, or None, default="trace"
        Normalisation of each completed draw with constants from the training objects, which
        `CompletedKernels.of` names. None leaves the units given.
    random_seed : int, optional
    progressbar : bool, default=True
    model : mapping, optional
        Arguments of `MutualKernelCompletion` besides the kernels: ``lam``, ``nu``, ``jitter``.
        EM has ``collapsed=True`` by default, for kernels of low rank.
    **options
        Further arguments of `fit`: ``chains`` (here 2 by default), ``tune``, ...

    Returns
    -------
    CompletedKernels
        One completion for a point or an imputation, and if no rows are missing.

    Raises
    ------
    ValueError
        For objects that are in no kernel, kernels without objects, and as `MutualKernelCompletion`
        and `fit`.

    Warns
    -----
    UserWarning
        When an entry has fewer than 100 effective draws, as in `predict`.

    Notes
    -----
    A sweep costs O(K l^3) for K kernels of l objects; the draws take M K l^2 numbers. Objects and
    kernels with labels are completed in the order of their labels, so that their order in the input
    does not affect the draws.

    Examples
    --------
    >>> train, new = np.arange(9), np.arange(9, 12)
    >>> completion = kz.completion.complete_kernels({"rna": A, "protein": B}, draws=5)
    >>> classifier = kz.MultinomialProbit(completion.of(train), kinds[train])
    >>> result = kz.fit(classifier, "vb")
    >>> kz.predict(classifier, result, completion.of(new, train))["probability_between"]
    """
    check_arguments(complete_kernels, locals())
    if own := options.keys() & {"lam", "nu", "jitter", "collapsed"}:
        rule = f"a mapping: model={ {name: options[name] for name in sorted(own)} }"
        raise argument_error("model", OWNER, rule, repr(model))
    steps = (normalize,) if isinstance(normalize, str) else tuple(normalize or ())
    for step in steps:
        check_name(step, NORMALIZATIONS, "normalize", OWNER)
    given = IncompleteKernels.of(kernels, visible, owner=OWNER)
    given.check_seen(OWNER)
    seen = np.zeros((len(given.objects), len(given.kernels)), dtype=bool)
    for k, kernel in enumerate(given.kernels):
        seen[kernel.visible, k] = True
    fill = METHODS.get(method, IncompleteKernel.with_zeros)
    stack = given.stacked([fill(kernel) for kernel in given.kernels])
    if method != "mutual" or seen.all():
        return CompletedKernels(stack, stack.values[None], seen, None, steps)
    hidden = ~(seen.T[:, :, None] & seen.T[:, None, :])
    rows = _canonical(stack["obs"].values)
    columns = _canonical(stack["kernel"].values)
    holed = stack.where(~hidden).isel(kernel=columns, obs=rows, basis=rows)
    # The means of EM are the same, and it takes kernels of low rank as well.
    declared = MutualKernelCompletion(holed, **{"collapsed": engine == "em", **(model or {})})
    if declared.collapsed and engine != "em":
        rule = "not collapsed, unless the engine is 'em'"
        raise argument_error("model", OWNER, rule, repr(model))
    settings = {"random_seed": random_seed, "progressbar": progressbar, **options}
    mean, sd, drawn = ENGINES[engine](declared, draws, thin, settings)
    back = np.argsort(rows)
    names = np.argsort(columns)
    place = np.ix_(names, back, back)
    return CompletedKernels(
        stack.copy(data=mean[place]),
        drawn[:, names][:, :, back][:, :, :, back],
        seen,
        None if sd is None else stack.copy(data=sd[place]),
        steps,
    )


def _canonical(labels: NDArray[Any]) -> NDArray[np.intp]:
    """Order of labels that does not depend on the order given; numbered objects stay."""
    if counts_rows(labels):
        return np.arange(len(labels))
    return np.argsort([f"{type(label).__name__} {label}" for label in labels.tolist()])


def _whole(model: MutualKernelCompletion) -> NDArray:
    """Kernels (kernel, l, l) in the units given, with zeros in place of missing rows."""
    return np.stack([kernel.unit * kernel.with_zeros() for kernel in model.problem.kernels])


def _incomplete(model: MutualKernelCompletion) -> dict[str, int]:
    """Names of the completed kernels' variables, and positions of the kernels."""
    kernels = enumerate(model.problem.kernels)
    return {f"{model.completion}_{kernel.name}": k for k, kernel in kernels if len(kernel.hidden)}


def _by_gibbs(
    model: MutualKernelCompletion, draws: int, thin: int, settings: dict[str, Any]
) -> Drawn:
    """Moments of all draws, and every `thin`-th draw of each chain."""
    settings = {"chains": 2, "cores": 1, "tune": 500} | settings
    chains = settings["chains"]
    names = _incomplete(model)
    each = -(-draws // chains)
    kept: list[list[NDArray]] = [[] for _ in range(chains)]

    def keep(chain: int, values: Mapping[str, NDArray]) -> None:
        whole = _whole(model)
        for name, k in names.items():
            whole[k] = values[name][0]
        kept[chain].append(whole)

    keeping = each_draw(model, list(names), keep)
    counts = [0] * chains

    def callback(trace: Any, draw: Any) -> None:
        if not draw.tuning:
            counts[draw.chain] += 1
            if counts[draw.chain] % thin == 0:
                keeping(trace, draw)

    result = fit(model, "gibbs", draws=each * thin, callback=callback, **settings)
    found = predict(model, result)
    # In turns by chain, so that the first draws are of all chains.
    turns = [one for row in zip(*kept, strict=False) for one in row][:draws]
    return found["kernel_mean"].to_numpy(), found["kernel_sd"].to_numpy(), np.stack(turns)


def _by_exact(
    model: MutualKernelCompletion, draws: int, thin: int, settings: dict[str, Any]
) -> Drawn:
    """Moments and independent draws."""
    names = _incomplete(model)
    result = fit(model, "exact", draws=draws, var_names=list(names), **settings)
    drawn = np.repeat(_whole(model)[None], draws, axis=0)
    for name, k in names.items():
        drawn[:, k] = result["posterior"][name].to_numpy()[0]
    return drawn.mean(0), drawn.std(0, ddof=1) if draws > 1 else None, drawn


def _by_em(model: MutualKernelCompletion, draws: int, thin: int, settings: dict[str, Any]) -> Drawn:
    """Return the mode, without uncertainty."""
    mean = predict(model, fit(model, "em", **settings))["kernel_mean"].to_numpy()
    return mean, None, mean[None]


#: Functions that return mean and sd (kernel, l, l) of the completed kernels, and their draws.
ENGINES: dict[str, Callable[..., Drawn]] = {"gibbs": _by_gibbs, "exact": _by_exact, "em": _by_em}
