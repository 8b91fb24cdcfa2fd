"""Albert-Chib data augmentation as a PyMC step method for the multinomial probit."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

import numpy as np
from pytensor.tensor import TensorVariable

from ...models.combinations.sums import rules_known_to
from ...models.multinomial_probit import MultinomialProbit
from ...validation import check_count
from ..block import GibbsBlock, Names, Shared, declared
from .sweep import REDRAWS, Moves, Tuning, adapt, initial_tuning, sweep

__all__ = ["AlbertChib"]


# Sweeps of a tuning chain that leave a binary selection as it is. At the regressors' start, zero,
# the utilities are noise, which the kernel of least effect explains best; a selection is hardly
# ever left again once the utilities have come to agree with it.
HELD = 100


class AlbertChib(GibbsBlock):
    """Albert-Chib data augmentation for `MultinomialProbit`, as a PyMC step method.

    A sweep redraws W and the other variables that the step is given. The latent utilities are drawn
    afresh in each sweep and not recorded. Kernels and labels are read when the step is made: make
    it anew after ``pm.set_data``, which may not change what kernels with parameters are made of.

    Parameters
    ----------
    vars : sequence of TensorVariable, optional
        W, and all other free variables of the declaration but zeta, and but beta and rho of `Mean`,
        which may be left to other steps: NUTS takes them on the marginal declaration. Default: all
        free variables of the declaration.
    moves : int, default=5
        Metropolis moves in a sweep given the utilities and the regressors: of weights and
        concentrations (`Mean`), exponents (`Product`) and kernel parameters. 0 for none.
    collapsed : int, default=1
        Metropolis moves of exponents and parameters with the regressors integrated out: they go
        farther and cost C Cholesky factorisations each. 0 for none.
    block : int, default=6
        Kernels of a binary selection that are redrawn jointly, over all their 2^block states with
        C Cholesky factorisations each; 1 flips them one by one. Given the utilities of hundreds
        of objects a selection is rarely left: compare chains, and VB. The first 100 sweeps of a
        tuning chain leave it as it is.
    **shared
        model, rng and blocked: see `GibbsBlock`.

    Raises
    ------
    TypeError
        When the model is not a `MultinomialProbit`, or has a rule of combination that the sweep
        does not know.
    ValueError
        When a variable is missing that the step must redraw, for settings out of range, and for
        features that ``pm.set_data`` has changed.

    Notes
    -----
    Sample statistics: mean acceptance probabilities of a sweep, NaN where a move is not made:
    ``beta_accept`` and ``rho_accept`` of `Mean`; ``kernel_accept`` and ``collapsed_accept`` of
    exponents and parameters given the regressors and without them. Source: damoulas2009, appendix
    A; the collapsed moves are ours.

    Examples
    --------
    >>> with model:
    ...     pm.sample(step=[AlbertChib([model["W"], model["zeta"]])])  # NUTS on beta and rho
    """

    name = "albert_chib"
    declarations = (MultinomialProbit,)
    shown: ClassVar[Mapping[str, str]] = {
        "beta_accept": "Weights accepted",
        "collapsed_accept": "Kernels accepted",
    }
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {
        "beta_accept": (np.float64, []),
        "rho_accept": (np.float64, []),
        "kernel_accept": (np.float64, []),
        "collapsed_accept": (np.float64, []),
    }

    def __init__(
        self,
        vars: Sequence[TensorVariable | str] | None = None,
        *,
        moves: int = 5,
        collapsed: int = 1,
        block: int = 6,
        **shared: Unpack[Shared],
    ):
        owner = type(self).__name__
        self._moves = Moves(
            check_count(moves, "moves", owner, least=0),
            check_count(collapsed, "collapsed", owner, least=0),
            check_count(block, "block", owner),
        )
        super().__init__(vars, **shared)

    def prepare(self, model: Any, given: Names | None) -> tuple[Names, Names]:
        """Read kernels and labels; choose the variables."""
        owner = type(self).__name__
        rules = rules_known_to(*REDRAWS)
        if not isinstance(model.combination, tuple(rules)):
            known = ", ".join(rule.__name__ for rule in rules)
            raise TypeError(
                f"{owner} knows the combinations {known}. Got {type(model.combination).__name__}."
            )
        if "beta" in {variable.name for variable in model.deterministics}:
            raise TypeError(
                f"{owner} draws the weights beta themselves; {type(model.combination).__name__} "
                "declares them as a Deterministic."
            )
        model.check_parametric(owner)
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
        return owned, left

    def initial_tuning(self) -> Tuning:
        """Untuned proposals for what the step owns."""
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
            "collapsed_accept": info.collapsed,
        }
        return new, stats
