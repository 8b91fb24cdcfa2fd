"""What a fit will take: what is counted, on clocks that tests turn by hand."""

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

import kernelzoo as kz
from kernelzoo.inference.engine import cost
from kernelzoo.inference.engine.compilation import python_mode
from kernelzoo.inference.engine.cost import Cost, Stopwatch, peak_of_memory, timed
from kernelzoo.inference.engine.deadline import OutOfTime
from kernelzoo.inference.engine.engine import Engine
from kernelzoo.inference.engine.estimate import Estimate

CALM = {"tune": 10, "draws": 20, "chains": 1, "cores": 1}
BY_NUMPY = {"compile_kwargs": {"mode": python_mode()}}


@pytest.fixture
def now(monkeypatch):
    """The time, which tests turn on by hand."""
    time = SimpleNamespace(now=0.0)
    monkeypatch.setattr(cost.time, "perf_counter", lambda: time.now)
    return time


def normal(size=3):
    with pm.Model() as model:
        mu = pm.Normal("mu", shape=size)
        pm.Deterministic("twice", 2 * mu)
        pm.Normal("x", mu.sum(), observed=[0.0, 1.0])
    return model


def steps(watch, now, *seconds):
    """Steps of so many seconds each, until the watch ends them; how many there were."""
    for number, each in enumerate(seconds, 1):
        now.now += each
        try:
            watch.advanced(1)
        except OutOfTime:
            return number
    return None


def test_a_loop_is_timed_without_its_first_step_and_goes_on_in_thought(now):
    watch = Stopwatch()
    watch.opened("VB", 1000, 30)
    assert steps(watch, now, 1.0, *[0.5] * 100) == 5
    # Half a second each: 25 more are usual, 995 may be.
    assert watch.more(usual=7) == (12.5, 497.5)
    assert "5 steps of VB of 0.5 s" in watch.measured


def test_a_long_first_step_is_enough(now):
    watch = Stopwatch()
    watch.opened("VB", 11, None)
    assert steps(watch, now, 20.0) == 1
    assert watch.more(usual=5) == (80.0, 200.0)


def test_loops_that_end_by_themselves_are_over(now):
    watch = Stopwatch()
    watch.opened("short", 1000, 500)
    assert steps(watch, now, 0.1, 0.1) is None
    watch.opened("long", None, None)
    assert steps(watch, now, *[1.0] * 9) == 3
    assert watch.more(usual=10) == (7.0, 7.0)
    assert "short" not in watch.measured


def test_calls_are_timed_without_the_first(now):
    seconds = iter([1.0, *[0.2] * 100])

    def call():
        now.now += next(seconds)

    each, calls = timed(call)
    assert calls == 8
    assert each == pytest.approx(0.2)
    seconds = iter([100.0])
    assert timed(call) == (100.0, 1)


def test_memory_is_the_peak_of_arrays():
    with peak_of_memory() as peak:
        np.ones(1_000_000).sum()
    assert 8e6 <= peak[0] < 9e6


@pytest.mark.parametrize(
    ("engine", "copies"), [(kz.NUTS(), 3 * 50), (kz.ADVI(), 50), (kz.MAP(), 1)]
)
def test_draws_that_are_kept_are_counted(engine, copies, monkeypatch):
    monkeypatch.setattr(type(engine), "calibrate", lambda *_: Cost(1.0, 5.0, 1000, "nothing"))
    settings = {"draws": 50, "chains": 3}
    found = kz.estimate(normal(7), engine, **settings)
    assert found.megabytes == pytest.approx((1000 + 8 * 14 * copies) / 1e6)
    assert found.seconds == (1.0, 5.0)
    only = kz.estimate(normal(7), engine, var_names="mu", **settings)
    assert only.megabytes == pytest.approx((1000 + 8 * 7 * copies) / 1e6)


