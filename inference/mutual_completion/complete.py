"""Completion of kernels with missing rows, with draws that classifiers and regressions take."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...models.completion.incomplete import IncompleteKernels
from ...models.completion.mutual_blocks import GammaExcess
from ...models.kernels.completed import CompletedKernels
from ...models.kernels.labels import counts_rows
from ...models.kernels.normalization import NORMALIZATIONS
from ...models.mutual_kernel_completion import MutualKernelCompletion
from ...validation import Count, argument_error, check_arguments, check_name
from ..engine.fit import fit
from ..engine.moments import EachDraw
from ..engine.predict import predict
from .imputation import METHODS

__all__ = ["complete_kernels"]

OWNER = "complete_kernels"
#: Sweeps of Gibbs between two draws that are kept.
THIN = 25


def complete_kernels(
    kernels: Any,
    visible: Any = None,
    *,
    method: Literal["mutual", "mean", "zero"] = "mutual",
    engine: Literal["gibbs", "exact", "em"] = "gibbs",
    draws: Count = 20,
    thin: Count = THIN,
    normalize: str | Sequence[str] = "trace",
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
    normalize : str or sequence of {"trace", "unit"}, default="trace"
        Normalisation of each completed draw with constants from the training objects, which
        `CompletedKernels.of` names. An empty sequence leaves the units given.
    random_seed : int, optional
    progressbar : bool, default=True
    model : mapping, optional
        Arguments of `MutualKernelCompletion` besides the kernels: ``lam``, ``nu``, ``jitter``, ...
    **options
        Further arguments of `fit`: ``chains`` (here 2 by default), ``tune``, ...

    Returns
    -------
    CompletedKernels
        One completion for a point or an imputation, and if no rows are missing and no parameter of
        the model is learned.

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
    >>> result = kz.fit(classifier, "vb", completions=5)
    >>> kz.predict(classifier, result, completion.of(new, train))["probability_between"]
    """
    check_arguments(complete_kernels, locals())
    steps = (normalize,) if isinstance(normalize, str) else tuple(normalize)
    for step in steps:
        check_name(step, NORMALIZATIONS, "normalize", OWNER)
    given = IncompleteKernels.of(kernels, visible, owner=OWNER)
    given.check_seen(OWNER)
    seen = np.zeros((len(given.objects), len(given.kernels)), dtype=bool)
    stack = given.stacked([kernel.with_zeros() for kernel in given.kernels])
    for k, kernel in enumerate(given.kernels):
        seen[kernel.visible, k] = True
    if method != "mutual" and not seen.all():
        stack = given.stacked([METHODS[method](kernel) for kernel in given.kernels])
    given_model = dict(model or {})
    learned = given_model.get("spread") is not None or isinstance(
        given_model.get("nu"), GammaExcess
    )
    if method != "mutual" or (seen.all() and not learned):
        return CompletedKernels(stack, stack.values[None], seen, None, steps)
    hidden = ~(seen.T[:, :, None] & seen.T[:, None, :])
    rows, columns = _canonical(stack["obs"].values), _canonical(stack["kernel"].values)
    holed = stack.where(~hidden).isel(kernel=columns, obs=rows, basis=rows)
    declared = MutualKernelCompletion(holed, **given_model)
    if declared.collapsed and engine != "em":
        raise argument_error(
            "model", OWNER, "not collapsed, unless the engine is 'em'", repr(model)
        )
    settings = {"random_seed": random_seed, "progressbar": progressbar, **options}
    found = ENGINES[engine](declared, draws, thin, settings)
    back, names = np.argsort(rows), np.argsort(columns)
    place = np.ix_(names, back, back)
    return CompletedKernels(
        stack.copy(data=found.mean[place]),
        found.draws[:, names][:, :, back][:, :, :, back],
        seen,
        None if found.sd is None else stack.copy(data=found.sd[place]),
        steps,
        found.nu[:, names],
        found.scales[:, names],
    )


def _canonical(labels: NDArray[Any]) -> NDArray[np.intp]:
    """Order of labels that does not depend on the order given; numbered objects stay."""
    if counts_rows(labels):
        return np.arange(len(labels))
    return np.argsort([f"{type(label).__name__} {label}" for label in labels.tolist()])


