"""Annealed moves of a selection: exact on a normal target, proposals, boundaries."""

from dataclasses import replace

import numpy as np
import pytest

from family import assert_mean
from kernelzoo.custom_steps.multinomial_probit.marginal import (
    _proposal,
    annealed_move,
)
from kernelzoo.models.combinations.sums import Binary

SHIFTS = np.array([1.0, -0.7, 0.4])
PRIOR = Binary([1 / 3, 1 / 2, 2 / 3], empty=True)


def log_density_at(weights):
    """A normal position whose mean and mass depend on the weights, with its gradient."""
    mean, level = weights @ SHIFTS, 0.3 * weights.sum()

    def log_density(x):
        return level - 0.5 * float((x - mean) @ (x - mean)), mean - x

    return log_density


def chain(prior, draws, rng, stages=4):
    beta, x, states = np.ones(3, int), np.zeros(2), []
    for _ in range(draws):
        moved = annealed_move(
            beta, x, log_density_at, np.ones(2), prior, rng, step=0.5, length=1.0, stages=stages
        )
        beta = moved.beta
        # The position is drawn anew, so that states are nearly independent.
        x = beta @ SHIFTS + rng.standard_normal(2)
        states.append(beta @ [1, 2, 4])
    return np.array(states)


@pytest.mark.parametrize("empty", [True, False])
def test_selections_have_their_posterior(empty):
    """Normal densities integrate to the same number: prior odds times exp(0.3 size)."""
    states = np.arange(8)[:, None] >> np.arange(3) & 1
    posterior = np.exp(states @ (PRIOR.log_odds(3) + 0.3))
    posterior[0] *= empty
    draws = chain(replace(PRIOR, empty=empty), 3_000, np.random.default_rng(1))
    indicators = (draws[:, None] == np.arange(8)).astype(float)
    assert not indicators[:, 0].any() or empty
    # One draw in ten counts: moves change one or two kernels, and some are rejected.
    assert_mean(indicators[:, 1:], (posterior / posterior.sum())[1:], ess=np.full(7, 300.0))


def test_the_joint_law_of_selection_and_position_stays():
    """Draws of the joint law are draws of it after a move; the position must fit the selection."""
    rng = np.random.default_rng(6)
    states = np.arange(8)[:, None] >> np.arange(3) & 1
    posterior = np.exp(states @ (PRIOR.log_odds(3) + 0.3))
    posterior /= posterior.sum()
    residuals, accepted = np.empty((2_000, 2)), 0
    for residual, state in zip(residuals, rng.choice(8, size=2_000, p=posterior), strict=True):
        beta = states[state]
        x = beta @ SHIFTS + rng.standard_normal(2)
        moved = annealed_move(
            beta, x, log_density_at, np.ones(2), PRIOR, rng, step=0.5, length=1.0, stages=4
        )
        residual[:] = moved.position - moved.beta @ SHIFTS
        accepted += not np.array_equal(moved.beta, beta)
    assert accepted > 500
    # Means, and second moments, of a standard normal distribution.
    assert_mean(np.concatenate([residuals, residuals**2], axis=1), np.array([0.0, 0, 1, 1]))


def test_proposals_are_symmetric():
    rng, n = np.random.default_rng(2), 4_000
    states = np.arange(8)[:, None] >> np.arange(3) & 1
    counts = np.zeros((8, 8))
    for start, state in enumerate(states):
        for _ in range(n):
            counts[start, _proposal(state, rng) @ [1, 2, 4]] += 1
    error = np.sqrt(np.maximum(counts + counts.T, 1))
    assert np.abs((counts - counts.T) / error).max() < 4.5
    # Every selection is reached from every other: half of all moves change one kernel.
    changed = (states[:, None] != states).sum(axis=-1)
    assert (counts[changed == 1] > 0.1 * n).all()


def test_more_stages_accept_more():
    rng = np.random.default_rng(3)

    def acceptance(stages):
        far = Binary(0.5, empty=True)

        def at(weights):
            mean = 4 * weights[0]
            return lambda x: (-0.5 * float((x - mean) @ (x - mean)), mean - x)

        moves = [
            annealed_move(
                *(np.zeros(1, int), rng.standard_normal(1), at, np.ones(1), far, rng),
                **{"step": 0.5, "length": 1.5, "stages": stages},
            )
            for _ in range(300)
        ]
        return np.mean([move.acceptance for move in moves])

    assert acceptance(20) > 4 * acceptance(1)


def test_a_density_that_vanishes_is_a_rejection():
    def at(weights):
        return lambda x: (-np.inf if weights.sum() > 1 else 0.0, np.zeros(2))

    start, rng = np.array([1, 0]), np.random.default_rng(4)
    prior = Binary(0.5)
    for _ in range(20):
        moved = annealed_move(
            start, np.zeros(2), at, np.ones(2), prior, rng, step=0.5, length=1.0, stages=5
        )
        assert moved.beta.sum() == 1
        assert np.isfinite(moved.acceptance)
