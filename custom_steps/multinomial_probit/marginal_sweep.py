r"""A sweep of the multinomial probit with Y, zeta and rho integrated out, in NumPy.

In the sweep of Albert & Chib, the utilities restrict the moves of the scores, the variances those
of the regressors, and the concentrations those of the weights. All three can be integrated out:

======================= ======================================================================
Y                       log P(t | f), eq 4, by quadrature, with its gradient E[y] - f
zeta                    w_cm is Student's t with 2 tau degrees of freedom and scale
                        sqrt(upsilon / tau)
rho                     beta = g / sum g, with the law of log g in `GammaMixture`
======================= ======================================================================

W and log g move by Hamiltonian Monte Carlo; zeta and rho are then drawn from their exact
conditionals given W and log g. This is a partially collapsed Gibbs sampler (van Dyk & Park 2008).
The coordinates x of W are

.. math:: w_c = b s \sinh(Q x_c / b), \qquad s^2 = \upsilon / \tau,

where Q rotates to the principal axes of the average kernel, so that a diagonal mass matrix fits
their curvatures, and sinh shortens the tails of Student's t. Far from the origin sinh mixes axes of
high and low curvature: kernels of larger norm need a larger b. `MarginalProbit` runs the sweep as a
PyMC step.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from ...models.combinations.sums import SMALLEST
from ...numerics.probit import log_probability_and_gradient
from ..moves.gamma_mixture import GammaMixture
from ..moves.hamiltonian import hamiltonian_move
from ..moves.simplex_metropolis import log_gamma_draw
from .conditionals import Prior, State, draw_shift, draw_variances

__all__ = ["Info", "Target", "marginal_sweep"]

# Value of b, in scales of the prior, for kernels up to the norm BENT_NORM: beyond b, steps grow
# with the regressor. Axes tilt by 1 / b^2, so b grows with the norm to keep tilt times curvature.
BEND = 3.0
BENT_NORM = 30.0
# Curvature of -log P(t | f) in f that the mass matrix assumes: a value between that of
# misclassified objects, about one half, and that of well classified ones, zero.
STIFFNESS = 0.01
# Scale of the weights' coordinates in the mass matrix.
WEIGHT_SCALE = 0.5


class Info(NamedTuple):
    """Acceptance probability of the trajectory and evaluations of the density in it."""

    acceptance: float
    evaluations: int


@dataclass(frozen=True)
class Target:
    """Marginal posterior of W and log g on the coordinates in which it is sampled.

    Parameters
    ----------
    stack : ndarray of shape (S, N, M)
        Kernels or basis expansions.
    labels : ndarray of shape (N,), integer
        Classes.
    n_classes : int
        Number of classes C.
    prior : Prior
        Hyperparameters.
    mixture : GammaMixture or None
        Law of log g; None when the weights are kept as they are.
    axes : ndarray of shape (M, M)
        Q, an orthogonal matrix.
    bend : float
        b, where the tails begin to be shortened.
    scale : ndarray of shape (C M,) or (C M + S,)
        Scales of the coordinates.
    """

    stack: np.ndarray
    labels: np.ndarray
    n_classes: int
    prior: Prior
    mixture: GammaMixture | None
    axes: np.ndarray
    bend: float
    scale: np.ndarray

    @classmethod
    def of(
        cls,
        stack: np.ndarray,
        labels: np.ndarray,
        n_classes: int,
        prior: Prior,
        *,
        learn_weights: bool,
    ) -> Self:
        """Set up the coordinates; O(N M^2 + M^3)."""
        average = stack.mean(axis=0)
        eigenvalues, axes = np.linalg.eigh(average.T @ average)
        # Squared scores that a regressor of the prior's size makes along each axis.
        reach = eigenvalues.clip(0) * prior.upsilon / prior.tau
        bend = BEND * max(1.0, np.sqrt(np.sqrt(reach.max()) / BENT_NORM))
        scale = np.tile(1 / np.sqrt(1 + STIFFNESS * reach), n_classes)
        mixture = None
        if learn_weights:
            mixture = GammaMixture.of(prior.mu, prior.lam)
            scale = np.concatenate([scale, np.full(len(stack), WEIGHT_SCALE)])
        labels = np.ascontiguousarray(labels, dtype=np.intp)
        return cls(stack, labels, n_classes, prior, mixture, axes, bend, scale)

    @property
    def spread(self) -> float:
        """Scale of a regressor's prior."""
        return float(np.sqrt(self.prior.upsilon / self.prior.tau))

    def coordinates(self, W: np.ndarray, log_g: np.ndarray) -> np.ndarray:
        """Position vector of W (C, M) and, where the weights are learned, log g (S,)."""
        v = self.bend * np.arcsinh(W / (self.bend * self.spread))
        x = (v @ self.axes).ravel()
        if self.mixture is None:
            return x
        return np.concatenate([x, self.mixture.coordinate(log_g)])

    def values(self, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """W (C, M) and log g (S,), empty where the weights are kept."""
        x, z = self._split(position)
        W = self.bend * self.spread * np.sinh(x @ self.axes.T / self.bend)
        return W, z if self.mixture is None else self.mixture.log_gamma(z)[0]

    def log_density(self, position: np.ndarray, beta: np.ndarray) -> tuple[float, np.ndarray]:
        """Log density of a position and its gradient.

        Parameters
        ----------
        position : ndarray of shape (D,)
            Coordinates.
        beta : ndarray of shape (S,)
            Weights to use where they are kept; of no effect where they are learned.

        Returns
        -------
        value : float
            Up to a constant; minus infinity where a weight falls below 1e-300.
        gradient : ndarray of shape (D,)
            Its gradient.

        Notes
        -----
        Cost O(S N M + N M C + M^2 C) and one quadrature.
        """
        # A trajectory that leaves double precision ends in infinities or NaN, and is rejected.
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            return self._log_density(position, beta)

    def _log_density(self, position: np.ndarray, beta: np.ndarray) -> tuple[float, np.ndarray]:
        x, z = self._split(position)
        gradient = np.zeros_like(position)
        s, n, m = self.stack.shape
        flat = self.stack.reshape(s, n * m)
        prior, slope_of_z = 0.0, np.empty(0)
        if self.mixture is not None:
            prior, slope_of_z = self.mixture.value_and_slope(z)
            log_g, velocity = self.mixture.log_gamma(z)
            beta = simplex(log_g)
            if not (np.isfinite(prior) and beta.min() >= SMALLEST):
                return -np.inf, gradient
        composite = (beta @ flat).reshape(n, m)

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
        if self.mixture is not None:
            slope_of_beta = flat @ (pull @ W).ravel()
            slope_of_log_g = beta * (slope_of_beta - beta @ slope_of_beta)
            gradient[x.size :] = velocity * slope_of_log_g + slope_of_z
        return value, gradient

    def _log_student(self, W: np.ndarray) -> tuple[float, np.ndarray]:
        """Log density of W with zeta integrated out, up to a constant, and its gradient."""
        tau, upsilon = self.prior.tau, self.prior.upsilon
        tail = 1 + W**2 / (2 * upsilon)
        return -(tau + 0.5) * float(np.log(tail).sum()), -((tau + 0.5) / upsilon) * W / tail

    def _split(self, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        m = len(self.axes)
        size = self.n_classes * m
        return position[:size].reshape(self.n_classes, m), position[size:]


def simplex(log_g: np.ndarray) -> np.ndarray:
    """Give the weights g / sum g."""
    g = np.exp(log_g - log_g.max())
    return g / g.sum()


def marginal_sweep(
    state: State,
    target: Target,
    rng: np.random.Generator,
    *,
    step: float,
    length: float,
) -> tuple[State, Info]:
    """Redraw W, zeta and, where they are learned, beta and rho.

    The order matters: zeta and rho must be redrawn right after W and the weights have moved.

    Parameters
    ----------
    state : State
        Current values; not modified.
    target : Target
        Posterior with Y, zeta and rho integrated out.
    rng : numpy.random.Generator
        Source of randomness.
    step : float
        Leapfrog step.
    length : float
        Expected length of the trajectory.

    Returns
    -------
    state : State
        New values; what is redrawn is in new arrays.
    info : Info
        Acceptance and cost.
    """
    W, zeta, beta, rho = state
    mixture = target.mixture
    log_g = np.empty(0)
    if mixture is not None:
        # sum g is independent of beta, and is not kept between sweeps.
        log_g = np.log(np.maximum(beta, SMALLEST)) + log_gamma_draw(rho.sum(), rng)

    move = hamiltonian_move(
        lambda position: target.log_density(position, beta),
        target.coordinates(W, log_g),
        target.scale,
        step,
        length,
        rng,
    )
    W, log_g = target.values(move.position)
    if mixture is not None:
        beta = np.maximum(simplex(log_g), SMALLEST)
        rho = mixture.draw_concentrations(log_g, rng)
    zeta = draw_variances(W, target.prior.tau, target.prior.upsilon, rng)
    W = draw_shift(W, zeta, rng)
    return State(W, zeta, beta, rho), Info(move.acceptance, move.steps)
