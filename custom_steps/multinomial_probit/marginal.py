"""Hamiltonian moves of the multinomial probit with its latent variables integrated out."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

import numpy as np
from pymc.util import RandomGenerator
from pytensor.tensor import TensorVariable

from ...models.combinations.products import Product
from ...models.combinations.sums import Binary, Mean
from ...models.multinomial_probit import MultinomialProbit
from ...numerics.probit import log_probability_and_gradient
from ...validation import Count, Fraction, Positive, argument_error, check_arguments
from ..block import GibbsBlock, Names, Shared, declared
from ..moves.hamiltonian import StepTuning, adapt_step
from .kernel_coordinates import KernelCoordinates
from .marginal_sweep import STAGES, Target, marginal_sweep

FIRST_STEP = 0.1
# Number of last tuning sweeps with trajectories of full length. Earlier sweeps only find the
# posterior and a step size, for which a fraction of the length suffices.
FULL_LENGTH = 150
FRACTION = 1 / 8


def serves(model: MultinomialProbit) -> bool:
    """Whether `MarginalProbit` applies to a model's combination of kernels."""
    return not model.learned or isinstance(model.combination, Mean | Product | Binary)


class MarginalProbit(GibbsBlock):
    """Partially collapsed Gibbs sampler of `MultinomialProbit`, as a PyMC step method.

    W, weights, exponents and kernel parameters move by Hamiltonian Monte Carlo with the utilities
    Y, the variances zeta and the weights' hyperparameters integrated out; zeta and hyperparameters
    are redrawn from their conditionals. A selection of kernels moves by annealing W to another one
    (`annealed_move`). Kernels and labels are read at construction: make a new step after
    ``pm.set_data``, which must not change the features of kernels with parameters. TypeError and
    ValueError for other models, rules (`AlbertChib` serves them), variables and settings.

    Parameters
    ----------
    vars : sequence of TensorVariable, optional
        W, zeta and a learned upsilon, with all other variables of the declaration or none. Default:
        all.
    length : float, default=4
        Expected length of a trajectory, in units of the mass matrix. Cost is proportional to it;
        longer trajectories give less correlated draws. Tuning uses an eighth of it until the last
        150 sweeps.
    target_accept : float, default=0.75
        Acceptance probability to which the leapfrog step is tuned.
    stages : int, default=20
        Number of parts in which a move of a selection changes the kernels. Cost is proportional to
        it; more parts accept more moves.
    **shared
        model, rng and blocked: see `GibbsBlock`.

    Notes
    -----
    Sample statistics: ``hmc_accept``, ``hmc_evaluations`` (of the density and its gradient),
    ``hmc_step``, and ``selection_accept``, NaN without a selection. Model: damoulas2009; the
    sampler is ours.

    Examples
    --------
    >>> with model:
    ...     pm.sample(step=[MarginalProbit()])
    """

    name = "marginal_probit"
    declarations = (MultinomialProbit,)
    shown: ClassVar[Mapping[str, str]] = {
        "hmc_accept": "Accepted",
        "hmc_evaluations": "Evaluations",
    }
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
        self._length, self._target_accept, self._stages = length, target_accept, stages
        super().__init__(vars, **shared)

    def prepare(self, model: Any, given: Names | None) -> tuple[Names, Names]:
        """Read kernels and labels; choose the variables."""
        owner = type(self).__name__
        if not serves(model):
            raise TypeError(
                f"{owner} is available for Mean, Product and Binary. Got {model.variant}: use "
                "AlbertChib."
            )
        model.check_stand_ins()
        every = declared(model)
        of_regressors = {"W", "zeta", "upsilon"}.intersection(every)
        of_kernel = set(every) - of_regressors
        owned = given or every
        if set(owned) not in (of_regressors, of_regressors | of_kernel):
            others = f", with all of {', '.join(sorted(of_kernel))} or none" if of_kernel else ""
            rule = f"{' and '.join(sorted(of_regressors))}{others}"
            raise argument_error("vars", owner, rule, f"{sorted(owned)}")
        # Compile once here: otherwise each chain's process would compile for seconds.
        log_probability_and_gradient(np.zeros((1, 2)), np.zeros(1, dtype=int))
        self._target = Target.of(
            *(KernelCoordinates.of(model.composition), model.label_codes, model.n_classes),
            *(model.tau, model.upsilon),
            moves_kernel=bool(of_kernel) and of_kernel <= set(owned),
        )
        # Remaining number of sweeps with short trajectories.
        self._shorter = 0
        return owned, [name for name in every if name in ("beta", "theta") and name not in owned]

    def initial_tuning(self) -> StepTuning:
        """Return the leapfrog step before the first sweep."""
        return StepTuning.start(FIRST_STEP)

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Start a chain, whose first trajectories are short if it tunes for long."""
        super().setup_chain(rng, tune, draws)
        self._shorter = max(tune - FULL_LENGTH, 0)

    def sweep(
        self, values: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> tuple[Mapping[str, np.ndarray], dict[str, Any]]:
        """Redraw the owned variables; adapt the leapfrog step while the chain tunes."""
        tuning: StepTuning = self.tuning
        step = float(np.exp(tuning.log_step if self.tune else tuning.log_average))
        is_short = self.tune and self._shorter > 0
        length = self._length * (FRACTION if is_short else 1)
        new, info = marginal_sweep(
            values, self._target, rng, step=step, length=length, stages=self._stages
        )
        if self.tune:
            self.tuning = adapt_step(tuning, info.acceptance, self._target_accept)
        if is_short:
            self._shorter -= 1
            if not self._shorter:
                # Longer trajectories reach regions of higher curvature, which need a smaller step.
                self.tuning = StepTuning.start(float(np.exp(self.tuning.log_average)))
        stats = {
            "hmc_accept": info.acceptance,
            "hmc_evaluations": info.evaluations,
            "hmc_step": step,
            "selection_accept": info.selection,
        }
        return new, stats
