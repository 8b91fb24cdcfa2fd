r"""The variational factor of kernel weights on the simplex, by deterministic quadrature.

Both hierarchical models with a composite kernel (Damoulas & Girolami 2009, appendix B.4; Girolami &
Rogers 2005) lead to

    Q(beta) = exp(b'beta - beta'A beta / 2) prod_s beta_s^(a_s - 1) / normaliser

with A positive semidefinite. The papers estimate its moments by importance sampling from the prior.
Fixed points, as here, make the bound a smooth function of the moments' inputs.

The coordinates undo most of Q's correlation (`simplex_coordinates`). For S <= 3 the trapezoid rule,
iterated for three weights, is used on a grid that is compared with every second of its nodes: the
error is about the square of the difference. If the difference is too large, another weight comes
first and nodes are added, up to a cap. Means are then accurate to about 1e-6 standard deviations
(2e-5 where a grid of another factor serves), or `SimplexFactor.precise` is False. The latter can
happen if A has rank one and a curvature beyond 1e6, and small concentrations put mass where its
ridge leaves the simplex (2 of 100 random factors with curvatures up to 1e9).

For S > 3 Sobol' points are mapped through distributions tabulated along the axes (somewhat
heavier-tailed than Q), with importance weights. The number of points is doubled from 4,096 up to
16,384 until the means of the two halves, themselves nets, agree.

Measured errors: change of the means, in standard deviations, when the weights are reversed, over 24
factors with curvatures up to 1e6 of any rank (median, largest): S = 4 .001, .02; S = 6 .002, .03; S
= 10 .004, .7; S = 15 .006, .2. The largest errors belong to singular quadratics with a mode on the
boundary, for which the number of points reaches the cap.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from ...user_warnings import warn_user
from .simplex_coordinates import Target, axes_around
from .simplex_points import GRID_TOLERANCE, SOBOL_LOG2, Points, Proposal

__all__ = ["TINY", "SimplexFactor", "moments_around", "simplex_factor", "warn_of_imprecision"]

type Array = npt.NDArray[np.float64]

# Expected weights vanish where concentrations are tiny; their logarithms are coordinates.
TINY = np.finfo(float).tiny
# Squares of smaller concentrations, and of their inverses, leave double precision.
LEAST = 1e-100
# Largest number of batches of proposals.
ROUNDS = 24
# Points of another factor serve while the means of the weights, in standard deviations, and the
# ratios of standard deviations are within these.
NEAR, ALIKE = 0.3, 1.25
# A grid serves longer, while its error is small, but the error shows nothing of tails that the grid
# does not reach: weights and their logarithms must be within these.
REACHED, SIMILAR = 1.5, 1.5


@dataclass(frozen=True)
class SimplexFactor:
    """Moments of Q(beta); made by `simplex_factor`.

    `log_normaliser` is the log of the integral over the first S - 1 weights, and `ess` the
    effective number of quadrature points, (sum w)^2 / sum w^2: with a few, moments are unreliable.
    """

    mean: Array
    second_moment: Array
    mean_log: Array
    log_normaliser: float
    ess: float
    _sd_log: Array
    _target: Target
    _points: Points
    _origin: Self | None

    @property
    def sd(self) -> Array:
        """Standard deviations of the weights."""
        return np.sqrt(np.maximum(np.diag(self.second_moment) - self.mean**2, TINY))

    @property
    def precise(self) -> bool:
        """Whether the points suffice for the factor for which they were placed."""
        return self._points.suffice

    @property
    def covered(self) -> bool:
        """Whether points placed for another factor still suit this one."""
        if self._origin is None:
            return True
        moved = np.abs(self.mean - self._origin.mean) / self._origin.sd
        ratio = self.sd / self._origin.sd
        return bool(
            not self._has_heavier_tails
            and moved.max() < NEAR
            and ratio.min() > 1 / ALIKE
            and ratio.max() < ALIKE
            and self.ess > 0.9 * self._origin.ess
        )

    @property
    def reached(self) -> bool:
        """Whether a grid placed for another factor reaches the tails of this one."""
        if self._origin is None:
            return True
        own, origin = self._features, self._origin._features
        moved = np.abs(own[0] - origin[0]) / origin[1]
        ratio = own[1] / origin[1]
        return bool(
            not self._has_heavier_tails
            and moved.max() < REACHED
            and ratio.min() > 1 / SIMILAR
            and ratio.max() < SIMILAR
        )

    @property
    def _has_heavier_tails(self) -> bool:
        """Whether a tail beta_s^a_s is heavier than that of the points' factor."""
        assert self._origin is not None
        own, origin = self._target.concentration, self._origin._target.concentration
        return bool((own * ALIKE < origin).any())

    @property
    def _features(self) -> tuple[Array, Array]:
        """Means and standard deviations (2 S,) of the weights and of their logarithms."""
        return np.append(self.mean, self.mean_log), np.append(self.sd, self._sd_log)

    @property
    def entropy(self) -> float:
        """-E[log Q(log beta)]; that of beta is larger by the sum of `mean_log`."""
        target = self._target
        expected = target.linear @ self.mean - 0.5 * np.sum(target.quadratic * self.second_moment)
        expected += target.concentration @ self.mean_log
        return float(self.log_normaliser - expected)

    def log_density(self, beta: Array) -> Array:
        """Log Q at weights (n, S), with respect to the first S - 1 weights."""
        target = self._target
        value = beta @ target.linear - 0.5 * np.einsum("ns,st,nt->n", beta, target.quadratic, beta)
        return value + np.log(beta) @ (target.concentration - 1) - self.log_normaliser

    def sample(self, draws: int, rng: np.random.Generator) -> Array:
        """Independent draws (draws, S), by rejection from the tabulated proposal.

        The envelope is the largest importance weight found. If too few draws are accepted in
        `ROUNDS` batches, the proposals are resampled by their weights, with repetitions.
        """
        axes = axes_around(self._target, self._points.mode)
        proposal = Proposal.along(self._target, axes)
        pool = np.empty((len(self.mean), 0))
        log_weight, log_u = np.empty(0), np.empty(0)
        for _ in range(ROUNDS):
            batch = max(4 * draws, 1 << SOBOL_LOG2)
            e, log_q = proposal.transform(rng.random((len(self.mean) - 1, batch)))
            log_beta = axes.log_weights(e)
            beta = np.exp(log_beta)
            pool = np.concatenate([pool, beta], axis=1)
            log_weight = np.append(log_weight, self._target.at(beta, log_beta) - log_q)
            log_u = np.append(log_u, np.log(rng.random(batch)))
            accepted = np.flatnonzero(log_u < log_weight - log_weight.max())
            if len(accepted) >= draws:
                return pool[:, accepted[:draws]].T
        weight = np.exp(log_weight - log_weight.max())
        return pool[:, rng.choice(len(weight), size=draws, p=weight / weight.sum())].T


