"""The recommended engine: the order of preference, the time limit, and what is printed."""

from itertools import count
from math import isnan
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

import kernelzoo as kz
from kernelzoo.inference.engine import recommend as module
from kernelzoo.inference.engine.engine import Engine
from kernelzoo.inference.engine.estimate import Estimate


@pytest.fixture
def seconds(monkeypatch):
    """Seconds of each engine, in place of measurements; and the engines that were measured."""
    times, asked = {}, []

    def estimate(model, engine, **settings):
        asked.append(engine.name)
        of_engine = times.get(engine.name, 1.0)
        return Estimate(engine.name, "", (of_engine, of_engine), 1.0, "")

    monkeypatch.setattr(module, "estimate", estimate)
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
    assert [c.engine.kind for c in choice.candidates][:2] == ["exact", "mcmc"]
    assert isinstance(choice.engine, kz.Exact)
    assert 0 < choice.candidates[0].seconds < 60
    assert kz.fit(model, choice.engine, draws=20).attrs["engine"] == "Exact"


@pytest.mark.parametrize("kind", [FloatingPointError, ValueError, TypeError])
def test_an_engine_that_cannot_be_measured_is_not_recommended(kind, monkeypatch, probit):
    def calibrate(self, model, run):
        raise kind("planted")

    monkeypatch.setattr(kz.Gibbs, "calibrate", calibrate)
    choice = recommend(probit, draws=10)
    assert choice.engine.name != "Gibbs"
    advice = {each.engine.name: each.advice for each in choice.candidates}
    assert advice["Gibbs"] == f"it could not be measured: {kind.__name__}: planted"
    for wrong in ({"drws": 3}, {"draws": 0}, {"var_names": ["wights"]}, {"random_seed": "a"}):
        with pytest.raises((TypeError, ValueError), match=r"drws|argument of recommend"):
            recommend(probit, **wrong)


def test_the_models_own_sampler_comes_before_others_and_those_are_not_measured(seconds, probit):
    choice = recommend(probit)
    names = [c.engine.name for c in choice.candidates]
    assert choice.engine.name == "Gibbs"
    assert names.index("Gibbs") < names.index("NUTS") < names.index("VB") < names.index("MAP")
    assert set(seconds["asked"]) <= {"Gibbs", "VB", "MAP"}
    assert all(isnan(c.seconds) for c in choice.candidates if c.engine.name == "NUTS")


def test_the_first_engine_in_time_is_recommended(seconds, probit):
    seconds |= {"Gibbs": 100.0, "NUTS": 60.0, "VB": 5.0}
    assert recommend(probit, max_seconds=100).engine.name == "Gibbs"
    assert recommend(probit, max_seconds=99).engine.name == "NUTS"
    assert "SMC" not in seconds["asked"]


def test_the_quickest_engine_is_recommended_when_none_is_in_time(seconds, probit):
    seconds |= {"Gibbs": 100.0, "NUTS": 60.0, "VB": 2.0, "MAP": 1.5, "ADVI": 9.0, "Laplace": 9.0}
    choice = recommend(probit, max_seconds=0.5)
    assert choice.engine.name == "MAP"
    assert "No engine is expected to end within 0.5 s" in choice.title


def test_measuring_ends_with_the_time_that_is_given(seconds, probit, monkeypatch):
    """Bug: gradients of every engine were compiled, for half a minute, to advise on a second."""
    seconds |= dict.fromkeys(("Gibbs", "NUTS", "VB", "MAP", "ADVI", "Laplace", "Nested"), 100.0)
    clock = SimpleNamespace(perf_counter=count().__next__)
    monkeypatch.setattr(module, "time", clock)
    choice = recommend(probit, max_seconds=0.5)
    assert set(seconds["asked"]) == {"Gibbs", "VB"}
    assert "within 0.5 s, of those measured" in choice.title
    recommend(probit, max_seconds=99)
    assert "NUTS" in seconds["asked"]


def test_engines_for_small_models_come_last(seconds):
    model = plain(size=2500)
    names = [c.engine.name for c in recommend(model).candidates]
    assert names.index("ADVI") < names.index("NUTS") < names.index("SMC")
    assert recommend(plain()).engine.name == "NUTS"


def test_fewer_columns_are_advised_between_many_objects(seconds, probit, monkeypatch):
    assert recommend(probit).advice is None
    n = len(probit.coords["obs"])
    monkeypatch.setattr(module, "MANY_OBJECTS", n)
    monkeypatch.setattr(module, "COLUMNS", n / 3)
    choice = recommend(probit)
    assert "about 9 times as fast" in choice.advice
    assert choice.advice in choice.title
    X = np.random.default_rng(1).normal(size=(n, 2))
    fewer, on_features = (
        kz.MultinomialProbit(kernels(X), probit.values_of("labels"))
        for kernels in (kz.gaussian().landmarks(4), kz.gaussian().nystroem(4))
    )
    for other in (fewer, on_features, kz.WishartCompletion.example(), plain()):
        assert recommend(other).advice is None
    monkeypatch.setattr(module, "MANY_OBJECTS", n + 1)
    assert recommend(probit).advice is None


def test_arguments_of_fit_reach_the_measurement(monkeypatch, probit):
    seen = []

    def estimate(model, engine, **settings):
        seen.append(settings)
        return Estimate(engine.name, "", (1.0, 1.0), 1.0, "")

    monkeypatch.setattr(module, "estimate", estimate)
    recommend(probit, draws=7, chains=3)
    assert seen
    assert all(settings == {"draws": 7, "chains": 3} for settings in seen)


def test_it_prints_every_engine_that_applies_with_its_limits(seconds, probit):
    choice = recommend(probit)
    applying = [row.engine for row in kz.engines(probit).rows if row.reason is None]
    frame = choice.to_frame()
    assert sorted(frame["engine"]) == sorted(applying)
    assert frame["limits"].str.len().min() > 3
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
    with pytest.raises(ValueError, match="drawss"):
        recommend(probit, drawss=10)
