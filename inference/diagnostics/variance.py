"""Variance explained by each kernel of a regression."""

import numpy as np
from xarray import DataArray, Dataset, DataTree

from ...user_warnings import numpy_warnings
from ...validation import argument_error
from ..engine.predict import tracked_blocks

OWNER = "variance_explained"
MODEL = "CompositeKernelRegression"


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
    family = result.attrs.get("family", "") if isinstance(result, DataTree) else ""
    if family != MODEL:
        got = f"one of {family}" if family else f"a {type(result).__name__} of no model"
        raise argument_error("result", OWNER, f"a result of fit on {MODEL}", got)
    posterior = result["posterior"].to_dataset() if "posterior" in result.children else Dataset()
    if lacking := [name for name in ("alpha", "gamma") if name not in posterior]:
        rule = "a result with draws of alpha and gamma (collapsed=False)"
        raise argument_error("result", OWNER, rule, f"none of {', '.join(lacking)}")
    data = result["constant_data"].to_dataset()
    if "K" not in data:
        rule = "a result on kernels in memory"
        raise argument_error("result", OWNER, rule, "one on kernels in a Dask array")
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
