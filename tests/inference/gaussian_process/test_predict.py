import arviz as az
import numpy as np
import pandas as pd
import pytest

import kernelzoo as kz
from kernelzoo.models.gaussian_process import JITTER

REGRESSION, CLASSIFICATION = kz.GaussianProcessRegression, kz.GaussianProcessClassification


@pytest.fixture
def objects():
    rng = np.random.default_rng(0)
    return rng.normal(size=(12, 2)), rng.normal(size=(4, 2))


def fit(model, draws=2000):
    return kz.fit(model, "inla", draws=draws, random_seed=1, progressbar=False)


def predict(model, result, kernels_new, **options):
    return kz.predict(model, result, kernels_new, progressbar=False, **options)


@pytest.mark.parametrize("several", [False, True])
def test_known_hyperparameters_give_the_closed_form(objects, several):
    X, new = objects
    targets = np.column_stack([np.sin(X[:, 0]), X[:, 1]]) if several else np.sin(X[:, 0])
    kernels = kz.gaussian(0.5) | kz.linear()
    model = REGRESSION(kernels(X), targets, scale=2.0, gamma=5.0, combination="fixed")
    predictions = predict(model, fit(model), kernels(new, X))
    K = 2.0 * kernels(X).mean("kernel").to_numpy()
    K += (JITTER * np.trace(K) / 12 + 0.2) * np.eye(12)
    cross = 2.0 * kernels(new, X).mean("kernel").to_numpy()
    weights = np.linalg.solve(K, cross.T)
    mean = weights.T @ targets
    own = 2.0 * (1 + (new**2).sum(1)) / 2
    variance = own - (cross * weights.T).sum(1)
    sd = np.sqrt(variance)[:, None] if several else np.sqrt(variance)
    assert np.allclose(predictions["mean"], mean, atol=5 * sd.max() / 2000**0.5)
    assert np.allclose(predictions["response_sd"], np.broadcast_to(sd, mean.shape), rtol=0.1)
    noisy = np.sqrt(np.broadcast_to(sd, mean.shape) ** 2 + 0.2)
    assert np.allclose(predictions["target_sd"], noisy, rtol=0.1)


@pytest.mark.parametrize("several", [False, True])
def test_landmarks_give_the_closed_form(objects, several, tmp_path):
    X, new = objects
    targets = np.column_stack([np.sin(X[:, 0]), X[:, 1]]) if several else np.sin(X[:, 0])
    kernels = (kz.gaussian(0.5) | kz.linear()).normalize("trace").landmarks(5)
    model = REGRESSION(kernels(X), targets, scale=2.0, gamma=5.0, combination="fixed")
    result = fit(model)
    cross = 2.0 * kernels(X).mean("kernel").to_numpy()
    own = cross[model.landmarks] + JITTER * np.trace(cross[model.landmarks]) / 5 * np.eye(5)
    cross[model.landmarks] = own
    root = np.linalg.cholesky(own)
    phi, phi_new = (
        np.linalg.solve(root, K.T).T
        for K in (cross, 2.0 * kernels(new, X).mean("kernel").to_numpy())
    )
    covariance = np.linalg.inv(np.eye(5) + 5.0 * phi.T @ phi)
    mean = phi_new @ covariance @ (5.0 * phi.T @ targets)
    both = (kz.gaussian(0.5) | kz.linear()).normalize("trace")
    variances = 2.0 * both(new, X)["variance"].mean("kernel").to_numpy()
    variances += (phi_new @ (covariance - np.eye(5)) * phi_new).sum(1)
    sd = np.sqrt(variances)[:, None] if several else np.sqrt(variances)
    predictions = predict(model, result, kernels(new, X))
    assert np.allclose(predictions["mean"], mean, atol=5 * sd.max() / 2000**0.5)
    assert np.allclose(predictions["response_sd"], np.broadcast_to(sd, mean.shape), rtol=0.1)
    result.to_netcdf(tmp_path / "result.nc")
    loaded = az.from_netcdf(tmp_path / "result.nc")
    again = predict(model.copied(), loaded, kernels(new, X))
    assert np.allclose(again["mean"], predictions["mean"])


