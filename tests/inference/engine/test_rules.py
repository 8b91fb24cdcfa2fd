"""Engines that say yes to a model and its combination run on it."""

import numpy as np
import pytest

import kernelzoo as kz
from kernelzoo.inference.engine.engine import Engine
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
def test_an_engine_that_says_yes_runs(model, rule):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(10, 2))
    y = X[:, 0] if model is kz.CompositeKernelRegression else np.arange(10) % 2
    declared = model((kz.gaussian(0.5) | kz.polynomial(2))(X), y, combination=rule)
    engines = [cls() for cls in Engine.registry.values() if issubclass(cls, PaperEngine)]
    able = [engine for engine in engines if engine.why_not(declared) is None]
    assert {engine.name for engine in able} >= {"Gibbs"}
    for engine in able:
        options = {"draws": 10, "tune": 10, "chains": 1, "cores": 1, "progressbar": False}
        result = kz.fit(declared, engine, random_seed=1, **options)
        assert result.attrs["engine"] == engine.name
