"""What each kernel contributes: its probability of being selected, and the variance it explains."""

import arviz as az
import numpy as np
from xarray import DataArray, Dataset, DataTree

from ...user_warnings import numpy_warnings
from ...validation import argument_error, check_positive
from ..engine.predict import tracked_blocks
from ..engine.provenance import check_result


def inclusion(result: DataTree, *, threshold: float | None = None) -> Dataset:
    """Posterior probability of each kernel that it is selected, or that its weight is large.

    Parameters
    ----------
    result : DataTree
        Result of `fit` on a model with learned weights ``beta``.
    threshold : float, optional
        For weights that are not selections, which are never exactly zero: the probability is that
        of a weight above the threshold, and depends on it. On the simplex, 1 / K is the weight
        that K equal kernels have. Selections take none.

    Returns
    -------
    Dataset
        ``probability`` (kernel), the mean of the indicator over the draws, and ``mcse`` (kernel),
        its Monte Carlo standard error by ArviZ; with the dim output before kernel if each output
        has its own weights. The attribute ``event`` names the event. The error is NaN for a kernel
        whose indicator is the same in all draws: they do not tell how far the probability is from 0
        or 1. Draws of VB are of its approximation, whose bias the error leaves out.

    Raises
    ------
    ValueError
        For a point, a result without draws of the weights (a single kernel, fixed weights), weights
        without a threshold, a threshold that is not positive, or a threshold for selections.

    Examples
    --------
    >>> model = kz.CompositeKernelRegression(kernels(X), y, combination="binary")
    >>> kz.inclusion(kz.fit(model, "gibbs", random_seed=1))["probability"]
    """
    check_result(result, "result", "inclusion")
    included, event = _indicators(result, threshold)
    values = included.to_dataset(name="probability")
    moved = included.any(("chain", "draw")) & ~included.all(("chain", "draw"))
    return Dataset(
        {
            "probability": included.mean(("chain", "draw")),
            "mcse": az.mcse(values)["probability"].where(moved),
        },
        attrs={"event": event, "engine": result.attrs.get("engine", "")},
    )


def _indicators(result: DataTree, threshold: float | None) -> tuple[DataArray, str]:
    """Whether each draw includes each kernel (chain, draw, ..., kernel), as 0 or 1; the event."""
    if result.attrs.get("kind") == "point":
        engine = result.attrs.get("engine", "an engine of kind 'point'")
        raise argument_error("result", "inclusion", "a result with draws", f"the point of {engine}")
    weights = result["posterior"].get("beta") if "posterior" in result.children else None
    if weights is None or "kernel" not in weights.dims:
        rule = "a result with draws of the weights 'beta' (kernel)"
        raise argument_error("result", "inclusion", rule, "none")
    weights = weights.transpose("chain", "draw", ..., "kernel")
    if np.issubdtype(weights.dtype, np.integer):
        if threshold is not None:
            raise argument_error("threshold", "inclusion", "None for selections", repr(threshold))
        return (weights == 1).astype(float), "beta = 1"
    if threshold is None:
        rule = "a positive number for weights, which are never zero"
        raise argument_error("threshold", "inclusion", rule, "None")
    level = check_positive(threshold, "threshold", "inclusion")
    return (weights > level).astype(float), f"beta > {level:g}"


