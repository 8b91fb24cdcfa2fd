"""Where the kernels of a declaration come from: the one question that engines ask them."""

from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from pytensor.tensor import TensorVariable

from .warnings import warn_of_near_identity, warn_of_negligible

DIMS = ("kernel", "obs", "basis")


class KernelSource:
    """Kernels of a declaration: its data ``K``, if it has kernels.

    Subclasses are `CompletedRows`, whose draws replace the data, `ParametricStack`, whose
    parameters are learned, and `DaskStack`, which stays where Dask has it.
    """

    in_memory: ClassVar[bool] = True
    #: Labels of the parameters to learn, and the shapes and rates (P,) of their Gamma priors.
    parameters: Any = ()
    omega: Any = np.empty(0)
    phi: Any = np.empty(0)
    #: Data that stand for what the source holds, by name; ``pm.set_data`` may not change them.
    stand_ins: Any = MappingProxyType({})
    #: Why the kernels are not the data ``K`` of their model; empty if they are.
    not_data: ClassVar[str] = ""

    def declare(self, stack: xr.DataArray) -> TensorVariable | None:
        """Declare the data in the open model; kernels (kernel, obs, basis), None if not in memory.

        ``pm.set_data`` can change the number of objects alone.
        """
        n_kernels, _, n_basis = stack.shape
        return pm.Data("K", stack.values, dims=DIMS, shape=(n_kernels, None, n_basis))

    def stacks(self, stack: xr.DataArray) -> list[xr.DataArray]:
        """Stacks that the model may have as its data."""
        return [stack]

    def learned_parts(self) -> list[Any]:
        """Kernels with parameters, and the slices of their parameters."""
        return []

    def evaluate(self, theta: NDArray) -> NDArray[np.float64]:
        """Kernels (kernel, obs, basis) at parameters (P,)."""
        raise TypeError("Kernels without parameters are the data of their model.")

    def warn(self, stack: xr.DataArray, owner: str, spread: float) -> None:
        """Warn of kernels from which regressors of a spread can learn little."""
        warn_of_negligible(stack, owner, spread)
        warn_of_near_identity(stack, owner)


#: Source of kernels that are data of their model.
IN_MEMORY = KernelSource()
