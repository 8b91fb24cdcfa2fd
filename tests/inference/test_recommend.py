"""The recommended engine: the order of preference, the time limit, and what is printed."""

import time
from itertools import chain, repeat
from math import isnan
from types import SimpleNamespace

import pymc as pm
import pytest

import kernelzoo as kz
from kernelzoo.inference import recommend as module
from kernelzoo.inference.engine.engine import Engine, Run
from kernelzoo.inference.engine.progress import OutOfTime


@pytest.fixture
def seconds(monkeypatch):
    """Seconds of each engine, in place of measurements; and the engines that were measured."""
    times, asked = {}, []

    def seconds_of(model, engine, run):
        asked.append(engine.name)
        return times.get(engine.name, 1.0)

    monkeypatch.setattr(module, "seconds_of", seconds_of)
    times["asked"] = asked
    return times


@pytest.fixture(scope="module")
def probit():
    return kz.MultinomialProbit.example()


def recommend(model, **arguments):
    return kz.recommend(model, progressbar=False, **arguments)


def plain(size=1):
    with pm.Model() as model:
        mu = pm.Normal("mu", shape=size)
        pm.Normal("x", mu.sum(), observed=[0.0, 1.0])
    return model


def test_independent_draws_come_first_and_the_recommended_engine_runs():
    model = kz.WishartCompletion.example()
    choice = recommend(model, draws=100)
    assert [*choice.frame.index[:2]] == ["Exact", "Gibbs"]
    assert isinstance(choice.engine, kz.Exact)
    assert 0 < choice.frame["seconds"]["Exact"] < 60
    assert kz.fit(model, choice.engine, draws=20).attrs["engine"] == "Exact"


@pytest.mark.parametrize("kind", [FloatingPointError, ValueError, TypeError])
def test_an_engine_that_cannot_be_measured_is_not_recommended(kind, monkeypatch, probit):
    def implement(self, model, run):
        raise kind("planted")

    monkeypatch.setattr(kz.Gibbs, "implement", implement)
    choice = recommend(probit, draws=10)
    assert choice.engine.name != "Gibbs"
    advice = choice.frame["advice"]
    assert advice["Gibbs"] == f"it could not be measured: {kind.__name__}: planted"
    for wrong in ({"drws": 3}, {"draws": 0}, {"cores": "a"}):
        with pytest.raises((TypeError, ValueError), match=r"drws|argument of recommend"):
            recommend(probit, **wrong)


def test_the_models_own_sampler_comes_before_others_and_those_are_not_measured(seconds, probit):
    choice = recommend(probit)
    names = [*choice.frame.index]
    assert choice.engine.name == "Gibbs"
    assert names.index("Gibbs") < names.index("NUTS") < names.index("VB") < names.index("MAP")
    assert set(seconds["asked"]) == {"Gibbs", "VB"}
    assert isnan(choice.frame["seconds"]["NUTS"])


def test_the_first_engine_in_time_is_recommended(seconds, probit):
    seconds |= {"Gibbs": 100.0, "VB": 5.0}
    assert recommend(probit, max_seconds=100).engine.name == "Gibbs"
    assert recommend(probit, max_seconds=99).engine.name == "VB"
    assert set(seconds["asked"]) == {"Gibbs", "VB"}


def test_the_quickest_engine_is_recommended_when_none_is_in_time(seconds, probit):
    seconds |= {"Gibbs": 100.0, "VB": 2.0}
    choice = recommend(probit, max_seconds=0.5)
    assert choice.engine.name == "VB"
    assert "No engine is expected to end within 0.5 s, of those measured" in choice.title


def test_points_are_measured_for_a_time_limit(seconds):
    model = kz.WishartCompletion.example()
    recommend(model)
    assert set(seconds["asked"]) == {"Exact", "Gibbs", "VB"}
    recommend(model, max_seconds=0.5)
    assert "EM" in seconds["asked"]


