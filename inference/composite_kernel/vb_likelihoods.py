"""Likelihood terms of the composite-kernel models' mean field, and their passes over kernels.

Both are sum_n l_n f_n - w_n f_n^2 / 2 for f = K_beta alpha: regression has w = gamma and l = gamma
t; classification, by Jaakkola's bound at xi, w = 2 lambda(xi) and l = t - 1/2 (t = 0, 1). Equations
and notation as in `vb`.

Regression forms its sums over the objects once. In classification an iteration passes twice over
blocks of objects, or chunks of a Dask array: the square roots of the weights (N,) go to the blocks,
a matrix (M, M) comes from one of them, and moments (pairs of kernels, N) come from all.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas, lapack
from scipy.special import log_expit

from ...models.composite_kernel import (
    Basis,
    CompositeKernelClassification,
)
from ...models.kernels.dask_stack import DaskStack
from ...numerics.kernel_products import KernelProducts
from ...numerics.threads import InMemory, blocks_of
from ..variational.factors import Gamma, Variables, precision_factor

type Array = npt.NDArray[np.float64]

# Below this xi, tanh(xi / 2) / (2 xi) is 1/4 to all digits.
LEAST_XI = 1e-8


class Regressors(NamedTuple):
    """The factor Q(alpha) of P outputs, and moments of f_k = K_k alpha that later steps need.

    `mean` and `var` are (P, M); `log_det` is the log determinant of the covariance, summed over the
    outputs. `linear` (G, K) or (K,) has the sums over the objects of E[f_k] times t, or t - 1/2,
    and `second` E[f_i f_j]: (G, K, K) summed over the objects and the outputs of each of G noise
    precisions, or (pairs of kernels, N).
    """

    mean: Array
    var: Array
    log_det: float
    linear: Array
    second: Array


def jaakkola_precision(xi: Array) -> Array:
    """2 lambda(xi) = tanh(xi / 2) / (2 xi) of Jaakkola's bound of the logit."""
    xi = np.maximum(xi, LEAST_XI)
    return np.tanh(0.5 * xi) / (2 * xi)


