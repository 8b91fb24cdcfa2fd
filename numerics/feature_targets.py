"""Normal targets of scores that are weighted features: closed forms. Symbols as in `features`."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .features import Features
from .gaussian_process import Array
from .groups import Groups, rows_by_size


@dataclass(frozen=True)
class ProjectedTargets:
    """Normal targets of objects, and what all scales and noises need of them.

    Attributes
    ----------
    features : Features
    targets : array (N, P)
    """

    features: Features
    targets: Array

    @cached_property
    def projections(self) -> Array:
        """Phi' t (m, P). O(N m P)."""
        return self.features.transposed_times(self.targets)

    @cached_property
    def sums_of_squares(self) -> Array:
        """Sums of squares of the targets (P,)."""
        return np.einsum("np,np->p", self.targets, self.targets)


@dataclass(frozen=True)
class NormalFeatureScores:
    """Posterior of the weights given targets t_o ~ N(f_o, noise_o I); exact.

    Each weight is independent of the others, since Phi'Phi is diagonal.

    Parameters
    ----------
    of : ProjectedTargets
    scale : float
    noise : array (P,)
        Variances.
    """

    of: ProjectedTargets
    scale: float
    noise: Array

    @cached_property
    def totals(self) -> Array:
        """Variances s lambda + noise (m, P) of the targets along the eigenvectors."""
        return self.scale * self.of.features.squares[:, None] + self.noise

    @cached_property
    def W(self) -> Array:
        """Mean of the weights (m, P)."""
        return np.sqrt(self.scale) * self.of.projections / self.totals

    @property
    def variances(self) -> Array:
        """Variances of the weights (m, P)."""
        return self.noise / self.totals

    @property
    def log_evidence(self) -> float:
        """Log density of the targets. O(m P)."""
        n_objects = len(self.of.targets)
        explained = self.scale * (self.of.projections**2 / self.totals).sum(axis=0)
        squares = (self.of.sums_of_squares - explained) / self.noise
        determinants = np.log(self.totals / self.noise).sum(axis=0)
        constants = n_objects * np.log(2 * np.pi * self.noise)
        return -0.5 * float((squares + determinants + constants).sum())

    def gradient(self) -> tuple[float, Array]:
        """Gradient of the log evidence with respect to the scale and the noises (P,). O(m P)."""
        squares = self.of.features.squares[:, None]
        projections = self.of.projections
        totals = self.totals
        of_scale = 0.5 * float(((projections / totals) ** 2 - squares / totals).sum())
        explained = self.scale * projections**2 / totals
        fits = (self.of.sums_of_squares - explained.sum(axis=0)) / self.noise
        fits -= (explained / totals).sum(axis=0)
        determinants = len(self.of.targets) - (self.scale * squares / totals).sum(axis=0)
        return of_scale, 0.5 * (fits - determinants) / self.noise

    def gradient_of_covariance(self) -> Array:
        """Gradient of the log evidence with respect to s Phi Phi' (N, N), times Phi. O(N m P)."""
        values = self.of.features.values
        projections = self.of.projections / self.totals
        a = (self.of.targets - np.sqrt(self.scale) * (values @ self.W)) / self.noise
        return 0.5 * (a @ projections.T - values * (1.0 / self.totals).sum(axis=1))

    def left_out(self, groups: Groups | None = None) -> tuple[Array, Array]:
        """Mean and variance (N, P) of every target given all others. O(N m P).

        Residuals and variances are divided by what the object's own leverage leaves. With `groups`
        (N,), targets are those given all other groups: O(n^2 m P + n^3 P) for each group of n.
        """
        values = self.of.features.values
        residuals = self.of.targets - np.sqrt(self.scale) * (values @ self.W)
        if groups is not None:
            return self._groups_left_out(groups, residuals)
        leverages = values**2 @ (self.scale / self.totals)
        rest = 1.0 - leverages
        return self.of.targets - residuals / rest, self.noise / rest

    def _groups_left_out(self, groups: Groups, residuals: Array) -> tuple[Array, Array]:
        mean = self.of.targets.copy()
        variances = np.empty_like(mean)
        same_size = rows_by_size(groups)
        # Outputs of equal noise have one matrix of leverages.
        for noise in np.unique(self.noise):
            outputs = np.flatnonzero(self.noise == noise)
            roots = np.sqrt(self.scale / self.totals[:, outputs[0]])
            half = self.of.features.values * roots
            for rows in same_size:
                members = half[rows]
                leverages = members @ members.swapaxes(-1, -2)
                inverse = np.linalg.inv(np.eye(rows.shape[1]) - leverages)
                at = rows[..., None], outputs
                mean[at] -= inverse @ residuals[at]
                variances[at] = noise * np.diagonal(inverse, axis1=-2, axis2=-1)[..., None]
        return mean, variances

    def draw(self, number: int, rng: np.random.Generator) -> Array:
        """Draws of the weights (draw, m, P)."""
        normal = rng.standard_normal((number, *self.W.shape))
        return self.W + np.sqrt(self.variances) * normal
