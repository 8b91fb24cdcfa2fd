"""Albert and Chib's sweep of the multinomial probit in NumPy, for every rule and learned kernels.

A sweep draws the utilities Y (damoulas2009, eq 3), then the variables of the composite kernel, then
W and zeta (appendix A). W is redrawn right after moves with W integrated out.

============= ============================================ ========================
paper         meaning                                      code
============= ============================================ ========================
y_n           latent utilities, drawn afresh every sweep   ``y`` (N, C)
K^beta,theta  composite kernel                             ``Composition.composite``
W, Z          regressors and their variances               ``W``, ``zeta`` (C, M)
beta          weights of the kernels                       ``beta`` (S,)
theta         parameters of the kernels                    ``theta`` (P,)
============= ============================================ ========================
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Unpack, override

import numpy as np
from pytensor.tensor import TensorVariable

from ...models.combinations.normal_coordinates import draw_hyperparameters
from ...models.combinations.products import FixedProduct, Product
from ...models.combinations.sums import LEAST_LOG_ARGUMENT, Binary, Combination, FixedWeights, Mean
from ...models.learned_scale import LearnedScale
from ...models.multinomial_probit import Composition, MultinomialProbit
from ...validation import Count, CountOrZero, argument_error, check_arguments
from ..block import GibbsBlock, Names, Shared, declared
from ..moves import metropolis
from ..moves.metropolis import ConcentrationTuning, WalkTuning, walk
from ..moves.selection import update_selection
from .conditionals import (
    draw_regressors,
    draw_shift,
    draw_variances,
    log_evidence,
    move_scale,
    sample_cone,
)

type Values = dict[str, np.ndarray]
# Number of first tuning sweeps that keep a binary selection. The regressors start at zero, so the
# utilities are noise at first, which favours the kernel of least effect; once the utilities agree
# with a selection, the chain hardly ever leaves it.
HELD = 100


class Moves(NamedTuple):
    """Numbers of Metropolis moves in a sweep, given Y and W, and with W integrated out.

    `block` kernels of a selection are redrawn jointly; 0 for none.
    """

    given_regressors: int = 5
    collapsed: int = 1
    block: int = 6


class Tuning(NamedTuple):
    """Number of tuning sweeps, and tuned proposals; None for variables that the model lacks."""

    sweeps: int = 0
    weights: WalkTuning | None = None
    concentrations: ConcentrationTuning | None = None
    given_regressors: WalkTuning | None = None
    collapsed: WalkTuning | None = None


class Info(NamedTuple):
    """Mean acceptance probabilities of a sweep's Metropolis moves; NaN for moves not made."""

    weights: float = np.nan
    concentrations: np.ndarray = np.array([np.nan])
    given_regressors: float = np.nan
    collapsed: float = np.nan


def initial_tuning(composition: Composition) -> Tuning:
    """Return untuned proposals for the learned variables of a composition."""
    n_kernels = len(composition.known)
    n_walked = len(composition.coordinates)
    is_mean = isinstance(composition.rule, Mean)
    of_walk = metropolis.initial_walk_tuning(np.eye(n_walked)) if n_walked else None
    return Tuning(
        weights=metropolis.initial_weight_tuning(n_kernels) if is_mean else None,
        concentrations=metropolis.initial_concentration_tuning(n_kernels) if is_mean else None,
        given_regressors=of_walk,
        collapsed=of_walk,
    )


def adapt(tuning: Tuning, values: Values, info: Info, composition: Composition) -> Tuning:
    """Adapt the proposals after a sweep that ended at `values`, while the chain tunes."""
    sweeps, weights, concentrations, given, collapsed = tuning
    if weights is not None:
        weights = metropolis.adapt_weights(weights, values["beta"], info.weights)
    psi = np.empty(0) if given is None else composition.coordinates.psi(values)
    target = metropolis.TARGET_SINGLE if len(psi) == 1 else metropolis.TARGET_JOINT
    return Tuning(
        sweeps + 1,
        weights,
        metropolis.adapt_concentrations(concentrations, info.concentrations),
        metropolis.adapt_walk(given, psi, info.given_regressors, target),
        metropolis.adapt_walk(collapsed, psi, info.collapsed, target),
    )