def test_landmarks_predict_classes_as_all_objects_do(objects):
    X, new = objects
    labels = np.arange(12) % 3
    kernels = kz.gaussian(0.5)
    whole = CLASSIFICATION(kernels(X), labels, scale=3.0)
    columns = CLASSIFICATION(kernels.landmarks(12)(X), labels, scale=3.0)
    one = predict(whole, fit(whole, 4000), kernels(new, X))
    other = predict(columns, fit(columns, 4000), kernels.landmarks(12)(new, X))
    assert np.allclose(one["probability"], other["probability"], atol=0.02)


def test_learned_widths_on_landmarks_are_those_of_each_draw(objects):
    X, new = (pd.DataFrame(each, index=[f"{name}{i}" for i in range(len(each))])
              for name, each in zip("xn", objects, strict=True))  # fmt: skip
    kernels = kz.gaussian(kz.kernels.Theta(2, 2))
    model = REGRESSION(kernels(X, X[:5]), np.sin(2 * X[0]), gamma=50.0)
    result = fit(model, 10)
    mine = predict(model, result, kernels(new, X[:5]), keep_draws=True)["mean_draws"]
    draw = result["posterior"].to_dataset().isel(chain=0, draw=7)

    def kernel(A, B):
        squares = ((A.to_numpy()[:, None] - B.to_numpy()[None]) ** 2).sum(-1)
        return draw["scale"].item() * np.exp(-draw["theta"].item() * squares)

    root = np.linalg.cholesky(kernel(X[:5], X[:5]) + draw["scale"].item() * JITTER * np.eye(5))
    phi = np.linalg.solve(root, kernel(new, X[:5]).T).T
    assert np.allclose(mine[0, 7], phi @ draw["v"].to_numpy())


def test_far_from_all_objects_predictions_are_those_of_the_prior(objects):
    X, _ = objects
    kernels = kz.gaussian(0.5)
    model = REGRESSION(kernels(X), np.sin(X[:, 0]), scale=2.0, gamma=5.0)
    with pytest.warns(kz.kernels.KernelWarning):
        far = predict(model, fit(model, 100), kernels(np.full((2, 2), 99.0), X))
    assert np.allclose(far["mean"], 0)
    assert np.allclose(far["response_sd"], 2**0.5)
    labels = np.arange(12) % 3
    classifier = CLASSIFICATION(kernels(X), labels)
    with pytest.warns(kz.kernels.KernelWarning):
        far = predict(classifier, fit(classifier, 500), kernels(np.full((2, 2), 99.0), X))
    assert np.allclose(far["probability"], 1 / 3, atol=0.02)
    assert (far["probability_sd"] > 0.2).all()


def test_probabilities_are_averaged_over_the_scores_of_new_objects(objects):
    X, new = objects
    kernels = kz.gaussian(0.5)
    labels = (X[:, 0] > 0).astype(int)
    model = CLASSIFICATION(kernels(X), labels, scale=5.0)
    result = fit(model)
    predictions = predict(model, result, kernels(new, X))
    K = 5.0 * kernels(X).to_numpy()[0]
    K += 5.0 * JITTER * np.eye(12)
    cross = 5.0 * kernels(new, X).to_numpy()[0]
    f = result["posterior"]["f"].to_numpy()[0]
    means = f @ np.linalg.solve(K, cross.T)
    variances = 5.0 - (cross * np.linalg.solve(K, cross.T).T).sum(1)
    drawn = means + np.sqrt(variances) * np.random.default_rng(5).normal(size=(50, *means.shape))
    p = 1 / (1 + np.exp(-drawn))
    assert np.allclose(predictions["probability"][:, 1], p.mean((0, 1)), atol=0.01)
    assert np.allclose(predictions["probability_sd"][:, 1], p.std((0, 1)), atol=0.01)
    assert np.allclose(predictions["probability"].sum("class"), 1)


