"""Albert-Chib data augmentation as a PyMC step method for the multinomial probit."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

import numpy as np
from pytensor.tensor import TensorVariable

from ...models.multinomial_probit import MultinomialProbit
from ...validation import Count, CountOrZero, argument_error, check_arguments
from ..block import GibbsBlock, Names, Shared, declared
from .sweep import MOVES, Moves, Tuning, adapt, initial_tuning, sweep

# Number of first tuning sweeps that keep a binary selection. The regressors start at zero, so the
# utilities are noise at first, which favours the kernel of least effect; once the utilities agree
# with a selection, the chain hardly ever leaves it.
HELD = 100


class AlbertChib(GibbsBlock):
    """Albert-Chib data augmentation for `MultinomialProbit`, as a PyMC step method.

    A sweep redraws W and the other variables in `vars`. The latent utilities are drawn anew in each
    sweep and not recorded. Kernels and labels are read at construction: make a new step after
    ``pm.set_data``, which must not change the features of kernels with parameters. TypeError and
    ValueError for other models, variables and settings.

    Parameters
    ----------
    vars : sequence of TensorVariable, optional
        W and all other free variables of the declaration. Only zeta, and beta and rho of `Mean`,
        may be left to other steps, for instance NUTS. Default: all free variables of the
        declaration.
    moves : int, default=5
        Number of Metropolis moves in a sweep given utilities and regressors. They move weights and
        concentrations (`Mean`), exponents (`Product`) and kernel parameters. 0 for none, where
        marginal moves serve.
    marginal_moves : int, default=1
        Number of Metropolis moves in a sweep of exponents and kernel parameters with the regressors
        integrated out. They are longer and cost C Cholesky factorisations each. 0 for none.
    block : int, default=6
        Number of kernels of a binary selection that are redrawn jointly, from all 2^block states
        at C Cholesky factorisations each. Chains of hundreds of objects rarely leave a selection:
        compare several chains, and VB. The first 100 tuning sweeps keep the selection.
    **shared
        model, rng and blocked: see `GibbsBlock`.

    Notes
    -----
    Sample statistics are mean acceptance probabilities of a sweep, NaN without such moves:
    ``beta_accept`` and ``rho_accept`` for `Mean`; ``kernel_accept`` and ``marginal_accept`` for
    exponents and parameters, given the regressors and with them integrated out. Source:
    damoulas2009, appendix A; the marginal moves are ours.

    Examples
    --------
    >>> with model:
    ...     pm.sample(step=[AlbertChib([model["W"], model["zeta"]])])  # NUTS on beta and rho
    """

    name = "albert_chib"
    declarations = (MultinomialProbit,)
    shown: ClassVar[Mapping[str, str]] = {
        "beta_accept": "Weights accepted",
        "marginal_accept": "Kernels accepted",
    }
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
        """Read kernels and labels; choose the variables."""
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
        self._tau, self._upsilon = model.tau, model.upsilon
        owned = given or declared(model)
        self._owned = set(owned)
        left = [name for name in declared(model) if name not in self._owned]
        movable = initial_tuning(self._composition).weights is not None
        may_be_left = {"zeta", "beta", "rho"} if movable else {"zeta"}
        if missing := set(left) - may_be_left:
            raise ValueError(
                f"The 'vars' argument of {owner} must include {', '.join(sorted(missing))}. "
                f"Got {sorted(self._owned)}."
            )
        tuning, (given_regressors, collapsed, _) = self.initial_tuning(), self._moves
        on_simplex = tuning.weights is not None or tuning.concentrations is not None
        walked = tuning.given_regressors is not None and not collapsed
        if not given_regressors and (on_simplex or walked):
            rule = "1 or more: no other move changes the weights or kernel parameters"
            raise argument_error("moves", owner, rule, "0")
        return owned, left

    def initial_tuning(self) -> Tuning:
        """Return untuned proposals for the variables that the step owns."""
        tuning = initial_tuning(self._composition)
        return tuning._replace(
            weights=tuning.weights if "beta" in self._owned else None,
            concentrations=tuning.concentrations if "rho" in self._owned else None,
        )

    def sweep(
        self, values: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> tuple[Mapping[str, np.ndarray], dict[str, Any]]:
        """Redraw the owned variables; adapt the proposals while the chain tunes."""
        held = self.tune and self.tuning.sweeps < HELD
        new, info = sweep(
            *(values, self._labels, self._composition, self._tau, self._upsilon, rng),
            tuning=self.tuning,
            moves=self._moves._replace(block=0) if held else self._moves,
            redraw_variances="zeta" in self._owned,
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
