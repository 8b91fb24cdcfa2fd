r"""Random variables shared by models of a kernel matrix, in blocks: 1 = training, 2 = test.

The blocks are those of Zhang, Yeung & Kwok (2004), eq (1), and of their mixture model (2003), eq
(3). With :math:`X_{22\cdot1} = X_{22} - X_{21} X_{11}^{-1} X_{12}`, the whole matrix is positive
definite for all values of the blocks (X11 and X22.1 positive definite). Call them in a model.
"""

from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor import TensorVariable

from ..distributions.normal import MatrixNormal, RegressionMatrix
from ..distributions.wishart import InverseWishart, Wishart
from ..operations.arrays import cholesky_or_nan, log_det, matrix_product, solve_lower


class Blocks(NamedTuple):
    """Blocks of Sigma: Sigma11 (n1, n1), Sigma22.1 (n2, n2) and its Cholesky factor, B (n2, n1)."""

    Sigma11: TensorVariable
    Sigma22_1: TensorVariable
    Sigma22_1_factor: TensorVariable
    B: TensorVariable


class Partition(NamedTuple):
    """Blocks of a matrix X: X11, its lower Cholesky factor, X22.1 and X21 X11^-1."""

    block11: TensorVariable
    factor11: TensorVariable
    schur: TensorVariable
    coefficients: TensorVariable


def partition(whole: TensorVariable, n1: int) -> Partition:
    """Blocks of a positive definite matrix (n, n). O(n^3)."""
    block11 = whole[:n1, :n1]
    block12 = whole[:n1, n1:]
    factor = cholesky_or_nan(block11)
    half = solve_lower(factor, block12)
    coefficients = solve_lower(factor, half, transposed=True).T
    return Partition(block11, factor, whole[n1:, n1:] - matrix_product(half.T, half), coefficients)


def declare_inverse_wishart(theta: TensorVariable, eta: TensorVariable | float, n1: int) -> Blocks:
    """Declare Sigma ~ IW(eta, theta) in blocks: ``Sigma11``, ``Sigma22_1`` and ``B``."""
    n2 = theta.type.shape[0] - n1
    parts = partition(theta, n1)
    Sigma11 = InverseWishart("Sigma11", eta - n2, parts.block11, dims=("train", "train_"))
    Sigma22_1 = InverseWishart("Sigma22_1", eta, parts.schur, dims=("test", "test_"))
    S = cholesky_or_nan(Sigma22_1)
    B = RegressionMatrix("B", parts.coefficients, S, parts.factor11, dims=("test", "train"))
    return Blocks(Sigma11, Sigma22_1, S, B)


def declare_kernel(sigma: Blocks, r: float, observed: TensorVariable, n1: int) -> None:
    """Declare K | Sigma ~ W(r, Sigma) in blocks: ``K11`` (observed), ``K21``, ``K22_1``.

    Deterministic variables: ``K22``, its trace and log det Sigma22.1.
    """
    Sigma11, Sigma22_1, S, B = sigma
    K11 = Wishart("K11", r, Sigma11, observed=observed, dims=("train", "train_"))
    C11 = cholesky_or_nan(K11)
    K21 = MatrixNormal("K21", matrix_product(B, K11), S, C11, dims=("test", "train"))
    K22_1 = Wishart("K22_1", r - n1, Sigma22_1, dims=("test", "test_"))

    explained = solve_lower(C11, K21.T)
    K22_values = K22_1 + matrix_product(explained.T, explained)
    pm.Deterministic("K22", K22_values, dims=("test", "test_"))
    pm.Deterministic("trace_K22", pt.trace(K22_1) + (explained**2).sum())
    pm.Deterministic("log_det_Sigma22_1", log_det(S))


def object_coords(labels: np.ndarray, n1: int) -> dict[str, np.ndarray]:
    """Coords of the dims object, train and test, and of the same dims of columns."""
    coords = {"object": labels, "train": labels[:n1], "test": labels[n1:]}
    return coords | {f"{dim}_": names for dim, names in coords.items()}
