"""Kernels at landmarks in a Dask array give the answers of those in memory."""

import numpy as np
import pymc as pm
import pytest

import kernelzoo as kz
from kernelzoo.inference.gaussian_process.chunks import ChunkedFeatures
from kernelzoo.inference.gaussian_process.inla import Posterior
from kernelzoo.numerics.features import Features
from kernelzoo.numerics.gaussian_scores import Sites

da = pytest.importorskip("dask.array")

KERNELS = (kz.gaussian(0.3) | kz.linear()).normalize("trace").landmarks(12)
KNOWN = {"scale": 5.0, "combination": kz.combinations.FixedWeights([0.3, 0.7])}


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(60, 2))


def declared(name, stack, X):
    if name == "targets":
        return kz.GaussianProcessRegression(stack, X, gamma=3.0, **KNOWN)
    labels = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0) * (name == "three classes")
    return kz.GaussianProcessClassification(stack, labels, **KNOWN)


def test_products_with_features_are_those_in_memory(X):
    posteriors = [
        Posterior.of(declared("targets", KERNELS(each), X))
        for each in (X, da.from_array(X, chunks=(17, -1)))
    ]
    values = posteriors[0].hyperparameters.known
    whole, chunked = (each.conditionals.features.at(values) for each in posteriors)
    assert isinstance(whole, Features)
    assert isinstance(chunked, ChunkedFeatures)
    assert np.allclose(chunked.squares, whole.squares)
    # Eigenvectors have either sign.
    signs = np.sign(np.einsum("mk,mk->k", whole.rotation, chunked.rotation))
    assert np.allclose(chunked.values, whole.values * signs, atol=1e-8)
    rng = np.random.default_rng(1)
    W, b, weights = rng.normal(size=(12, 3)), rng.normal(size=(60, 3)), rng.random(60)
    assert np.allclose(chunked.times(W), chunked.values @ W)
    assert np.allclose(chunked.transposed_times(b), chunked.values.T @ b)
    assert np.allclose(chunked.of_rows(np.arange(0, 60, 3)).values, chunked.values[::3], atol=1e-3)
    square = chunked.values.T @ (weights[:, None] * chunked.values)
    assert np.allclose(chunked.weighted_square(weights), square)
    sites = Sites.at(rng.dirichlet(np.ones(3), size=60))
    curved = chunked.values.T @ sites.apply(chunked.values @ W)
    assert np.allclose(chunked.curvature(sites, W), curved)


def test_objects_are_counted_without_reading_them(X, monkeypatch):
    """Bug: all features were computed to find that there are too many."""
    posterior = Posterior.of(declared("two classes", KERNELS(da.from_array(X, chunks=(17, -1))), X))
    features = posterior.conditionals.features.at(posterior.hyperparameters.known)
    monkeypatch.setattr(ChunkedFeatures, "values", None)
    monkeypatch.setattr("kernelzoo.inference.gaussian_process.conditionals.PROPAGATED", 59)
    assert not posterior.conditionals.is_propagated(features)


@pytest.mark.parametrize("name", ["targets", "two classes", "three classes"])
def test_chunks_have_the_answers_of_kernels_in_memory(X, name):
    new, engine, found = X[:5] + 0.1, kz.INLA(integrate=False), []
    for each in (X, da.from_array(X, chunks=(17, -1))):
        model = declared(name, KERNELS(each), X)
        result = kz.fit(model, engine, draws=20, random_seed=1, progressbar=False)
        new_objects = new if each is X else da.from_array(new, chunks=(2, -1))
        predicted = kz.predict(model, result, KERNELS(new_objects, X), progressbar=False)
        found.append((result, predicted, model))
    (whole, expected, _), (chunked, predicted, model) = found
    for variable in ("v", "f"):
        assert np.allclose(chunked["posterior"][variable], whole["posterior"][variable], atol=1e-7)
    assert np.allclose(chunked["log_likelihood"]["t"], whole["log_likelihood"]["t"], atol=1e-7)
    measure = "mean" if name == "targets" else "probability"
    assert np.allclose(predicted[measure], expected[measure], atol=1e-7)
    posterior = chunked["posterior"].to_dataset()
    f = pm.compute_deterministics(posterior, model=model, progressbar=False)["f"]
    assert np.allclose(f, posterior["f"])


@pytest.mark.parametrize("name", ["two classes", "three classes"])
def test_the_mode_in_chunks_is_that_in_memory(X, name):
    models = [declared(name, KERNELS(each), X) for each in (X, da.from_array(X, chunks=(17, -1)))]
    whole, chunked = (kz.fit(model, "map", progressbar=False) for model in models)
    for variable in ("v", "f"):
        assert np.allclose(chunked["point"][variable], whole["point"][variable], atol=1e-7)


def test_hyperparameters_to_learn_are_refused_with_the_way_out(X):
    stack = KERNELS(da.from_array(X, chunks=(17, -1)))
    model = kz.GaussianProcessRegression(stack, X[:, 0])
    with pytest.raises(ValueError, match="give numbers for scale and gamma, and FixedWeights"):
        kz.fit(model, "inla")
    assert kz.engines(model).frame.loc["NUTS", "applies"] == "no"
