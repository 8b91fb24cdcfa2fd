"""Albert-Chib data augmentation as a PyMC step method for the multinomial probit."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

import numpy as np
from pytensor.tensor import TensorVariable

from ...models.multinomial_probit import MultinomialProbit
from ...validation import Count, CountOrZero, argument_error, check_arguments
from ..block import GibbsBlock, Names, Shared, check_owned, declared
from .sweep import MOVES, Moves, Tuning, adapt, initial_tuning, sweep

# Number of first tuning sweeps that keep a binary selection. The regressors start at zero, so the
# utilities are noise at first, which favours the kernel of least effect; once the utilities agree
# with a selection, the chain hardly ever leaves it.
HELD = 100


class AlbertChib(GibbsBlock):
    """Albert-Chib data augmentation for `MultinomialProbit`, as a PyMC step method.

    A sweep redraws all free variables of the declaration. The latent utilities are drawn anew in
    each sweep and not recorded. Kernels and labels are read at construction: make a new step after
    ``pm.set_data``, which must not change the features of kernels with parameters. TypeError and
    ValueError for other models, variables and settings.

    Parameters
    ----------
    vars : sequence of TensorVariable, optional
        All free variables of the declaration, in any order.
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
    ...     pm.sample(step=[AlbertChib()])
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
        self._tau, self._upsilon = model.tau, model.upsilon
        owned = declared(model)
        check_owned(given, owned, owner)
        tuning, (given_regressors, collapsed, _) = self.initial_tuning(), self._moves
        walked = tuning.given_regressors is not None and not collapsed
        if not given_regressors and (tuning.weights is not None or walked):
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
