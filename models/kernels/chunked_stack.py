"""Kernels at landmarks in a Dask array: their objects are read by chunks, where Dask has them."""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self, override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import NDArray
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.replace import _vectorize_node
from pytensor.tensor import TensorLike, TensorVariable
from pytensor.tensor.blockwise import vectorize_node_fallback

from ...validation import argument_error, check_unmasked
from .objects import check_chunks
from .source import KernelSource
from .stack import check_landmarks, compared_objects, labelled, rows_of_landmarks

type Function = Callable[..., Any]
type Parts = Sequence[Sequence[Any]]

#: Rows of a chunk that are converted to float64 at once.
ROWS = 4096
#: Chunks whose sums one task adds: fewer would make more tasks, with a latency each.
ADDED = 8


def rows_of(chunk: NDArray) -> Sequence[slice]:
    """Rows of a chunk (kernel, obs, basis) that are converted to float64 at once."""
    return [slice(start, start + ROWS) for start in range(0, chunk.shape[1], ROWS)]


class Chunks:
    """Passes over a stack (kernel, obs, basis) of a Dask array."""

    def __init__(self, stack: xr.DataArray):
        self.stack = stack
        stops = np.cumsum(stack.chunksizes["obs"]).tolist()
        #: Objects of each chunk.
        self.slices = [slice(a, b) for a, b in zip([0, *stops], stops, strict=False)]

    def parts(self, array: NDArray) -> list[NDArray]:
        """Parts of an array (N, ...) that go to the chunks in one pass."""
        return [array[rows] for rows in self.slices]

    def each(self, function: Function, *shared: Any, by_object: Parts = ()) -> list[Any]:
        """Values of a function (chunk (S, n, M), *parts, *shared) on each chunk, in their order."""
        import dask

        return list(dask.compute(*self._tasks(function, shared, by_object)))

    def total(self, function: Function, *shared: Any, by_object: Parts = ()) -> tuple[Any, ...]:
        """Add up what a function (chunk (S, n, M), *parts, *shared) returns: numbers and arrays.

        `shared` goes to each worker once; `by_object` are parts of arrays, by `parts`.
        Eight neighbours are added where they are, then eight of these sums, whatever the workers.
        """
        import dask

        parts = self._tasks(function, shared, by_object)
        add = dask.delayed(_added, pure=False)
        while len(parts) > 1:
            parts = [add(*parts[i : i + ADDED]) for i in range(0, len(parts), ADDED)]
        return dask.compute(parts[0])[0]

    def of_objects(self, rows: NDArray[np.intp]) -> NDArray:
        """Kernels (S, n, M) of some objects, in their order, in memory; one chunk at a time.

        Dask's own selection holds all chunks at once where the rows are in no order.
        """
        import dask

        order = np.argsort(rows, kind="stable")
        starts = [each.start for each in self.slices]
        # Positions of each chunk's rows, in the order of the chunks.
        positions = np.split(order, np.searchsorted(rows[order], starts[1:]))
        task = dask.delayed(_copied_rows, pure=False)
        chunks = zip(self._chunks, positions, starts, strict=True)
        parts = [task(chunk, rows[here] - start) for chunk, here, start in chunks if len(here)]
        together = np.concatenate(dask.compute(*parts), axis=1)
        values = np.empty_like(together)
        values[:, order] = together
        return values

    def _tasks(self, function: Function, shared: Sequence[Any], by_object: Parts) -> list[Any]:
        import dask

        task = dask.delayed(function, pure=False)
        # Data of the graph: otherwise each chunk's task would hold a copy, and as tasks of their
        # own they would make Dask compute all chunks before the first function.
        common = [dask.delayed(value, pure=False, traverse=False) for value in shared]
        chunks = zip(self._chunks, *by_object, strict=True)
        return [task(*chunk_and_parts, *common) for chunk_and_parts in chunks]

    @cached_property
    def _chunks(self) -> list[Any]:
        return list(self.stack.data.to_delayed().ravel())


