"""Variance explained by each kernel of a regression."""

import numpy as np
from xarray import DataArray, Dataset, DataTree

from ...validation import argument_error
from ..engine.predictions_by_draw import tracked_blocks


def variance_of_kernels(result: DataTree, owner: str) -> Dataset:
    """Variance explained by each kernel; see `variance_explained`."""
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
