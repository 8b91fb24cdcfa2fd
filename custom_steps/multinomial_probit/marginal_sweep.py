r"""A sweep of the multinomial probit with its latent variables integrated out, in NumPy.

In the sweep of Albert & Chib, the utilities restrict the moves of the scores, the variances those
of the regressors, and the hyperparameters those of the weights. All three can be integrated out:

======================= ======================================================================
Y                       log P(t | f), eq 4, by quadrature, with its gradient E[y] - f
zeta                    w_cm is Student's t with 2 tau degrees of freedom and scale
                        sqrt(upsilon / tau)
rho; pi, chi            priors of the weights in `KernelCoordinates`
======================= ======================================================================

W, weights and kernel parameters move by Hamiltonian Monte Carlo, a selection of kernels by
`annealed_move`; zeta and the hyperparameters are then drawn from their exact conditionals. This is
a partially collapsed Gibbs sampler (van Dyk & Park 2008). The coordinates x of W are

.. math:: w_c = b s \sinh(Q x_c / b), \qquad s^2 = \upsilon / \tau,

where Q rotates to the principal axes of the composite kernel at the centre of the prior, so that a
diagonal mass matrix fits their curvatures, and sinh shortens the tails of Student's t. Far from the
origin sinh mixes axes of high and low curvature: kernels of larger norm need a larger b.
`MarginalProbit` runs the sweep as a PyMC step.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from ...numerics.probit import log_probability_and_gradient
from ..moves.hamiltonian import LogDensity, hamiltonian_move
from .annealed_selection import Selection, annealed_move, selection_of
from .conditionals import draw_shift, draw_variances
from .kernel_coordinates import KernelCoordinates

__all__ = ["Info", "Target", "marginal_sweep"]

# Value of b, in scales of the prior, for kernels up to the norm BENT_NORM: beyond b, steps grow
# with the regressor. Axes tilt by 1 / b^2, so b grows with the norm to keep tilt times curvature.
BEND = 3.0
BENT_NORM = 30.0
# Curvature of -log P(t | f) in f that the mass matrix assumes: a value between that of
# misclassified objects, about one half, and that of well classified ones, zero.
STIFFNESS = 0.01
# Length of the trajectories that anneal a move of the selection, in lengths of the main one, and
# their number.
PART = 0.25
STAGES = 20

type Values = dict[str, np.ndarray]


class Info(NamedTuple):
    """Acceptance probability of the trajectory, and evaluations of the density in the sweep.

    `selection` is the acceptance probability of the move of a selection; NaN without one.
    """

    acceptance: float
    evaluations: int
    selection: float = np.nan


@dataclass(frozen=True)
class Target:
    """Marginal posterior of W and the kernel's variables, on the coordinates of its sampler.

    `axes` (M, M) is Q and `bend` is b. `scale` (C M,) or (C M + d,) has the scales of the
    coordinates, without those of the kernel's variables if these are kept. `selection` is the prior
    of a selection that moves.
    """

    kernels: KernelCoordinates
    labels: np.ndarray
    n_classes: int
    tau: float
    upsilon: float
    axes: np.ndarray
    bend: float
    scale: np.ndarray
    selection: Selection | None = None

    @classmethod
    def of(
        cls,
        kernels: KernelCoordinates,
        labels: np.ndarray,
        n_classes: int,
        tau: float,
        upsilon: float,
        *,
        moves_kernel: bool = True,
    ) -> Self:
        """Set up the coordinates; O(N M^2 + M^3)."""
        centre = kernels.at_centre()
        eigenvalues, axes = np.linalg.eigh(centre.T @ centre)
        # Squared scores that a regressor of the prior's size makes along each axis.
        reach = eigenvalues.clip(0) * upsilon / tau
        bend = BEND * max(1.0, np.sqrt(np.sqrt(reach.max()) / BENT_NORM))
        scale, selection = np.tile(1 / np.sqrt(1 + STIFFNESS * reach), n_classes), None
        if moves_kernel:
            scale = np.concatenate([scale, kernels.scale])
            selection = selection_of(kernels.composition.rule, len(kernels.composition.known))
        labels = np.ascontiguousarray(labels, dtype=np.intp)
        return cls(kernels, labels, n_classes, tau, upsilon, axes, bend, scale, selection)

    @property
    def spread(self) -> float:
        """Scale of a regressor's prior."""
        return float(np.sqrt(self.upsilon / self.tau))

    @property
    def moves_kernel(self) -> bool:
        """Whether variables of the composite kernel have coordinates that move with W."""
        return len(self.scale) > self.n_classes * len(self.axes)

    def given(self, values: Mapping[str, np.ndarray]) -> LogDensity:
        """Log density and gradient of positions, given the variables that have no coordinates."""
        if self.moves_kernel:
            return lambda position: self.log_density(position, weights=values.get("beta"))
        composite = self.kernels.composition.composite(values)
        return lambda position: self.log_density(position, composite)

    def coordinates(self, W: np.ndarray) -> np.ndarray:
        """Position (C M,) of W (C, M)."""
        v = self.bend * np.arcsinh(W / (self.bend * self.spread))
        return (v @ self.axes).ravel()

    def regressors(self, position: np.ndarray) -> np.ndarray:
        """W (C, M) at a position."""
        x, _ = self.split(position)
        return self.bend * self.spread * np.sinh(x @ self.axes.T / self.bend)

    def log_density(
        self,
        position: np.ndarray,
        composite: np.ndarray | None = None,
        weights: np.ndarray | None = None,
    ) -> tuple[float, np.ndarray]:
        """Log density of a position (D,), up to a constant, and its gradient (D,).

        Minus infinity where a weight, an exponent or a parameter is 1e-300 or less. `composite`
        (N, M) is the kernel if its variables are kept, `weights` (S,) are those without coordinates
        if parameters of kernels have some. O(N M C + M^2 C), one quadrature, and the cost of
        `KernelCoordinates.gradient`.
        """
        # A trajectory that leaves double precision ends in infinities or NaN, and is rejected.
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            return self._log_density(position, composite, weights)

    def _log_density(
        self, position: np.ndarray, composite: np.ndarray | None, weights: np.ndarray | None
    ) -> tuple[float, np.ndarray]:
        x, u = self.split(position)
        gradient = np.zeros_like(position)
        prior, point = 0.0, None
        if composite is None:
            point = self.kernels.at(u, weights)
            if point is None:
                return -np.inf, gradient
            prior, composite = point.log_prior, point.composite

        growth = np.exp(x @ self.axes.T / self.bend)
        decay = 1 / growth
        sinh, cosh = (growth - decay) / 2, (growth + decay) / 2
        W = self.bend * self.spread * sinh
        log_p, pull = log_probability_and_gradient(composite @ W.T, self.labels)
        student, slope = self._log_student(W)
        value = float(log_p.sum()) + student + prior + float(np.log(cosh).sum())
        if not np.isfinite(value):
            return -np.inf, gradient
        slope += pull.T @ composite
        slope *= self.spread * cosh
        slope += sinh / (self.bend * cosh)
        gradient[: x.size] = (slope @ self.axes).ravel()
        if point is not None:
            gradient[x.size :] = self.kernels.gradient(u, point, pull @ W)
        return value, gradient

    def _log_student(self, W: np.ndarray) -> tuple[float, np.ndarray]:
        """Log density of W with zeta integrated out, up to a constant, and its gradient."""
        tau, upsilon = self.tau, self.upsilon
        tail = 1 + W**2 / (2 * upsilon)
        return -(tau + 0.5) * float(np.log(tail).sum()), -((tau + 0.5) / upsilon) * W / tail

    def split(self, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Coordinates (C, M) of W and (d,) of the kernel's variables."""
        m = len(self.axes)
        size = self.n_classes * m
        return position[:size].reshape(self.n_classes, m), position[size:]


def marginal_sweep(
    values: Mapping[str, np.ndarray],
    target: Target,
    rng: np.random.Generator,
    *,
    step: float,
    length: float,
    stages: int = STAGES,
) -> tuple[Values, Info]:
    """Redraw W, zeta and, if they move, the variables of the composite kernel.

    The order matters: zeta and the hyperparameters must be redrawn right after the moves. `step` is
    the leapfrog step, `length` the expected length of the trajectory, and `stages` the number of
    parts in which a move of a selection changes the kernels.
    """
    start = target.coordinates(values["W"])
    if target.moves_kernel:
        start = np.concatenate([start, target.kernels.position(values, rng)])
    move = hamiltonian_move(target.given(values), start, target.scale, step, length, rng)
    position, info, new = move.position, Info(move.acceptance, move.steps), {}
    if target.selection is not None:
        chosen = annealed_move(
            values["beta"],
            position,
            lambda weights: target.given({**values, "beta": weights}),
            target.scale,
            target.selection,
            rng,
            step=step,
            length=length * PART,
            stages=stages,
        )
        position, new["beta"] = chosen.position, chosen.beta
        info = Info(move.acceptance, move.steps + chosen.evaluations, chosen.acceptance)
    W = target.regressors(position)
    zeta = draw_variances(W, target.tau, target.upsilon, rng)
    new |= {"W": draw_shift(W, zeta, rng), "zeta": zeta}
    if target.moves_kernel:
        new |= target.kernels.values(target.split(position)[1], rng)
    return new, info
