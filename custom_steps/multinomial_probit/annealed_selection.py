"""Metropolis moves of a 0/1 selection of kernels, by annealing the regressors on the way.

Given the regressors W, or the utilities, the likelihood agrees with the current selection alone,
and a chain never leaves it. Here a proposed selection is reached in steps: the weights of the
changed kernels go from the old to the new selection in equal parts, and W moves by Hamiltonian
Monte Carlo in between. The acceptance ratio is that of annealed importance sampling (Karagiannis &
Andrieu 2013, Annealed importance sampling reversible jump MCMC algorithms, J. Comput. Graph.
Statist. 22): the product, over the steps, of the likelihood with the next weights over the one
with the present weights. It tends to the ratio of the selections' evidence as steps become many.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...models.combinations.sums import Binary
from ..moves.hamiltonian import LogDensity, hamiltonian_move


class Selected(NamedTuple):
    """Outcome of a move: the selection, the position, the acceptance probability, its cost."""

    beta: np.ndarray
    position: np.ndarray
    acceptance: float
    evaluations: int


def _proposal(beta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Add or remove a kernel or, half the time, exchange two; symmetric.

    Where no two kernels can be exchanged, the proposal is then the selection itself. Other moves in
    its place would make the proposal asymmetric.
    """
    new = beta.copy()
    if rng.random() < 0.5:
        s = rng.integers(len(beta))
        new[s] = 1 - new[s]
    elif 0 < beta.sum() < len(beta):
        new[rng.choice(np.flatnonzero(beta))], new[rng.choice(np.flatnonzero(beta == 0))] = 0, 1
    return new


def annealed_move(
    beta: np.ndarray,
    position: np.ndarray,
    log_density_at: Callable[[np.ndarray], LogDensity],
    scale: np.ndarray,
    rule: Binary,
    rng: np.random.Generator,
    *,
    step: float,
    length: float,
    stages: int,
) -> Selected:
    """Propose another selection and, jointly, a position (D,) of the regressors that fits it.

    ``log_density_at(weights)`` gives the log density of a position, and its gradient, when the
    kernels have weights (S,) between 0 and 1. Cost: `stages` trajectories, as for
    `hamiltonian_move`.
    """
    new = _proposal(beta, rng)
    if np.array_equal(new, beta) or not (rule.empty or new.any()):
        return Selected(beta, position, 0.0, 0)
    change = (new - beta).astype(float)
    log_ratio, moved, evaluations = float(rule.log_odds(len(beta)) @ change), position, 0
    before = log_density_at(beta.astype(float))
    for stage in range(1, stages + 1):
        after = log_density_at(beta + stage / stages * change)
        log_ratio += after(moved)[0] - before(moved)[0]
        evaluations += 2
        if not np.isfinite(log_ratio):
            return Selected(beta, position, 0.0, evaluations)
        if stage < stages:
            move = hamiltonian_move(after, moved, scale, step, length, rng)
            moved, evaluations = move.position, evaluations + move.steps
        before = after
    acceptance = float(np.exp(min(log_ratio, 0.0)))
    if rng.uniform() < acceptance:
        return Selected(new, moved, acceptance, evaluations)
    return Selected(beta, position, acceptance, evaluations)
