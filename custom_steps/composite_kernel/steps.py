"""Gibbs sampling of the composite-kernel models as a PyMC step method."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Unpack

import numpy as np
from pytensor.tensor import TensorVariable

from ...models.combinations.sums import Binary, DirichletWeights, FixedWeights
from ...models.composite_kernel import CompositeKernelClassification, CompositeKernelRegression
from ...numerics.kernel_products import Design
from ...validation import Count, check_arguments
from ..block import GibbsBlock, Names, Shared, declared
from .sweep import Classification, Likelihood, Prior, Regression, State, sweep

__all__ = ["RULES", "CompositeKernelGibbs"]

#: Rules of combination whose weights the sweep moves.
RULES = FixedWeights, DirichletWeights, Binary


class CompositeKernelGibbs(GibbsBlock):
    """Gibbs sampler of `CompositeKernelRegression` and `CompositeKernelClassification`.

    A sweep redraws alpha and those of phi, beta, varphi, gamma that are given; NUTS takes the
    others. varphi moves together with beta. If the declaration integrates alpha out, the sweep
    draws alpha for its own use. Outputs that share nothing have a sweep each. Polya-Gamma variables
    are drawn anew in each sweep of the classifier and not recorded. Kernels and responses are read
    at construction: make a new step after ``pm.set_data``.

    Parameters
    ----------
    vars : sequence of TensorVariable, optional
        Default: all free variables of the declaration.
    moves : int, default=2
        Number of moves of the weights per sweep.
    block : int, default=2
        Number of kernels of a selection that are drawn jointly, from all 2^block states. Each new
        state costs one factorisation.
    **shared
        model, rng and blocked: see `GibbsBlock`.

    Notes
    -----
    Sample statistic: ``evaluations`` of the evidence in a sweep. Source: girolami2005, sections 3
    and 4.

    Examples
    --------
    >>> with model:
    ...     pm.sample(step=[CompositeKernelGibbs([model["alpha"], model["phi"]])])
    """

    name = "composite_kernel_gibbs"
    declarations = (CompositeKernelRegression, CompositeKernelClassification)
    shown: ClassVar[Mapping[str, str]] = {"evaluations": "Evaluations"}
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {"evaluations": (np.int64, [])}

    def __init__(
        self,
        vars: Sequence[TensorVariable | str] | None = None,
        *,
        moves: Count = 2,
        block: Count = 2,
        **shared: Unpack[Shared],
    ):
        check_arguments(CompositeKernelGibbs.__init__, locals())
        self._moves, self._block = moves, block
        super().__init__(vars, **shared)

    def prepare(self, model: Any, given: Names | None) -> tuple[Names, Names]:
        """Read kernels and responses; choose the variables."""
        owned = given or declared(model)
        self._owned = frozenset(owned)
        missing = {"alpha"} if "alpha" in model.named_vars else set()
        # The concentrations have no move of their own.
        missing |= {"beta"} if "varphi" in self._owned else set()
        if missing := missing - self._owned:
            raise ValueError(
                f"The 'vars' argument of {type(self).__name__} must include "
                f"{', '.join(sorted(missing))}. Got {sorted(self._owned)}."
            )
        self._likelihoods, self._prior = _likelihoods(model), _prior(model)
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

    def sweep(
        self, values: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> tuple[Mapping[str, np.ndarray], dict[str, Any]]:
        """Redraw the owned variables."""
        given = [values]
        if self._apart:
            outputs = range(len(self._likelihoods))
            given = [{name: value[o] for name, value in values.items()} for o in outputs]
        swept = [
            sweep(
                *(State(**{**self._constants, **own}), likelihood, self._design, self._prior, rng),
                redraw=self._owned,
                moves=self._moves,
                block=self._block,
            )
            for own, likelihood in zip(given, self._likelihoods, strict=True)
        ]
        states, evaluations = zip(*swept, strict=True)
        stats = {"evaluations": sum(evaluations)}
        if not self._apart:
            return states[0]._asdict(), stats
        return {
            name: np.stack([getattr(state, name) for state in states]) for name in State._fields
        }, stats


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