def simplex_factor(
    concentration: Array, linear: Array, quadratic: Array, near: SimplexFactor | None = None
) -> SimplexFactor:
    """Integrate Q(beta) ~ exp(b'beta - beta'A beta / 2) prod beta_s^(a_s - 1) for S >= 2.

    The points of a similar factor `near` are used again while this factor is close to the one for
    which they were placed, and those of a grid while their error is small. With the same points, a
    sequence of factors maximises a bound with respect to the same measure, so the bound cannot
    fall. New points are placed from the mode of `near`; the bound may then jump by the quadrature's
    error.

    Precision is as stated for the module, or `precise` is False. S = 2 and 3 take 385 and 97^2 grid
    points in the ordinary case and 6,145 and 769^2 at most; S > 3 takes 4,096 to 16,384 points.
    Cost O(S^2) per point; 100 weights take 1 s and 120 MB, of which 50 MB stay. FloatingPointError
    for A or b so large (above 1e15) that log Q is lost in rounding, and for concentrations outside
    1e-100..1e100.
    """
    if not LEAST < concentration.min() <= concentration.max() < 1 / LEAST:
        raise FloatingPointError(
            f"The concentrations of the kernel weights must be from {LEAST:g} to {1 / LEAST:g}. "
            f"Got {concentration}: take a less extreme prior."
        )
    target = Target(concentration, linear, quadratic)
    if near is not None:
        points = near._points
        factor, mass = _integrate(target, points, near._origin or near)
        if factor.covered:
            return factor
        serves = points.are_grid and points.suffice and factor.reached
        if serves and points.gap(mass) <= GRID_TOLERANCE:
            return factor
    points = Points.around(target, None if near is None else near._points.mode)
    return _integrate(target, points, None)[0]


def _integrate(
    target: Target, points: Points, origin: SimplexFactor | None
) -> tuple[SimplexFactor, Array]:
    """Factor by these points, and their masses (n,)."""
    n_weights = len(target.linear)
    beta = points.features[:n_weights]
    log_mass = np.concatenate([target.linear, target.concentration]) @ points.features
    log_mass -= 0.5 * np.einsum("sn,sn->n", beta, target.quadratic @ beta)
    log_mass += points.log_measure
    peak = log_mass.max()
    mass = np.exp(log_mass - peak)
    total = mass.sum()
    mass /= total
    means, logs = points.features @ mass, points.features[n_weights:]
    factor = SimplexFactor(
        mean=means[:n_weights],
        second_moment=(beta * mass) @ beta.T,
        mean_log=means[n_weights:],
        log_normaliser=float(peak + np.log(total)),
        ess=float(1 / (mass @ mass)),
        _sd_log=np.sqrt(np.maximum(logs**2 @ mass - means[n_weights:] ** 2, TINY)),
        _target=target,
        _points=points,
        _origin=origin,
    )
    return factor, mass


def moments_around(log_weights: Array, mean: Array, second: Array) -> tuple[Array, Array]:
    """Move moments E[beta], E[beta beta'] to another mean, with the covariance unchanged.

    `log_weights` are the logarithms of the new mean, up to a constant.
    """
    moved = softmax(log_weights)
    return moved, second - np.outer(mean, mean) + np.outer(moved, moved)


def warn_of_imprecision(factor: SimplexFactor | None) -> None:
    """Warn if the points of the final factor do not suffice; do nothing for None."""
    if factor is not None and not factor.precise:
        warn_user(
            "VB's moments of the kernel weights are imprecise: their distribution is too uneven "
            f"for its quadrature ({factor.ess:,.0f} effective points). Compare with a sampler, or "
            "leave out kernels."
        )
