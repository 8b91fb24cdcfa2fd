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
`annealed_move`, a learned upsilon by `move_scale`; zeta and the hyperparameters are then drawn
from their exact conditionals (partially collapsed Gibbs: van Dyk & Park 2008). The coordinates x
of W are

.. math:: w_c = b s \sinh(A x_c / b), \qquad A = I + Q (\mathrm{diag}(a) - I) Q', \qquad
          s^2 = \upsilon / \tau.

A shortens the first principal axes Q of the composite kernel at the centre of the prior, where the
curvature is high: the more, the larger upsilon is. A known upsilon shortens them to no less than
SHORTEST_AXIS times the spread that tuning sees: at a large scale all objects are well classified,
and the curvature is low. sinh shortens the tails of Student's t. Far from the origin it mixes axes
of high and low curvature: kernels of larger norm need a larger b.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self, Unpack

import numpy as np
from pymc.step_methods.state import dataclass_state
from pymc.step_methods.step_sizes import DualAverageAdaptation
from pymc.util import RandomGenerator
from pytensor.tensor import TensorVariable

from ...models.combinations.products import Product
from ...models.combinations.sums import Binary, Mean
from ...models.learned_scale import LearnedScale
from ...models.multinomial_probit import MultinomialProbit
from ...numerics.probit import log_probability_and_gradient
from ...validation import Count, Fraction, Positive, check_arguments
from ..block import GibbsBlock, GibbsBlockState, Names, Shared, declared
from ..moves.hamiltonian import LogDensity, hamiltonian_move
from .conditionals import draw_shift, draw_variances, move_scale
from .kernel_coordinates import KernelCoordinates

# Value of b, in scales of the prior, for kernels up to the norm BENT_NORM: beyond b, steps grow
# with the regressor. Axes tilt by 1 / b^2, so b grows with the norm to keep tilt times curvature.
BEND = 3.0
BENT_NORM = 30.0
# Curvature of -log P(t | f) in f that lengths of axes assume: a value between that of misclassified
# objects, about one half, and that of well classified ones, zero. Larger lengths count as one.
STIFFNESS = 0.01
SHORTEST_LENGTH = 0.95
# Scale in the mass matrix of the coordinates of kernels.
SCALE_OF_KERNEL = 0.5
# Length of the trajectories that anneal a move of the selection, in lengths of the main one, and
# their number.
PART = 0.25
STAGES = 20

type Values = dict[str, np.ndarray]
FIRST_STEP = 0.1
# Number of tuning sweeps that find a spread and a step, and shortest axis in units of the spread.
WINDOW = 75
SHORTEST_AXIS = 0.6
# Number of last tuning sweeps with trajectories of full length. Earlier sweeps only find the
# posterior and a step size, for which a fraction of the length suffices. A multiple of WINDOW:
# longer trajectories reach regions of higher curvature, where the step is tuned anew.
FULL_LENGTH = 2 * WINDOW
FRACTION = 1 / 8
# Share of the sweeps given a learned upsilon with shorter steps, and how much shorter they are. At
# scales far above the usual one the usual steps are too long, and chains would stay there.
FINE_SHARE = 0.2
FINER = 4.0


class Info(NamedTuple):
    """Acceptance probability of the trajectory, and evaluations of the density in the sweep.

    `selection` is the acceptance probability of the move of a selection; NaN without one.
    """

    acceptance: float
    evaluations: int
    selection: float = np.nan


@dataclass_state
class MarginalProbitState(GibbsBlockState):
    """State that a tuned chain must save to resume, with the lengths (r,) of the axes."""

    lengths: np.ndarray


