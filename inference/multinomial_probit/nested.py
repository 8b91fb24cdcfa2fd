"""Nested approximation of the multinomial probit (Damoulas & Girolami 2009, section 3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import override

import numpy as np
import numpy.typing as npt

from ...models.combinations.sums import Mean
from ...models.multinomial_probit import MultinomialProbit
from ...numerics.probit import hessian, log_probability, truncated_moments
from ..engine.engine import Run
from ..nested.conditional import Likelihood, Point, Sites, cubature
from ..nested.coordinates import WeightCoordinates
from ..nested.engine import MOVES, NODES, PARTICLES, Nested, NestedOutput, few_kernels, fit_nested
from ..variational.concentration import check_prior

__all__ = ["fit_multinomial_probit_nested"]

type Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Probit(Likelihood):
    """P(t_n | f_n), eq 4; labels (N,) are codes of the classes."""

    labels: npt.NDArray[np.intp]
    n_classes: int

    @property
    @override
    def n_scores(self) -> int:
        return self.n_classes

    @property
    @override
    def is_normal(self) -> bool:
        return False

    @property
    @override
    def start(self) -> Array:
        return np.empty(0)

    @override
    def log_density(self, f: Array, own: Array) -> float:
        return float(log_probability(f, self.labels).sum())

    @override
    def sites(self, mean: Array, cov: Array, own: Array) -> tuple[Sites, float]:
        points = cubature(mean, cov)
        f, labels = points.reshape(-1, self.n_classes), np.tile(self.labels, len(points))
        log_p, y_mean = truncated_moments(f, labels)
        W = -hessian(f, labels).reshape(*points.shape, -1).mean(axis=0)
        slope = (y_mean - f).reshape(points.shape).mean(axis=0)
        linear = slope + np.einsum("nab,nb->na", W, mean)
        return Sites(W, linear), float(log_p.sum() / len(points))

    @override
    def sites_given(self, sites: Sites, own: Array) -> Sites:
        return sites

    @override
    def own_terms(self, mean: Array, cov: Array, own: Array) -> tuple[Array, Array]:
        return np.empty(0), np.empty(0)


def _unsupported(model: MultinomialProbit) -> str | None:
    if model.parametric is not None:
        return "it is for kernels without parameters of their own; take Gibbs or VB"
    if len(model.coords["kernel"]) > 1 and not isinstance(model.combination, Mean):
        rule = type(model.combination).__name__
        return (
            f"it is for weights that sum to one under the rule Mean, not {rule}: take Gibbs or VB"
        )
    return few_kernels(model)


@Nested.register(MultinomialProbit, unless=_unsupported)
def fit_multinomial_probit_nested(
    model: MultinomialProbit,
    run: Run,
    *,
    particles: int = PARTICLES,
    nodes: int = NODES,
    moves: int = MOVES,
) -> NestedOutput:
    """Anneal particles from approximations at an adaptive set of weights.

    Parameters
    ----------
    model : MultinomialProbit
        With the rule `Mean` on two to eight kernels without parameters.
    run : Run
        Seed and progress bar.
    particles : int, default=300
        Number of particles, at least 50. The error of means falls as its root.
    nodes : int, default=48
        Number of weights at which the rest of the model is approximated, at least 6.
    moves : int, default=1
        Moves of every particle at each temperature, and between draws.

    Returns
    -------
    NestedOutput

    Raises
    ------
    ValueError
        For settings out of range, and for priors outside those that VB takes.
    FloatingPointError
        When no particle has a finite density.

    Notes
    -----
    A move of a particle costs O(N C^2 M^2 + C^3 M^3), a node some ten times that.

    For small problems: `Gibbs` is faster from about 100 objects on. On 124 wines of three classes
    with three kernels, 150 particles took 22 times as long as VB, and the means of the weights were
    .17, .59, .24 where chains give .14, .68, .18 (standard errors .01; standard deviations .2). The
    result said so: ``converged`` was "no" and ``pareto_k`` .78.
    """
    owner = "Nested on MultinomialProbit"
    rule = model.combination
    assert isinstance(rule, Mean)
    check_prior(rule.mu, rule.lam, rule, ("mu", "lam"), owner)

    def variables(points: Sequence[Point]) -> Mapping[str, Array]:
        return {
            "W": np.array([point.regressors for point in points]),
            "zeta": np.exp([-point.log_precisions for point in points]),
        }

    return fit_nested(
        run,
        owner,
        stack=model.design,
        likelihood=Probit(model.label_codes, model.n_classes),
        prior=(model.tau, model.upsilon),
        weights=lambda: WeightCoordinates.learned(rule.mu, rule.lam),
        variables=variables,
        concentrations="rho",
        kernels=model.coords["kernel"],
        particles=particles,
        nodes=nodes,
        moves=moves,
    )
