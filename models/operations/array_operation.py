"""Base class of the PyTensor operations of this folder."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar, override

import pytensor.tensor as pt
import wrapt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor import TensorLike
from pytensor.tensor.blockwise import Blockwise

__all__ = ["ArrayOperation"]


class ArrayOperation(Op):
    """Operation on float64 arrays with one output, with shapes given by its signature.

    Attributes
    ----------
    gufunc_signature : str
        Signature of a NumPy generalised ufunc, such as "(n,k),(k,m)->(n,m)".
    evaluate : callable (*operands) -> ndarray
        The operation on NumPy arrays; `array_numba` and `array_jax` have it for their linkers.

    Raises
    ------
    ValueError
        For operands of mismatched lengths: in the graph if they are known, otherwise in evaluation.
    """

    __props__: tuple[str, ...] = ()
    gufunc_signature: ClassVar[str]
    evaluate: ClassVar[Callable[..., Any]]

    @cached_property
    def _letters(self) -> tuple[Any, Any]:
        """Letters of the signature for each operand, and for the output."""
        each = Blockwise(self)
        return each.inputs_sig, each.outputs_sig[0]

    def make_node(self, *operands: TensorLike) -> Apply:
        """Return the node of a graph, whose output has all known lengths of the operands."""
        arrays: list[Any] = [pt.as_tensor(operand).astype("float64") for operand in operands]
        shape = self.output_shape([array.type.shape for array in arrays])
        return Apply(self, arrays, [pt.tensor(dtype="float64", shape=shape)])

    @override
    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        # LAPACK and NumPy accept some mismatched lengths.
        self.output_shape([operand.shape for operand in inputs])
        output_storage[0][0] = self.evaluate(*inputs)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Shape of the output from the shapes of the operands."""
        return [self.output_shape(shapes)]

    def output_shape(self, shapes: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
        """Shape of the output: integers, symbols, or None for unknown lengths."""
        operands, output = self._letters
        lengths: dict[str, Any] = {}
        for letters, shape in zip(operands, shapes, strict=True):
            for letter, length in zip(letters, shape, strict=True):
                known = lengths.get(letter)
                if known is None:
                    lengths[letter] = length
                elif isinstance(known, int) and isinstance(length, int) and known != length:
                    raise self.mismatch(shapes)
        return tuple(lengths[letter] for letter in output)

    def mismatch(self, shapes: Sequence[Sequence[Any]]) -> ValueError:
        """Error with the expected signature and the shapes given."""
        got = ", ".join(str(tuple(shape)) for shape in shapes)
        return ValueError(f"{type(self).__name__} has shapes {self.gufunc_signature}. Got {got}.")

    def each(self, *operands: Any) -> Any:
        """Apply the operation to one set of operands, or to each of a stack."""
        cores = self._letters[0]
        single = all(x.ndim == len(core) for x, core in zip(operands, cores, strict=True))
        return (self if single else Blockwise(self))(*operands)


# Implementations for a linker are imported only with the linker.
@wrapt.when_imported("pytensor.link.numba.dispatch")
def _register_numba(module: Any) -> None:
    from . import array_numba  # noqa: F401


@wrapt.when_imported("pytensor.link.jax.dispatch")
def _register_jax(module: Any) -> None:
    from . import array_jax  # noqa: F401