class Completed(NamedTuple):
    """What an engine found.

    Attributes
    ----------
    mean, sd : array (kernel, l, l)
        Moments of the completed kernels; no sd for a point.
    draws : array (completion, kernel, l, l)
    nu, scales : array (completion, kernel)
        Degrees of freedom and scales of the kernels in each draw.
    """

    mean: NDArray
    sd: NDArray | None
    draws: NDArray
    nu: NDArray
    scales: NDArray


def _parameters(
    model: MutualKernelCompletion, values: Mapping[str, Any]
) -> tuple[NDArray, NDArray]:
    """Degrees of freedom and scales (kernel,), from a draw of those that are learned."""
    nu = model.problem.nu
    ones = np.ones(len(model.coords["kernel"]))
    return (
        np.asarray(values["nu"]) if nu is None else nu,
        np.asarray(values.get("s", ones)),
    )


def _learned(model: MutualKernelCompletion) -> list[str]:
    """Names of the parameters that have draws."""
    nu = [] if model.problem.nu is not None else ["nu"]
    return nu if model.problem.spread is None else [*nu, "s"]


def _whole(model: MutualKernelCompletion) -> NDArray:
    """Kernels (kernel, l, l) in the units given, with zeros in place of missing rows."""
    return np.stack([kernel.unit * kernel.with_zeros() for kernel in model.problem.kernels])


def _incomplete(model: MutualKernelCompletion) -> dict[str, int]:
    """Names of the completed kernels' variables, and positions of the kernels."""
    kernels = enumerate(model.problem.kernels)
    return {f"{model.completion}_{kernel.name}": k for k, kernel in kernels if len(kernel.hidden)}


def _by_gibbs(
    model: MutualKernelCompletion, draws: int, thin: int, settings: dict[str, Any]
) -> Completed:
    """Every `thin`-th draw of each chain, and the moments of all draws."""
    settings = {"chains": 2, "cores": 1, "tune": 500} | settings
    chains, names, learned = settings["chains"], _incomplete(model), _learned(model)
    each = -(-draws // chains)
    kept: dict[int, list[tuple[NDArray, ...]]] = {chain: [] for chain in range(chains)}

    def keep(chain: int, values: Mapping[str, NDArray]) -> None:
        whole = _whole(model)
        for name, k in names.items():
            whole[k] = values[name][0]
        own = {name: values[name][0] for name in learned}
        kept[chain].append((whole, *_parameters(model, own)))

    keeping = EachDraw(model, [*names, *learned], keep)
    counts = dict.fromkeys(kept, 0)

    def callback(trace: Any, draw: Any) -> None:
        if not draw.tuning:
            counts[draw.chain] += 1
            if counts[draw.chain] % thin == 0:
                keeping(trace, draw)

    result = fit(model, "gibbs", draws=each * thin, callback=callback, **settings)
    found = predict(model, result)
    # In turns by chain, so that the first draws are of all chains.
    turns = [one for row in zip(*kept.values(), strict=False) for one in row][:draws]
    return Completed(
        found["kernel_mean"].to_numpy(),
        found["kernel_sd"].to_numpy(),
        *(np.stack(each) for each in zip(*turns, strict=True)),
    )


def _by_exact(
    model: MutualKernelCompletion, draws: int, thin: int, settings: dict[str, Any]
) -> Completed:
    """Independent draws."""
    names = _incomplete(model)
    result = fit(model, "exact", draws=draws, var_names=list(names), **settings)
    drawn = np.repeat(_whole(model)[None], draws, axis=0)
    for name, k in names.items():
        drawn[:, k] = result["posterior"][name].to_numpy()[0]
    sd = drawn.std(0, ddof=1) if draws > 1 else None
    same = [np.tile(values, (draws, 1)) for values in _parameters(model, {})]
    return Completed(drawn.mean(0), sd, drawn, *same)


def _by_em(
    model: MutualKernelCompletion, draws: int, thin: int, settings: dict[str, Any]
) -> Completed:
    """Return the mode, without uncertainty."""
    result = fit(model, "em", **settings)
    mean = predict(model, result)["kernel_mean"].to_numpy()
    point = {name: result["point"][name].to_numpy() for name in _learned(model)}
    return Completed(mean, None, mean[None], *(one[None] for one in _parameters(model, point)))


ENGINES: dict[str, Callable[..., Completed]] = {
    "gibbs": _by_gibbs,
    "exact": _by_exact,
    "em": _by_em,
}
