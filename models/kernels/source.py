"""Where the kernels of a declaration come from, the one question that engines ask them.

Here are kernels in memory, completed kernels, several draws of each, and Gaussian kernels with
parameters to learn, theta ~ Gamma(omega, phi). Notation (Damoulas & Girolami 2009, section 3.1):
theta_sd is the parameter of kernel s for dimension d of its feature space, by default one number
for all dimensions; omega and phi are the shape and the rate of its Gamma prior.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import NDArray
from pytensor.tensor import TensorVariable

from ...validation import Positive, check_arguments

DIMS = ("kernel", "obs", "basis")
#: Coordinate (kernel, obs) of kernels of new objects: the variance k(x, x) of each.
VARIANCE = "variance"
#: Coordinate (basis) of columns at landmarks: the label of the object that each one is.
LANDMARK = "landmark"


class KernelSource:
    """Kernels of a declaration: its data ``K``, if it has kernels.

    Subclasses are `CompletedRows`, whose draws replace the data, `ParametricStack`, whose
    parameters are learned, and `ChunkedStack`, of which the data are a part.
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

    def declare(self, stack: xr.DataArray) -> TensorVariable:
        """Declare data in the open model; the kernels (kernel, obs, basis)."""
        n_kernels, _, n_basis = stack.shape
        # ``pm.set_data`` can change the number of objects alone.
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


#: Source of kernels that are data of their model.
IN_MEMORY = KernelSource()


@dataclass(frozen=True, eq=False, repr=False)
class CompletedRows(KernelSource):
    """Completed kernels of some objects (rows) with some objects (columns), normalised.

    `mean` (kernel, obs, basis) serves where one stack is needed, `draws` are (completion, kernel,
    obs, basis). All draws are equal if the kernels are `complete`: these objects had all their
    rows. `key` is the fingerprint of the draws of all objects.
    """

    mean: xr.DataArray
    draws: NDArray
    complete: bool
    key: str

    def __len__(self) -> int:
        """Return the number of completions."""
        return len(self.draws)

    def __getitem__(self, completion: int) -> xr.DataArray:
        """Return one draw as a stack (kernel, obs, basis)."""
        return self.mean.copy(data=self.draws[completion])

    @override
    def stacks(self, stack: xr.DataArray) -> list[xr.DataArray]:
        return [stack, *(self[m] for m in range(len(self)))]


@dataclass(frozen=True)
class Theta:
    r"""Kernel parameter to learn, :math:`\theta \sim` Gamma(omega, phi), the paper's prior.

    Parameters
    ----------
    omega : float, default=1
        Shape of the prior, whose mean is omega / phi.
    phi : float, default=1
        Rate of the prior.
    ard : bool, default=False
        One parameter for each dimension of the feature space (automatic relevance determination)
        instead of one for all.

    Examples
    --------
    >>> kernels = kz.gaussian(kz.kernels.Theta(1, 13)) | kz.linear()
    >>> model = kz.MultinomialProbit(kernels(X_train), y_train)
    """

    omega: Positive = 1.0
    phi: Positive = 1.0
    ard: bool = False

    def __post_init__(self) -> None:
        check_arguments(Theta, vars(self))


@dataclass(frozen=True)
class LearnedKernel:
    """One kernel with parameters, at a position of a stack, of objects (n, D) and (N, D).

    `features` is the name of the model's data with the rows. Normalising keeps a Gaussian kernel.
    """

    name: str
    position: int
    theta: Theta
    features: str
    rows: NDArray
    columns: NDArray

    @cached_property
    def centre(self) -> NDArray:
        """Centre of the training objects (D,): a shift of all objects changes no difference."""
        return np.median(self.columns, axis=0)

    @property
    def labels(self) -> list[str]:
        """Labels of its parameters: its name, with the dimension's number for ARD."""
        if not self.theta.ard:
            return [self.name]
        return [f"{self.name} {d}" for d in range(self.columns.shape[1])]

    def tensor(self, theta: TensorVariable, rows: TensorVariable) -> TensorVariable:
        """Kernel (n, N) of objects with features `rows`, at parameters (n_parameters,)."""
        n_features = self.columns.shape[1]
        scales = theta if self.theta.ard else theta[0]
        function = pm.gp.cov.ExpQuad(n_features, ls=pt.sqrt(0.5 / scales))
        rows = pt.specify_shape(rows, (None, n_features)) - self.centre
        return function(rows, self.columns - self.centre)

    def evaluate(self, theta: NDArray, rows: slice) -> NDArray:
        """Kernel (n, N) of a slice of the objects, at parameters (n_parameters,)."""
        # scikit-learn's input validation takes longer than the kernel of a hundred objects.
        X = (self.rows[rows] - self.centre) * np.sqrt(theta)
        Y = (self.columns - self.centre) * np.sqrt(theta)
        exponent = X @ Y.T
        exponent *= 2.0
        exponent -= np.einsum("nd,nd->n", X, X)[:, None]
        exponent -= np.einsum("nd,nd->n", Y, Y)
        np.minimum(exponent, 0.0, out=exponent)
        return np.exp(exponent, out=exponent)


