r"""Gibbs sampling of regression and classification on a composite kernel.

Given the kernels' weights and their concentrations, the model is conjugate (girolami2005, section
4, sketches the sampler); in classification with a Polya-Gamma variable for each object (Polson,
Scott & Windle 2013), drawn anew in every sweep.

=========== ============================================= =================
paper       meaning                                       code
=========== ============================================= =================
alpha, phi  regression weights and their precisions       ``State``
beta        weights of the kernels                        ``State``
varphi      their concentrations                          ``State``
gamma       precision of the noise; 1 in classification   ``State``
varsigma    rate of phi, if it is learned                 ``State``
t_n         target, or label less one half                ``response`` (N,)
=========== ============================================= =================

Regression takes P outputs: ``response`` is then (N, P), alpha (P, M), and gamma one number or (P,).

The likelihood of the scores f = K_beta alpha is sum_n l_n f_n - w_n f_n^2 / 2 in both models, with
w = gamma and l = gamma t in regression; w = omega, l = t - 1/2 with t in {0, 1} in classification.
Outputs with one gamma share a factorisation; those with their own need one each. (Eigenvalues would
serve all, but cost as much as 20 to 35 factorisations.)
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, Unpack, override

import numpy as np
from polyagamma import random_polyagamma
from pytensor.tensor import TensorVariable

from ...models.combinations.sums import Binary, DirichletWeights, FixedWeights
from ...models.composite_kernel import CompositeKernelClassification, CompositeKernelRegression
from ...models.learned_scale import LearnedScale
from ...numerics.kernel_products import Design
from ...numerics.normal_regression import Conditional, dual, primal
from ...validation import Count, argument_error, check_arguments
from ..block import GibbsBlock, Names, Shared, declared
from ..moves import metropolis
from ..moves.ellipse import draw_rate, move_rate, update_simplex
from ..moves.metropolis import ConcentrationTuning, WalkTuning
from ..moves.selection import update_selection

#: Rules of combination whose weights the sweep moves.
RULES_OF_SWEEP = FixedWeights, DirichletWeights, Binary


class State(NamedTuple):
    """Position of the chain; alpha, phi are (M,), beta, varphi (K,). Varsigma counts if learned."""

    alpha: np.ndarray
    phi: np.ndarray
    beta: np.ndarray
    varphi: np.ndarray
    gamma: float | np.ndarray
    varsigma: float = 1.0


class Tuning(NamedTuple):
    """Proposals of the Metropolis moves; None for moves that are not made."""

    weights: WalkTuning | None = None
    concentrations: ConcentrationTuning | None = None


COLLAPSED = Tuning()


class Info(NamedTuple):
    """Mean acceptances of Metropolis moves, NaN without; evaluations of the evidence."""

    weights: float
    concentrations: np.ndarray
    evaluations: int


@dataclass(frozen=True)
class Prior:
    """phi ~ Gamma(sigma, rate varsigma), varphi ~ Gamma(tau, nu), gamma ~ Gamma(rho, varrho).

    With a `selection`, beta has its prior and there is no varphi.
    """

    sigma: float = 1.0
    varsigma: float | LearnedScale = 1.0
    tau: float = 1.0
    nu: float = 1.0
    rho: float = 1.0
    varrho: float = 1.0
    selection: Binary | None = None


class Terms(NamedTuple):
    """Precisions w (N,) or a number, and linear terms l (N,), or (N, P) for a number w."""

    w: np.ndarray | float
    linear: np.ndarray


class Regression(NamedTuple):
    """Normal noise of precision gamma around the scores; `response` are targets (N,) or (N, P)."""

    response: np.ndarray

    def terms(self, state: State, design: Design, rng: np.random.Generator) -> list[Terms]:
        """Quadratic forms of the scores: one for all outputs, or one per output."""
        if np.ndim(state.gamma) == 0:
            return [Terms(state.gamma, state.gamma * self.response)]
        columns = self.response.T[:, :, None]
        return [
            Terms(g, g * column) for g, column in zip(np.asarray(state.gamma), columns, strict=True)
        ]


class Classification(NamedTuple):
    """Bernoulli with the scores as logits; `response` are labels (0 or 1) minus one half."""

    response: np.ndarray

    def terms(self, state: State, design: Design, rng: np.random.Generator) -> list[Terms]:
        """Draw omega_n ~ PG(1, f_n), and return the quadratic form of the scores."""
        scores = design.composite(state.beta) @ state.alpha
        # The package's default method draws 0.16 for any score beyond 175.
        omega = random_polyagamma(1.0, scores, method="alternate", random_state=rng)
        return [Terms(omega, self.response)]


type Likelihood = Regression | Classification


@dataclass(frozen=True)
class Independent(Conditional):
    """Conditionals of outputs, one law each, that are independent given everything else."""

    laws: list[Conditional]

    @override
    def log_evidence(self) -> float:
        return sum(law.log_evidence() for law in self.laws)

    @override
    def draw(self, rng: np.random.Generator) -> np.ndarray:
        return np.hstack([law.draw(rng) for law in self.laws])


def conditional(
    design: Design, beta: np.ndarray, terms: list[Terms], phi: np.ndarray
) -> Conditional:
    """Conditional distribution of alpha (M,), or (M, P), factorised in the smaller dimension L.

    For each of the terms O(K^2 M^2 + M^3) with stored products; else O(K N M + N M L + L^3).
    """
    composite = design.composite(beta)
    if design.products is not None and all(np.ndim(each.w) == 0 for each in terms):
        gram = design.gram(beta, composite)
        laws: list[Conditional] = [primal(composite, *each, phi, each.w * gram) for each in terms]
    else:
        law = dual if composite.shape[0] < composite.shape[1] else primal
        laws = [law(composite, *each, phi) for each in terms]
    return laws[0] if len(laws) == 1 else Independent(laws)


def draw_precisions(
    alpha: np.ndarray, sigma: float, varsigma: float, rng: np.random.Generator
) -> np.ndarray:
    """Draw phi | alpha (M,) or (P, M): Gamma(sigma + P/2, rate varsigma + sum_p alpha_p^2/2)."""
    alpha = np.atleast_2d(alpha)
    outputs, functions = alpha.shape
    squares = (alpha**2).sum(axis=0)
    return rng.standard_gamma(sigma + 0.5 * outputs, size=functions) / (varsigma + 0.5 * squares)


def draw_noise_precision(
    residual: np.ndarray, rho: float, varrho: float, rng: np.random.Generator
) -> float:
    """Draw gamma | residual: Gamma(rho + N/2, rate varrho + sum residual^2/2) of its N numbers."""
    squares = np.vdot(residual, residual)
    return rng.standard_gamma(rho + 0.5 * residual.size) / (varrho + 0.5 * squares)


def sweep(
    state: State,
    likelihood: Likelihood,
    design: Design,
    prior: Prior,
    rng: np.random.Generator,
    *,
    redraw: Collection[str],
    tuning: Tuning = COLLAPSED,
    moves: int = 2,
    block: int = 2,
) -> tuple[State, Info]:
    """Redraw alpha and the variables named in `redraw`, leaving the joint posterior invariant.

    The auxiliary variables depend on alpha and come first. Weights that move with alpha integrated
    out come next: until alpha is redrawn, no draw may depend on its old value. With proposals in
    `tuning`, beta moves by Metropolis given alpha, and varphi given beta; without, by elliptical
    slice sampling, and selections by draws of `block` kernels jointly.
    """
    alpha, phi, beta, varphi, gamma, varsigma = state
    rate = prior.varsigma
    terms = likelihood.terms(state, design, rng)
    acceptance = np.nan
    evaluations = 0
    joint = "varphi" in redraw and tuning.concentrations is None

    def evidence(weights: np.ndarray, precisions: np.ndarray = phi) -> float:
        return conditional(design, weights, terms, precisions).log_evidence()

    if tuning.weights is not None:
        log_likelihood = metropolis.weights_likelihood(*_by_kernel(design, alpha, terms))
        beta, acceptance = metropolis.update_weights(
            beta, varphi, log_likelihood, tuning.weights, rng, moves
        )
    elif "beta" in redraw and prior.selection is not None:
        log_odds = prior.selection.log_odds(len(beta))
        empty = prior.selection.empty
        beta, evaluations = update_selection(beta, evidence, log_odds, rng, block, empty, moves)
    elif "beta" in redraw:
        learned = (prior.tau, prior.nu) if joint else None
        beta, varphi, evaluations = update_simplex(
            beta, varphi, evidence, rng, moves, concentrations=learned
        )
    concentration_acceptance = np.full(len(beta), np.nan)
    if tuning.concentrations is not None:
        varphi, concentration_acceptance = metropolis.update_concentrations(
            varphi, beta, prior.tau, prior.nu, tuning.concentrations, rng, moves
        )
    if isinstance(rate, LearnedScale) and "varsigma" in redraw:
        varsigma, phi, more = move_rate(varsigma, phi, partial(evidence, beta), rate, rng)
        evaluations += more
        varsigma = draw_rate(varsigma, phi, prior.sigma, rate, rng)
    alpha = conditional(design, beta, terms, phi).draw(rng).T
    if "phi" in redraw:
        known = varsigma if isinstance(rate, LearnedScale) else rate
        phi = draw_precisions(alpha, prior.sigma, known, rng)
    if "gamma" in redraw:
        residual = likelihood.response - design.composite(beta) @ alpha.T
        if np.ndim(gamma) == 0:
            gamma = draw_noise_precision(residual, prior.rho, prior.varrho, rng)
        else:
            each = [draw_noise_precision(r, prior.rho, prior.varrho, rng) for r in residual.T]
            gamma = np.array(each)
    state = State(alpha, phi, beta, varphi, gamma, varsigma)
    return state, Info(acceptance, concentration_acceptance, evaluations)


def _by_kernel(
    design: Design, alpha: np.ndarray, terms: list[Terms]
) -> tuple[np.ndarray, np.ndarray, np.ndarray | float]:
    """Scores (K, n) by kernel, linear terms (n,) and precisions, with all outputs in one row."""
    scores = design.stack @ alpha.T
    if scores.ndim == 2:
        return scores, terms[0].linear, terms[0].w
    linear = np.hstack([each.linear for each in terms])
    w = np.broadcast_to([each.w for each in terms], linear.shape)
    return scores.reshape(len(scores), -1), linear.ravel(), w.ravel()


class CompositeKernelGibbs(GibbsBlock):
    """Gibbs sampler of `CompositeKernelRegression` and `CompositeKernelClassification`.

    A sweep redraws all free variables of the declaration; if this integrates alpha out, the sweep
    draws alpha for its own use. The settings are those of Gibbs, which
    ``kz.engines(model).help("gibbs")`` explains. Kernels and responses are read at construction:
    make a new step after ``pm.set_data``.

    Statistics: the mean acceptance probabilities of a sweep's Metropolis moves, NaN without them,
    and the number of evaluations of the evidence in a marginal sweep.
    """

    name = "composite_kernel_gibbs"
    declarations = (CompositeKernelRegression, CompositeKernelClassification)
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {
        "beta_accept": (np.float64, []),
        "varphi_accept": (np.float64, []),
        "evaluations": (np.int64, []),
    }

    def __init__(
        self,
        vars: Sequence[TensorVariable | str] | None = None,
        *,
        scheme: Literal["marginal", "paper"] = "marginal",
        moves: Count = 2,
        block: Count = 2,
        **shared: Unpack[Shared],
    ):
        check_arguments(CompositeKernelGibbs.__init__, locals())
        self._marginal = scheme == "marginal"
        self._moves = moves
        self._block = block
        super().__init__(vars, **shared)

    def prepare(self, model: Any, given: Names | None) -> tuple[Names, Names]:
        """Read kernels and responses."""
        owner = type(self).__name__
        owned = declared(model)
        self._owned = frozenset(owned)
        collapsed = "alpha" not in model.named_vars
        rule = model.combination
        prior = {"sigma": model.sigma, "varsigma": model.varsigma}
        self._likelihood: Likelihood
        if isinstance(model, CompositeKernelRegression):
            self._likelihood = Regression(model.target_values)
            prior |= {"rho": model.rho, "varrho": model.varrho}
        else:
            self._likelihood = Classification(model.label_codes - 0.5)
        if isinstance(rule, DirichletWeights):
            prior |= {"tau": rule.tau, "nu": rule.nu}
        selects = isinstance(rule, Binary)
        self._prior = Prior(**prior, selection=rule if selects else None)
        if not self._marginal and (selects or (collapsed and "beta" in self._owned)):
            needed = "'marginal' for Binary selections, and for models with alpha integrated out"
            raise argument_error("scheme", owner, needed, "'paper'")
        design = model.design
        self._design = Design.of(design, constant=model.bias_apart)
        concentration = getattr(rule, "varphi", None) or 1.0
        # Values of parameters that are not variables of the model.
        k = len(design)
        m = design.shape[2]
        self._constants: dict[str, Any] = {
            "alpha": np.zeros(m),
            "beta": np.ones(k),
            "varphi": np.full(k, concentration),
            "gamma": 1.0,
        }
        return owned, ()

    def initial_tuning(self) -> Tuning:
        """Untuned proposals, for those of beta and varphi that move by Metropolis."""
        if self._marginal:
            return COLLAPSED
        k = len(self._design.stack)
        return Tuning(
            metropolis.initial_weight_tuning(k) if "beta" in self._owned else None,
            metropolis.initial_concentration_tuning(k) if "varphi" in self._owned else None,
        )

    def sweep(
        self, values: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> tuple[Mapping[str, np.ndarray], dict[str, Any]]:
        """Redraw the owned variables; adapt the proposals while the chain tunes."""
        state, info = sweep(
            State(**{**self._constants, **values}),
            self._likelihood,
            self._design,
            self._prior,
            rng,
            redraw=self._owned,
            tuning=self.tuning,
            moves=self._moves,
            block=self._block,
        )
        if self.tune:
            weights, concentrations = self.tuning
            self.tuning = Tuning(
                metropolis.adapt_weights(weights, state.beta, info.weights),
                metropolis.adapt_concentrations(concentrations, info.concentrations),
            )
        return state._asdict(), {
            "beta_accept": info.weights,
            "varphi_accept": np.mean(info.concentrations),
            "evaluations": info.evaluations,
        }
