"""Predictions of the composite-kernel models against averages taken one draw at a time."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats
from xarray import DataTree

import kernelzoo as kz
from family import assert_mean
from kernelzoo.inference.engine.paper import identified

SHAPE = (4, 5)
NEW = np.random.default_rng(8).normal(size=(2, 3, 8))


def result_of(model, names):
    """Made-up draws that need no fit."""
    rng = np.random.default_rng(5)
    n = len(model.coords["function"])
    everything = {
        "beta": (("chain", "draw", "kernel"), rng.dirichlet([1, 2], size=SHAPE)),
        "alpha": (("chain", "draw", "function"), rng.normal(size=(*SHAPE, n))),
        "phi": (("chain", "draw", "function"), rng.gamma(2.0, size=(*SHAPE, n))),
        "gamma": (("chain", "draw"), rng.gamma(2.0, size=SHAPE)),
    }
    posterior = xr.Dataset({name: everything[name] for name in names})
    data = xr.Dataset({"K": (("kernel", "obs", "basis"), model["K"].get_value())})
    if not model.learned:
        data["beta"] = ("kernel", model["beta"].get_value())
    tree = DataTree.from_dict({"posterior": posterior, "constant_data": data})
    tree.attrs.update(engine="Gibbs", model=type(model).__name__)
    return tree


def responses(model, result, stack):
    """y (draw, obs) as eq (1) writes it."""
    posterior = result["posterior"].to_dataset().stack(sample=("chain", "draw"))
    out = []
    for i in range(posterior.sizes["sample"]):
        draw = posterior.isel(sample=i)
        beta = draw["beta"].values if "beta" in draw else model["beta"].get_value()
        K = sum(b * k for b, k in zip(beta, stack, strict=True))
        alpha = draw["alpha"].values
        out.append(K @ alpha[1:] + alpha[0] if model.bias else K @ alpha)
    return np.array(out)


@pytest.mark.parametrize(
    "options", [{}, {"bias": False}, {"combination": kz.combinations.FixedWeights([0.3, 0.9])}]
)
def test_regression_averages_over_draws(options):
    model = kz.CompositeKernelRegression.example(**options)
    names = ["alpha", "gamma", *(["beta"] if model.learned else [])]
    result = result_of(model, names)
    y = responses(model, result, NEW)
    noise = (1 / result["posterior"]["gamma"].values).mean()
    predictions = kz.predict(model, result, NEW, keep_draws=True)
    np.testing.assert_allclose(predictions["mean"], y.mean(0))
    np.testing.assert_allclose(predictions["response_sd"], y.std(0))
    np.testing.assert_allclose(predictions["target_sd"] ** 2, y.var(0) + noise)
    np.testing.assert_allclose(predictions["mean_draws"].values.reshape(-1, 3), y)
    sd = np.broadcast_to(result["posterior"]["gamma"].values.reshape(-1, 1) ** -0.5, y.shape)
    np.testing.assert_allclose(predictions["target_sd_draws"].values.reshape(-1, 3), sd)


def test_classification_averages_over_draws():
    model = kz.CompositeKernelClassification.example(classes=[True, False])
    result = result_of(model, ["alpha", "beta"])
    p = stats.logistic.cdf(responses(model, result, NEW))
    predictions = kz.predict(model, result, NEW, keep_draws=True)
    np.testing.assert_allclose(predictions["probability"].sel({"class": False}), p.mean(0))
    np.testing.assert_allclose(predictions["probability"].sum("class"), 1.0)
    np.testing.assert_allclose(predictions["probability_sd"].sel({"class": True}), p.std(0))
    np.testing.assert_array_equal(predictions["label"], p.mean(0) <= 0.5)
    assert predictions["probability_draws"].dims == ("chain", "draw", "obs", "class")
    np.testing.assert_allclose(
        predictions["probability_draws"].isel({"class": 1}).values.reshape(-1, 3), p
    )


def test_the_collapsed_model_predicts_what_draws_of_alpha_would():
    model = kz.CompositeKernelRegression.example(collapsed=True)
    result = result_of(model, ["beta", "phi", "gamma"])
    predictions = kz.predict(model, result, NEW, keep_draws=True)
    mixture = (predictions[name] for name in ("mean_draws", "target_sd_draws"))
    mean, sd = (each.values.reshape(-1, 3) for each in mixture)
    np.testing.assert_allclose(predictions["target_sd"] ** 2, (sd**2).mean(0) + mean.var(0))
    rng, draws = np.random.default_rng(6), []
    posterior = result["posterior"].to_dataset().stack(sample=("chain", "draw"))
    for i in range(posterior.sizes["sample"]):
        draw = posterior.isel(sample=i)
        K = np.tensordot(draw["beta"].values, model.design, axes=1)
        new = np.tensordot(draw["beta"].values, model.functions(NEW), axes=1)
        gamma = float(draw["gamma"])
        covariance = np.linalg.inv(gamma * K.T @ K + np.diag(draw["phi"].values))
        mean = gamma * covariance @ K.T @ model.target_values
        draws.append(rng.multivariate_normal(mean, covariance, size=10_000) @ new.T)
    # One draw of alpha from each of the twenty laws makes one row: rows are independent.
    rows = np.array(draws)
    assert_mean(rows.mean(0), predictions["mean"].values)
    centred = (rows - predictions["mean"].values) ** 2
    assert_mean(centred.mean(0), predictions["response_sd"].values ** 2)
    # The spread of each draw, of which noise is the rest.
    noise = 1 / result["posterior"]["gamma"].values.reshape(-1, 1)
    np.testing.assert_allclose(rows.var(axis=1), sd**2 - noise, rtol=0.1)


def test_blocks_do_not_change_the_answer(monkeypatch):
    models = [
        kz.CompositeKernelRegression.example(),
        kz.CompositeKernelRegression.example(collapsed=True),
        kz.CompositeKernelClassification.example(),
    ]
    names = [["alpha", "beta", "gamma"], ["beta", "phi", "gamma"], ["alpha", "beta"]]
    results = [result_of(*pair) for pair in zip(models, names, strict=True)]
    whole = [kz.predict(m, r, NEW) for m, r in zip(models, results, strict=True)]
    monkeypatch.setattr("kernelzoo.inference.new_objects.BLOCK_NUMBERS", 1)
    for model, result, expected in zip(models, results, whole, strict=True):
        xr.testing.assert_allclose(kz.predict(model, result, NEW), expected)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("combination", ["mean", kz.combinations.FixedWeights([0.3, 0.9])])
def test_what_is_identified_are_the_responses(bias, combination):
    stack = np.random.default_rng(2).normal(size=(2, 7, 6))
    model = kz.CompositeKernelClassification(
        kz.kernels.as_stack(stack), np.arange(7) % 2, bias=bias, combination=combination
    )
    result = result_of(model, ["alpha", *(["beta"] if model.learned else [])])
    found = identified(result, model)
    assert set(found) == {"y", *(["beta"] if model.learned else [])}
    np.testing.assert_allclose(found["y"].values.reshape(-1, 7), responses(model, result, stack))


def test_predict_says_what_is_missing():
    model = kz.CompositeKernelRegression.example()
    complete = result_of(model, ["alpha", "beta", "gamma"])
    with pytest.raises(ValueError, match="kernels between new and training objects"):
        kz.predict(model, complete)
    with pytest.raises(ValueError, match=r"'kernels_new.*' argument"):
        kz.predict(model, complete, NEW[:, :, :5])
    for name in ("alpha", "beta", "gamma"):
        kept = [other for other in ("alpha", "beta", "gamma") if other != name]
        with pytest.raises(ValueError, match=f"draws of {name}"):
            kz.predict(model, result_of(model, kept), NEW)
    collapsed = kz.CompositeKernelRegression.example(collapsed=True)
    with pytest.raises(ValueError, match="draws of phi"):
        kz.predict(collapsed, result_of(collapsed, ["beta", "gamma"]), NEW)