@dataclass(frozen=True)
class Target:
    """Marginal posterior of W and the kernel's variables, on the coordinates of its sampler.

    `prior` is that of a learned upsilon. `principal` are the eigenvalues (M,) and eigenvectors
    (M, M) of K'K; `axes` are Q (M, r) and `lengths` a (r,); `bend` is b, where the tails begin to
    be shortened. `scale` (D,) are the scales of the coordinates of W and of the kernel's variables.
    `selection` is the rule of a selection, and `known` the composite kernel (N, M) if it has no
    variables.
    """

    kernels: KernelCoordinates
    labels: np.ndarray
    n_classes: int
    tau: float
    upsilon: float
    prior: LearnedScale | None
    principal: tuple[np.ndarray, np.ndarray]
    axes: np.ndarray
    lengths: np.ndarray
    bend: float
    scale: np.ndarray
    selection: Binary | None = None
    known: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        kernels: KernelCoordinates,
        labels: np.ndarray,
        n_classes: int,
        tau: float,
        upsilon: float | LearnedScale,
    ) -> Self:
        """Set up the coordinates; O(N M^2 + M^3)."""
        centre = kernels.at_centre()
        eigenvalues, axes = np.linalg.eigh(centre.T @ centre)
        prior = upsilon if isinstance(upsilon, LearnedScale) else None
        rate = upsilon.median if isinstance(upsilon, LearnedScale) else upsilon
        scale = np.ones(n_classes * len(axes))
        scale = np.append(scale, np.full(len(kernels), SCALE_OF_KERNEL))
        composition = kernels.composition
        rule = kernels.composition.rule
        selection = rule if composition.learned and isinstance(rule, Binary) else None
        has_variables = len(kernels) > 0 or selection is not None
        known = None if has_variables else composition.composite({})
        codes = np.ascontiguousarray(labels, dtype=np.intp)
        principal = eigenvalues, axes
        coordinates = _coordinates(*principal, rate / tau)
        sizes = tau, rate, prior, principal, *coordinates, scale
        return cls(kernels, codes, n_classes, *sizes, selection, known)

    def at(self, upsilon: float) -> Self:
        """Return the target given another upsilon, with coordinates that fit it; O(M^2)."""
        axes, lengths, bend = _coordinates(*self.principal, upsilon / self.tau)
        return replace(self, upsilon=upsilon, axes=axes, lengths=lengths, bend=bend)

    def along_axes(self, x: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """Vectors (C, M) whose parts along the axes are multiplied by factors (r,); O(C M r)."""
        return x + (x @ self.axes * (factors - 1)) @ self.axes.T

    @property
    def spread(self) -> float:
        """Scale of a regressor's prior."""
        return float(np.sqrt(self.upsilon / self.tau))

    def position(self, values: Mapping[str, np.ndarray], rng: np.random.Generator) -> np.ndarray:
        """Position of values; hyperparameters without coordinates are drawn."""
        x = self.along_axes(self.straightened(values), 1 / self.lengths)
        return np.concatenate([x.ravel(), self.kernels.position(values, rng)])

    def straightened(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """W (C, M) in units of its prior's scale, with shortened tails."""
        return self.bend * np.arcsinh(values["W"] / (self.bend * self.spread))

    def regressors(self, position: np.ndarray) -> np.ndarray:
        """W (C, M) at a position."""
        v = self.along_axes(self.split(position)[0], self.lengths)
        return self.bend * self.spread * np.sinh(v / self.bend)

    # A trajectory that leaves double precision ends in infinities or NaN, and is rejected.
    @np.errstate(over="ignore", divide="ignore", invalid="ignore")
    def log_density(
        self, position: np.ndarray, weights: np.ndarray | None = None
    ) -> tuple[float, np.ndarray]:
        """Log density of a position (D,), up to a constant, and its gradient.

        `weights` are those of a selection's kernels. Minus infinity where a weight, an exponent or
        a parameter is 1e-300 or less. Cost O(N M C), one quadrature, and that of
        `KernelCoordinates.gradient`.
        """
        # numba takes half a second to import.
        from ...numerics.probit_compiled import fill_student

        x, u = self.split(position)
        gradient = np.zeros_like(position)
        prior = 0.0
        point = None
        composite = self.known
        if composite is None:
            point = self.kernels.at(u, weights)
            if point is None:
                return -np.inf, gradient
            prior = point.log_prior
            composite = point.composite

        growth = np.exp(self.along_axes(x, self.lengths) / self.bend)
        standard, stretch, tail, slope = parts = np.empty((4, *x.shape))
        fill_student(growth.ravel(), self.bend, self.tau, *parts.reshape(4, x.size))
        student = -(self.tau + 0.5) * float(np.log(tail).sum())
        W = self.spread * standard
        log_p, pull = log_probability_and_gradient(composite @ W.T, self.labels)
        value = float(log_p.sum()) + student + prior + float(np.log(stretch).sum())
        if not np.isfinite(value):
            return -np.inf, gradient
        slope += stretch * (self.spread * (pull.T @ composite))
        gradient[: x.size] = self.along_axes(slope, self.lengths).ravel()
        if point is not None:
            gradient[x.size :] = self.kernels.gradient(u, point, pull @ W)
        return value, gradient

    def split(self, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Coordinates (C, M) of W and (d,) of the kernel's variables."""
        size = self.n_classes * len(self.axes)
        return position[:size].reshape(self.n_classes, -1), position[size:]


def _coordinates(
    eigenvalues: np.ndarray, axes: np.ndarray, squared_scale: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Shortened axes (M, r), their lengths (r,) and b, given upsilon / tau."""
    # Squared scores that a regressor of the prior's size makes along each axis.
    reach = eigenvalues.clip(0) * squared_scale
    bend = BEND * max(1.0, np.sqrt(np.sqrt(reach.max()) / BENT_NORM))
    lengths = 1 / np.sqrt(1 + STIFFNESS * reach)
    short = lengths < SHORTEST_LENGTH
    return axes[:, short], lengths[short], bend


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

    Step and length are those of `hamiltonian_move`; a selection changes in `stages` parts.
    """
    if target.prior is not None:
        target = target.at(float(values["upsilon"]))
    start = target.position(values, rng)
    log_density = partial(target.log_density, weights=values.get("beta"))
    move = hamiltonian_move(log_density, start, target.scale, step, length, rng)
    position = move.position
    info = Info(move.acceptance, move.steps)
    new = {}
    if target.selection is not None:
        chosen = annealed_move(
            values["beta"],
            position,
            lambda weights: partial(target.log_density, weights=weights),
            target.scale,
            target.selection,
            rng,
            step=step,
            length=length * PART,
            stages=stages,
        )
        position = chosen.position
        new["beta"] = chosen.beta
        info = Info(move.acceptance, move.steps + chosen.evaluations, chosen.acceptance)
    W = target.regressors(position)
    upsilon = target.upsilon
    of_kernel = target.split(position)[1]
    new |= target.kernels.values(of_kernel, rng)
    if target.prior is not None:
        f = target.kernels.composition.composite({**values, **new}) @ W.T
        prior = target.prior
        W, upsilon = move_scale(W, f, target.labels, target.tau, upsilon, prior, rng)
        new["upsilon"] = np.asarray(upsilon)
    # Right after the moves, which have integrated them out.
    zeta = draw_variances(W, target.tau, upsilon, rng)
    new |= {"W": draw_shift(W, zeta, rng), "zeta": zeta}
    return new, info


class Selected(NamedTuple):
    """Outcome of a move: the selection, the position, the acceptance probability, its cost."""

    beta: np.ndarray
    position: np.ndarray
    acceptance: float
    evaluations: int


def _proposal(beta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Add or remove a kernel or, half the time, exchange two; symmetric.

    Where no two can be exchanged, other moves in place of it would make the proposal asymmetric.
    """
    new = beta.copy()
    if rng.random() < 0.5:
        s = rng.integers(len(beta))
        new[s] = 1 - new[s]
    elif 0 < beta.sum() < len(beta):
        new[rng.choice(np.flatnonzero(beta))] = 0
        new[rng.choice(np.flatnonzero(beta == 0))] = 1
    return new


def annealed_move(
    beta: np.ndarray,
    position: np.ndarray,
    log_density_at: Callable[[np.ndarray], LogDensity],
    scale: np.ndarray,
    rule: Binary,
    rng: np.random.Generator,
    *,
    step: float,
    length: float,
    stages: int,
) -> Selected:
    """Propose another selection and, jointly, a position (D,) of the regressors that fits it.

    Given W, the likelihood agrees with the current selection alone, and a chain never leaves it. So
    the weights of the changed kernels go to the new selection in `stages` equal parts, and W moves
    by `hamiltonian_move` in between. The acceptance ratio is that of annealed importance sampling
    (Karagiannis & Andrieu 2013, J. Comput. Graph. Statist. 22). ``log_density_at(weights)`` is the
    log density of a position, with its gradient, for kernels of weights (S,) between 0 and 1.
    """
    new = _proposal(beta, rng)
    if np.array_equal(new, beta) or not (rule.empty or new.any()):
        return Selected(beta, position, 0.0, 0)
    change = (new - beta).astype(float)
    log_ratio = float(rule.log_odds(len(beta)) @ change)
    moved = position
    evaluations = 0
    before = log_density_at(beta.astype(float))
    for stage in range(1, stages + 1):
        after = log_density_at(beta + stage / stages * change)
        log_ratio += after(moved)[0] - before(moved)[0]
        evaluations += 2
        if not np.isfinite(log_ratio):
            return Selected(beta, position, 0.0, evaluations)
        if stage < stages:
            move = hamiltonian_move(after, moved, scale, step, length, rng)
            moved = move.position
            evaluations = evaluations + move.steps
        before = after
    acceptance = float(np.exp(min(log_ratio, 0.0)))
    if rng.uniform() < acceptance:
        return Selected(new, moved, acceptance, evaluations)
    return Selected(beta, position, acceptance, evaluations)


def serves(model: MultinomialProbit) -> bool:
    """Whether `MarginalProbit` applies to a model's combination of kernels."""
    return not model.learned or isinstance(model.combination, Mean | Product | Binary)


class MarginalProbit(GibbsBlock):
    """Partially collapsed Gibbs sampler of `MultinomialProbit`, as a PyMC step method.

    A sweep redraws all free variables of the declaration. The settings are those of Gibbs, which
    ``kz.engines(model).help("gibbs")`` explains. Kernels and labels are read at construction: make
    a new step after ``pm.set_data``, which must not change the features of kernels with parameters.
    Trajectories have an eighth of their length until the last 150 tuning sweeps.

    Statistics: ``hmc_accept``, ``hmc_evaluations`` (of the density and its gradient), ``hmc_step``,
    and ``selection_accept``, NaN without a selection.
    """

    name = "marginal_probit"
    _state_class = MarginalProbitState
    declarations = (MultinomialProbit,)
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {
        "hmc_accept": (np.float64, []),
        "hmc_evaluations": (np.int64, []),
        "hmc_step": (np.float64, []),
        "selection_accept": (np.float64, []),
    }

    def __init__(
        self,
        vars: Sequence[TensorVariable | str] | None = None,
        *,
        length: Positive = 4.0,
        target_accept: Fraction = 0.75,
        stages: Count = STAGES,
        **shared: Unpack[Shared],
    ):
        check_arguments(MarginalProbit.__init__, locals())
        self._length = length
        self._target_accept = target_accept
        self._stages = stages
        super().__init__(vars, **shared)

    def prepare(self, model: Any, given: Names | None) -> tuple[Names, Names]:
        """Read kernels and labels."""
        if not serves(model):
            raise TypeError(
                "MarginalProbit is available for Mean, Product and Binary. Got "
                f"{model.variant}: use AlbertChib."
            )
        model.check_stand_ins()
        kernels = KernelCoordinates.of(model.composition)
        self._target = Target.of(
            kernels, model.label_codes, model.n_classes, model.tau, model.upsilon
        )
        # Compile once here: otherwise each chain's process would compile for seconds.
        self._target.log_density(
            np.zeros_like(self._target.scale), np.ones_like(kernels.composition.known)
        )
        self._start(0)
        return declared(model), ()

    def initial_tuning(self, step: float = FIRST_STEP) -> DualAverageAdaptation:
        """Return the tuning of the leapfrog step, as NUTS has it, before its first update."""
        return DualAverageAdaptation(step, self._target_accept, gamma=0.05, k=0.75, t0=10)

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Start a chain, whose first trajectories are short if it tunes for long."""
        super().setup_chain(rng, tune, draws)
        self._start(tune)

    def _start(self, tune: int) -> None:
        self.lengths = self._target.lengths
        self._left = tune
        self._seen: list[np.ndarray] = []

    def _adapt(self, acceptance: float | None, values: Mapping[str, np.ndarray]) -> None:
        """Tune the step; at the end of a window fit the lengths, which need another step."""
        if acceptance is not None:
            self.tuning.update(acceptance, tune=True)
        self._left -= 1
        # The last window tunes the step alone; those of a learned upsilon know no lengths.
        if self._left < WINDOW or self._target.prior is not None:
            return
        along = self._target.straightened(values) @ self._target.axes
        # The likelihood sees the differences between classes alone.
        self._seen.append(along - along.mean(axis=0))
        if self._left % WINDOW == 0:
            spread = np.std(self._seen, axis=0).mean(axis=0)
            self.lengths = np.clip(SHORTEST_AXIS * spread, self._target.lengths, 1)
            self._seen = []
            self.tuning = self.initial_tuning(float(self.tuning.current(tune=False)))

    def sweep(
        self, values: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> tuple[Mapping[str, np.ndarray], dict[str, Any]]:
        """Redraw the owned variables; adapt step and lengths while the chain tunes."""
        step = float(self.tuning.current(self.tune))
        is_short = self.tune and self._left > FULL_LENGTH
        length = self._length * (FRACTION if is_short else 1)
        is_fine = self._target.prior is not None and rng.uniform() < FINE_SHARE
        if is_fine:
            step = step / FINER
            length = length / FINER / 2
        target = replace(self._target, lengths=self.lengths)
        new, info = marginal_sweep(
            values, target, rng, step=step, length=length, stages=self._stages
        )
        if self.tune:
            self._adapt(None if is_fine else info.acceptance, new)
        stats = {
            "hmc_accept": info.acceptance,
            "hmc_evaluations": info.evaluations,
            "hmc_step": step,
            "selection_accept": info.selection,
        }
        return new, stats
