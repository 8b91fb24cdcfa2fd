"""The mixture of the weights' coordinates: its density, its draws, and where its nodes are."""

import numpy as np
import pytest
from scipy import stats

from family import assert_z
from kernelzoo.inference.nested.conditional import Mode, Sites
from kernelzoo.inference.nested.nodes import Nodes, place_nodes

CENTRE = np.array([1.5, -1.0])


def mode(log_evidence):
    none = np.empty(0)
    return Mode(none, np.empty((0, 0)), Sites(none, none), log_evidence)


def mixture():
    v = np.array([[0.5, 0.0], [2.0, -1.0]])
    root = np.array([[0.4, 0.0], [0.2, 0.3]])
    return Nodes(v, [mode(0.0)] * 2, np.array([0.5, 0.3, 0.2]), root)


def test_mixture_has_the_density_of_its_draws():
    nodes, at = mixture(), np.array([0.9, -0.2])
    cov = nodes.root @ nodes.root.T
    parts = [stats.multivariate_normal(centre, cov).pdf(at) for centre in nodes.v]
    parts.append(stats.multivariate_normal(np.zeros(2)).pdf(at))
    exact = np.log(nodes.mass @ parts) + np.log(2 * np.pi)
    assert nodes.log_density(at) == pytest.approx(exact)
    rng = np.random.default_rng(1)
    drawn = np.bincount([nodes.draw_component(rng, at) for _ in range(4000)], minlength=3)
    chance = nodes.mass * parts / (nodes.mass @ parts)
    assert_z((drawn / 4000 - chance) / np.sqrt(chance * (1 - chance) / 4000))


@pytest.mark.parametrize("component", [0, 1, 2])
def test_noise_and_coordinates_are_inverse(component):
    nodes, noise = mixture(), np.array([0.3, -1.1])
    np.testing.assert_allclose(nodes.noise(component, nodes.at(component, noise)), noise)


def test_component_of_the_prior_takes_the_mode_of_the_nearest_node():
    nodes = mixture()
    nodes.modes[1] = mode(5.0)
    assert nodes.mode(2, np.array([1.9, -0.8])).log_evidence == 5.0
    assert nodes.mode(0, np.array([1.9, -0.8])).log_evidence == 0.0


def test_nodes_gather_where_the_posterior_is():
    """A likelihood N(v; c, .25 I) makes the posterior N(.8 c, .2 I)."""

    def mode_at(v, near):
        return mode(float(-2 * np.sum((v - CENTRE) ** 2)))

    nodes = place_nodes(2, mode_at, 60, np.random.default_rng(1))
    mean = nodes.mass[:-1] @ nodes.v / nodes.mass[:-1].sum()
    np.testing.assert_allclose(mean, 0.8 * CENTRE, atol=0.35)
    rng = np.random.default_rng(2)
    at = 0.8 * CENTRE + np.sqrt(0.2) * rng.standard_normal((2000, 2))
    target = stats.multivariate_normal(0.8 * CENTRE, 0.2 * np.eye(2)).logpdf(at)
    ratio = target - [nodes.log_density(v) for v in at] + np.log(2 * np.pi)
    # Importance sampling from the mixture would use more than a fifth of its draws.
    assert np.mean(np.exp(ratio)) < 5


def test_an_interrupted_search_keeps_its_nodes():
    def mode_at(v, near):
        return mode(0.0)

    done = []

    def advance():
        done.append(1)
        if len(done) == 5:
            raise KeyboardInterrupt

    nodes = place_nodes(2, mode_at, 60, np.random.default_rng(1), advance)
    assert nodes.interrupted
    assert len(nodes.v) == 5