@dataclass(frozen=True)
class Gaussian:
    """t_n ~ N(f_n, 1 / gamma): girolami2005, section 4.1, for each of P outputs.

    `projections` (P, K, M) are the targets' products with the kernels, `squares` (P,) those with
    themselves. `outputs` has the number of outputs of each of G noise precisions; with `own_noise`
    it is one, and Q(gamma) has one variable per output. Its rates (G,) are the `noise`. An
    iteration costs a Cholesky inverse of order M and O(K^2 M^2) for each noise precision, and
    O(P (K M + M^2)).
    """

    products: KernelProducts
    projections: Array
    squares: Array
    n_obs: int
    outputs: tuple[int, ...]
    own_noise: bool
    prior: Gamma

    @classmethod
    def of(
        cls,
        products: KernelProducts,
        projections: Array,
        targets: Array,
        prior: Gamma,
        shared_noise: bool = True,
    ) -> Self:
        """Targets are (N,), or (N, P) with one noise precision for all outputs or for each."""
        columns = np.atleast_2d(targets.T)
        n_outputs, n_obs = columns.shape
        squares = np.einsum("pn,pn->p", columns, columns)
        outputs = (n_outputs,) if shared_noise else (1,) * n_outputs
        return cls(products, projections, squares, n_obs, outputs, not shared_noise, prior)

    @property
    def _groups(self) -> list[slice]:
        """Outputs of each noise precision."""
        ends = np.cumsum(self.outputs)
        return [slice(end - n, end) for n, end in zip(self.outputs, ends, strict=True)]

    @property
    def _shape(self) -> float:
        """Shape of Q(gamma), section 4.1."""
        return self.prior.shape + 0.5 * self.n_obs * self.outputs[0]

    def start(self) -> Array:
        """Noise before the first iteration: E[gamma] = 1."""
        return np.full(len(self.outputs), self._shape)

    def factors(self, noise: Array) -> dict[str, Gamma]:
        """Factors of random variables by name."""
        return {"gamma": Gamma(self._shape, noise if self.own_noise else float(noise[0]))}

    def parameters(self, noise: Array) -> Variables:
        """Shape and rate of Q(gamma)."""
        rate = self.factors(noise)["gamma"].rate
        dims = ("output",) * np.ndim(rate)
        return {"gamma_shape": ((), self._shape), "gamma_rate": (dims, rate)}

    def precisions(
        self, noise: Array, phi: Array, beta_second: Array
    ) -> Iterator[tuple[int, Array, Array]]:
        """Lower Cholesky factors of the precisions of Q(alpha), and their diagonals.

        The number says of how many outputs, one after the other, the precision is.
        """
        for n_outputs, gamma in zip(self.outputs, self._shape / noise, strict=True):
            yield n_outputs, *precision_factor(self.products.gram(gamma * beta_second), phi)

    def regressors(
        self, noise: Array, phi: Array, beta_mean: Array, beta_second: Array
    ) -> Regressors:
        """Q(alpha)."""
        means, variances, log_det, seconds = [], [], 0.0, []
        targets = beta_mean @ self.projections
        gammas = self._shape / noise
        factors = self.precisions(noise, phi, beta_second)
        for gamma, group, (n_outputs, factor, pivots) in zip(
            gammas, self._groups, factors, strict=True
        ):
            log_det -= 2 * n_outputs * np.log(pivots).sum()
            inverse, _ = lapack.dpotri(factor, lower=True, overwrite_c=True)
            of_group = [blas.dsymv(float(gamma), inverse, t, lower=True) for t in targets[group]]
            means += of_group
            variances += [np.diag(inverse).copy()] * n_outputs
            # One triangle of the sum of E[alpha alpha'] is computed in the memory of the inverse.
            inverse *= n_outputs
            for mean in of_group:
                inverse = blas.dsyr(1.0, mean, lower=True, a=inverse, overwrite_a=True)
            moment = inverse.T
            moment *= self.products.fold
            seconds.append(self.products.traces(moment))
        mean = np.stack(means)
        linear = np.stack([p @ m for p, m in zip(self.projections, mean, strict=True)])
        linear = np.stack([linear[group].sum(axis=0) for group in self._groups])
        return Regressors(mean, np.stack(variances), log_det, linear, np.stack(seconds))

    def weights_terms(self, alpha: Regressors, noise: Array) -> tuple[Array, Array]:
        """Terms b (K,) and A (K, K) of log Q(beta) = b'beta - beta'A beta / 2 + ..."""
        gamma = self._shape / noise
        linear = (gamma[:, None] * alpha.linear).sum(axis=0)
        return linear, (gamma[:, None, None] * alpha.second).sum(axis=0)

    def noise(self, alpha: Regressors, beta_mean: Array, beta_second: Array) -> Array:
        """Rates of Q(gamma), section 4.1."""
        groups = zip(self._groups, alpha.linear, alpha.second, strict=True)
        squares = [
            self.squares[group].sum() - 2 * beta_mean @ linear + np.sum(beta_second * second)
            for group, linear, second in groups
        ]
        return self.prior.rate + 0.5 * np.array(squares)

    def bound(self, alpha: Regressors, noise: Array, beta_mean: Array) -> float:
        """Terms of the bound with t or the noise, which was updated last."""
        gamma = self.factors(noise)["gamma"]
        normaliser = len(self.outputs) * self.prior.log_constant - gamma.log_constant
        return normaliser - 0.5 * self.n_obs * len(self.squares) * np.log(2 * np.pi)


