"""Annealing and moves, on a space whose posterior is normal."""

import numpy as np
import pytest

from family import assert_z
from kernelzoo.inference.nested.conditional import Point
from kernelzoo.inference.nested.particles import Mover, Particle, anneal

SHIFT = 1.5


class OneComponent:
    """Nodes with one component."""

    interrupted = False
    v = np.zeros((1, 1))

    def draw_component(self, rng, v=None):
        return 0


class FixedPoint:
    """A conditional without precisions."""

    def redraw_precisions(self, point, rng):
        return point


class Space:
    """Noise e of two numbers, whose posterior is N(SHIFT, 1) and N(0, 1)."""

    size = 2
    blocks = (slice(0, 1), slice(1, 2))
    nodes = OneComponent()
    conditional = FixedPoint()

    def particle(self, node, noise):
        none = np.empty(0)
        log_ratio = SHIFT * noise[0] - 0.5 * SHIFT**2
        return Particle(node, noise, noise[:1], Point(noise, none, none), float(log_ratio))

    def located(self, node, v, point):
        return self.particle(node, point.regressors)


def means(particles):
    return np.array([particle.noise for particle in particles])


def test_annealed_particles_are_draws_of_the_posterior():
    rng = np.random.default_rng(1)
    population = anneal(Space(), 600, 3, 600, rng, lambda steps, b: None)
    drawn = means(population.draws)
    assert_z((drawn.mean(axis=0) - [SHIFT, 0]) / np.sqrt(1 / 400))
    assert drawn.std(axis=0) == pytest.approx([1, 1], abs=0.12)
    assert population.log_evidence == pytest.approx(0, abs=0.25)
    assert population.temperatures[-1] == 1
    assert len(population.temperatures) > 1
    assert population.complete
    assert max(population.k_hat) < 0.7


def test_moves_leave_the_posterior_of_a_normal_mean():
    rng = np.random.default_rng(2)
    start = rng.standard_normal((1500, 2))
    start[:, 0] += SHIFT
    space = Space()
    current = [space.particle(0, noise) for noise in start]
    mover = Mover(space, rng, lambda steps, b: None)
    for _ in range(5):
        current = mover.sweep(current, 1.0)
    moved = means(current)
    assert_z((moved.mean(axis=0) - [SHIFT, 0]) / np.sqrt(1 / 1500))
    # They do move, too.
    assert np.corrcoef(start[:, 0], moved[:, 0])[0, 1] < 0.5


def test_what_is_interrupted_goes_to_the_posterior_by_its_weights():
    done = []

    def advance(steps, b):
        done.append(steps)
        if len(done) == 2500:
            raise KeyboardInterrupt

    population = anneal(Space(), 2000, 3, 2000, np.random.default_rng(3), advance)
    assert not population.complete
    assert population.temperatures[-1] == 1
    drawn = means(population.draws)
    assert abs(drawn[:, 0].mean() - SHIFT) < 0.3
