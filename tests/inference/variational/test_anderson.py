"""Accelerated iterations: where they lead, what they cost, and what they do when they break."""

from dataclasses import dataclass

import numpy as np
import pytest

from kernelzoo.inference.composite_kernel import vb as composite_kernel
from kernelzoo.inference.engine.engine import Run
from kernelzoo.inference.multinomial_probit import vb as multinomial_probit
from kernelzoo.inference.variational import ascent
from kernelzoo.inference.variational.ascent import Anderson, Coordinates
from kernelzoo.models.combinations.sums import Binary, DirichletWeights, FixedWeights, Mean
from kernelzoo.models.composite_kernel import (
    CompositeKernelClassification,
    CompositeKernelRegression,
)
from probit_vb_fixture import model_of

RUN = Run(random_seed=1, progressbar=False)


@dataclass(frozen=True)
class Point:
    x: np.ndarray
    objective: float


COORDINATES = Coordinates(lambda point: point.x, lambda point, x: Point(x, point.objective))


class Iteration:
    """x to Ax + b, counted; the objective is minus the squared distance from the fixed point."""

    def __init__(self, matrix):
        self.matrix, self.calls = matrix, 0
        self.summit = np.arange(1.0, 1 + len(matrix))

    def __call__(self, point):
        self.calls += 1
        x = self.summit + self.matrix @ (point.x - self.summit)
        return Point(x, -float(np.sum((x - self.summit) ** 2)))


def test_the_fixed_point_of_a_linear_map_is_found_in_a_few_iterations():
    """A plain one is as near after 700."""
    iteration = Iteration(np.diag([0.99, 0.9, 0.5, 0.1]))
    accelerated = Anderson(iteration, COORDINATES)
    point = Point(np.zeros(4), -np.inf)
    for _ in range(10):
        point = accelerated(point)
    np.testing.assert_allclose(point.x, iteration.summit, atol=1e-3)
    assert iteration.calls <= 12


def test_moves_that_grow_are_stretched_and_never_reversed():
    """The fixed point of a map that leads away from it lies behind."""

    def away(point):
        x = 1.01 * point.x
        return Point(x, float(x[0]))

    accelerated = Anderson(away, COORDINATES)
    point = Point(np.ones(1), -np.inf)
    heights = []
    for _ in range(20):
        point = accelerated(point)
        heights.append(point.objective)
    assert (np.diff(heights) > 0).all()
    # A plain one takes 1,400 iterations.
    assert heights[-1] > 1e6


def test_the_objective_never_falls_and_a_step_back_costs_one_iteration():
    """A map that is linear on either side of a kink, where extrapolations overshoot."""
    calls = []

    def kinked(point):
        calls.append(1)
        x = np.where(point.x < 1, point.x + 0.1 * (2 - point.x), 1 + 0.2 * (point.x - 1))
        return Point(x, -float(np.sum((x - 1) ** 2)))

    accelerated = Anderson(kinked, COORDINATES)
    point = Point(np.array([-5.0, 0.3]), -np.inf)
    heights = [point.objective]
    for _ in range(60):
        point = accelerated(point)
        heights.append(point.objective)
    assert (np.diff(heights[1:]) >= 0).all()
    assert heights[-1] > -1e-3
    assert 60 < len(calls) <= 120


@pytest.mark.parametrize("broken", ["raises", "is not a number"])
def test_an_iteration_that_breaks_is_done_again_from_the_state(broken):
    """Extrapolations leave the domain x >= 0 of an iteration; its own steps do not."""

    def halved(point):
        if (point.x < 0).any():
            if broken == "raises":
                raise np.linalg.LinAlgError
            return Point(point.x * np.nan, np.nan)
        x = 0.5 * point.x ** np.array([1.0, 1.3])
        return Point(x, -float(np.sum(x)))

    accelerated = Anderson(halved, COORDINATES)
    point = Point(np.array([3.0, 2.0]), -np.inf)
    for _ in range(30):
        before, point = point, accelerated(point)
        assert point.objective >= before.objective
        assert (point.x >= 0).all()
    assert point.objective > -1e-6


def test_what_stands_still_stays():
    accelerated = Anderson(lambda point: point, COORDINATES)
    point = Point(np.ones(3), 0.0)
    for _ in range(2000):
        point = accelerated(point)
    np.testing.assert_array_equal(point.x, 1.0)


def test_memory_is_bounded(monkeypatch):
    iteration = Iteration(np.diag(np.linspace(0.1, 0.99, 30)))
    accelerated = Anderson(iteration, COORDINATES)
    point = Point(np.zeros(30), -np.inf)
    for _ in range(30):
        point = accelerated(point)
        assert len(accelerated._ends) == len(accelerated._moves) <= ascent.MOST_ITERATIONS_KEPT
    monkeypatch.setattr(ascent, "MOST_NUMBERS", 60 * 3)
    accelerated = Anderson(iteration, COORDINATES)
    for _ in range(30):
        point = accelerated(point)
        assert len(accelerated._ends) <= 3


def regression(combination):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(40, 3))
    kernels = np.stack([np.outer(a, a) + 0.1 * np.eye(40) for a in x.T])
    targets = x[:, 0] + 0.3 * rng.normal(size=40)
    return CompositeKernelRegression(kernels, targets, combination=combination)


def classification(combination):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(40, 3))
    kernels = np.stack([np.exp(-0.5 * np.subtract.outer(a, a) ** 2) for a in x.T])
    labels = (x[:, 0] + 0.5 * rng.normal(size=40) > 0).astype(int)
    return CompositeKernelClassification(kernels, labels, combination=combination)


@pytest.mark.parametrize(
    "case",
    [
        (multinomial_probit, model_of(7, 2, 3, n_obs=40, combination=Mean())),
        (multinomial_probit, model_of(7, 2, 3, n_obs=40, combination=Binary())),
        (multinomial_probit, model_of(7, 2, 2, n_obs=40, combination=FixedWeights())),
        (composite_kernel, regression(DirichletWeights())),
        (composite_kernel, regression(DirichletWeights(varphi=1.0))),
        (composite_kernel, classification(DirichletWeights())),
    ],
    ids=["mean", "binary", "fixed", "regression", "known", "classification"],
)
def test_accelerated_bounds_never_fall_and_end_as_high_or_higher_sooner(case, monkeypatch):
    """Coordinates that lack what an iteration depends on, or mix it up, break its promise."""
    vb, model = case
    fit = getattr(vb, f"fit_{vb.__name__.split('.')[-2]}")
    settings = {"starts": 1, "tolerance": 1e-9, "remaining": 1e-3}
    (fast,) = fit(model, RUN, **settings).elbo
    monkeypatch.setattr(vb, "COORDINATES", None)
    (plain,) = fit(model, RUN, **settings).elbo
    assert (np.diff(fast) > -1e-8 * abs(fast[-1])).all()
    assert fast[-1] > plain[-1] - 2e-3
    assert len(fast) < 0.8 * len(plain)
