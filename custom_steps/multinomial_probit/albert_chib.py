"""Albert-Chib data augmentation as a PyMC step method for the multinomial probit."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pymc as pm
from pymc.util import RandomGenerator, get_value_vars_from_user_vars
from pytensor.tensor import TensorVariable

from ...models.combinations.sums import Mean
from ...models.multinomial_probit import MultinomialProbit
from ...numerics.kernel_products import Design
from ...validation import check_count
from ..block import GibbsBlock, check_declaration
from ..moves.simplex_metropolis import (
    adapt_concentrations,
    adapt_weights,
    initial_concentration_tuning,
    initial_weight_tuning,
)
from .sweep import Info, Prior, State, Tuning, sweep

__all__ = ["AlbertChib"]


class AlbertChib(GibbsBlock):
    """Albert-Chib data augmentation for `MultinomialProbit`, as a PyMC step method.

    A sweep redraws W and whichever of zeta, beta, rho it is given; NUTS takes the rest on the
    marginal declaration. The latent utilities are drawn afresh in each sweep and not recorded.
    Kernels and labels are read when the step is made: make it anew after ``pm.set_data``.

    Parameters
    ----------
    vars : sequence of TensorVariable, optional
        W and any of zeta, beta, rho. Default: all free variables of the model.
    moves : int, default=5
        Metropolis moves of beta, and of rho, in a sweep.
    model : MultinomialProbit, optional
        Default: the model on the context stack.
    rng : seed or Generator, optional
        Used until PyMC hands over the chain's generator.
    blocked : bool, default=True
        As PyMC passes it; the step is always one block.

    Raises
    ------
    TypeError
        When the model is not a `MultinomialProbit` with fixed weights or exponents, or with the
        weights of `Mean`: `KernelAlbertChib` serves the others.
    ValueError
        When W is not among the variables, or `moves` is below one.

    Notes
    -----
    Sample statistics: ``beta_accept`` and ``rho_accept``, the mean acceptance probabilities of a
    sweep, NaN where the step does not own the variable. Source: damoulas2009, appendix A.

    Examples
    --------
    >>> with model:
    ...     pm.sample(step=[AlbertChib([model["W"], model["zeta"]])])  # NUTS on beta and rho
    """

    name = "albert_chib"
    shown: ClassVar[Mapping[str, str]] = {"beta_accept": "Weights accepted"}
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {
        "beta_accept": (np.float64, []),
        "rho_accept": (np.float64, []),
    }

    def __init__(
        self,
        vars: Sequence[TensorVariable] | None = None,
        *,
        moves: int = 5,
        model: pm.Model | None = None,
        rng: RandomGenerator = None,
        blocked: bool = True,
    ):
        model = pm.modelcontext(model)
        check_declaration(model, "AlbertChib", MultinomialProbit)
        check_count(moves, "moves", "AlbertChib")
        values = model.value_vars if vars is None else list(vars)
        values = get_value_vars_from_user_vars(values, model)
        self._owned = {model.values_to_rvs[value].name for value in values}
        if "W" not in self._owned:
            raise ValueError(
                f"The 'vars' argument of AlbertChib must include W. Got {sorted(self._owned)}."
            )
        if model.parametric is not None:
            raise TypeError(
                "AlbertChib knows kernels without parameters; KernelAlbertChib takes theta too."
            )
        self._prior = Prior(model.tau, model.upsilon)
        if model.learned:
            if not isinstance(model.combination, Mean):
                raise TypeError(
                    "AlbertChib knows the combinations Mean, FixedWeights and FixedProduct; "
                    f"KernelAlbertChib knows more. Got {type(model.combination).__name__}."
                )
            self._prior = replace(self._prior, mu=model.combination.mu, lam=model.combination.lam)
        self._design = Design.of(model.summands)
        self._labels = model.label_codes.astype(np.intp)
        self._moves = moves
        others = [rv for rv in model.free_RVs if model.rvs_to_values[rv] not in values]
        # Not those that were added to the declaration, which are no part of the state.
        needed = [rv for rv in others if rv.name in State._fields]
        super().__init__(values, reads=needed, model=model, rng=rng, blocked=blocked)

    def initial_tuning(self) -> Tuning:
        """Untuned proposals for those of beta and rho that the step owns."""
        s = len(self._design.stack)
        return Tuning(
            initial_weight_tuning(s) if "beta" in self._owned else None,
            initial_concentration_tuning(s) if "rho" in self._owned else None,
        )

    def sweep(
        self, values: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> tuple[Mapping[str, np.ndarray], dict[str, Any]]:
        """Redraw the owned variables; adapt the proposals while the chain tunes."""
        # What the model does not learn has no value: the stack is then a single kernel.
        unit = np.ones(len(self._design.stack))
        state, info = sweep(
            State(**{"beta": unit, "rho": unit, **values}),
            self._labels,
            self._design,
            self._prior,
            rng,
            tuning=self.tuning,
            moves=self._moves,
            redraw_variances="zeta" in self._owned,
        )
        if self.tune:
            self.tuning = _adapt(self.tuning, state, info)
        stats = {"beta_accept": info.weights, "rho_accept": info.concentrations.mean()}
        return state._asdict(), stats


def _adapt(tuning: Tuning, state: State, info: Info) -> Tuning:
    weights, concentrations = tuning
    if weights is not None:
        weights = adapt_weights(weights, state.beta, info.weights)
    if concentrations is not None:
        concentrations = adapt_concentrations(concentrations, info.concentrations)
    return Tuning(weights, concentrations)
