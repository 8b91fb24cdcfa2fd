"""What the operations of this folder on PyTensor's graphs have in common."""

from collections.abc import Sequence
from typing import Any, ClassVar

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
    """

    __props__: tuple[str, ...] = ()
    gufunc_signature: ClassVar[str]

    def make_node(self, *operands: TensorLike) -> Apply:
        """Node of a graph; lengths that the operands know are known of the output."""
        arrays: list[Any] = [pt.as_tensor(operand).astype("float64") for operand in operands]
        shape = self.output_shape([array.type.shape for array in arrays])
        return Apply(self, arrays, [pt.tensor(dtype="float64", shape=shape)])

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Shape of the output from those of the operands."""
        return [self.output_shape(shapes)]

    def output_shape(self, shapes: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
        """Shape of the output: numbers, symbols, or None where a length is not known."""
        each = Blockwise(self)
        lengths: dict[str, Any] = {}
        for letters, shape in zip(each.inputs_sig, shapes, strict=True):
            for letter, length in zip(letters, shape, strict=True):
                if lengths.get(letter) is None:
                    lengths[letter] = length
        return tuple(lengths[letter] for letter in each.outputs_sig[0])

    def each(self, *operands: Any) -> Any:
        """Apply the operation to one set of operands, or to each of a stack of them."""
        each = Blockwise(self)
        single = all(x.ndim == len(core) for x, core in zip(operands, each.inputs_sig, strict=True))
        return (self if single else each)(*operands)