def test_engines_for_small_models_come_last(seconds):
    model = plain(size=2500)
    names = [*recommend(model).frame.index]
    assert names.index("ADVI") < names.index("NUTS") < names.index("SMC")
    assert recommend(plain()).engine.name == "NUTS"


def test_arguments_of_fit_reach_the_measurement(monkeypatch, probit):
    seen = []

    monkeypatch.setattr(module, "seconds_of", lambda model, engine, run: seen.append(run) or 1.0)
    recommend(probit, draws=7, chains=3)
    assert seen
    assert all((run.draws, run.tune, run.chains) == (7, 1000, 3) for run in seen)


@pytest.fixture
def now(monkeypatch):
    """The time, which tests turn on by hand."""
    clock = SimpleNamespace(now=0.0)
    clock.perf_counter = lambda: clock.now
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_a_loop_ends_after_a_moment_and_goes_on_in_thought(now):
    clock = module._Moment(module.MOMENT)
    after = clock.loop(30)
    for _ in range(3):
        now.now += 0.5
        after(1)
    now.now += 0.5
    with pytest.raises(OutOfTime):
        after(1)
    assert clock.later == 0.5 * (30 - 4)
    after = clock.loop(7)
    now.now += 2.0
    with pytest.raises(OutOfTime):
        after(1)
    assert clock.later == 0.5 * 26 + 2.0 * 6


def test_calls_are_timed_without_the_first():
    seconds = chain([0.5], repeat(0.0))
    assert module._each(lambda: time.sleep(next(seconds))) < 0.01


@pytest.mark.parametrize(
    ("model", "engine"),
    [
        (kz.CompositeKernelRegression, kz.VB(max_iterations=7)),
        (kz.MutualKernelCompletion, kz.EM()),
        (kz.WishartCompletion, kz.Exact()),
        (kz.DiagonalWishartCompletion, kz.Gibbs()),
    ],
)
def test_time_grows_with_the_draws(model, engine, monkeypatch):
    monkeypatch.setattr(module, "MOMENT", 0.05)
    few, many = (
        module.seconds_of(model.example(), engine, Run(draws, draws, chains=1, cores=1))
        for draws in (10, 10_000)
    )
    assert 0 < few < 60
    assert engine.name == "EM" or many > few


def test_chains_at_once_take_the_time_of_one(monkeypatch):
    monkeypatch.setattr(module, "_each", lambda call: 1.0)
    model = kz.DiagonalWishartCompletion.example()
    at_once, in_turn = (
        module.seconds_of(model, kz.Gibbs(), Run(10, 30, chains=chains, cores=cores))
        for chains, cores in ((2, 2), (40, 1))
    )
    assert at_once == pytest.approx(40, abs=5)
    assert in_turn == pytest.approx(1600, abs=5)


def test_it_prints_every_engine_that_applies_with_its_limits(seconds, probit):
    choice = recommend(probit)
    applying = [*kz.engines(probit).frame.query("applies != 'no'").index]
    assert sorted(choice.frame.index) == sorted(applying)
    assert choice.frame["limits"].str.len().min() > 3
    assert all(name in repr(choice) for name in applying)
    assert "Gibbs is recommended for MultinomialProbit" in choice._repr_html_()


def test_every_engine_says_what_its_result_hides():
    assert all(cls.limits.strip() for cls in Engine.registry.values())


def test_bad_arguments_are_refused_before_anything_is_measured(seconds, probit):
    with pytest.raises(TypeError, match=r"'model' argument of recommend must be a pm.Model"):
        recommend(3)
    with pytest.raises(
        ValueError, match=r"'max_seconds' argument of recommend must be a finite number above 0"
    ):
        recommend(probit, max_seconds=0)
    assert seconds["asked"] == []


def test_unknown_arguments_are_refused_by_name(probit):
    with pytest.raises(TypeError, match="drawss"):
        recommend(probit, drawss=10)
