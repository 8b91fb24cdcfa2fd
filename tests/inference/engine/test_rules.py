"""Engines that say yes to a model and its combination run on it."""

import numpy as np
import pytest

import kernelzoo as kz
from kernelzoo.inference import recommend
from kernelzoo.inference.engine.engine import Engine, Run
from kernelzoo.inference.paper_engines import PaperEngine
from kernelzoo.models import composite_kernel, multinomial_probit

MODELS = {
    kz.CompositeKernelRegression: composite_kernel.COMBINATIONS,
    kz.CompositeKernelClassification: composite_kernel.COMBINATIONS,
    kz.MultinomialProbit: multinomial_probit.COMBINATIONS,
}
CASES = [(model, rule) for model, rules in MODELS.items() for rule in rules]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "rule"), CASES, ids=lambda each: getattr(each, "__name__", each))
def test_an_engine_that_says_yes_can_be_measured(model, rule, monkeypatch):
    monkeypatch.setattr(recommend, "MOMENT", 0.0)
    rng = np.random.default_rng(1)
    X = rng.normal(size=(10, 2))
    y = X[:, 0] if model is kz.CompositeKernelRegression else np.arange(10) % 2
    declared = model((kz.gaussian(0.5) | kz.polynomial(2))(X), y, combination=rule)
    engines = [cls() for cls in Engine.registry.values() if issubclass(cls, PaperEngine)]
    able = [engine for engine in engines if engine.why_not(declared) is None]
    assert {engine.name for engine in able} >= {"Gibbs"}
    for engine in able:
        recommend.seconds_of(declared, engine, Run(10, 10, chains=1, cores=1))