def test_large_variables_are_not_kept_unless_asked_for(monkeypatch):
    monkeypatch.setattr(kz.Exact, "calibrate", lambda *_: Cost(0.0, 0.0, 0, "nothing"))
    model = kz.WishartCompletion.example()
    K21 = len(model.coords["test"]) * len(model.coords["train"])
    with_it, without = (
        kz.estimate(model, "exact", draws=100, var_names=names) for names in ("K21", None)
    )
    assert with_it.megabytes == pytest.approx(8 * 100 * K21 / 1e6)
    assert without.megabytes < with_it.megabytes


@pytest.mark.parametrize(
    ("model", "engine"),
    [
        (kz.CompositeKernelRegression, kz.VB(max_iterations=7)),
        (kz.MutualKernelCompletion, kz.EM()),
        (kz.WishartCompletion, kz.Exact()),
        (kz.DiagonalWishartCompletion, kz.Gibbs()),
    ],
)
def test_every_way_of_measuring_works(model, engine):
    found = kz.estimate(model.example(), engine, **CALM)
    assert 0 < found.seconds[0] <= found.seconds[1] < 60
    assert found.megabytes > 0
    assert str(found).startswith(f"{engine.name} on {model.__name__}: about ")


def test_generic_engines_are_measured_by_gradients_or_steps():
    nuts = kz.estimate(normal(), kz.NUTS(max_treedepth=8), **CALM, **BY_NUMPY)
    assert nuts.seconds[1] == pytest.approx(nuts.seconds[0] * 255 / 31)
    laplace = kz.estimate(normal(), kz.Laplace(max_iterations=400), **BY_NUMPY)
    assert laplace.seconds[1] == pytest.approx(laplace.seconds[0] * 403 / 203)
    advi = kz.estimate(normal(), kz.ADVI(iterations=50_000), **BY_NUMPY)
    assert advi.seconds[0] == advi.seconds[1] > 1.0


def test_memory_of_gradients_is_that_of_their_arrays():
    """Compilation takes more than ten megabytes, however small the model is."""
    for engine in (kz.NUTS(), kz.Laplace()):
        found = kz.estimate(normal(1000), engine, tune=1, draws=1, chains=1, cores=1)
        # Laplace has four matrices.
        matrices = 32.0 if engine.name == "Laplace" else 0.0
        assert 0.03 < found.megabytes - matrices < 3.0


def test_chains_at_once_take_the_time_of_one():
    one, two, turn = (
        kz.estimate(normal(), "nuts", chains=chains, cores=cores, tune=10, draws=10, **BY_NUMPY)
        for chains, cores in ((1, 1), (2, 2), (40, 1))
    )
    assert two.seconds[0] < 20 * one.seconds[0]
    assert turn.seconds[0] > 5 * one.seconds[0]


def test_engines_without_an_estimate_and_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match=r"SMC has no estimate.*max_seconds"):
        kz.estimate(normal(), "smc")
    with pytest.raises(ValueError, match="VB does not apply"):
        kz.estimate(normal(), "vb")
    with pytest.raises(ValueError, match=r"estimate\(\).* 'drws' for ADVI\. .*'draws'\?"):
        kz.estimate(normal(), "advi", drws=5)
    with pytest.raises(ValueError, match=r"of estimate must be.*NUTS\(target_accept=...\)"):
        kz.estimate(normal(), "nuts", target_acept=0.9)
    with pytest.raises(ValueError, match="'draws' argument of estimate"):
        kz.estimate(normal(), "advi", draws=0)
    unknown = {name for name, cls in Engine.registry.items() if cls.calibrate is Engine.calibrate}
    assert unknown == {"smc", "pathfinder"}


def test_it_prints_as_one_line():
    found = Estimate("VB", "Model", (45.0, 7200.0), 310.2, "3 steps")
    assert str(found) == "VB on Model: about 45 s, at most 2 h; 310 MB (from 3 steps)"
    assert str(Estimate("ADVI", "Model", (150.0, 150.0), 9.6, "1 step")) == (
        "ADVI on Model: about 2 min; 10 MB (from 1 step)"
    )
