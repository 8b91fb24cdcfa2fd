r"""Variational Bayes for the multinomial probit with several kernels (Damoulas & Girolami 2009).

Mean field q(Y) q(W) q(zeta) q(beta) q(rho) for the model augmented with utilities y_n ~ N(f_n, I),
t_n = argmax y_n. With G(B) = sum_ij B_ij K_i'K_j and K_bar = sum_s E[beta_s] K_s:

| factor | paper | here |
|---|---|---|
| Y | eqs 6-8: normals truncated to cones | `truncated_moments`, exact quadrature |
| W | eqs 9-10: V_c, mean V_c K_bar'E[y_c] | B = E[beta beta'], not E[beta]E[beta]'; E[1/zeta_c] |
| zeta | eq 11 | 1/zeta ~ Gamma(tau + 1/2, upsilon + E[w^2]/2) |
| beta | appendix B.4, importance sampling | `simplex_factor`, the V_c terms included |
| rho | appendix B.4, importance sampling | `concentration_factor` with E[log beta] |

What mean field costs, measured on 24 objects against Gibbs (`tests/inference/test_agreement.py`):
contrasts of W are drawn towards zero by up to .8 posterior standard deviations, the weights' means
move by .6, and the standard deviations are .2 to .45 (contrasts) and .3 (weights) of the truth.

The bound holds all factors and never falls, but for more than three weights by the error of their
quadrature when its points are placed anew: .001 (S = 4), .004 (S = 6), .012 (S = 8) at most on
small problems. `weights="plug-in"` is the printed algorithm instead: E[beta] stands for beta in V_c
and in Q(rho), Q(beta) leaves out the covariance of W, and the monitored objective is E.5-E.7 with
Z = 1/E[1/zeta], which may fall.

One iteration costs C Cholesky inverses of order M and O(S^2 M^2 + S N M C + N C^1.5); the products
K_i'K_j take S (S + 1) / 2 M x M matrices of memory.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from ...models.checks import argument_error, check_count, check_name, check_positive
from ...models.combination import FixedWeights, Mean
from ...models.multinomial_probit import MultinomialProbit
from ..answers import VariationalAnswer
from ..applicability import combination_other_than
from ..engines import Run
from .concentration import LARGEST, LARGEST_MEAN, SMALLEST
from .engine import VB
from .multinomial_probit_updates import Approximation, Data, State, start, update

__all__ = ["fit_multinomial_probit"]

type Array = npt.NDArray[np.float64]
type Weights = Literal["mean-field", "plug-in"]

# Starts at most unless more are asked for.
MOST_STARTS = 8


@dataclass
class _Ascent:
    """One start on its way up."""

    state: State
    history: list[float] = field(default_factory=list)
    converged: bool = False

    @property
    def height(self) -> float:
        """The objective; a broken one is the lowest."""
        return self.state.objective if np.isfinite(self.state.objective) else -np.inf

    def climbing(self, max_iterations: int) -> bool:
        """Whether another iteration is due."""
        broken = bool(self.history) and not np.isfinite(self.history[-1])
        return not (self.converged or broken) and len(self.history) < max_iterations

    def advance(self, data: Data, tolerance: float) -> None:
        """Do one iteration."""
        before, self.state = self.state.objective, update(data, self.state)
        after = self.state.objective
        self.history.append(after)
        self.converged = bool(abs(after - before) <= tolerance * abs(after))


def _number_of_starts(data: Data, starts: int | None) -> int:
    """Uniform weights and every vertex unless told; fixed weights need one start."""
    if data.prior is None:
        return 1
    return starts or min(len(data.design) + 1, MOST_STARTS)


def _beginnings(
    data: Data, model: MultinomialProbit, starts: int, tolerance: float, rng: np.random.Generator
) -> Iterator[_Ascent]:
    """Uniform weights, the vertices, then uniform draws from the simplex; fixed weights once.

    If not all vertices are wanted, those are begun at that stand highest after one iteration
    (which they keep), so that the answer does not depend on the order of the kernels.
    """
    if data.prior is None:
        yield _Ascent(start(data, np.asarray(model["beta"].get_value(), dtype=float)))
        return
    n_kernels = len(data.design)
    yield _Ascent(start(data, np.full(n_kernels, 1 / n_kernels)))
    if starts > 1:
        vertices = [_Ascent(start(data, corner)) for corner in np.eye(n_kernels)]
        if starts <= n_kernels:
            for vertex in vertices:
                vertex.advance(data, tolerance)
            vertices.sort(key=lambda vertex: vertex.height, reverse=True)
        yield from vertices[: starts - 1]
    for _ in range(starts - 1 - n_kernels):
        yield _Ascent(start(data, rng.dirichlet(np.ones(n_kernels))))


def _check_prior(combination: Mean, owner: str) -> None:
    """Refuse priors of the concentrations for which their integrals would not be right."""
    mu, lam = combination.mu, combination.lam
    if not (min(mu, lam) >= SMALLEST and max(mu, lam) <= LARGEST and mu / lam <= LARGEST_MEAN):
        raise argument_error(
            "combination",
            owner,
            f"a Mean with mu and lam from {SMALLEST:g} to {LARGEST:g} and mu / lam at most "
            f"{LARGEST_MEAN:g}, where the integrals over the concentrations keep their digits "
            "(FixedWeights for weights that are known)",
            repr(combination),
        )


@VB.register(MultinomialProbit, unless=combination_other_than(Mean, FixedWeights))
def fit_multinomial_probit(
    model: MultinomialProbit,
    run: Run,
    *,
    max_iterations: int = 500,
    tolerance: float = 1e-6,
    starts: int | None = None,
    weights: Weights = "mean-field",
) -> VariationalAnswer:
    """Fit q by coordinate ascent from several starts.

    Parameters
    ----------
    model : MultinomialProbit
    run : Run
        Seed and progress bar.
    max_iterations : int
        Iterations a start at most.
    tolerance : float
        A start ends when its objective changes by less than this fraction of itself.
    starts : int, optional
        Number of starts, which differ in the initial kernel weights: uniform, each kernel alone,
        random. The highest objective wins. If there are more kernels than starts, the kernels that
        stand highest after one iteration alone are taken. Default: uniform and each kernel alone,
        8 at most. Fixed weights need one start only.
    weights : {"mean-field", "plug-in"}
        The corrected equations, or those printed in the paper (see the module's text).

    Returns
    -------
    VariationalAnswer
        When interrupted: the answer so far, unconverged.

    Raises
    ------
    ValueError
        For settings out of range, and for priors Mean(mu, lam) with mu or lam outside 1e-3..1e8 or
        mu / lam above 1e7.
    FloatingPointError
        When no start has a finite objective.
    LinAlgError
        When the kernels' scale makes a covariance numerically singular.
    """
    owner = "VB on MultinomialProbit"
    check_name(weights, ("mean-field", "plug-in"), "weights", owner)
    check_count(max_iterations, "max_iterations", owner)
    if starts is not None:
        check_count(starts, "starts", owner)
    check_positive(tolerance, "tolerance", owner)
    data = Data.of(model, weights == "plug-in")
    if data.prior is not None:
        _check_prior(data.prior, owner)
    n_starts = _number_of_starts(data, starts)
    ascents: list[_Ascent] = []
    interrupted = False
    try:
        with run.track(n_starts * max_iterations, "VB") as bar:
            for number, ascent in enumerate(
                _beginnings(data, model, n_starts, tolerance, run.rng()), 1
            ):
                ascents.append(ascent)
                bar.advance(len(ascent.history), start=number)
                while ascent.climbing(max_iterations):
                    ascent.advance(data, tolerance)
                    bar.advance(start=number, bound=ascent.state.objective)
                bar.advance(max_iterations - len(ascent.history), start=number)
    except KeyboardInterrupt:
        interrupted = True
        ascents = [ascent for ascent in ascents if ascent.history]
        if not ascents:
            raise
        warnings.warn("VB was interrupted: the answer so far is returned.", stacklevel=2)
    best = int(np.argmax([ascent.height for ascent in ascents]))
    if not np.isfinite(ascents[best].height):
        raise FloatingPointError(
            "VB's objective is not a finite number from any start: rescale the kernels (for "
            "example kernels.normalize('trace')), or take a less extreme prior."
        )
    converged = ascents[best].converged and not interrupted
    if not converged and not interrupted:
        warnings.warn(
            f"VB did not converge in {max_iterations} iterations: raise max_iterations.",
            stacklevel=2,
        )
    beta = ascents[best].state.beta
    if beta is not None and not beta.precise:
        warnings.warn(
            "VB's moments of the kernel weights are imprecise: their distribution is too uneven "
            f"for its quadrature ({beta.ess:,.0f} effective points). Compare with a sampler, or "
            "leave out kernels.",
            stacklevel=2,
        )
    approximation = Approximation(data, ascents[best].state)
    return VariationalAnswer(
        elbo=[np.array(ascent.history) for ascent in ascents],
        best=best,
        converged=converged,
        parameters=approximation.parameters(model),
        sample=approximation.sample,
    )
