"""Random Fourier features of kernels k(x - x') with a known spectral distribution.

With frequencies omega_1..omega_F drawn from the spectral distribution, the 2 F features of x are

    phi(x) = F^(-1/2) (cos omega_f'x, sin omega_f'x),    E phi(x)'phi(x') = k(x, x').

The variance of phi(x)'phi(x') is at most 1 / F, and phi(x)'phi(x) = 1.  A cosine and a sine of each
frequency vary less than cosines with random phases (Sutherland & Schneider 2015, On the error
of random Fourier features), which ``sklearn.kernel_approximation.RBFSampler`` has, for Gaussian
kernels only.

Rahimi & Recht (2007), Random features for large-scale kernel machines, table of figure 1;
Rasmussen & Williams (2006), Gaussian processes for machine learning, eq 4.15 (Matern); Yu, Suresh,
Choromanski, Holtmann-Rice & Kumar (2016), Orthogonal random features, eq 4.
"""

from dataclasses import dataclass
from functools import singledispatch
from typing import Any, override

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from ...validation import argument_error
from .base import BaseKernel, Covariance, Gaussian, Laplace
from .kernel_features import FeatureMap, KernelFeatures
from .rows import Rows

__all__ = ["RandomFeatures", "check_frequencies", "frequencies"]


@dataclass(frozen=True)
class RandomFeatures(KernelFeatures):
    """Random Fourier features of a kernel.

    Parameters
    ----------
    base : BaseKernel
    n_components : int
        Number of features M, even.
    seed : int
        The same seed and number of columns give the same frequencies.
    orthogonal : bool
        Whether frequencies of one block of D are orthogonal (Yu et al. 2016).
    """

    n_components: int
    seed: int
    orthogonal: bool

    kind = "random features"

    @override
    def fitted(self, X: Rows) -> FeatureMap:
        rng = np.random.default_rng(self.seed)
        directions = _normal_vectors(self.n_components // 2, X.shape[1], rng, self.orthogonal)
        return _Waves(frequencies(self.base, directions, rng))


@dataclass(frozen=True)
class _Waves:
    """Cosines and sines of frequencies (F, D)."""

    omega: NDArray

    @property
    def n_features(self) -> int:
        return 2 * len(self.omega)

    @property
    def constants(self) -> tuple[NDArray, ...]:
        return (self.omega,)

    def __call__(self, X: NDArray) -> NDArray:
        phases = X @ self.omega.T
        out = np.empty((len(X), self.n_features))
        np.cos(phases, out=out[:, : len(self.omega)])
        np.sin(phases, out=out[:, len(self.omega) :])
        out /= np.sqrt(len(self.omega))
        return out


def _normal_vectors(
    n: int, n_columns: int, rng: np.random.Generator, orthogonal: bool
) -> NDArray[np.float64]:
    """Draw standard normal vectors (n, D); if orthogonal, those of each D are; O(n D^2)."""
    z = rng.normal(size=(-(-n // n_columns), n_columns, n_columns))
    if orthogonal:
        directions, triangle = np.linalg.qr(z)
        # Signs make the directions uniform (Mezzadri 2007); lengths are those of normal vectors.
        directions *= np.sign(np.diagonal(triangle, axis1=1, axis2=2))[:, None, :]
        lengths = np.sqrt(rng.chisquare(n_columns, size=z.shape[:2]))
        z = directions * lengths[:, :, None]
    return z.reshape(-1, n_columns)[:n]


@singledispatch
def frequencies(base: BaseKernel, z: NDArray, rng: np.random.Generator) -> NDArray:
    """Frequencies (F, D) of a kernel from standard normal vectors z (F, D).

    Register a stationary kernel of your own: its frequencies have the distribution whose
    characteristic function is k(x - x').
    """
    raise _no_frequencies(base)


def check_frequencies(base: BaseKernel) -> None:
    """Raise unless a kernel has random features."""
    unknown = frequencies.dispatch(type(base)) is frequencies.dispatch(BaseKernel)
    if unknown or (isinstance(base, Covariance) and type(base.function) not in DEGREES):
        raise _no_frequencies(base)


def _no_frequencies(base: BaseKernel) -> ValueError:
    return argument_error(
        "kernels",
        "random_features",
        "gaussian, laplace, or covariance of pm.gp.cov.ExpQuad, Matern12, Matern32 or Matern52 "
        "(for other kernels use nystroem)",
        repr(base.describe(None)),
    )


@frequencies.register
def _(base: Gaussian, z: NDArray, rng: np.random.Generator) -> NDArray:
    return z * np.sqrt(2 * _gamma(base, z))


@frequencies.register
def _(base: Laplace, z: NDArray, rng: np.random.Generator) -> NDArray:
    """Cauchy, as the ratio of two normal variables."""
    return z * _gamma(base, z) / np.abs(rng.normal(size=z.shape))


def _gamma(base: Gaussian | Laplace, z: NDArray) -> float:
    return 1 / z.shape[1] if base.number is None else base.number


#: Twice the smoothness of Matern covariances: their frequencies are t with so many degrees.
DEGREES: dict[type, float] = {
    pm.gp.cov.ExpQuad: np.inf,
    pm.gp.cov.Matern12: 1.0,
    pm.gp.cov.Matern32: 3.0,
    pm.gp.cov.Matern52: 5.0,
}


@frequencies.register
def _(base: Covariance, z: NDArray, rng: np.random.Generator) -> NDArray:
    function: Any = base.function
    degrees = DEGREES[type(function)]
    omega = np.zeros_like(z)
    active = np.asarray(function.active_dims)
    omega[:, active] = z[:, active] / np.asarray(function.ls.eval(mode="FAST_COMPILE"))
    if np.isfinite(degrees):
        omega *= np.sqrt(degrees / rng.chisquare(degrees, size=len(z)))[:, None]
    return omega
