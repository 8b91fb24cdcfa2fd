"""What the operations of this folder on PyTensor's graphs have in common."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar, override

import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor import TensorLike
from pytensor.tensor.blockwise import Blockwise

__all__ = ["ArrayOperation"]


class ArrayOperation(Op):
    """Operation on float64 arrays with one output, of the shapes that its signature says.

    Attributes
    ----------
    gufunc_signature : str
        Lengths of operands and output by letters, as NumPy's generalised functions have it.
    evaluate : callable (*operands) -> ndarray
        The operation on NumPy's arrays.

    Raises
    ------
    ValueError
        For operands whose lengths disagree: in the graph where they are known, else in evaluation.
    """

    __props__: tuple[str, ...] = ()
    gufunc_signature: ClassVar[str]
    evaluate: ClassVar[Callable[..., Any]]

    @cached_property
    def _letters(self) -> tuple[Any, Any]:
        """Letters of each operand's lengths, and those of the output's."""
        each = Blockwise(self)
        return each.inputs_sig, each.outputs_sig[0]

    def make_node(self, *operands: TensorLike) -> Apply:
        """Node of a graph; lengths that the operands know are known of the output."""
        arrays: list[Any] = [pt.as_tensor(operand).astype("float64") for operand in operands]
        shape = self.output_shape([array.type.shape for array in arrays])
        return Apply(self, arrays, [pt.tensor(dtype="float64", shape=shape)])

    @override
    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        # LAPACK and NumPy would take some lengths that disagree.
        self.output_shape([operand.shape for operand in inputs])
        output_storage[0][0] = self.evaluate(*inputs)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Shape of the output from those of the operands."""
        return [self.output_shape(shapes)]

    def output_shape(self, shapes: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
        """Shape of the output: numbers, symbols, or None where a length is not known."""
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
        """Error that says which shapes are taken and which were got."""
        got = ", ".join(str(tuple(shape)) for shape in shapes)
        return ValueError(f"{type(self).__name__} has shapes {self.gufunc_signature}. Got {got}.")

    def each(self, *operands: Any) -> Any:
        """Apply the operation to one set of operands, or to each of a stack of them."""
        cores = self._letters[0]
        single = all(x.ndim == len(core) for x, core in zip(operands, cores, strict=True))
        return (self if single else Blockwise(self))(*operands)
