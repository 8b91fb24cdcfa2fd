"""Ascent from several starts: when one has arrived."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import kernelzoo as kz
from kernelzoo.datasets import neal_three_class
from kernelzoo.inference.composite_kernel import vb as composite_kernel
from kernelzoo.inference.engine.engine import Run
from kernelzoo.inference.engine.progress import OutOfTime
from kernelzoo.inference.multinomial_probit import vb as multinomial_probit
from kernelzoo.inference.multinomial_probit.vb import fit_multinomial_probit
from kernelzoo.inference.variational.ascent import (
    FIRST_ROUND,
    PATIENCE,
    Ascent,
    multistart_ascent,
)
from kernelzoo.models import (
    CompositeKernelClassification,
    CompositeKernelRegression,
    MultinomialProbit,
)
from kernelzoo.models.kernels import as_stack

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
    ascent = Ascent(state(heights[0]), series(heights))
    while ascent.climbing(len(heights) - 1):
        ascent.advance(1e-6, remaining=0.01)
    assert ascent.converged
    left = -500 - ascent.height
    assert left <= 0.0101
    assert left > 0.0099 or ratio == 0.5
    hasty = Ascent(state(heights[0]), series(heights))
    while hasty.climbing(len(heights) - 1):
        hasty.advance(1e-6)
    assert hasty.converged
    assert ratio < 0.9 or -500 - hasty.height > 0.02


def test_a_plateau_with_growing_gains_is_left():
    """A saddle: small gains that grow."""
    t = np.arange(400)
    heights = -100 + 50 / (1 + np.exp(-(t - 200) / 8))
    ascent = Ascent(state(heights[0]), series(heights))
    while ascent.climbing(len(heights) - 1):
        ascent.advance(1e-6, remaining=0.01)
    assert ascent.converged
    assert ascent.height > -50.02


def test_rounding_does_not_keep_an_ascent_going():
    heights = -1.0 + 1e-15 * np.random.default_rng(1).normal(size=1000)
    ascent = Ascent(state(heights[0]), series(heights))
    while ascent.climbing(999):
        ascent.advance(1e-6, remaining=0.01)
    assert ascent.converged
    # What is left to gain is not known before.
    assert 7 <= len(ascent.history) < 30


def test_one_small_gain_is_not_the_end_for_the_patient():
    heights = np.array([-10, -9, -9, -8, -8, -8, -8, -7.0])
    patient = Ascent(state(heights[0]), series(heights), patience=3)
    while patient.climbing(len(heights) - 1):
        patient.advance(1e-6)
    assert patient.history == [-9, -9, -8, -8, -8, -8]
    assert patient.converged


@pytest.mark.parametrize(
    ("n_kernels", "depth", "ends"),
    [(3, 0.05, True), (3, 0.005, False), (4, 0.05, False), (4, 0.2, True)],
)
def test_a_fall_beyond_rounding_ends_the_ascent_unconverged(n_kernels, depth, ends):
    heights = np.array([-np.inf, -10.0, -5.0, -5.0 - depth, *[-4.0] * 9])
    settings = {"known": np.ones(1), "starts": 1, "max_iterations": 12, "tolerance": 1e-6}

    def ascended():
        start = [lambda _: state(-np.inf)]
        return multistart_ascent(start, series(heights), RUN, n_kernels, **settings)

    if not ends:
        assert ascended().converged
        return
    with pytest.warns(UserWarning, match=f"objective fell by {depth:.2g}"):
        found = ascended()
    assert not found.converged
    assert found.state.objective == found.histories[0][-1] == -5.0


def test_an_ascent_without_new_heights_ends():
    """New quadrature points move the objective up and down, by more than the tolerance."""
    heights = -500 - 10 * 0.5 ** np.arange(400.0)
    heights[12:] = -500.02 + 0.01 * np.sin(np.arange(388.0))
    ascent = Ascent(state(heights[0]), series(heights), PATIENCE, fall=0.1)
    while ascent.climbing(100):
        ascent.advance(1e-9, remaining=0.01)
    assert ascent.converged
    assert len(ascent.history) < 30


def test_a_rise_below_the_highest_goes_on():
    """A height that is lost to new quadrature points and regained in many small steps."""
    heights = -500 + np.concatenate([np.arange(20.0), 18 + 0.05 * np.arange(400)])
    ascent = Ascent(state(heights[0]), series(heights), PATIENCE, fall=2.0)
    while ascent.climbing(100):
        ascent.advance(1e-6, remaining=0.01)
    assert not ascent.converged


def test_each_way_of_starting_is_tried_at_each_weights():
    begun = []

    def start(name):
        def at(weights):
            begun.append((name, tuple(np.round(weights, 3))))
            return state(-1.0 - len(begun))

        return at

    ascended = multistart_ascent(
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
    assert len(ascended.states) == 6
    assert ascended.best == 0
    assert ascended.converged


def test_the_highest_of_competing_starts_goes_on():
    """Starts that begin lower and rise faster: the one in front when the round ends goes on."""
    rises = {0: 1.0, 1: 3.0, 2: 2.0, 3: 0.5, 4: 4.0, 5: 0.2}
    names = iter(rises)

    def start(weights):
        name = next(names)
        return SimpleNamespace(objective=-1000.0 - rises[name], name=name)

    def update(now):
        return SimpleNamespace(objective=now.objective + rises[now.name], name=now.name)

    settings = {"known": None, "starts": None, "max_iterations": 100, "tolerance": 1e-9}
    with pytest.warns(UserWarning, match="did not converge in 100 iterations"):
        ascended = multistart_ascent(
            [start], update, RUN, 5, first_round=10, remaining=1e-9, **settings
        )
    by_name = {s.name: len(h) for s, h in zip(ascended.states, ascended.histories, strict=True)}
    assert by_name == {0: 10, 1: 10, 2: 10, 3: 10, 4: 100, 5: 10}
    assert ascended.state.name == 4


def rising(heights, n_kernels, **settings):
    """Lengths of all starts that go through these heights, under the default settings of VB."""
    settings = {"known": None, "starts": None, "max_iterations": 5000, "tolerance": 1e-6} | settings
    found = multistart_ascent(
        [lambda _: state(heights[0])], series(heights), RUN, n_kernels, remaining=0.01, **settings
    )
    assert found.converged
    return [len(history) for history in found.histories]


@pytest.mark.parametrize(
    ("n_kernels", "settings", "competing"),
    [
        (3, {"first_round": 8}, [100, 8, 8, 8]),
        (3, {"first_round": 8, "starts": 4}, None),
        (3, {}, None),
        (16, {"first_round": 8}, [100, 8, 8, 8, 8, 8, 8, 8]),
        (100, {"first_round": 8}, [100]),
        (100, {"first_round": 8, "starts": 2}, None),
    ],
)
def test_only_the_default_starts_compete(n_kernels, settings, competing):
    """Starts that take about a hundred iterations each."""
    lengths = rising(-500 - 100 * 0.9 ** np.arange(5000), n_kernels, **settings)
    whole = max(lengths)
    assert 60 < whole < 150
    if competing is None:
        assert lengths == [whole] * (settings.get("starts") or n_kernels + 1)
    else:
        assert lengths == [whole, *competing[1:]]


@pytest.mark.parametrize(
    ("module", "name", "model", "kind"),
    [
        (multinomial_probit, "fit_multinomial_probit", MultinomialProbit, "probit"),
        (composite_kernel, "fit_composite_kernel", CompositeKernelClassification, "classification"),
        (composite_kernel, "fit_composite_kernel", CompositeKernelRegression, "regression"),
    ],
)
@pytest.mark.parametrize("n_kernels", [10, 100])
def test_many_kernels_take_few_iterations(module, name, model, kind, n_kernels, monkeypatch):
    """Bug: 100 kernels of 24 objects took 100 iterations to choose 8 starts, and then 8 fits."""
    iterations = 0

    def climb(now):
        nonlocal iterations
        iterations += 1
        position = now.position + 1
        return state(-500 - 100 * 0.5**position, position)

    def counted(starts_at, update, run, n_kernels, *, coordinates, **settings):
        assert settings["first_round"] == FIRST_ROUND[kind]
        multistart_ascent([lambda _: state(-np.inf)], climb, run, n_kernels, **settings)
        raise InterruptedError

    monkeypatch.setattr(module, "multistart_ascent", counted)
    kernels = np.broadcast_to(np.eye(24), (n_kernels, 24, 24)) * np.ones((n_kernels, 1, 1))
    with pytest.raises(InterruptedError):
        getattr(module, name)(model(kernels, np.arange(24) % 2), RUN)
    assert iterations <= (300 if n_kernels == 10 else 30)


def quadratic_boundaries(n_objects):
    data = neal_three_class(n_objects, 1)
    x, y = np.asarray(data.X)[:, :2].T
    features = np.stack([np.ones(n_objects), x, y, x**2, x * y, y**2], axis=1)
    return MultinomialProbit(as_stack(features), np.asarray(data.y))


@pytest.mark.parametrize(("n_objects", "left"), [(50, 0.01), (300, 0.03)])
def test_more_may_be_left_to_gain_of_more_objects(n_objects, left, monkeypatch):
    def stop(*_, remaining, **__):
        assert remaining == pytest.approx(left)
        raise InterruptedError

    monkeypatch.setattr(multinomial_probit, "multistart_ascent", stop)
    with pytest.raises(InterruptedError):
        fit_multinomial_probit(quadratic_boundaries(n_objects), RUN)


def test_more_may_be_left_to_gain_of_more_classes(monkeypatch):
    def stop(*_, remaining, **__):
        assert remaining == pytest.approx(0.01 * 60 * 9 / 200)
        raise InterruptedError

    monkeypatch.setattr(multinomial_probit, "multistart_ascent", stop)
    model = MultinomialProbit(np.eye(60), np.arange(60) % 10)
    with pytest.raises(InterruptedError):
        fit_multinomial_probit(model, RUN)


def test_probit_goes_on_while_much_is_left_to_gain(monkeypatch):
    """On a ridge a change of a thousandth is far from the summit."""
    model = quadratic_boundaries(80)
    accelerated = fit_multinomial_probit(model, RUN).elbo[0][-1]
    monkeypatch.setattr(multinomial_probit, "COORDINATES", None)

    def fitted(**settings):
        answer = fit_multinomial_probit(model, RUN, **settings)
        assert answer.converged
        return answer.elbo[0]

    summit = fitted(tolerance=1e-8, remaining=1e-3)[-1]
    ends = {left: fitted(tolerance=1e-3, remaining=left)[-1] for left in (None, 0.01, 0.1, np.inf)}
    assert ends[None] == ends[0.01]
    assert abs(summit - accelerated) < 0.01
    # The gains shrink a little slower than a geometric series.
    assert summit - ends[0.01] < 0.02
    assert 0.05 < summit - ends[0.1] < 0.2
    assert summit - ends[np.inf] > 0.5
    with pytest.raises(ValueError, match=r"'remaining' argument of VB on .* a number above 0"):
        kz.fit(model, kz.VB(remaining=0.0))


@pytest.mark.parametrize("starts", [3, 8])
def test_the_clock_is_looked_at_between_the_vertices(starts):
    """Vertices that compete before they are begun at took their time unseen."""
    begun = []

    class Timed:
        """Over once two vertices are made; loops, of which there is one before, go on."""

        def loop(self, steps):
            return lambda done: None

        def check(self):
            if len(begun) == 3:
                raise OutOfTime

    run = replace(RUN, clock=Timed())

    def start(weights):
        begun.append(tuple(weights))
        return state(-1.0 - len(begun))

    settings = {"known": None, "starts": starts, "max_iterations": 20, "tolerance": 1e-6}
    found = multistart_ascent([start], lambda now: now, run, 7, **settings)
    assert len(begun) == 3
    assert len(found.states) == 1
    assert not found.converged