@numpy_warnings()
def variance_explained(result: DataTree) -> Dataset:
    r"""Part of the variance of a regression's targets that each kernel explains, at each draw.

    With the contributions :math:`f_k = \beta_k K_k \alpha` of the kernels to the responses of the
    training objects, :math:`f = \sum_k f_k` and noise of precision :math:`\gamma`, kernel k
    explains

    .. math:: R^2_k = \frac{\mathrm{Cov}(f_k, f)}{\mathrm{Var}(f) + 1/\gamma},

    where covariance and variance are over the training objects. The kernels add up to the Bayesian
    :math:`R^2` of Gelman et al. (2019), The American Statistician 73, equation 3.

    Parameters
    ----------
    result : DataTree
        Result of `fit` on a `CompositeKernelRegression`, with draws of alpha.

    Returns
    -------
    Dataset
        ``explained`` (chain, draw, kernel), and ``total`` (chain, draw), their sum, between 0 and
        1. Both have the dim output before kernel if the targets have it. ``az.summary`` gives means
        and intervals.

    Raises
    ------
    ValueError
        For a result of another model, and for one without draws of alpha (``collapsed=True``).

    Notes
    -----
    A kernel's part is negative where it takes back what others contribute, and kernels that say the
    same share what they explain in ways that the data do not determine: intervals show it. Draws of
    VB are too sure of it where they are too sure of the weights. O(draws K N M) time for each
    output, memory for a block of draws.

    Examples
    --------
    >>> model = kz.CompositeKernelRegression(kernels(X_train), response)
    >>> explained = kz.scores.variance_explained(kz.fit(model, "gibbs", random_seed=1))
    >>> az.summary(explained)
    """
    owner = "variance_explained"
    family = result.attrs.get("family", "") if isinstance(result, DataTree) else ""
    if family != (model := "CompositeKernelRegression"):
        got = f"one of {family}" if family else f"a {type(result).__name__} of no model"
        raise argument_error("result", owner, f"a result of fit on {model}", got)
    posterior = result["posterior"].to_dataset() if "posterior" in result.children else Dataset()
    if lacking := [name for name in ("alpha", "gamma") if name not in posterior]:
        rule = "a result with draws of alpha and gamma (collapsed=False)"
        raise argument_error("result", owner, rule, f"none of {', '.join(lacking)}")
    data = result["constant_data"].to_dataset()
    if "K" not in data:
        rule = "a result on kernels in memory"
        raise argument_error("result", owner, rule, "one on kernels in a Dask array")
    stack = data["K"].transpose("kernel", "obs", "basis").to_numpy()
    # Contributions of centred functions have mean zero over the objects; the bias has none.
    stack = stack - stack.mean(axis=1, keepdims=True)
    n_kernels, _, n_basis = stack.shape

    def draws(values: DataArray, last: str) -> np.ndarray:
        """Values (sample, output, last); outputs that share them have one."""
        dims = ["sample", *[d for d in ("output", last) if d in values.dims]]
        out = values.stack(sample=("chain", "draw")).transpose(*dims).to_numpy()
        return out if "output" in values.dims else out[:, None]

    alpha = draws(posterior["alpha"], "function")[..., -n_basis:]
    n_draws, n_outputs, _ = alpha.shape
    if "beta" in posterior:
        beta = draws(posterior["beta"], "kernel")
    else:
        beta = np.broadcast_to(data["beta"].to_numpy(), (n_draws, 1, n_kernels))
    gamma = draws(posterior["gamma"], "")
    explained = np.empty((n_draws, n_outputs, n_kernels))
    with tracked_blocks(n_draws, n_outputs * stack[..., 0].size, progressbar=False) as blocks:
        for block in blocks:
            # (kernel, obs, sample, output)
            f = np.tensordot(stack, alpha[block], axes=(2, 2))
            f *= np.moveaxis(beta[block], 2, 0)[:, None]
            explained[block] = np.einsum("knso,nso->sok", f, f.sum(axis=0)) / f.shape[1]
    variance = explained.sum(axis=2)
    explained /= (variance + 1 / gamma)[..., None]
    outputs = {"output": posterior["output"]} if "output" in posterior["alpha"].dims else {}
    coords = {"chain": posterior["chain"], "draw": posterior["draw"]} | outputs
    shape = tuple(len(each) for each in coords.values())
    by_kernel = DataArray(
        explained.reshape(*shape, n_kernels),
        coords=coords | {"kernel": data["kernel"]},
        dims=[*coords, "kernel"],
    )
    attributes = {"engine": result.attrs.get("engine", "")}
    return Dataset({"explained": by_kernel, "total": by_kernel.sum("kernel")}, attrs=attributes)
