"""Scores of objects whose kernels are a Dask array, as one operation of PyTensor."""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, override

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.replace import _vectorize_node
from pytensor.tensor import TensorLike, TensorVariable
from pytensor.tensor.blockwise import vectorize_node_fallback

from ..kernels.dask_stack import DaskStack, rows_of


class _StackOfModel:
    """Reference to a stack that a model owns: PyTensor keeps operations when models have gone."""

    def __init__(self, stack: DaskStack, keep: bool = False) -> None:
        self._stack = weakref.ref(stack)
        self._kept = stack if keep else None

    def __call__(self) -> DaskStack:
        """Return the stack; raise RuntimeError when its model has gone."""
        if (stack := self._stack()) is None:
            raise RuntimeError(
                "The kernels in a Dask array have gone with their model: keep the model."
            )
        return stack

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the stack: a process that gets an operation alone has no model that owns it."""
        return type(self), (self(), True)


@dataclass(frozen=True)
class DaskScores(Op):
    """Scores (N, C) of weights beta (S,) and regressors W (C, M): sum_s beta_s K_s W'.

    Each evaluation is a pass over the blocks, O(S N M C). Draws (draw, S) and (draw, C, M) have
    scores (draw, N, C) by one pass.
    """

    stack: _StackOfModel
    n_obs: int
    __props__ = ("stack", "n_obs")

    @override
    def make_node(self, beta: TensorLike, W: TensorLike) -> Apply:  # type: ignore[override]
        inputs: list[Any] = [pt.as_tensor(x).astype("float64") for x in (beta, W)]
        *draws, n_classes, _ = inputs[1].type.shape
        shape = (*draws, self.n_obs, n_classes)
        return Apply(self, inputs, [pt.tensor(dtype="float64", shape=shape)])

    @override
    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        beta, W = inputs
        found = self.stack().each(_scores, np.atleast_2d(beta), W.reshape(-1, *W.shape[-2:]))
        scores = np.concatenate(found, axis=1)
        output_storage[0][0] = scores if W.ndim == 3 else scores[0]

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Shape of the scores from those of the weights and regressors."""
        *draws, n_classes, _ = shapes[1]
        return [(*draws, self.n_obs, n_classes)]

    @override
    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        raise ValueError(
            "Scores of kernels in a Dask array have no gradient: use VB, or compute() of the stack."
        )

    def __str__(self) -> str:
        return type(self).__name__


@_vectorize_node.register(DaskScores)
def _of_draws(op: DaskScores, node: Apply, beta: Any, W: Any) -> Any:
    """One pass for all draws of the weights, the regressors or both."""
    if beta.ndim > 2 or W.ndim > 3 or node.inputs[1].type.ndim == 3:
        return vectorize_node_fallback(op, node, beta, W)
    draws = beta.shape[0] if beta.ndim == 2 else W.shape[0]
    weights = pt.broadcast_to(beta, (draws, beta.shape[-1]))
    return op.make_node(weights, pt.broadcast_to(W, (draws, *W.shape[-2:]))).outputs


def dask_scores(stack: DaskStack, beta: TensorLike, W: TensorLike) -> TensorVariable:
    """Scores (N, C) of weights (S,) and regressors (C, M), by a pass over the blocks."""
    scores: Any = DaskScores(_StackOfModel(stack), stack.stack.sizes["obs"])(beta, W)
    return scores


def _scores(block: np.ndarray, beta: np.ndarray, W: np.ndarray) -> np.ndarray:
    """Scores (draw, n, C) of draws of the weights (draw, S) and the regressors (draw, C, M)."""
    n_draws, n_classes, n_basis = W.shape
    f = np.zeros((block.shape[1], n_draws * n_classes))
    for kernel, weights in zip(block, beta.T, strict=True):
        weighted = (weights[:, None, None] * W).reshape(-1, n_basis).T
        for part in rows_of(block):
            f[part] += np.asarray(kernel[part], dtype=float) @ weighted
    return f.reshape(-1, n_draws, n_classes).transpose(1, 0, 2)