def sweep(
    values: Mapping[str, np.ndarray],
    labels: np.ndarray,
    composition: Composition,
    tau: float,
    upsilon: float | LearnedScale,
    rng: np.random.Generator,
    *,
    tuning: Tuning,
    moves: Moves,
) -> tuple[Values, Info]:
    """Redraw W, zeta and the variables of the composite kernel once; the posterior is invariant.

    Variables without a proposal in `tuning` are kept. C Cholesky factorisations of size M, and as
    many for each move with W integrated out.
    """
    new = {name: np.asarray(value) for name, value in values.items()}
    y = sample_cone(composition.composite(new) @ new["W"].T, labels, rng)
    task = Task(new, y, composition, rng, tuning, moves)
    of_rule = moves_of(composition.rule)
    # Moves given W come first, because collapsed moves make W stale.
    info = of_rule.given_regressors(task)
    given = _walk(
        task,
        tuning.given_regressors,
        moves.given_regressors,
        lambda composite: -0.5 * float(np.sum((y - composite @ new["W"].T) ** 2)),
    )
    of_rule.collapsed(task)
    collapsed = _walk(
        task,
        tuning.collapsed,
        moves.collapsed,
        lambda composite: log_evidence(y, new["zeta"], composite, composite.T @ composite),
    )
    exponents = composition.coordinates
    if exponents.n_exponents:
        # The walks have integrated them out.
        new["pi"], new["chi"] = draw_hyperparameters(new["beta"], exponents.a, exponents.b, rng)
    composite = composition.composite(new)
    W = draw_regressors(y, new["zeta"], composite, composition.gram(new, composite), rng)
    W = draw_shift(W, new["zeta"], rng)
    if isinstance(upsilon, LearnedScale):
        f = composite @ W.T
        before = float(new["upsilon"])
        W, rate = move_scale(W, f, labels, tau, before, upsilon, rng)
        new["upsilon"] = np.asarray(rate)
    else:
        rate = upsilon
    new |= {"W": W, "zeta": draw_variances(W, tau, rate, rng)}
    return new, info._replace(given_regressors=given, collapsed=collapsed)


class Task(NamedTuple):
    """State of a sweep that its moves share, and in which they replace entries of `new`.

    `new` has the free variables of the model by name, and `y` the utilities. Moves given the
    regressors target -|y - K W'|^2 / 2 plus the log prior, for K `composition.composite(new)`.
    """

    new: Values
    y: np.ndarray
    composition: Composition
    rng: np.random.Generator
    tuning: Tuning
    moves: Moves


@dataclass(frozen=True)
class RuleMoves:
    """How a sweep moves the variables of a combination rule; this class moves none.

    Subclasses override what their rule needs. The methods replace entries of ``task.new``.
    """

    rule: Any

    def given_regressors(self, task: Task) -> Info:
        """Redraw the weights given W; return the acceptances."""
        return Info()

    def collapsed(self, task: Task) -> None:
        """Redraw the weights with W integrated out."""


class MeanMoves(RuleMoves):
    """Metropolis moves of weights on the simplex and of their concentrations, given W."""

    @override
    def given_regressors(self, task: Task) -> Info:
        new, y, composition, rng, tuning, moves = task
        info = Info()
        if tuning.weights is not None:
            kernels = composition.kernels(new)
            s, n, m = kernels.shape
            partial = (kernels.reshape(s * n, m) @ new["W"].T).reshape(s, -1)
            new["beta"], acceptance = metropolis.update_weights(
                new["beta"],
                new["rho"],
                metropolis.weights_likelihood(partial, y.ravel()),
                tuning.weights,
                rng,
                moves.given_regressors,
            )
            info = info._replace(weights=acceptance)
        if tuning.concentrations is not None:
            new["rho"], acceptances = metropolis.update_concentrations(
                *(new["rho"], new["beta"], self.rule.mu, self.rule.lam),
                *(tuning.concentrations, rng, moves.given_regressors),
            )
            info = info._replace(concentrations=acceptances)
        return info


class BinaryMoves(RuleMoves):
    """Joint draws of a selection of kernels with W integrated out."""

    @override
    def collapsed(self, task: Task) -> None:
        new, y, composition, rng, _, moves = task
        kernels = composition.kernels(new)

        def evidence(state: np.ndarray) -> float:
            composite = np.tensordot(state, kernels, axes=1)
            return log_evidence(y, new["zeta"], composite, composite.T @ composite)

        log_odds = self.rule.log_odds(len(new["beta"]))
        new["beta"], _ = update_selection(
            new["beta"], evidence, log_odds, rng, moves.block, self.rule.empty
        )


#: Moves of each type of rule; a new rule adds its own.
MOVES: dict[type[Combination], type[RuleMoves]] = {
    FixedProduct: RuleMoves,
    FixedWeights: RuleMoves,
    Mean: MeanMoves,
    Binary: BinaryMoves,
    Product: RuleMoves,
}


def moves_of(rule: Combination) -> RuleMoves:
    """Return the moves of a rule, or of the nearest ancestor in `MOVES`."""
    return next(MOVES[each] for each in type(rule).__mro__ if each in MOVES)(rule)