@dataclass(frozen=True)
class ParametricStack(KernelSource):
    """Stack of kernels, of which `learned` have parameters; `start` has their prior means."""

    start: xr.DataArray
    learned: tuple[LearnedKernel, ...]
    not_data: ClassVar[str] = "The kernels have parameters: kernel_source.evaluate gives them."

    @property
    @override
    def parameters(self) -> list[str]:
        return [name for kernel in self.learned for name in kernel.labels]

    @property
    @override
    def omega(self) -> NDArray[np.float64]:
        return np.array([kernel.theta.omega for kernel in self.learned for _ in kernel.labels])

    @property
    @override
    def phi(self) -> NDArray[np.float64]:
        return np.array([kernel.theta.phi for kernel in self.learned for _ in kernel.labels])

    @property
    def fixed(self) -> xr.DataArray:
        """The kernels without parameters."""
        learned = {kernel.position for kernel in self.learned}
        return self.start.isel(kernel=[s for s in range(len(self.start)) if s not in learned])

    @property
    def features(self) -> dict[str, NDArray]:
        """Features (n, D) of the objects that the parameters act on, by name."""
        return {kernel.features: kernel.rows for kernel in self.learned}

    @property
    @override
    def stand_ins(self) -> dict[str, NDArray]:
        fixed = self.fixed.to_numpy()
        return self.features | ({"K": fixed} if len(fixed) else {})

    @override
    def declare(self, stack: xr.DataArray) -> TensorVariable:
        """Declare theta, the features that it acts on and the kernels without parameters."""
        fixed = self.fixed
        K = None
        if len(fixed):
            labels = {"kernel_without_parameters": fixed["kernel"].values}
            K = pm.Data("K", fixed.values, dims=(*labels, *DIMS[1:]), coords=labels)
        features = {
            name: pm.Data(name, values, dims=("obs", f"feature_of_{name}"))
            for name, values in self.features.items()
        }
        pm.modelcontext(None).add_coord("parameter", self.parameters)
        theta = pm.Gamma("theta", alpha=self.omega, beta=self.phi, dims="parameter")
        return self.tensor(theta, features, K)

    def tensor(
        self, theta: TensorVariable, features: Mapping[str, Any], fixed: Any
    ) -> TensorVariable:
        """Stack (kernel, obs, basis) as a tensor, of data that stand for features and fixed."""
        matrices = {
            kernel.position: kernel.tensor(theta[part], pt.as_tensor(features[kernel.features]))
            for kernel, part in self.learned_parts()
        }
        others = [s for s in range(len(self.start)) if s not in matrices]
        matrices |= {s: fixed[i] for i, s in enumerate(others)}
        return pt.stack([matrices[s] for s in range(len(self.start))])

    @override
    def evaluate(self, theta: NDArray, rows: slice = slice(None)) -> NDArray[np.float64]:
        """Stack (kernel, obs, basis) of some objects at parameters (parameter,), a copy."""
        stack = self.start.to_numpy()[:, rows].copy()
        for kernel, part in self.learned_parts():
            stack[kernel.position] = kernel.evaluate(theta[part], rows)
        return stack

    @override
    def learned_parts(self) -> list[tuple[LearnedKernel, slice]]:
        ends = np.cumsum([0, *(len(kernel.labels) for kernel in self.learned)]).tolist()
        return list(zip(self.learned, map(slice, ends[:-1], ends[1:]), strict=True))