@dataclass(frozen=True)
class Bernoulli:
    """t_n ~ Bernoulli(1 / (1 + exp(-f_n))), by Jaakkola's bound: girolami2005, section 4.4.

    With B = E[beta beta'] = L L' and a precision of alpha C C', an iteration passes twice over
    blocks of the objects, in threads: for a symmetric product of the rows sqrt(w_n) L'k_n, and,
    after a Cholesky factorisation, for triangular products C^-1 k_kn, whose inner products are the
    covariances of f_k: O(K N M^2 + M^3 + K^2 N M), and the memory of a block per thread. Matrices
    (K, n, M) of a Dask array are made by `functions` when a chunk is read. The `noise` are the
    points xi (N,) where the bound touches the likelihood.
    """

    kernels: InMemory | DaskStack
    functions: Basis | None
    projections: Array
    n_obs: int

    @classmethod
    def of(cls, design: Array, labels: npt.NDArray[np.intp]) -> Self:
        """Keep the kernels (K, N, M); labels are 0 and 1."""
        return cls(InMemory(design), None, (labels - 0.5) @ design, len(labels))

    @classmethod
    def of_dask(cls, model: CompositeKernelClassification, stack: DaskStack) -> Self:
        """Form the products of the labels with the kernels (K, N, M), in one pass."""
        signs = model.label_codes - 0.5
        (products,) = stack.total(
            _projections_of_chunk, model.functions, by_object=[stack.parts(signs)]
        )
        return cls(stack, model.functions, products, len(signs))

    def start(self) -> Array:
        """Points before the first iteration."""
        return np.ones(self.n_obs)

    def factors(self, noise: Array) -> dict[str, Gamma]:
        """Empty: xi is not random."""
        return {}

    def parameters(self, noise: Array) -> Variables:
        """Name the points."""
        return {"xi": (("obs",), noise)}

    def precisions(
        self, noise: Array, phi: Array, beta_second: Array
    ) -> Iterator[tuple[int, Array, Array]]:
        """Yield the number 1, the lower Cholesky factor of the precision, and its diagonal."""
        size, vectors = np.linalg.eigh(beta_second)
        root = (vectors * np.sqrt(np.maximum(size, 0))).T
        scale = self.kernels.parts(np.sqrt(jaakkola_precision(noise)))
        (gram,) = self.kernels.total(_gram_of_chunk, self.functions, root, by_object=[scale])
        # BLAS returned Fortran order, which LAPACK needs, whatever the sums made of it.
        yield 1, *precision_factor(np.asfortranarray(gram).T, phi)

    def regressors(
        self, noise: Array, phi: Array, beta_mean: Array, beta_second: Array
    ) -> Regressors:
        """Q(alpha)."""
        ((_, factor, pivots),) = self.precisions(noise, phi, beta_second)
        log_det = -2 * np.log(pivots).sum()
        root, _ = lapack.dtrtri(factor, lower=True, overwrite_c=True)
        mean = beta_mean @ self.projections
        for transposed in (False, True):
            mean = blas.dtrmv(root, mean, lower=True, trans=transposed)
        moments = self.kernels.each(_moments_of_chunk, self.functions, root, mean)
        # BLAS left zeros above the diagonal.
        var = np.einsum("ij,ij->j", root, root)
        return Regressors(
            mean[None], var[None], log_det, self.projections @ mean, np.hstack(moments)
        )

    def weights_terms(self, alpha: Regressors, noise: Array) -> tuple[Array, Array]:
        """Terms b (K,) and A (K, K) of log Q(beta) = b'beta - beta'A beta / 2 + ..."""
        pairs = np.triu_indices(len(alpha.linear))
        curvature = np.empty((len(alpha.linear), len(alpha.linear)))
        curvature[pairs] = alpha.second @ jaakkola_precision(noise)
        curvature[pairs[::-1]] = curvature[pairs]
        return alpha.linear, curvature

    def noise(self, alpha: Regressors, beta_mean: Array, beta_second: Array) -> Array:
        """Points xi of the highest bound, section 4.4."""
        first, other = np.triu_indices(len(alpha.linear))
        coefficients = np.where(first == other, 1.0, 2.0) * beta_second[first, other]
        return np.maximum(np.sqrt(np.maximum(coefficients @ alpha.second, 0)), LEAST_XI)

    def bound(self, alpha: Regressors, noise: Array, beta_mean: Array) -> float:
        """Terms of the bound with t or the points, which were updated last."""
        touch = log_expit(noise) - 0.5 * noise
        return float(touch.sum() + beta_mean @ alpha.linear)


