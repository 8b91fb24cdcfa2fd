"""Completion of single kernels without a model: baselines for mutual completion."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import xarray as xr

from ...models.completion.incomplete import IncompleteKernel, IncompleteKernels
from ...validation import check_name

__all__ = ["impute_kernels"]

type Array = npt.NDArray[np.float64]

METHODS: dict[str, Callable[[IncompleteKernel], Array]] = {
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
