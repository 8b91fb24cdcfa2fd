"""Weights at which the rest of the model is approximated, placed where the posterior is."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp, ndtri
from scipy.stats import qmc

from .conditional import Mode

__all__ = ["Nodes", "place_nodes"]

type Array = npt.NDArray[np.float64]

ROUNDS = 3
# Mass of the prior in the mixture, and least mass of a node.
OF_PRIOR = 0.1
# Variance, relative to the prior's, added to that of the nodes, which may be few.
LEAST_VARIANCE = 0.1
NEGLIGIBLE = 1e-3


@dataclass(frozen=True)
class Nodes:
    """A mixture of normals of the weights' coordinates v, with a `Mode` of the rest at each.

    The last component is the prior N(0, I), which keeps the ratio of the posterior to the mixture
    bounded; for the rest it takes the mode of the nearest node.

    Attributes
    ----------
    v : array (J, K)
        Centres of the other components.
    modes : list of Mode
    mass : array (J + 1,)
        Masses of the components.
    root : array (K, K)
        Lower Cholesky factor of the covariance of the other components.
    interrupted : bool
        Whether the search was interrupted before all nodes were placed.
    """

    v: Array
    modes: list[Mode]
    mass: Array
    root: Array
    interrupted: bool = False

    @cached_property
    def _components(self) -> tuple[Array, Array, Array]:
        """Log masses over determinants (J + 1,), inverse of `root`, ends of the masses."""
        log_mass = np.log(self.mass)
        log_mass[:-1] -= np.log(np.diag(self.root)).sum()
        return log_mass, np.linalg.inv(self.root), np.cumsum(self.mass)

    def at(self, component: int, noise: Array) -> Array:
        """Coordinates (K,) at standard normal noise (K,) in a component."""
        if component == len(self.v):
            return noise
        return np.asarray(self.v[component] + self.root @ noise)

    def noise(self, component: int, v: Array) -> Array:
        """Noise (K,) that gives coordinates (K,) in a component."""
        if component == len(self.v):
            return v
        return np.asarray(self._components[1] @ (v - self.v[component]))

    def mode(self, component: int, v: Array) -> Mode:
        """Approximation of the rest at coordinates (K,) in a component."""
        if component == len(self.v):
            component = int(np.argmin(np.sum((self.v - v) ** 2, axis=1)))
        return self.modes[component]

    def _log_terms(self, v: Array) -> Array:
        """Log densities (J + 1,) of the components at coordinates (K,), times their masses."""
        log_mass, whitening, _ = self._components
        white = np.vstack([(v - self.v) @ whitening.T, v])
        return np.asarray(log_mass - 0.5 * np.einsum("jk,jk->j", white, white))

    def draw_component(self, rng: np.random.Generator, v: Array | None = None) -> int:
        """Draw a component by the masses, or given coordinates (K,) of the mixture."""
        if v is None:
            ends = self._components[2]
        else:
            terms = self._log_terms(v)
            ends = np.cumsum(np.exp(terms - terms.max()))
        return min(int(np.searchsorted(ends, rng.random() * ends[-1])), len(ends) - 1)

    def log_density(self, v: Array) -> float:
        """Log density of the mixture at coordinates (K,), plus K / 2 log(2 pi)."""
        terms = self._log_terms(v)
        peak = terms.max()
        return float(peak + np.log(np.exp(terms - peak).sum()))


def place_nodes(
    n_kernels: int,
    mode_at: Callable[[Array, Mode | None], Mode],
    count: int,
    rng: np.random.Generator,
    advance: Callable[[], None] = lambda: None,
) -> Nodes:
    """Place nodes by adaptive importance sampling of the approximate posterior of the weights.

    The first third are quasi-random draws of the prior. Each later round draws from a mixture
    around the nodes so far, by their weights under the mixture of all rounds' proposals.

    Parameters
    ----------
    n_kernels : int
    mode_at : callable (v, near) -> Mode
        Approximation at coordinates (K,) of the weights, begun at another one.
    count : int
        Number of nodes.
    rng : Generator
    advance : callable
        Called after each node.
    """
    sizes = [len(part) for part in np.array_split(np.arange(count), ROUNDS)]
    sobol = qmc.Sobol(n_kernels, scramble=True, rng=rng)
    # Sobol' points come in powers of two.
    first = sobol.random_base2(int(np.ceil(np.log2(sizes[0]))))[: sizes[0]]
    fresh = ndtri(np.clip(first, 1e-6, 1 - 1e-6))
    v, modes = np.empty((0, n_kernels)), list[Mode]()
    interrupted = False
    proposals = [lambda at: -0.5 * np.sum(at**2, axis=1) - 0.5 * n_kernels * np.log(2 * np.pi)]
    for place in range(ROUNDS):
        try:
            for at in fresh:
                near = modes[int(np.argmin(np.sum((v - at) ** 2, axis=1)))] if modes else None
                modes.append(mode_at(at, near))
                v = np.vstack([v, at])
                advance()
        except KeyboardInterrupt:
            if not modes:
                raise
            interrupted = True
        log_target = np.array([mode.log_evidence for mode in modes])
        log_target -= 0.5 * np.sum(v**2, axis=1)
        shares = np.log(np.array(sizes[: place + 1]) / sum(sizes[: place + 1]))
        log_proposal = logsumexp(
            [share + proposal(v) for share, proposal in zip(shares, proposals, strict=True)], axis=0
        )
        log_mass = log_target - log_proposal
        mass = np.exp(log_mass - logsumexp(log_mass))
        # The square root keeps single nodes, whose masses are rough, from taking all.
        centres = np.sqrt(mass) / np.sqrt(mass).sum()
        root = _spread(v, centres)
        if interrupted:
            break
        if place + 1 < ROUNDS:
            chosen = rng.choice(len(v), size=sizes[place + 1], p=centres)
            fresh = v[chosen] + rng.standard_normal((len(chosen), n_kernels)) @ root.T
            proposals.append(_proposal(v, centres, root))
    mass = 0.5 * (mass + centres)
    kept = np.flatnonzero(mass > NEGLIGIBLE)
    of_nodes = (1 - OF_PRIOR) * mass[kept] / mass[kept].sum()
    return Nodes(
        v[kept], [modes[j] for j in kept], np.append(of_nodes, OF_PRIOR), root, interrupted
    )


def _proposal(v: Array, mass: Array, root: Array) -> Callable[[Array], Array]:
    return lambda at: _log_mixture(at, v, mass, root)


def _log_mixture(at: Array, centres: Array, mass: Array, root: Array) -> Array:
    white = np.linalg.solve(root, (at[:, None] - centres).reshape(-1, len(root)).T)
    log_kernel = -0.5 * np.sum(white**2, axis=0).reshape(len(at), -1)
    constant = np.log(np.diag(root)).sum() + 0.5 * len(root) * np.log(2 * np.pi)
    return np.asarray(logsumexp(log_kernel + np.log(mass), axis=1) - constant)


def _spread(v: Array, mass: Array) -> Array:
    """Lower Cholesky factor of the kernels' covariance, by the rule of Silverman."""
    dimension = v.shape[1]
    mean = mass @ v
    cov = (mass[:, None] * (v - mean)).T @ (v - mean) + LEAST_VARIANCE * np.eye(dimension)
    ess = 1 / (mass @ mass)
    width = (4 / ((dimension + 2) * ess)) ** (1 / (dimension + 4))
    return np.asarray(np.linalg.cholesky(min(width, 1.0) ** 2 * cov))
