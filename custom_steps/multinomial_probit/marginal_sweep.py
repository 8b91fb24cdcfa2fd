r"""A sweep of the multinomial probit with its latent variables integrated out, in NumPy.

In the sweep of Albert & Chib, the utilities restrict the moves of the scores, the variances those
of the regressors, and the hyperparameters those of the weights. All three can be integrated out:

======================= ======================================================================
Y                       log P(t | f), eq 4, by quadrature, with its gradient E[y] - f
zeta                    w_cm is Student's t with 2 tau degrees of freedom and scale
                        sqrt(upsilon / tau)
rho; pi, chi            priors of the weights in `KernelCoordinates`
======================= ======================================================================

W, weights, kernel parameters and a learned upsilon move by Hamiltonian Monte Carlo, a selection of
kernels by `annealed_move`; zeta and the hyperparameters are then drawn from their exact
conditionals. This is a partially collapsed Gibbs sampler (van Dyk & Park 2008). The coordinates x
of W are

.. math:: w_c = b s \sinh(Q x_c / b), \qquad s^2 = \upsilon / \tau,

so that W scales with a learned upsilon, whose coordinate is its logarithm. Q rotates to the
principal axes of the composite kernel at the centre of the prior, so that a diagonal mass matrix
fits their curvatures, and sinh shortens the tails of Student's t. Far from the origin sinh mixes
axes of high and low curvature: kernels of larger norm need a larger b.
`MarginalProbit` runs the sweep as a PyMC step.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from ...models.combinations.sums import Binary
from ...models.learned_scale import LearnedScale
from ...numerics.probit import log_probability_and_gradient
from ..moves.hamiltonian import LogDensity, hamiltonian_move
from .annealed_selection import annealed_move
from .conditionals import draw_shift, draw_variances
from .kernel_coordinates import KernelCoordinates

# Value of b, in scales of the prior, for kernels up to the norm BENT_NORM: beyond b, steps grow
# with the regressor. Axes tilt by 1 / b^2, so b grows with the norm to keep tilt times curvature.
BEND = 3.0
BENT_NORM = 30.0
# Curvature of -log P(t | f) in f that the mass matrix assumes: a value between that of
# misclassified objects, about one half, and that of well classified ones, zero.
STIFFNESS = 0.01
# Scale of the logarithm of a learned upsilon in the mass matrix.
SCALE_OF_RATE = 0.5
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

    `axes` are Q (M, M), `bend` is b, where the tails begin to be shortened. `scale` (D,) are the
    scales of the coordinates of W, of the kernel's variables unless these are kept, and of a
    learned upsilon. `selection` is the rule of a selection that moves.
    """

    kernels: KernelCoordinates
    labels: np.ndarray
    n_classes: int
    tau: float
    upsilon: float | LearnedScale
    axes: np.ndarray
    bend: float
    scale: np.ndarray
    selection: Binary | None = None

    @classmethod
    def of(
        cls,
        kernels: KernelCoordinates,
        labels: np.ndarray,
        n_classes: int,
        tau: float,
        upsilon: float | LearnedScale,
        *,
        moves_kernel: bool = True,
    ) -> Self:
        """Set up the coordinates; O(N M^2 + M^3)."""
        centre = kernels.at_centre()
        eigenvalues, axes = np.linalg.eigh(centre.T @ centre)
        # Squared scores that a regressor of the prior's size makes along each axis.
        rate = upsilon.median if isinstance(upsilon, LearnedScale) else upsilon
        reach = eigenvalues.clip(0) * rate / tau
        bend = BEND * max(1.0, np.sqrt(np.sqrt(reach.max()) / BENT_NORM))
        scale, selection = np.tile(1 / np.sqrt(1 + STIFFNESS * reach), n_classes), None
        if moves_kernel:
            scale = np.concatenate([scale, kernels.scale])
            rule = kernels.composition.rule
            selection = rule if isinstance(rule, Binary) else None
        if isinstance(upsilon, LearnedScale):
            scale = np.append(scale, SCALE_OF_RATE)
        labels = np.ascontiguousarray(labels, dtype=np.intp)
        return cls(kernels, labels, n_classes, tau, upsilon, axes, bend, scale, selection)

    def spread(self, log_rate: np.ndarray) -> float:
        """Scale of a regressor's prior, given the coordinate of a learned upsilon."""
        return float(np.sqrt(self.rate(log_rate) / self.tau))

    def rate(self, log_rate: np.ndarray) -> float:
        """Upsilon, given the coordinate that it has if it is learned."""
        if isinstance(self.upsilon, LearnedScale):
            return float(np.exp(log_rate[0]))
        return self.upsilon

    @property
    def moves_kernel(self) -> bool:
        """Whether variables of the composite kernel have coordinates that move with W."""
        learned = isinstance(self.upsilon, LearnedScale)
        return len(self.scale) > self.n_classes * len(self.axes) + learned

    def given(self, values: Mapping[str, np.ndarray]) -> LogDensity:
        """Log density and gradient of positions, given the variables that have no coordinates."""
        if self.moves_kernel:
            return lambda position: self.log_density(position, weights=values.get("beta"))
        composite = self.kernels.composition.composite(values)
        return lambda position: self.log_density(position, composite)

    def position(self, values: Mapping[str, np.ndarray], rng: np.random.Generator) -> np.ndarray:
        """Position of values; hyperparameters without coordinates are drawn."""
        learned = isinstance(self.upsilon, LearnedScale)
        log_rate = np.log(np.atleast_1d(values["upsilon"])) if learned else np.empty(0)
        v = self.bend * np.arcsinh(values["W"] / (self.bend * self.spread(log_rate)))
        of_kernel = self.kernels.position(values, rng) if self.moves_kernel else np.empty(0)
        return np.concatenate([(v @ self.axes).ravel(), of_kernel, log_rate])

    def regressors(self, position: np.ndarray) -> np.ndarray:
        """W (C, M) at a position."""
        x, _, log_rate = self.split(position)
        return self.bend * self.spread(log_rate) * np.sinh(x @ self.axes.T / self.bend)

    # A trajectory that leaves double precision ends in infinities or NaN, and is rejected.
    @np.errstate(over="ignore", divide="ignore", invalid="ignore")
    def log_density(
        self,
        position: np.ndarray,
        composite: np.ndarray | None = None,
        weights: np.ndarray | None = None,
    ) -> tuple[float, np.ndarray]:
        """Log density of a position (D,), up to a constant, and its gradient.

        `composite` is the composite kernel if its variables are kept; `weights` are those of the
        kernels if only their parameters have coordinates. Minus infinity where a weight, an
        exponent or a parameter is 1e-300 or less. Cost O(N M C + M^2 C), one quadrature, and that
        of `KernelCoordinates.gradient`.
        """
        x, u, log_rate = self.split(position)
        gradient = np.zeros_like(position)
        spread = self.spread(log_rate)
        prior, point = 0.0, None
        if composite is None:
            point = self.kernels.at(u, weights)
            if point is None:
                return -np.inf, gradient
            prior, composite = point.log_prior, point.composite

        growth = np.exp(x @ self.axes.T / self.bend)
        decay = 1 / growth
        sinh, cosh = (growth - decay) / 2, (growth + decay) / 2
        W = self.bend * spread * sinh
        log_p, pull = log_probability_and_gradient(composite @ W.T, self.labels)
        # Of W / spread, with zeta integrated out: it does not depend on upsilon.
        standard = self.bend * sinh
        tail = 1 + standard**2 / (2 * self.tau)
        student = -(self.tau + 0.5) * float(np.log(tail).sum())
        value = float(log_p.sum()) + student + prior + float(np.log(cosh).sum())
        if isinstance(self.upsilon, LearnedScale):
            log_prior, slope_of_rate = self.upsilon.log_density(log_rate[0])
            value += log_prior
        if not np.isfinite(value):
            return -np.inf, gradient
        slope = spread * (pull.T @ composite)
        if isinstance(self.upsilon, LearnedScale):
            gradient[-1] = slope_of_rate + 0.5 * np.vdot(slope, standard)
        slope -= (1 + 0.5 / self.tau) * standard / tail
        slope *= cosh
        slope += sinh / (self.bend * cosh)
        gradient[: x.size] = (slope @ self.axes).ravel()
        if point is not None:
            gradient[x.size : x.size + len(u)] = self.kernels.gradient(u, point, pull @ W)
        return value, gradient

    def split(self, position: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Coordinates (C, M) of W, (d,) of the kernel's variables, (1,) or (0,) of upsilon."""
        m = len(self.axes)
        size = self.n_classes * m
        end = len(position) - isinstance(self.upsilon, LearnedScale)
        return position[:size].reshape(self.n_classes, m), position[size:end], position[end:]


def marginal_sweep(
    values: Mapping[str, np.ndarray],
    target: Target,
    rng: np.random.Generator,
    *,
    step: float,
    length: float,
    stages: int = STAGES,
) -> tuple[Values, Info]:
    """Redraw W, zeta, a learned upsilon and, if they move, the variables of the composite kernel.

    The order matters: zeta and the hyperparameters must be redrawn right after the moves. Step and
    length are those of `hamiltonian_move`; a move of a selection changes the kernels in `stages`
    parts.
    """
    start = target.position(values, rng)
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
    _, of_kernel, log_rate = target.split(position)
    upsilon = target.rate(log_rate)
    zeta = draw_variances(W, target.tau, upsilon, rng)
    new |= {"W": draw_shift(W, zeta, rng), "zeta": zeta}
    if target.moves_kernel:
        new |= target.kernels.values(of_kernel, rng)
    if len(log_rate):
        new["upsilon"] = np.asarray(upsilon)
    return new, info
