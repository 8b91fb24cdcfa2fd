"""Random variables whose draws are a graph of their parameters."""

from abc import abstractmethod
from typing import Any

import pytensor.tensor as pt
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.distributions.shape_utils import implicit_size_from_params, rv_size_is_none
from pymc.pytensorf import normalize_rng_param
from pytensor.tensor import TensorLike, TensorVariable
from pytensor.tensor.random.utils import normalize_size_param


class DrawnRV(SymbolicRandomVariable):
    """Random variable with the graph that `draws` makes."""

    @classmethod
    def rv_op(cls, *parameters: TensorLike, size: Any = None, rng: Any = None) -> TensorVariable:
        """Apply the variable to its parameters."""
        given = tuple(map(pt.as_tensor, parameters))
        rng = normalize_rng_param(rng)
        size = normalize_size_param(size)
        # Variables without graphs: PyTensor would rewrite those of parameters to infer shapes.
        inner = [parameter.type() for parameter in given]
        batch = size
        if rv_size_is_none(size):
            batch = implicit_size_from_params(*inner, ndims_params=cls.ndims_params)
        outputs = list(cls.draws(rng, tuple(batch), *inner))
        return cls(inputs=[rng, size, *inner], outputs=outputs)(rng, size, *given)

    @classmethod
    @abstractmethod
    def draws(cls, rng: Any, batch: tuple[Any, ...], *parameters: Any) -> tuple[Any, Any]:
        """Return the next generator and draws (*batch, ...)."""
