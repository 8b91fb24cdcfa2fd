"""Gibbs sampling of the composite-kernel models as a PyMC step method."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Unpack

import numpy as np
from pytensor.tensor import TensorVariable

from ...models.combinations.sums import Binary, DirichletWeights, FixedWeights
from ...models.composite_kernel import CompositeKernelClassification, CompositeKernelRegression
from ...numerics.kernel_products import Design
from ...validation import Count, argument_error, check_arguments
from ..block import GibbsBlock, Names, Shared, declared
from ..moves.metropolis import (
    adapt_concentrations,
    adapt_weights,
    initial_concentration_tuning,
    initial_weight_tuning,
)
from .sweep import Classification, Info, Likelihood, Prior, Regression, State, Tuning, sweep

#: Rules of combination whose weights the sweep moves.
RULES = FixedWeights, DirichletWeights, Binary


class CompositeKernelGibbs(GibbsBlock):
    """Gibbs sampler of `CompositeKernelRegression` and `CompositeKernelClassification`.

    A sweep redraws alpha and those of phi, beta, varphi, gamma that are given; NUTS takes the
    others. If the declaration integrates alpha out, the sweep draws alpha for its own use. Outputs
    that share nothing have a sweep each. Polya-Gamma variables are drawn anew in each sweep of the
    classifier and not recorded. Kernels and responses are read at construction: make a new step
    after ``pm.set_data``. TypeError and ValueError for other models, variables and settings.

    Parameters
    ----------
    vars : sequence of TensorVariable, optional
        alpha, if the model has it, and any of phi, beta, varphi, gamma. Default: all free variables
        of the declaration.
    scheme : {"marginal", "paper"}, default="marginal"
        "marginal" moves beta and varphi together with alpha integrated out, by elliptical slice
        sampling, which needs no tuning. "paper" moves them by Metropolis given alpha, as the paper
        sketches; such a chain may keep its weights for thousands of sweeps. Selections need
        "marginal".
    moves : int, default=2
        Number of moves of beta, and of varphi, per sweep.
    block : int, default=2
        Number of kernels of a selection that are drawn jointly, from all 2^block states. Each new
        state costs one factorisation. Other rules do not use it.
    **shared
        model, rng and blocked: see `GibbsBlock`.

    Notes
    -----
    Sample statistics: ``beta_accept`` and ``varphi_accept``, the mean acceptance probabilities of
    the Metropolis moves in a sweep, NaN without such moves; ``evaluations``, the number of
    evaluations of the evidence in a marginal sweep. Source: girolami2005, sections 3 and 4.

    Examples
    --------
    >>> with model:
    ...     pm.sample(step=[CompositeKernelGibbs([model["alpha"], model["phi"]])])
    """

    name = "composite_kernel_gibbs"
    declarations = (CompositeKernelRegression, CompositeKernelClassification)
    shown: ClassVar[Mapping[str, str]] = {"evaluations": "Evaluations"}
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
        self._marginal, self._moves, self._block = scheme == "marginal", moves, block
        super().__init__(vars, **shared)

    def prepare(self, model: Any, given: Names | None) -> tuple[Names, Names]:
        """Read kernels and responses; choose the variables."""
        owner = type(self).__name__
        owned = given or declared(model)
        self._owned = frozenset(owned)
        marginal = "alpha" not in model.named_vars
        if not marginal and "alpha" not in self._owned:
            raise ValueError(
                f"The 'vars' argument of {owner} must include alpha. Got {sorted(self._owned)}."
            )
        if marginal and not self._marginal and "beta" in self._owned:
            raise ValueError(
                f"The 'scheme' argument of {owner} must be 'marginal' where the model has alpha "
                "integrated out: its beta cannot be moved given alpha. Got 'paper'."
            )
        if "varsigma" in self._owned and "phi" not in self._owned:
            got = f"{sorted(self._owned)}"
            raise argument_error("vars", owner, "such that phi moves with varsigma", got)
        self._likelihoods, self._prior = _likelihoods(model), _prior(model)
        if self._prior.selection is not None and not self._marginal:
            raise ValueError(
                f"The 'scheme' argument of {owner} must be 'marginal' for Binary: a selection "
                "hardly moves given alpha. Got 'paper'."
            )
        design = model.design
        self._design = Design.of(design, constant=model.bias_apart)
        self._apart = model.apart
        concentration = getattr(model.combination, "varphi", None) or 1.0
        # Values of parameters that are not variables of the model.
        k, m = len(design), design.shape[2]
        self._constants: dict[str, Any] = {
            "alpha": np.zeros(m),
            "beta": np.ones(k),
            "varphi": np.full(k, concentration),
            "gamma": 1.0,
        }
        return owned, [n for n in declared(model) if n in State._fields and n not in owned]

    def initial_tuning(self) -> list[Tuning]:
        """Make untuned proposals for those of beta and varphi that move by Metropolis.

        There are one sweep's proposals for each output that shares nothing, else for all.
        """
        k = len(self._design.stack)
        by_ellipse = {"beta", "varphi"} if self._marginal and "beta" in self._owned else set()
        by_metropolis = self._owned - by_ellipse
        tuning = Tuning(
            initial_weight_tuning(k) if "beta" in by_metropolis else None,
            initial_concentration_tuning(k) if "varphi" in by_metropolis else None,
        )
        return [tuning] * len(self._likelihoods)

    def sweep(
        self, values: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> tuple[Mapping[str, np.ndarray], dict[str, Any]]:
        """Redraw the owned variables; adapt the proposals while the chain tunes."""
        swept = [
            sweep(
                State(**self._constants | own),
                likelihood,
                self._design,
                self._prior,
                rng,
                redraw=self._owned,
                tuning=tuning,
                moves=self._moves,
                block=self._block,
            )
            for own, likelihood, tuning in zip(
                self._values_of_sweeps(values), self._likelihoods, self.tuning, strict=True
            )
        ]
        if self.tune:
            self.tuning = [
                _adapt(tuning, *each) for tuning, each in zip(self.tuning, swept, strict=True)
            ]
        states, infos = zip(*swept, strict=True)
        stats = {
            "beta_accept": np.mean([info.weights for info in infos]),
            "varphi_accept": np.mean([info.concentrations for info in infos]),
            "evaluations": sum(info.evaluations for info in infos),
        }
        if not self._apart:
            return states[0]._asdict(), stats
        return {
            name: np.stack([getattr(state, name) for state in states]) for name in State._fields
        }, stats

    def _values_of_sweeps(self, values: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
        """Values for each sweep: one for all outputs, or one an output if they share nothing."""
        if not self._apart:
            return [dict(values)]
        return [
            {name: value[o] for name, value in values.items()}
            for o in range(len(self._likelihoods))
        ]


def _likelihoods(
    model: CompositeKernelRegression | CompositeKernelClassification,
) -> list[Likelihood]:
    """One likelihood for each sweep."""
    if not isinstance(model, CompositeKernelRegression):
        return [Classification(model.label_codes - 0.5)]
    targets = model.target_values
    return [Regression(each) for each in (targets.T if model.apart else [targets])]


def _prior(model: CompositeKernelRegression | CompositeKernelClassification) -> Prior:
    prior = Prior(model.sigma, model.varsigma)
    if isinstance(model, CompositeKernelRegression):
        prior = replace(prior, rho=model.rho, varrho=model.varrho)
    rule = model.combination
    if isinstance(rule, DirichletWeights):
        return replace(prior, tau=rule.tau, nu=rule.nu)
    return replace(prior, selection=rule) if isinstance(rule, Binary) else prior


def _adapt(tuning: Tuning, state: State, info: Info) -> Tuning:
    weights, concentrations = tuning
    if weights is not None:
        weights = adapt_weights(weights, state.beta, info.weights)
    if concentrations is not None:
        concentrations = adapt_concentrations(concentrations, info.concentrations)
    return Tuning(weights, concentrations)