def _walk(
    task: Task, tuning: WalkTuning | None, moves: int, log_likelihood: Callable[[np.ndarray], float]
) -> float:
    """Move exponents and kernel parameters jointly, for a log likelihood of the composite kernel.

    The hyperparameters of the exponents are integrated out. Returns the mean acceptance.
    """
    if tuning is None:
        return np.nan
    coordinates = task.composition.coordinates

    def log_density(psi: np.ndarray) -> float:
        values = coordinates.values(psi)
        if any((value <= LEAST_LOG_ARGUMENT).any() for value in values.values()):
            return -np.inf
        composite = task.composition.composite(task.new | values)
        if not np.isfinite(composite).all():
            return -np.inf
        return log_likelihood(composite) - 0.5 * float(psi @ psi)

    psi, rate = walk(coordinates.psi(task.new), log_density, tuning, task.rng, moves)
    task.new.update(coordinates.values(psi))
    return rate


class AlbertChib(GibbsBlock):
    """Albert-Chib data augmentation for `MultinomialProbit`, as a PyMC step method.

    A sweep redraws all free variables of the declaration. The settings are those of Gibbs, which
    ``kz.engines(model).help("gibbs")`` explains. Kernels and labels are read at construction: make
    a new step after ``pm.set_data``, which must not change the features of kernels with parameters.
    The first 100 tuning sweeps keep a selection.

    Statistics are mean acceptance probabilities of a sweep, NaN without such moves: ``beta_accept``
    and ``rho_accept`` for `Mean`; ``kernel_accept`` and ``marginal_accept`` for exponents and
    parameters, given the regressors and with them integrated out.

    Notes
    -----
    Chains move slowly where weights are learned: these move given the utilities and regressors. On
    the twelve objects of ``MultinomialProbit.example()``, 4 x 3,000 draws after 1,000 tuning sweeps
    had 17 effective draws of the weights and an R-hat of 1.165 with one seed
    (``pm.sample(step=[AlbertChib()], random_seed=0)``), and 108 and 1.023 with another
    (``kz.fit(model, kz.Gibbs(scheme="paper"), random_seed=1)``). `MarginalProbit`, which `kz.Gibbs`
    takes for learned weights, had 2,576 and 1.000. Prefer it unless you study the paper's sampler.
    """

    name = "albert_chib"
    declarations = (MultinomialProbit,)
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {
        "beta_accept": (np.float64, []),
        "rho_accept": (np.float64, []),
        "kernel_accept": (np.float64, []),
        "marginal_accept": (np.float64, []),
    }

    def __init__(
        self,
        vars: Sequence[TensorVariable | str] | None = None,
        *,
        moves: CountOrZero = 5,
        marginal_moves: CountOrZero = 1,
        block: Count = 6,
        **shared: Unpack[Shared],
    ):
        check_arguments(AlbertChib.__init__, locals())
        self._moves = Moves(moves, marginal_moves, block)
        super().__init__(vars, **shared)

    def prepare(self, model: Any, given: Names | None) -> tuple[Names, Names]:
        """Read kernels and labels."""
        owner = type(self).__name__
        if not isinstance(model.combination, tuple(MOVES)):
            known = ", ".join(rule.__name__ for rule in MOVES)
            raise TypeError(
                f"{owner} is available for the combinations {known}. Got "
                f"{type(model.combination).__name__}."
            )
        if "beta" in {variable.name for variable in model.deterministics}:
            raise TypeError(
                f"{owner} draws the weights beta themselves; {type(model.combination).__name__} "
                "declares them as a Deterministic."
            )
        model.check_stand_ins()
        self._composition = model.composition
        self._labels = model.label_codes.astype(np.intp)
        self._tau = model.tau
        self._upsilon = model.upsilon
        owned = declared(model)
        tuning = self.initial_tuning()
        moves = self._moves
        walked = tuning.given_regressors is not None and not moves.collapsed
        if not moves.given_regressors and (tuning.weights is not None or walked):
            rule = "1 or more: no other move changes the weights or kernel parameters"
            raise argument_error("moves", owner, rule, "0")
        return owned, ()

    def initial_tuning(self) -> Tuning:
        """Return untuned proposals for the learned variables of the kernels."""
        return initial_tuning(self._composition)

    def sweep(
        self, values: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> tuple[Mapping[str, np.ndarray], dict[str, Any]]:
        """Redraw the owned variables; adapt the proposals while the chain tunes."""
        held = self.tune and self.tuning.sweeps < HELD
        new, info = sweep(
            *(values, self._labels, self._composition, self._tau, self._upsilon, rng),
            tuning=self.tuning,
            moves=self._moves._replace(block=0) if held else self._moves,
        )
        if self.tune:
            self.tuning = adapt(self.tuning, new, info, self._composition)
        stats = {
            "beta_accept": info.weights,
            "rho_accept": info.concentrations.mean(),
            "kernel_accept": info.given_regressors,
            "marginal_accept": info.collapsed,
        }
        return new, stats