def products_with_targets(design: Array, columns: Array) -> Array:
    """Products (P, K, M) of targets (P, N) with the kernels (K, N, M)."""
    return np.stack([column @ design for column in np.ascontiguousarray(columns)])


def _weighted_gram(rows: Array, root: Array, scale: Array) -> Array:
    """Lower triangle of sum_n scale_n^2 sum_ij B_ij k_in k_jn' (M, M), for B = root' root.

    Rows are kernels (K, n, M) of a few objects; O(K^2 n M + K n M^2).
    """
    scaled = rows * scale[:, None]
    turned = root @ scaled.reshape(len(rows), -1)
    return blas.dsyrk(1.0, turned.reshape(-1, rows.shape[2]).T, lower=True)


def _second_moments(rows: Array, root: Array, mean: Array) -> Array:
    """E[f_i f_j] (pairs of kernels, n) of a few objects (K, n, M), in this thread.

    alpha has this mean and the covariance root' root, `root` lower triangular.
    """
    f = rows @ mean
    flat = rows.copy().reshape(-1, len(mean)).T
    turned = blas.dtrmm(1.0, root, flat, lower=True, overwrite_b=True).T.reshape(rows.shape)
    pairs = zip(*np.triu_indices(len(rows)), strict=True)
    return np.stack([np.einsum("nm,nm->n", turned[i], turned[j]) + f[i] * f[j] for i, j in pairs])


def _parts[T](
    chunk: npt.NDArray[np.floating], functions: Basis | None, of_rows: Callable[[Array, slice], T]
) -> Iterator[T]:
    """Values of a function on the matrices (K, n, M) of a few objects at a time."""
    for objects in blocks_of(chunk.shape[1]):
        rows = np.asarray(chunk[:, objects], dtype=float)
        yield of_rows(functions(rows) if functions else rows, objects)


def _total(arrays: Iterable[Array]) -> Array:
    return functools.reduce(np.add, arrays)


def sums_of_dask(
    stack: DaskStack, functions: Basis, targets: Array
) -> tuple[KernelProducts, Array]:
    """Products of the kernels with each other, and with the targets, in one pass; O(K^2 N M^2)."""
    columns = stack.parts(targets.reshape(len(targets), -1))
    products, projections = stack.total(_sums_of_chunk, functions, by_object=[columns])
    return KernelProducts(np.triu_indices(projections.shape[1]), products), projections


def _sums_of_chunk(
    chunk: npt.NDArray[np.floating], targets: Array, functions: Basis
) -> tuple[Array, Array]:
    products = _parts(chunk, functions, lambda rows, _: KernelProducts.of(rows).products)
    projections = _parts(
        chunk, functions, lambda rows, s: products_with_targets(rows, targets[s].T)
    )
    return _total(products), _total(projections)


def _projections_of_chunk(
    chunk: npt.NDArray[np.floating], signs: Array, functions: Basis
) -> tuple[Array]:
    return (_total(_parts(chunk, functions, lambda rows, s: signs[s] @ rows)),)


def _gram_of_chunk(
    chunk: npt.NDArray[np.floating], scale: Array, functions: Basis | None, root: Array
) -> tuple[Array]:
    return (_total(_parts(chunk, functions, lambda rows, s: _weighted_gram(rows, root, scale[s]))),)


def _moments_of_chunk(
    chunk: npt.NDArray[np.floating], functions: Basis | None, root: Array, mean: Array
) -> Array:
    moments = _parts(chunk, functions, lambda rows, _: _second_moments(rows, root, mean))
    return np.concatenate(list(moments), axis=1)
