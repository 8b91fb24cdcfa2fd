"""The multinomial-probit log probability as one PyTensor operation.

As a graph of elementary operations, the quadrature takes longer to compile than the rest of a
model. Here it is one node with a value and an analytic gradient, the same on every linker: the
compiled loops of `kernelzoo.numerics.probit` for Python and numba, `linker_jax` for JAX.
"""

from collections.abc import Sequence
from typing import Any, override

import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.replace import _vectorize_node
from pytensor.tensor import TensorLike, TensorVariable

from ...numerics.probit import hessian, log_probability_and_gradient


class ProbitLogProbability(Op):
    """`log_probability_and_gradient` (N,) and (N, C) of scores (N, C) and class codes (N,)."""

    __props__ = ()
    gufunc_signature = "(n,c),(n)->(n),(n,c)"

    @override
    def make_node(self, f: TensorLike, t: TensorLike) -> Apply:  # type: ignore[override]
        scores: Any = pt.as_tensor(f).astype("float64")
        codes: Any = pt.as_tensor(t).astype("int64")
        n_objects = scores.type.shape[0] or codes.type.shape[0]
        outputs = [
            pt.tensor(dtype="float64", shape=(n_objects,)),
            pt.tensor(dtype="float64", shape=(n_objects, scores.type.shape[1])),
        ]
        return Apply(self, [scores, codes], outputs)

    @override
    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        output_storage[0][0], output_storage[1][0] = log_probability_and_gradient(*inputs)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Shapes of the outputs from those of the inputs."""
        return [(shapes[0][0],), shapes[0]]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Only the scores have gradients."""
        return [[True, True], [False, False]]

    @override
    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        of_value, of_gradient = cotangents
        terms = []
        if not isinstance(of_value.type, DisconnectedType):
            terms.append(of_value[:, None] * outputs[1])
        if not isinstance(of_gradient.type, DisconnectedType):
            terms.append((probit_hessian(*inputs) * of_gradient[:, None, :]).sum(-1))
        return [sum(terms[1:], terms[0]), DisconnectedType()()]


class ProbitHessian(Op):
    """Second derivatives (N, C, C) of log P(t | f) in the scores, Cov[y] - I."""

    __props__ = ()
    gufunc_signature = "(n,c),(n)->(n,c,c)"

    @override
    def make_node(self, f: Any, t: Any) -> Apply:  # type: ignore[override]
        n_objects, n_classes = f.type.shape
        shape = (n_objects, n_classes, n_classes)
        return Apply(self, [f, t], [pt.tensor(dtype="float64", shape=shape)])

    @override
    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        output_storage[0][0] = hessian(*inputs)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Shape of the derivatives from that of the scores."""
        return [(*shapes[0], shapes[0][1])]


_log_probability_and_gradient: Any = ProbitLogProbability()
probit_hessian: Any = ProbitHessian()


def probit_log_probability(f: TensorLike, t: TensorLike) -> TensorVariable:
    """Log probability (...) of classes (...), 0..C-1, given scores (..., C), which broadcast."""
    scores: Any = pt.as_tensor(f)
    codes: Any = pt.as_tensor(t)
    if codes.type.dtype.startswith("float"):
        # A cast alone would turn -0.5 into class 0.
        codes = pt.floor(codes)
    if (scores.ndim, codes.ndim) == (2, 1) and (
        scores.type.broadcastable[0] == codes.type.broadcastable[0]
    ):
        return _log_probability_and_gradient(scores, codes)[0]
    return _of_rows(_log_probability_and_gradient, scores, codes)[0]


def _of_rows(op: Any, scores: Any, codes: Any) -> list[Any]:
    """Apply the operation to scores (..., C) and codes (...), flattened to one set of objects."""
    shape = pt.broadcast_shape(scores[..., 0], codes)
    n_classes = scores.type.shape[-1] or scores.shape[-1]
    rows = pt.broadcast_to(scores, (*shape, n_classes)).reshape((-1, n_classes))
    log_p, gradient = op(rows, pt.broadcast_to(codes, shape).ravel())
    ndim = max(scores.ndim - 1, codes.ndim)
    return [log_p.reshape(shape, ndim=ndim), gradient.reshape((*shape, n_classes), ndim=ndim + 1)]


@_vectorize_node.register(ProbitLogProbability)
def _of_stack(op: ProbitLogProbability, node: Apply, scores: Any, codes: Any) -> list[Any]:
    """Evaluate a stack of sets as one set."""
    return _of_rows(op, scores, codes)