def _added(*parts: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(sum(values[1:], values[0]) for values in zip(*parts, strict=True))


def _copied_rows(chunk: NDArray, rows: NDArray[np.intp]) -> NDArray:
    return np.asarray(chunk)[:, rows]


@dataclass(frozen=True, eq=False, repr=False)
class ChunkedStack(KernelSource):
    """Kernels at landmarks whose chunks of objects stay where Dask has or makes them.

    The data of the model are the kernels `own` (S, M, M) between landmarks, which are the objects
    in the rows `landmarks` (M,), and the kernels `compared` (S, R, M) of up to 40 objects, evenly
    spaced: results keep both, to tell whose they are.
    """

    chunks: Chunks
    landmarks: NDArray[np.intp]
    own: NDArray
    compared: NDArray
    in_memory: ClassVar[bool] = False
    not_data: ClassVar[str] = "The kernels are a Dask array: compute() of the stack loads them."

    @classmethod
    def of(cls, kernels: xr.DataArray, owner: str) -> Self:
        """Check a stack, and that its chunks hold what it promises; two passes."""
        whole = ".chunk({'kernel': -1, 'obs': 10_000, 'basis': -1})"
        check_chunks(kernels.chunksizes, "obs", "kernels", owner, whole)
        stack = labelled(kernels, None, owner, "kernels")
        if np.array_equal(stack["obs"].values, stack["basis"].values):
            rule = "in memory if they are Gram matrices; landmarks and features can be Dask arrays"
            got = "a Dask array whose labels of 'obs' and 'basis' are the same"
            raise argument_error("kernels", owner, rule, got)
        landmarks = rows_of_landmarks(stack, owner, "kernels")
        chunks = Chunks(stack)
        known = owner, stack["kernel"].values, stack.sizes["basis"]
        chunks.each(_check_chunk, *known, by_object=[chunks.slices])
        chosen = np.concatenate([landmarks, compared_objects(stack.sizes["obs"])])
        values = chunks.of_objects(chosen)
        own, compared = np.split(values, [len(landmarks)], axis=1)
        own_stack = stack.isel(obs=landmarks).copy(data=own)
        check_landmarks(own_stack, owner, "kernels")
        return cls(chunks, landmarks, own.astype(float), compared.astype(float))

    @property
    def stack(self) -> xr.DataArray:
        """The stack (kernel, obs, basis), in chunks."""
        return self.chunks.stack

    @property
    @override
    def stand_ins(self) -> dict[str, NDArray]:
        return {"K": self.own, "K_rows": self.compared}

    @override
    def declare(self, stack: xr.DataArray) -> TensorVariable:
        """Declare data in the open model; the kernels (kernel, landmark, basis)."""
        objects = stack["obs"].values
        compared = objects[compared_objects(len(objects))]
        coords = {"landmark": objects[self.landmarks], "compared": compared}
        pm.modelcontext(None).add_coords(coords)
        pm.Data("K_rows", self.compared, dims=("kernel", "compared", "basis"))
        return pm.Data("K", self.own, dims=("kernel", "landmark", "basis"))


def _check_chunk(chunk: NDArray, objects: slice, owner: str, names: NDArray, n_basis: int) -> None:
    """Raise unless a chunk has the shape that it promises, and all its numbers are finite."""
    expected = (len(names), objects.stop - objects.start, n_basis)
    if chunk.shape != expected or chunk.dtype.kind not in "fiub":
        rule = f"of chunks of real numbers of shape {expected}"
        got = f"{chunk.dtype}, shape {chunk.shape} in rows {objects.start} to {objects.stop - 1}"
        raise argument_error("kernels", owner, rule, got)
    check_unmasked(chunk, "kernels", owner)
    for part in rows_of(chunk):
        bad = np.argwhere(~np.isfinite(chunk[:, part]))
        if len(bad):
            kernel, row, column = bad[bad[:, 1].argmin()].tolist()
            got = f"NaN or infinity in kernel {names[kernel]}, "
            got += f"row {objects.start + part.start + row}, column {column}"
            raise argument_error("kernels", owner, "finite", got)


class _ChunksOfModel:
    """Reference to chunks that a model owns: PyTensor keeps operations when models have gone."""

    def __init__(self, chunks: Chunks, keep: bool = False) -> None:
        self._chunks = weakref.ref(chunks)
        self._kept = chunks if keep else None

    def __call__(self) -> Chunks:
        """Return the chunks; raise RuntimeError when their model has gone."""
        if (chunks := self._chunks()) is None:
            raise RuntimeError(
                "The kernels in a Dask array have gone with their model: keep the model."
            )
        return chunks

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the chunks: a process that gets an operation alone has no model that owns them."""
        return type(self), (self(), True)


@dataclass(frozen=True)
class ChunkedScores(Op):
    """Scores (N, C) of weights beta (S,) and regressors W (C, M): sum_s beta_s K_s W'.

    Each evaluation is a pass over the chunks, O(S N M C). Draws (draw, S) and (draw, C, M) have
    scores (draw, N, C) by one pass.
    """

    chunks: _ChunksOfModel
    n_obs: int
    __props__ = ("chunks", "n_obs")

    @override
    def make_node(self, beta: TensorLike, W: TensorLike) -> Apply:  # type: ignore[override]
        inputs: list[Any] = [pt.as_tensor(x).astype("float64") for x in (beta, W)]
        *draws, n_classes, _ = inputs[1].type.shape
        shape = (*draws, self.n_obs, n_classes)
        return Apply(self, inputs, [pt.tensor(dtype="float64", shape=shape)])

    @override
    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        beta, W = inputs
        found = self.chunks().each(_scores, np.atleast_2d(beta), W.reshape(-1, *W.shape[-2:]))
        scores = np.concatenate(found, axis=1)
        output_storage[0][0] = scores if W.ndim == 3 else scores[0]

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Shape of the scores from those of the weights and regressors."""
        *draws, n_classes, _ = shapes[1]
        return [(*draws, self.n_obs, n_classes)]

    @override
    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        raise ValueError(
            "Scores of kernels in a Dask array have no gradient: compute() of the stack loads them."
        )

    def __str__(self) -> str:
        return type(self).__name__


@_vectorize_node.register(ChunkedScores)
def _of_draws(op: ChunkedScores, node: Apply, beta: Any, W: Any) -> Any:
    """One pass for all draws of the weights, the regressors or both."""
    if beta.ndim > 2 or W.ndim > 3 or node.inputs[1].type.ndim == 3:
        return vectorize_node_fallback(op, node, beta, W)
    draws = beta.shape[0] if beta.ndim == 2 else W.shape[0]
    weights = pt.broadcast_to(beta, (draws, beta.shape[-1]))
    return op.make_node(weights, pt.broadcast_to(W, (draws, *W.shape[-2:]))).outputs


def chunked_scores(source: ChunkedStack, beta: TensorLike, W: TensorLike) -> TensorVariable:
    """Scores (N, C) of weights (S,) and regressors (C, M), by a pass over the chunks."""
    operation = ChunkedScores(_ChunksOfModel(source.chunks), source.stack.sizes["obs"])
    scores: Any = operation(beta, W)
    return scores


def _scores(chunk: NDArray, beta: NDArray, W: NDArray) -> NDArray:
    """Scores (draw, n, C) of draws of the weights (draw, S) and the regressors (draw, C, M)."""
    n_draws, n_classes, n_basis = W.shape
    f = np.zeros((chunk.shape[1], n_draws * n_classes))
    for kernel, weights in zip(chunk, beta.T, strict=True):
        weighted = (weights[:, None, None] * W).reshape(-1, n_basis).T
        for part in rows_of(chunk):
            f[part] += np.asarray(kernel[part], dtype=float) @ weighted
    return f.reshape(-1, n_draws, n_classes).transpose(1, 0, 2)
