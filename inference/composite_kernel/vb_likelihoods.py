"""Likelihood terms of the composite-kernel models' mean field.

Both are sum_n l_n f_n - w_n f_n^2 / 2 for f = K_beta alpha: regression has w = gamma and l = gamma
t; classification, by Jaakkola's bound at xi, w = 2 lambda(xi) and l = t - 1/2 (t = 0, 1). Equations
and notation as in `vb`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, Self, override

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas, lapack
from scipy.special import log_expit

from ...numerics.kernel_products import KernelProducts
from ..variational.gamma import Gamma
from ..variational.regressors import precision_factor

__all__ = ["Bernoulli", "Gaussian", "Likelihood", "Noise", "Regressors"]

type Array = npt.NDArray[np.float64]


# Below this xi, tanh(xi / 2) / (2 xi) is 1/4 to all digits.
LEAST_XI = 1e-8


class Regressors(NamedTuple):
    """The factor Q(alpha), and moments of f that later steps need.

    Attributes
    ----------
    mean, var : array (M,)
    log_det : float
        Log determinant of the covariance.
    linear : array (K,)
        Sum over the objects of E[f_k] times t, or t - 1/2; f_k = K_k alpha.
    second : array (K, K) or (pairs of kernels, N)
        E[f_i f_j], summed over the objects, or by object.
    """

    mean: Array
    var: Array
    log_det: float
    linear: Array
    second: Array


class Noise(Protocol):
    """Noise precision, or its counterpart in classification."""

    @property
    def factors(self) -> Mapping[str, Gamma]:
        """Factors of random variables by name."""

    @property
    def parameters(self) -> Mapping[str, tuple[tuple[str, ...], Array | float]]:
        """Dims and values of the parameters by name."""

    @property
    def coordinates(self) -> Array:
        """Logarithms (n,) of the quantities on which the other factors depend."""

    def at(self, coordinates: Array) -> Self:
        """Return the noise with these coordinates (n,)."""


class Likelihood[N: Noise](Protocol):
    """The steps of an iteration that differ between the models."""

    def start(self) -> N:
        """Noise before the first iteration."""

    def precision(self, noise: N, phi: Array, beta_second: Array) -> tuple[Array, Array]:
        """Lower Cholesky factor of the precision of Q(alpha) and its diagonal."""

    def regressors(self, noise: N, phi: Array, beta_mean: Array, beta_second: Array) -> Regressors:
        """Q(alpha)."""

    def weights_terms(self, alpha: Regressors, noise: N) -> tuple[Array, Array]:
        """Terms b (K,) and A (K, K) of log Q(beta) = b'beta - beta'A beta / 2 + ..."""

    def noise(
        self, alpha: Regressors, beta_mean: Array, beta_second: Array, priors: Mapping[str, Gamma]
    ) -> N:
        """Maximise the bound over the noise."""

    def bound(
        self, alpha: Regressors, noise: N, beta_mean: Array, priors: Mapping[str, Gamma]
    ) -> float:
        """Terms of the bound with t or the noise, which was updated last."""


@dataclass(frozen=True)
class NoisePrecision:
    """Q(gamma)."""

    gamma: Gamma

    @property
    def factors(self) -> Mapping[str, Gamma]:
        """Q(gamma) itself."""
        return {"gamma": self.gamma}

    @property
    def parameters(self) -> Mapping[str, tuple[tuple[str, ...], Array | float]]:
        """Its shape and rate."""
        return {"gamma_shape": ((), self.gamma.shape), "gamma_rate": ((), self.gamma.rate)}

    @property
    def coordinates(self) -> Array:
        """Logarithm of the rate."""
        return np.log([float(self.gamma.rate)])

    def at(self, coordinates: Array) -> Self:
        """Return the factor with another rate."""
        return replace(self, gamma=replace(self.gamma, rate=float(np.exp(coordinates[0]))))


@dataclass(frozen=True)
class Tangents:
    """Points xi (N,) where Jaakkola's bound touches the likelihood."""

    xi: Array

    @property
    def weight(self) -> Array:
        """2 lambda(xi) = tanh(xi / 2) / (2 xi)."""
        xi = np.maximum(self.xi, LEAST_XI)
        return np.tanh(0.5 * xi) / (2 * xi)

    @property
    def factors(self) -> Mapping[str, Gamma]:
        """Empty: xi is not random."""
        return {}

    @property
    def parameters(self) -> Mapping[str, tuple[tuple[str, ...], Array | float]]:
        """The points."""
        return {"xi": (("obs",), self.xi)}

    @property
    def coordinates(self) -> Array:
        """Logarithms of xi."""
        return np.log(np.maximum(self.xi, LEAST_XI))

    def at(self, coordinates: Array) -> Self:
        """Return other points."""
        return replace(self, xi=np.exp(coordinates))


