"""The mode of the scores is where the declaration's density is highest, and predicts as such."""

import numpy as np
import pytest
from scipy.special import expit, softmax

import kernelzoo as kz

N = 24
RNG = np.random.default_rng(4)
X = RNG.normal(size=(N, 2))
LABELS = {2: (X[:, 0] > 0).astype(int), 3: np.digitize(X[:, 0] + X[:, 1], [-0.7, 0.7])}
KERNELS = kz.kernels.inverse_multiquadric("median") | kz.linear()
CASES = [(c, whole) for c in LABELS for whole in (True, False)]


def declared(n_classes, whole, **options):
    kernels = KERNELS if whole else KERNELS.landmarks(7)
    settings = {"scale": 6.0, "combination": "fixed"} | options
    model = kz.GaussianProcessClassification(kernels(X), LABELS[n_classes], **settings)
    return model, kernels(X[:5] + 0.2, X)


@pytest.mark.parametrize(("n_classes", "whole"), CASES)
def test_the_declarations_gradient_vanishes_at_the_mode(n_classes, whole):
    model, _ = declared(n_classes, whole)
    result = kz.fit(model, "map", progressbar=False)
    assert result.attrs["converged"] == "yes"
    point = {"v": result["point"]["v"].values}
    assert np.abs(model.compile_dlogp()(point)).max() < 2e-3
    log_density = float(model.compile_logp()(point))
    assert result["sample_stats"]["lp"].item() == pytest.approx(log_density, abs=1e-5)
    f = model.compile_fn(model["f"], inputs=[model["v"]], on_unused_input="ignore")(point)
    assert np.allclose(result["point"]["f"], f, atol=1e-8)


@pytest.mark.parametrize(("n_classes", "whole"), CASES)
def test_predictions_are_those_of_the_mode_of_new_scores(n_classes, whole):
    """The conditional mean of the new scores is their mode given those of the objects."""
    model, new = declared(n_classes, whole)
    result = kz.fit(model, "map", progressbar=False)
    found = kz.predict(model, result, new)["probability"].values
    kernels = KERNELS if whole else KERNELS.landmarks(7)
    known = kernels(X).values.mean(axis=0)
    landmarks = np.arange(N)
    if not whole:
        basis = KERNELS(X).values.mean(axis=0)
        landmarks = [
            int(np.abs(basis - column[:, None]).max(axis=0).argmin()) for column in known.T
        ]
    K = known[landmarks]
    K = K + 1e-6 * K.diagonal().mean() * np.eye(len(K))
    f = result["point"]["f"].values[landmarks].reshape(len(K), -1)
    scores = new.values.mean(axis=0) @ np.linalg.solve(K, f)
    if n_classes == 2:
        expected = np.hstack([1 - expit(scores), expit(scores)])
    else:
        expected = softmax(scores, axis=1)
    assert np.allclose(found, expected, atol=1e-6)


def test_learned_hyperparameters_leave_the_search_by_gradients():
    model, _ = declared(2, True, scale=kz.LearnedScale(3.0, 0.1))
    assert "gradient_norm" in kz.fit(model, "map", progressbar=False).attrs
    known, _ = declared(2, True)
    assert "gradient_norm" not in kz.fit(known, "map", progressbar=False).attrs