def test_predictions_repeat_and_keep_draws(objects):
    X, new = objects
    kernels = kz.gaussian(0.5)
    model = CLASSIFICATION(kernels(X), np.arange(12) % 3)
    result = fit(model, 50)
    one, two = (predict(model, result, kernels(new, X)) for _ in range(2))
    assert one.equals(two)
    kept = predict(model, result, kernels(new, X), keep_draws=True, random_seed=1)
    assert kept["probability_draws"].shape == (1, 50, 4, 3)
    assert np.allclose(kept["probability_draws"].mean(("chain", "draw")), kept["probability"])
    assert kept["t"].shape == (1, 50, 4)


def test_nuts_and_inla_predict_alike(objects):
    X, new = objects
    kernels = kz.gaussian(0.5)
    model = CLASSIFICATION(kernels(X), (X[:, 0] > 0).astype(int), scale=3.0)
    result = fit(model, 1000)
    # Draws with hyperparameters of their own, as chains have them.
    chains = result.copy(deep=True)
    chains["posterior"] = chains["posterior"].to_dataset().isel(draw=slice(None, None, -1))
    one, other = (predict(model, each, kernels(new, X)) for each in (result, chains))
    assert np.allclose(one["probability"], other["probability"], atol=0.01)


def test_learned_widths_are_those_of_each_draw(objects):
    X, new = objects
    kernels = kz.gaussian(kz.kernels.Theta(2, 2, ard=True))
    model = REGRESSION(kernels(X), np.sin(2 * X[:, 0]), gamma=50.0)
    result = fit(model, 30)
    mine = predict(model, result, kernels(new, X), keep_draws=True, random_seed=1)["mean_draws"]
    draw = result["posterior"].to_dataset().isel(chain=0, draw=7)
    theta, scale = draw["theta"].to_numpy(), draw["scale"].item()

    def kernel(A, B):
        return scale * np.exp(-(((A[:, None] - B[None]) ** 2) * theta).sum(-1))

    K = kernel(X, X) + scale * JITTER * np.eye(12)
    assert np.allclose(mine[0, 7], kernel(new, X) @ np.linalg.solve(K, draw["f"].to_numpy()))


def test_variances_of_new_objects_are_needed_where_they_differ(objects):
    X, new = objects
    K, cross = X @ X.T, new @ X.T
    model = REGRESSION(K, X[:, 0], scale=1.0, gamma=5.0)
    result = fit(model, 200)
    with pytest.raises(ValueError, match="coordinate 'variance'"):
        predict(model, result, cross)
    kernels = kz.linear()
    named = REGRESSION(kernels(X), X[:, 0], scale=1.0, gamma=5.0)
    from_kernels = predict(named, fit(named, 200), kernels(new, X))
    stack = kz.kernels.as_stack(cross, like=kz.kernels.as_stack(K))
    stack = stack.assign_coords(variance=(("kernel", "obs"), (new**2).sum(1)[None]))
    assert np.allclose(predict(model, result, stack)["target_sd"], from_kernels["target_sd"])


@pytest.mark.parametrize("steps", [("trace",), ("unit",), ()])
def test_kernels_of_new_objects_have_their_variances(objects, steps):
    X, new = objects
    kernels = (kz.polynomial(2) | kz.gaussian(0.3)).normalize(*steps)
    cross = kernels(new, X)
    together = kernels(np.vstack([X, new]), X)
    scale = kernels(X).isel(obs=0, basis=0).to_numpy() / together.isel(obs=0, basis=0).to_numpy()
    expected = np.einsum("knn->kn", kz.kernels.as_stack((kz.polynomial(2) | kz.gaussian(0.3))(new)))
    if steps == ("unit",):
        expected = np.ones_like(expected)
    if steps == ("trace",):
        plain = (kz.polynomial(2) | kz.gaussian(0.3))(X)
        expected = expected * 12 / np.einsum("knn->k", plain.to_numpy())[:, None]
    assert np.allclose(scale, 1)
    assert np.allclose(cross["variance"], expected)
    assert "variance" not in kernels(X).coords