@dataclass(frozen=True)
class Gaussian(Likelihood[NoisePrecision]):
    """t_n ~ N(f_n, 1 / gamma): girolami2005, section 4.1.

    An iteration costs a Cholesky inverse of order M and O(K^2 M^2).
    """

    products: KernelProducts
    projections: Array
    square: float
    n_obs: int

    @classmethod
    def of(cls, design: Array, targets: Array) -> Self:
        """Form the products of the kernels (K, N, M); O(K^2 N M^2)."""
        products = KernelProducts.of(design)
        return cls(products, targets @ design, float(targets @ targets), len(targets))

    @override
    def start(self) -> NoisePrecision:
        return NoisePrecision(Gamma(1.0, 1.0))

    @override
    def precision(
        self, noise: NoisePrecision, phi: Array, beta_second: Array
    ) -> tuple[Array, Array]:
        return precision_factor(self.products.gram(noise.gamma.mean * beta_second), phi)

    @override
    def regressors(
        self, noise: NoisePrecision, phi: Array, beta_mean: Array, beta_second: Array
    ) -> Regressors:
        factor, pivots = self.precision(noise, phi, beta_second)
        log_det = -2 * np.log(pivots).sum()
        inverse, _ = lapack.dpotri(factor, lower=True, overwrite_c=True)
        target = beta_mean @ self.projections
        mean = blas.dsymv(float(noise.gamma.mean), inverse, target, lower=True)
        var = np.diag(inverse).copy()
        # One triangle of E[alpha alpha'] is computed in the memory of the inverse.
        moment = blas.dsyr(1.0, mean, lower=True, a=inverse, overwrite_a=True).T
        moment *= self.products.fold
        second = self.products.traces(moment)
        return Regressors(mean, var, log_det, self.projections @ mean, second)

    @override
    def weights_terms(self, alpha: Regressors, noise: NoisePrecision) -> tuple[Array, Array]:
        gamma = noise.gamma.mean
        return gamma * alpha.linear, gamma * alpha.second

    @override
    def noise(
        self, alpha: Regressors, beta_mean: Array, beta_second: Array, priors: Mapping[str, Gamma]
    ) -> NoisePrecision:
        squares = self.square - 2 * beta_mean @ alpha.linear + np.sum(beta_second * alpha.second)
        prior = priors["gamma"]
        return NoisePrecision(Gamma(prior.shape + 0.5 * self.n_obs, prior.rate + 0.5 * squares))

    @override
    def bound(
        self,
        alpha: Regressors,
        noise: NoisePrecision,
        beta_mean: Array,
        priors: Mapping[str, Gamma],
    ) -> float:
        normaliser = priors["gamma"].log_constant - noise.gamma.log_constant
        return normaliser - 0.5 * self.n_obs * np.log(2 * np.pi)


@dataclass(frozen=True)
class Bernoulli(Likelihood[Tangents]):
    """t_n ~ Bernoulli(1 / (1 + exp(-f_n))), by Jaakkola's bound: girolami2005, section 4.4.

    `rows` (N, K, M) are the kernels by object, `work` memory of that size. With B = E[beta beta'] =
    L L' and a precision of alpha C C', an iteration is one symmetric product of the N K rows
    sqrt(w_n) L'k_n, a Cholesky factorisation, and one triangular product C^-1 k_kn, whose inner
    products are the covariances of f_k: O(K N M^2 + M^3 + K^2 N M).
    """

    rows: Array
    work: Array
    projections: Array

    @classmethod
    def of(cls, design: Array, labels: npt.NDArray[np.intp]) -> Self:
        """Arrange the kernels (K, N, M) by object; labels are 0 and 1."""
        rows = np.ascontiguousarray(design.transpose(1, 0, 2))
        return cls(rows, np.empty_like(rows), (labels - 0.5) @ design)

    @override
    def start(self) -> Tangents:
        return Tangents(np.ones(len(self.rows)))

    @override
    def precision(self, noise: Tangents, phi: Array, beta_second: Array) -> tuple[Array, Array]:
        size, vectors = np.linalg.eigh(beta_second)
        root = vectors * np.sqrt(np.maximum(size, 0))
        np.matmul(np.sqrt(noise.weight)[:, None, None] * root.T, self.rows, out=self.work)
        gram = blas.dsyrk(1.0, self.work.reshape(-1, len(phi)).T, lower=True)
        return precision_factor(gram.T, phi)

    @override
    def regressors(
        self, noise: Tangents, phi: Array, beta_mean: Array, beta_second: Array
    ) -> Regressors:
        factor, pivots = self.precision(noise, phi, beta_second)
        log_det = -2 * np.log(pivots).sum()
        root, _ = lapack.dtrtri(factor, lower=True, overwrite_c=True)
        mean = beta_mean @ self.projections
        for transposed in (False, True):
            mean = blas.dtrmv(root, mean, lower=True, trans=transposed)
        np.copyto(self.work, self.rows)
        flat = self.work.reshape(-1, len(phi)).T
        blas.dtrmm(1.0, root, flat, lower=True, overwrite_b=True)
        f = self.rows @ mean
        second = np.stack(
            [
                np.einsum("nm,nm->n", self.work[:, i], self.work[:, j]) + f[:, i] * f[:, j]
                for i, j in zip(*self._pairs, strict=True)
            ]
        )
        # BLAS left zeros above the diagonal.
        var = np.einsum("ij,ij->j", root, root)
        return Regressors(mean, var, log_det, self.projections @ mean, second)

    @property
    def _pairs(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        return np.triu_indices(self.rows.shape[1])

    @override
    def weights_terms(self, alpha: Regressors, noise: Tangents) -> tuple[Array, Array]:
        curvature = np.empty((len(alpha.linear), len(alpha.linear)))
        curvature[self._pairs] = alpha.second @ noise.weight
        curvature[self._pairs[::-1]] = curvature[self._pairs]
        return alpha.linear, curvature

    @override
    def noise(
        self, alpha: Regressors, beta_mean: Array, beta_second: Array, priors: Mapping[str, Gamma]
    ) -> Tangents:
        first, other = self._pairs
        coefficients = np.where(first == other, 1.0, 2.0) * beta_second[first, other]
        return Tangents(np.sqrt(np.maximum(coefficients @ alpha.second, 0)))

    @override
    def bound(
        self, alpha: Regressors, noise: Tangents, beta_mean: Array, priors: Mapping[str, Gamma]
    ) -> float:
        touch = log_expit(noise.xi) - 0.5 * noise.xi
        return float(touch.sum() + beta_mean @ alpha.linear)
