r"""Everything but the weights of the kernels, given the weights.

The model has scores f_nc = sum_m K_beta(n, m) w_cm, regressors w_cm ~ N(0, 1 / phi_cm), precisions
phi_cm ~ Gamma(shape, rate), and a likelihood of the scores that may have parameters of its own. It
is approximated in two layers:

- Given the precisions, each factor of the likelihood is replaced by exp(l'f - f'W f / 2), whose
  terms are expectations under the resulting normal distribution of the regressors. In regression
  that is exact.
- The precisions, with the regressors integrated out, are normal around their mode in coordinates z
  that are N(0, I) a priori. An observation says little about a single precision, so that the
  posterior of z is close to its prior, and nearly normal for tails of any weight. The regressors
  themselves, with the precisions integrated out, are Student's t and nowhere near normal.

The approximation is a proposal: `Conditional.evaluate` gives the exact ratio of the declaration's
density to it.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack, solve_triangular

from .coordinates import LOG_SQRT_2PI, LogGamma

__all__ = ["Conditional", "Likelihood", "Mode", "Sites", "cubature"]

type Array = npt.NDArray[np.float64]

# Newton steps end when no coordinate moves by more than this, and are at most this long.
MOVED = 0.02
LONGEST = 1.5
NEWTON_STEPS = 30
# Least curvature, relative to the prior's, of the precisions' coordinates and of eigenvalues.
LEAST_CURVATURE = 0.3
# Sites that are not exact are made wider, because ratios to too narrow a proposal have heavy tails.
WIDER = 0.85


class Sites(NamedTuple):
    """Normal approximation exp(l'f - f'W f / 2) of the likelihood's factors.

    Attributes
    ----------
    W : array (N, C, C)
    linear : array (N, C)
    """

    W: Array
    linear: Array


class Likelihood(Protocol):
    """Likelihood of the scores f (N, C), with E parameters of its own."""

    @property
    def n_scores(self) -> int:
        """Number C of scores of an object."""

    @property
    def is_normal(self) -> bool:
        """Whether the sites are exact."""

    @property
    def start(self) -> Array:
        """Parameters (E,), on the real line, at which a search begins."""

    def log_density(self, f: Array, own: Array) -> float:
        """Log likelihood, and log prior of the parameters."""

    def sites(self, mean: Array, cov: Array, own: Array) -> tuple[Sites, float]:
        """Sites, and expected log likelihood, for scores of mean (N, C) and covariance (N, C, C).

        The expected log likelihood contains the prior of the parameters.
        """

    def sites_given(self, sites: Sites, own: Array) -> Sites:
        """Sites at other parameters."""

    def own_terms(self, mean: Array, cov: Array, own: Array) -> tuple[Array, Array]:
        """Gradient (E,) and curvature (E,), positive, of the log density in the parameters."""


def cubature(mean: Array, cov: Array) -> Array:
    """Points (2 C, N, C) of equal weight that are exact for cubic functions of normal scores."""
    n_scores = mean.shape[1]
    jitter = 1e-12 * np.trace(cov, axis1=1, axis2=2)[:, None, None] + 1e-300
    root = np.linalg.cholesky(cov + jitter * np.eye(n_scores))
    away = np.sqrt(n_scores) * np.moveaxis(root, 2, 0)
    return np.concatenate([mean + away, mean - away])


class Mode(NamedTuple):
    """Normal approximation given the weights.

    Attributes
    ----------
    z : array (D,)
        Mode of the coordinates of the precisions and of the likelihood's parameters.
    root : array (D, D)
        Lower Cholesky factor of their precision matrix.
    sites : Sites
    log_evidence : float
        Approximate log density of the data given the weights.
    """

    z: Array
    root: Array
    sites: Sites
    log_evidence: float


class Point(NamedTuple):
    """Values of one particle: regressors (C, M), log precisions (C, M), parameters (E,)."""

    regressors: Array
    log_precisions: Array
    own: Array


@dataclass(frozen=True)
class Conditional:
    """The model given the composite kernel.

    Parameters
    ----------
    likelihood : Likelihood
    rate : float
        Rate of the precisions' prior.
    coordinate : LogGamma
        Coordinate of the precisions, with their prior's shape.
    n_functions : int
        Number M of regressors of a score.
    """

    likelihood: Likelihood
    rate: float
    coordinate: LogGamma
    n_functions: int

    @property
    def n_regressors(self) -> int:
        """Number C M of regressors."""
        return self.likelihood.n_scores * self.n_functions

    @property
    def size(self) -> int:
        """Number D of coordinates z."""
        return self.n_regressors + len(self.likelihood.start)

    def _factor(self, composite: Array, precisions: Array, sites: Sites) -> tuple[Array, Array]:
        """Lower Cholesky factor (C M, C M) of the regressors' precision, and their mean (C M,)."""
        n_scores, m = sites.W.shape[1], self.n_functions
        matrix = np.zeros((n_scores, m, n_scores, m))
        for a in range(n_scores):
            for b in range(a + 1):
                matrix[a, :, b] = (composite.T * sites.W[:, a, b]) @ composite
        flat = matrix.reshape(n_scores * m, -1)
        flat[np.diag_indices_from(flat)] += precisions
        # The transpose is in Fortran order, so that nothing is copied.
        factor, failed = lapack.dpotrf(flat.T, lower=False, overwrite_a=True, clean=False)
        if failed:
            raise np.linalg.LinAlgError("The precision of the regressors is not positive definite.")
        target = (composite.T @ sites.linear).T.ravel()
        mean, _ = lapack.dpotrs(factor, target, lower=False)
        return factor, mean

    def mode(self, composite: Array, near: Mode | None = None) -> Mode:
        """Find the mode of z by Newton's method; O(steps (N C^2 M^2 + C^3 M^3)).

        Parameters
        ----------
        composite : array (N, M)
        near : Mode, optional
            Mode for similar weights, where the search begins.
        """
        likelihood = self.likelihood
        n_scores, m, size = likelihood.n_scores, self.n_functions, self.n_regressors
        if near is None:
            z = np.concatenate([np.zeros(size), likelihood.start])
            none = np.zeros((len(composite), n_scores))
            spread = np.einsum("nm,nm->n", composite, composite)
            cov = (spread / (1 + spread))[:, None, None] * np.eye(n_scores)
            sites, _ = likelihood.sites(none, cov, likelihood.start)
        else:
            z, sites = near.z.copy(), near.sites
        for _ in range(NEWTON_STEPS):
            own = z[size:]
            log_precisions, first, second = self.coordinate.derivatives(z[:size])
            precisions = np.exp(log_precisions) / self.rate
            given = likelihood.sites_given(sites, own)
            factor, mean = self._factor(composite, precisions, given)
            cov, _ = lapack.dpotri(factor, lower=False)
            cov = np.triu(cov) + np.triu(cov, 1).T
            f = composite @ mean.reshape(n_scores, m).T
            blocks = cov.reshape(n_scores, m, n_scores, m)
            f_cov = np.stack(
                [
                    np.stack(
                        [
                            np.einsum("nm,nm->n", composite @ blocks[a, :, b], composite)
                            for b in range(n_scores)
                        ],
                        axis=1,
                    )
                    for a in range(n_scores)
                ],
                axis=1,
            )
            sites, expected = likelihood.sites(f, 0.5 * (f_cov + f_cov.mT), own)
            square = mean**2 + np.diag(cov)
            gradient = np.empty(self.size)
            curvature = np.zeros((self.size, self.size))
            slope = 0.5 * (1 - precisions * square)
            gradient[:size] = slope * first - z[:size]
            scale = np.sqrt(0.5) * first * precisions
            of_z = -(cov * (cov + 2 * np.outer(mean, mean))) * np.outer(scale, scale)
            of_z[np.diag_indices(size)] += 1 + 0.5 * precisions * square * first**2 - slope * second
            curvature[:size, :size] = of_z
            gradient[size:], own_curvature = likelihood.own_terms(f, f_cov, own)
            curvature[np.arange(size, self.size), np.arange(size, self.size)] = own_curvature
            root = _positive_root(curvature)
            step, _ = lapack.dpotrs(root, gradient, lower=True)
            largest = np.abs(step).max()
            if largest <= MOVED:
                break
            z += step * min(1.0, LONGEST / largest)
        log_det = 2 * np.log(np.diag(factor)).sum()
        log_evidence = expected + 0.5 * (
            np.log(precisions).sum() - precisions @ square - log_det + size - z[:size] @ z[:size]
        )
        log_evidence -= np.log(np.diag(root)).sum()
        if not likelihood.is_normal:
            W = WIDER * sites.W
            slope = sites.linear - np.einsum("nab,nb->na", sites.W, f)
            sites = Sites(W, slope + np.einsum("nab,nb->na", W, f))
        return Mode(z, root, sites, float(log_evidence))

    def evaluate(
        self, composite: Array, mode: Mode, noise_of_z: Array, noise: Array
    ) -> tuple[Point, float]:
        """Values at noise (D,) and (C M,), N(0, I) under the approximation, and the log ratio.

        The log ratio is that of the declaration's density to the approximation's, given the
        weights. O(N C^2 M^2 + C^3 M^3).
        """
        z = mode.z + solve_triangular(mode.root, noise_of_z, lower=True, trans="T")
        factor, mean = self._given(composite, mode, z)
        regressors = mean + solve_triangular(factor, noise, lower=False)
        return self._point(composite, mode, z, regressors, factor, noise_of_z, noise)

    def locate(self, composite: Array, mode: Mode, point: Point) -> tuple[Array, Point, float]:
        """Noise (D + C M,) that gives a point, the point, and the log ratio; cost of `evaluate`."""
        z = np.concatenate(
            [self.coordinate.inverse((point.log_precisions + np.log(self.rate)).ravel()), point.own]
        )
        factor, mean = self._given(composite, mode, z)
        noise_of_z = mode.root.T @ (z - mode.z)
        regressors = point.regressors.ravel()
        noise = np.triu(factor) @ (regressors - mean)
        return (
            np.concatenate([noise_of_z, noise]),
            *self._point(composite, mode, z, regressors, factor, noise_of_z, noise),
        )

    def redraw_precisions(self, point: Point, rng: np.random.Generator) -> Point:
        """Draw the precisions given the regressors: Gamma(shape + 1/2, rate + w^2 / 2)."""
        gamma = rng.standard_gamma(self.coordinate.shape + 0.5, point.regressors.shape)
        rate = self.rate + 0.5 * point.regressors**2
        return point._replace(log_precisions=np.log(np.maximum(gamma, 1e-300) / rate))

    def _given(self, composite: Array, mode: Mode, z: Array) -> tuple[Array, Array]:
        size = self.n_regressors
        precisions = np.exp(self.coordinate(z[:size])) / self.rate
        sites = self.likelihood.sites_given(mode.sites, z[size:])
        return self._factor(composite, precisions, sites)

    def _point(
        self,
        composite: Array,
        mode: Mode,
        z: Array,
        regressors: Array,
        factor: Array,
        noise_of_z: Array,
        noise: Array,
    ) -> tuple[Point, float]:
        """Make the point, and the log ratio of its density to the approximation's."""
        size = self.n_regressors
        log_precisions = self.coordinate(z[:size]) - np.log(self.rate)
        own, precisions = z[size:], np.exp(log_precisions)
        shaped = regressors.reshape(-1, self.n_functions)
        log_ratio = self.likelihood.log_density(composite @ shaped.T, own)
        log_ratio += 0.5 * (log_precisions.sum() - precisions @ regressors**2 + noise @ noise)
        log_ratio -= np.log(np.diag(factor)).sum() + np.log(np.diag(mode.root)).sum()
        log_ratio += 0.5 * (noise_of_z @ noise_of_z - z[:size] @ z[:size])
        log_ratio += LOG_SQRT_2PI * len(own)
        return Point(shaped, log_precisions.reshape(shaped.shape), own), float(log_ratio)


def _positive_root(curvature: Array) -> Array:
    """Lower Cholesky factor of a matrix, with its small and negative eigenvalues raised."""
    root, failed = lapack.dpotrf(curvature, lower=True)
    if not failed and np.diag(root).min() ** 2 > LEAST_CURVATURE:
        return np.asarray(root)
    values, vectors = np.linalg.eigh(curvature)
    raised = (vectors * np.maximum(np.abs(values), LEAST_CURVATURE)) @ vectors.T
    return np.asarray(lapack.dpotrf(raised, lower=True)[0])
