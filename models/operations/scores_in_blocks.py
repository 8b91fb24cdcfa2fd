"""Scores of objects whose kernels are in blocks, as one operation with its gradient."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, override

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor import TensorLike, TensorVariable

from ..kernels.stack_in_blocks import StackInBlocks

__all__ = ["ScoresInBlocks", "scores_in_blocks"]


@dataclass(frozen=True)
class ScoresInBlocks(Op):
    """Scores (N, C) of weights beta (S,) and regressors W (C, M): sum_s beta_s K_s W'.

    Each evaluation is a pass over the blocks, O(S N M C).
    """

    stack: StackInBlocks
    __props__ = ("stack",)
    gufunc_signature = "(s),(c,m)->(n,c)"

    @override
    def make_node(self, beta: TensorLike, W: TensorLike) -> Apply:  # type: ignore[override]
        inputs: list[Any] = [pt.as_tensor(x).astype("float64") for x in (beta, W)]
        shape = (len(self.stack), inputs[1].type.shape[0])
        return Apply(self, inputs, [pt.tensor(dtype="float64", shape=shape)])

    @override
    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        output_storage[0][0] = np.concatenate(self.stack.over(_scores, *inputs))

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Shape of the scores from those of the weights and regressors."""
        return [(len(self.stack), shapes[1][0])]

    @override
    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        slopes: Any = _SlopesInBlocks(self.stack)(*inputs, *cotangents)
        return list(slopes)

    def __str__(self) -> str:
        return type(self).__name__


@dataclass(frozen=True)
class _SlopesInBlocks(Op):
    """Slopes of sum(G * scores) in the weights (S,) and in the regressors (C, M)."""

    stack: StackInBlocks
    __props__ = ("stack",)

    @override
    def make_node(self, beta: TensorLike, W: TensorLike, G: TensorLike) -> Apply:  # type: ignore[override]
        inputs: list[Any] = [pt.as_tensor(x).astype("float64") for x in (beta, W, G)]
        return Apply(self, inputs, [x.type() for x in inputs[:2]])

    @override
    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        beta, W, G = inputs
        of_beta, of_W = self.stack.sums(_slopes, beta, W, by_object=[self.stack.parts(G)])
        output_storage[0][0], output_storage[1][0] = of_beta, of_W

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Shapes of the slopes, those of what they are in."""
        return [*shapes[:2]]

    def __str__(self) -> str:
        return type(self).__name__


def scores_in_blocks(stack: StackInBlocks, beta: TensorLike, W: TensorLike) -> TensorVariable:
    """Scores (N, C) of weights (S,) and regressors (C, M), by a pass over the blocks."""
    scores: Any = ScoresInBlocks(stack)(beta, W)
    return scores


def _scores(block: np.ndarray, beta: np.ndarray, W: np.ndarray) -> np.ndarray:
    return np.tensordot(beta, block @ W.T, axes=1)


def _slopes(
    block: np.ndarray, G: np.ndarray, beta: np.ndarray, W: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    by_kernel = G.T @ block
    return np.tensordot(by_kernel, W, axes=2), np.tensordot(beta, by_kernel, axes=1)
