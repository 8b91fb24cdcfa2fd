"""Likelihood terms of the composite-kernel models' mean field, and their passes over kernels.

Both are sum_n l_n f_n - w_n f_n^2 / 2 for f = K_beta alpha: regression has w = gamma and l = gamma
t; classification, by Jaakkola's bound at xi, w = 2 lambda(xi) and l = t - 1/2 (t = 0, 1). Equations
and notation as in `vb`.

Regression forms its sums over the objects once. In classification an iteration passes twice over
blocks of objects.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas, lapack
from scipy.special import log_expit

from ...numerics.kernel_products import KernelProducts
from ...numerics.threads import in_blocks, sums_over_blocks
from ..variational.factors import Gamma, precision_factor

type Array = npt.NDArray[np.float64]

# Below this xi, tanh(xi / 2) / (2 xi) is 1/4 to all digits.
LEAST_XI = 1e-8


class Regressors(NamedTuple):
    """The factor Q(alpha) of P outputs, and moments of f_k = K_k alpha that later steps need.

    `mean` and `var` are (P, M); `log_det` is of the covariances of all outputs. `linear` (G, K) or
    (K,) sums E[f_k] times t, or t - 1/2, over the objects, and `second` is E[f_i f_j]: (G, K, K)
    sums for each of G noise precisions, or (pairs of kernels, N).
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

    `projections` (G, P / G, K, M) are the targets' products with the kernels, by noise precision,
    and `squares` (G,) the sums of the targets' squares; the rates (G,) of Q(gamma) are the `noise`.
    With `own_noise` Q(gamma) has one variable per output. An iteration costs a Cholesky inverse of
    order M and O(K^2 M^2) for each noise precision, and O(P (K M + M^2)).
    """

    products: KernelProducts
    projections: Array
    squares: Array
    n_obs: int
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
        groups = (1, len(columns)) if shared_noise else (len(columns), 1)
        squares = np.einsum("pn,pn->p", columns, columns).reshape(groups).sum(axis=1)
        projections = projections.reshape(*groups, *projections.shape[1:])
        return cls(products, projections, squares, columns.shape[1], not shared_noise, prior)

    @property
    def sharing(self) -> int:
        """Number of outputs of each noise precision."""
        return self.projections.shape[1]

    @property
    def _shape(self) -> float:
        """Shape of Q(gamma), section 4.1."""
        return self.prior.shape + 0.5 * self.n_obs * self.sharing

    def start(self) -> Array:
        """Noise before the first iteration: E[gamma] = 1."""
        return np.full(len(self.squares), self._shape)

    def factors(self, noise: Array) -> dict[str, Gamma]:
        """Factors of random variables by name."""
        return {"gamma": Gamma(self._shape, noise if self.own_noise else float(noise[0]))}

    def precisions(
        self, noise: Array, phi: Array, beta_second: Array
    ) -> Iterator[tuple[Array, Array]]:
        """Lower Cholesky factors of the precisions of Q(alpha), and their diagonals; phi (M,)."""
        for gamma in self._shape / noise:
            yield precision_factor(self.products.gram(gamma * beta_second), phi)

    def regressors(
        self, noise: Array, phi: Array, beta_mean: Array, beta_second: Array
    ) -> Regressors:
        """Q(alpha)."""
        means = []
        variances = []
        log_det = 0.0
        seconds = []
        groups = self._shape / noise, beta_mean @ self.projections
        factors = self.precisions(noise, phi, beta_second)
        for gamma, targets, (factor, pivots) in zip(*groups, factors, strict=True):
            log_det -= 2 * self.sharing * np.log(pivots).sum()
            inverse, _ = lapack.dpotri(factor, lower=True, overwrite_c=True)
            of_group = [blas.dsymv(float(gamma), inverse, t, lower=True) for t in targets]
            means.append(of_group)
            variances += [np.diag(inverse).copy()] * self.sharing
            # One triangle of the sum of E[alpha alpha'] is computed in the memory of the inverse.
            inverse *= self.sharing
            for mean in of_group:
                inverse = blas.dsyr(1.0, mean, lower=True, a=inverse, overwrite_a=True)
            seconds.append(self.products.traces(inverse))
        linear = np.einsum("gpkm,gpm->gk", self.projections, means)
        mean = np.concatenate(means)
        return Regressors(mean, np.stack(variances), log_det, linear, np.stack(seconds))

    def weights_terms(self, alpha: Regressors, noise: Array) -> tuple[Array, Array]:
        """Terms b (K,) and A (K, K) of log Q(beta) = b'beta - beta'A beta / 2 + ..."""
        gamma = self._shape / noise
        return gamma @ alpha.linear, np.tensordot(gamma, alpha.second, axes=1)

    def noise(self, alpha: Regressors, beta_mean: Array, beta_second: Array) -> Array:
        """Rates of Q(gamma), section 4.1."""
        second = np.tensordot(alpha.second, beta_second, axes=2)
        squares = self.squares - 2 * alpha.linear @ beta_mean + second
        return self.prior.rate + 0.5 * squares

    def bound(self, alpha: Regressors, noise: Array, beta_mean: Array) -> float:
        """Terms of the bound with t or the noise, which was updated last."""
        gamma = self.factors(noise)["gamma"]
        normaliser = len(self.squares) * self.prior.log_constant - gamma.log_constant
        n_targets = self.n_obs * len(self.squares) * self.sharing
        return normaliser - 0.5 * n_targets * np.log(2 * np.pi)


@dataclass(frozen=True)
class Bernoulli:
    """t_n ~ Bernoulli(1 / (1 + exp(-f_n))), by Jaakkola's bound: girolami2005, section 4.4.

    With B = E[beta beta'] = L L' and a precision of alpha C C', an iteration passes twice over
    blocks of the objects, in threads: for a symmetric product of the rows sqrt(w_n) L'k_n, and,
    after a Cholesky factorisation, for triangular products C^-1 k_kn, whose inner products are the
    covariances of f_k: O(K N M^2 + M^3 + K^2 N M), and the memory of a block per thread. The
    `noise` are the points xi (N,) where the bound touches the likelihood.
    """

    sharing: ClassVar[int] = 1
    design: Array
    projections: Array

    @classmethod
    def of(cls, design: Array, labels: npt.NDArray[np.intp]) -> Self:
        """Form the products of labels 0 and 1 with the kernels (K, N, M), in one pass."""
        signs = np.asarray(labels - 0.5, dtype=float)

        def products(objects: slice) -> tuple[Array]:
            return (signs[objects] @ design[:, objects],)

        (projections,) = sums_over_blocks(products, len(signs))
        return cls(design, projections)

    @property
    def n_obs(self) -> int:
        """Number of objects N."""
        return self.design.shape[1]

    def start(self) -> Array:
        """Points before the first iteration."""
        return np.ones(self.n_obs)

    def factors(self, noise: Array) -> dict[str, Gamma]:
        """Empty: xi is not random."""
        return {}

    def precisions(
        self, noise: Array, phi: Array, beta_second: Array
    ) -> Iterator[tuple[Array, Array]]:
        """Yield the lower Cholesky factor of the precision, and its diagonal."""
        size, vectors = np.linalg.eigh(beta_second)
        root = (vectors * np.sqrt(np.maximum(size, 0))).T
        scale = np.sqrt(jaakkola_precision(noise))

        def squares(objects: slice) -> tuple[Array]:
            return (_weighted_square(self.design[:, objects], scale[objects], root),)

        (gram,) = sums_over_blocks(squares, self.n_obs)
        # BLAS returned Fortran order, which LAPACK needs, whatever the sums made of it.
        yield precision_factor(np.asfortranarray(gram).T, phi)

    def regressors(
        self, noise: Array, phi: Array, beta_mean: Array, beta_second: Array
    ) -> Regressors:
        """Q(alpha)."""
        ((factor, pivots),) = self.precisions(noise, phi, beta_second)
        log_det = -2 * np.log(pivots).sum()
        root, _ = lapack.dtrtri(factor, lower=True, overwrite_c=True)
        mean = beta_mean @ self.projections
        for transposed in (False, True):
            mean = blas.dtrmv(root, mean, lower=True, trans=transposed)

        def moments(objects: slice) -> Array:
            return _moments(self.design[:, objects], root, mean)

        second = np.hstack([*in_blocks(moments, self.n_obs)])
        # BLAS left zeros above the diagonal.
        var = np.einsum("ij,ij->j", root, root)
        return Regressors(mean[None], var[None], log_det, self.projections @ mean, second)

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


def _weighted_square(rows: Array, scale: Array, root: Array) -> Array:
    """Lower triangle of sum_n scale_n^2 sum_ij B_ij k_in k_jn' (M, M), for B = root' root.

    Of the matrices (K, n, M) of some objects: O(K^2 n M + K n M^2).
    """
    scaled = rows * scale[:, None]
    turned = (root @ scaled.reshape(len(rows), -1)).reshape(-1, rows.shape[2])
    return blas.dsyrk(1.0, turned.T, lower=True)


def _moments(rows: Array, root: Array, mean: Array) -> Array:
    """E[f_i f_j] (pairs of kernels, n), of the matrices (K, n, M) of some objects.

    alpha has this mean and the covariance root' root, `root` lower triangular.
    """
    f = rows @ mean
    flat = rows.copy().reshape(-1, len(mean)).T
    turned = blas.dtrmm(1.0, root, flat, lower=True, overwrite_b=True).T.reshape(rows.shape)
    pairs = [np.vecdot(turned[i], turned[i:]) + f[i] * f[i:] for i in range(len(rows))]
    return np.concatenate(pairs)
