"""Rank-one kernels of the eigenvectors of a kernel, with weights to be learned."""

from typing import Any

import numpy as np
import xarray as xr

from ...validation import argument_error, check_count
from .stack import DIMS, as_stack

__all__ = ["eigenvector_kernels"]


def eigenvector_kernels(gram: Any, count: int | None = None) -> xr.DataArray:
    r"""Split a kernel into the rank-one kernels of its eigenvectors.

    .. math:: K = \sum_n \lambda_n u_n u_n' \quad\to\quad K_n = u_n u_n'

    A model that learns weights beta has the composite kernel :math:`\sum_n \beta_n u_n u_n'`, whose
    alignment with labels may be far better than that of K. K must contain all objects, labelled or
    not: the rank-one kernels cannot be evaluated at new objects.

    Parameters
    ----------
    gram : array (obs, obs), DataFrame, or stack (1, obs, obs)
        One kernel, symmetric positive semidefinite.
    count : int, optional
        Number of eigenvectors, by decreasing eigenvalue. Default: all with eigenvalues above
        rounding error.

    Returns
    -------
    DataArray (kernel, obs, basis)
        Kernels of trace 1, named "1", "2", ... by decreasing eigenvalue, with the labels of `gram`.
        The coordinate ``eigenvalue`` (kernel) has the eigenvalues divided by their sum, the weights
        of the kernels in K scaled to trace 1.

    Raises
    ------
    ValueError
        For input that is not one kernel, a kernel of zeros, and a `count` above the number of
        nonzero eigenvalues.

    Notes
    -----
    Costs one eigendecomposition, O(N^3), and memory for `count` matrices of N x N numbers.

    References
    ----------
    M. Girolami and S. Rogers (2005), Hierarchic Bayesian models for kernel learning, ICML: section
    6.1, Figures 2 and 3. N. Cristianini, J. Shawe-Taylor, A. Elisseeff and J. Kandola (2002), On
    kernel-target alignment, NIPS 14.

    Examples
    --------
    >>> kernels = kz.kernels.eigenvector_kernels(kz.gaussian(0.5)(X_train), 5)
    >>> uniform = kz.combinations.DirichletWeights(varphi=1)
    >>> first = y_train == y_train[0]
    >>> model = kz.CompositeKernelClassification(kernels, first, combination=uniform)
    >>> kz.fit(model, "map")["point"]["beta"]
    """
    owner = "eigenvector_kernels"
    stack = as_stack(gram, owner=owner, argument="gram")
    if len(stack) > 1 or not np.array_equal(stack["obs"], stack["basis"]):
        labelled = "with the labels of the objects on both sides"
        raise argument_error("gram", owner, f"one square kernel {labelled}", f"shape {stack.shape}")
    eigenvalues, vectors = np.linalg.eigh(stack.values[0])
    eigenvalues, vectors = eigenvalues[::-1], vectors.T[::-1]
    rank = int((eigenvalues > len(eigenvalues) * np.finfo(float).eps * eigenvalues[0]).sum())
    if rank < 1:
        raise argument_error("gram", owner, "a kernel with an eigenvalue above 0", "none above 0")
    count = rank if count is None else check_count(count, "count", owner)
    if not 1 <= count <= rank:
        raise argument_error("count", owner, f"at most {rank}, the rank of the kernel", f"{count}")
    chosen = vectors[:count]
    return xr.DataArray(
        chosen[:, :, None] * chosen[:, None, :],
        dims=DIMS,
        coords={
            "kernel": [str(n) for n in range(1, count + 1)],
            "obs": stack["obs"].values,
            "basis": stack["basis"].values,
            "eigenvalue": ("kernel", eigenvalues[:count] / eigenvalues[:rank].sum()),
        },
        name="kernels",
    )
