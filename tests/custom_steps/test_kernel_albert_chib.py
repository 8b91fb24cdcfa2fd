"""The step for every rule: what it refuses. Its sweep is tested in test_kernel_sweep."""

import numpy as np
import pymc as pm
import pytest

import kernelzoo as kz
from kernelzoo.custom_steps import KernelAlbertChib


def labelled(n=9, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 2)), np.arange(n) % 3


def test_rules_it_does_not_know_are_refused():
    """Else their weights would stay where they start."""
    X, labels = labelled()
    kernels = {"a": np.exp(-((X[:, None] - X[None]) ** 2).sum(-1)), "b": np.eye(len(X))}
    model = kz.MultinomialProbit(kernels, labels, combination=kz.DirichletWeights())
    with pytest.raises(TypeError, match=r"knows the combinations Mean.*Got DirichletWeights"):
        KernelAlbertChib(model=model)


@pytest.mark.parametrize("name", ["X", "K"])
def test_changed_features_are_refused(name):
    """The step and VB read kernels with parameters as declared; NUTS reads the model's data."""
    X, labels = labelled()
    model = kz.MultinomialProbit((kz.gaussian(kz.Theta()) | kz.linear())(X), labels)
    KernelAlbertChib(model=model)
    with model:
        pm.set_data({name: 1 + model[name].get_value()})
    message = f"pm.set_data has changed {name}"
    with pytest.raises(ValueError, match=message):
        KernelAlbertChib(model=model)
    with pytest.raises(ValueError, match=message):
        kz.fit(model, kz.VB(), progressbar=False)


@pytest.mark.parametrize("codes", [[0, 1, 3], [0, -1, 2]])
def test_codes_of_no_class_are_refused(codes):
    """They would index beyond the scores, in compiled code without a word."""
    X, labels = labelled()
    model = kz.MultinomialProbit(kz.linear()(X), labels)
    with model:
        pm.set_data({"labels": np.resize(codes, len(X))})
    with pytest.raises(ValueError, match="codes of its 3 classes, 0 to 2"):
        kz.fit(model, "gibbs", progressbar=False)
