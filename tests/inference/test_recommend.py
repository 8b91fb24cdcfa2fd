"""The recommended engine: the order of preference, and what is printed."""

import pymc as pm
import pytest

import kernelzoo as kz
from kernelzoo.inference.engine.engine import Engine


@pytest.fixture(scope="module")
def probit():
    return kz.MultinomialProbit.example()


def plain(size=1):
    with pm.Model() as model:
        mu = pm.Normal("mu", shape=size)
        pm.Normal("x", mu.sum(), observed=[0.0, 1.0])
    return model


def test_independent_draws_come_first_and_fit_takes_the_recommended_engine():
    model = kz.WishartCompletion.example()
    choice = kz.recommend(model)
    assert [*choice.frame.index[:2]] == ["Exact", "Gibbs"]
    assert isinstance(choice.engine, kz.Exact)
    assert kz.fit(model, draws=20, random_seed=1).attrs["engine"] == "Exact"


def test_the_models_own_sampler_comes_before_others(probit):
    choice = kz.recommend(probit)
    names = [*choice.frame.index]
    assert choice.engine.name == "Gibbs"
    assert names.index("Gibbs") < names.index("NUTS") < names.index("VB") < names.index("MAP")


def test_engines_for_small_models_come_last():
    names = [*kz.recommend(plain(size=2500)).frame.index]
    assert names.index("ADVI") < names.index("NUTS") < names.index("SMC")
    assert kz.recommend(plain()).engine.name == "NUTS"


def test_it_prints_every_engine_that_applies_with_its_limits(probit):
    choice = kz.recommend(probit)
    applying = [*kz.engines(probit).frame.query("applies != 'no'").index]
    assert sorted(choice.frame.index) == sorted(applying)
    assert choice.frame["limits"].str.len().min() > 3
    assert all(name in repr(choice) for name in applying)
    assert "Gibbs is recommended for MultinomialProbit" in choice._repr_html_()


def test_every_engine_says_what_its_result_hides():
    assert all(cls.limits.strip() for cls in Engine.registry.values())


def test_what_is_no_model_is_refused(monkeypatch, probit):
    with pytest.raises(TypeError, match=r"'model' argument of recommend must be a pm.Model"):
        kz.recommend(3)
    monkeypatch.setattr(Engine, "registry", {})
    with pytest.raises(ValueError, match="No engine applies to this model"):
        kz.fit(probit)
