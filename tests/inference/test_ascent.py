"""Ascent from several starts: when one has arrived."""

from types import SimpleNamespace

import numpy as np
import pytest

from kernelzoo.inference.ascent import Ascent, climb
from kernelzoo.inference.engines import Run

RUN = Run(random_seed=1, progressbar=False)


def state(objective, position=0):
    return SimpleNamespace(objective=objective, position=position)


def series(heights):
    """An update that goes through given objectives."""
    return lambda now: state(float(heights[now.position + 1]), now.position + 1)


@pytest.mark.parametrize("ratio", [0.5, 0.99, 0.9999])
def test_what_is_left_to_gain_is_that_of_a_geometric_series(ratio):
    """Single gains fall below the tolerance long before what they add up to."""
    heights = -500 - ratio ** np.arange(200_000)
    ascent, update = Ascent(state(heights[0])), series(heights)
    while ascent.climbing(len(heights) - 1):
        ascent.advance(update, 1e-6, remaining=0.01)
    assert ascent.converged
    left = -500 - ascent.height
    assert left <= 0.0101
    assert left > 0.0099 or ratio == 0.5
    hasty = Ascent(state(heights[0]))
    while hasty.climbing(len(heights) - 1):
        hasty.advance(update, 1e-6)
    assert hasty.converged
    assert ratio < 0.9 or -500 - hasty.height > 0.02


def test_a_plateau_with_growing_gains_is_left():
    """A saddle: small gains that grow."""
    t = np.arange(400)
    heights = -100 + 50 / (1 + np.exp(-(t - 200) / 8))
    ascent, update = Ascent(state(heights[0])), series(heights)
    while ascent.climbing(len(heights) - 1):
        ascent.advance(update, 1e-6, remaining=0.01)
    assert ascent.converged
    assert ascent.height > -50.02


def test_rounding_does_not_keep_an_ascent_going():
    heights = -1.0 + 1e-15 * np.random.default_rng(1).normal(size=1000)
    ascent, update = Ascent(state(heights[0])), series(heights)
    while ascent.climbing(999):
        ascent.advance(update, 1e-6, remaining=0.01)
    assert ascent.converged
    assert len(ascent.history) < 30


def test_each_way_of_starting_is_tried_at_each_weights():
    begun = []

    def start(name):
        def at(weights):
            begun.append((name, tuple(np.round(weights, 3))))
            return state(-1.0 - len(begun))

        return at

    summit = climb(
        [start("a"), start("b")],
        lambda now: now,
        RUN,
        2,
        known=None,
        starts=None,
        max_iterations=20,
        tolerance=1e-6,
    )
    weights = [(0.5, 0.5), (1.0, 0.0), (0.0, 1.0)]
    assert begun == [(name, w) for name in "ab" for w in weights]
    assert len(summit.states) == 6
    assert summit.best == 0
    assert summit.converged
