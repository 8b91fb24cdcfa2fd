"""Inclusion probabilities: numbers from draws, and their calibration on simulated truths."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from xarray import DataTree

import kernelzoo as kz
from family import assert_mean


def result(beta):
    kernels = [f"k{i}" for i in range(beta.shape[-1])]
    draws = xr.DataArray(beta, dims=("chain", "draw", "kernel"), coords={"kernel": kernels})
    tree = DataTree.from_dict({"/posterior": draws.to_dataset(name="beta")})
    tree.attrs["engine"] = "Gibbs"
    return tree


def selections(seed=0):
    return (np.random.default_rng(seed).random((2, 200, 3)) < [0.2, 0.7, 1.0]).astype(np.int64)


def test_selections_are_averaged_with_arviz_error_of_their_runs(tmp_path):
    beta = selections()
    tree = result(beta)
    runs = beta.reshape(2, 100, 2, 3).mean(axis=2)
    tree.to_netcdf(tmp_path / "result.nc")
    for each in (tree, xr.open_datatree(tmp_path / "result.nc")):
        found = kz.inclusion(each)
        np.testing.assert_allclose(found["probability"], beta.mean((0, 1)))
        for k in range(2):
            assert float(found["mcse"][k]) == pytest.approx(float(az.mcse(runs[..., k])))
        assert found["kernel"].values.tolist() == ["k0", "k1", "k2"]
        assert found.attrs == {"event": "beta = 1", "engine": "Gibbs"}


def test_independent_draws_have_the_error_of_draws():
    beta = selections()
    tree = result(beta)
    tree.attrs["independent"] = 1
    expected = float(az.mcse(beta[..., 1] * 1.0))
    assert float(kz.inclusion(tree)["mcse"][1]) == pytest.approx(expected)


def test_draws_that_all_agree_have_no_error():
    """Bug: an error of 0 for a selection that never moved."""
    found = kz.inclusion(result(selections()))
    assert np.isnan(found["mcse"]).values.tolist() == [False, False, True]


def test_weights_are_compared_with_a_threshold():
    beta = np.random.default_rng(1).dirichlet([0.3, 0.5, 1.0], (2, 100))
    found = kz.inclusion(result(beta), threshold=0.25)
    np.testing.assert_allclose(found["probability"], (beta > 0.25).mean((0, 1)))
    assert found.attrs["event"] == "beta > 0.25"


@pytest.mark.parametrize(
    ("beta", "options", "message"),
    [
        (selections(), {"threshold": 0.5}, "'threshold' argument of inclusion must be None"),
        (selections() / 3, {}, "'threshold' argument of inclusion .* Got None"),
        (selections() / 3, {"threshold": -1.0}, "'threshold' argument of inclusion"),
        (selections() * np.nan, {"threshold": 0.1}, "finite draws of beta. Got"),
    ],
)
def test_errors_name_the_argument(beta, options, message):
    with pytest.raises(ValueError, match=message):
        kz.inclusion(result(beta), **options)


def test_weights_are_needed():
    tree = result(selections())
    tree["posterior"] = DataTree(tree["posterior"].to_dataset().rename(beta="alpha"))
    with pytest.raises(ValueError, match=r"draws of learned weights 'beta' \(kernel\)"):
        kz.inclusion(tree)


def test_a_point_has_no_probabilities():
    tree = result(selections()[:1, :1] / 2)
    tree.attrs.update(engine="MAP", kind="point")
    with pytest.raises(ValueError, match=r"'result' argument of inclusion.*the point of MAP"):
        kz.inclusion(tree, threshold=0.25)


@pytest.mark.slow
@pytest.mark.parametrize("cls", [kz.CompositeKernelRegression, kz.CompositeKernelClassification])
def test_inclusion_is_calibrated(cls):
    """Over truths drawn from the prior, the mean of (truth - probability) x weight is zero.

    The weights 1 and the probability itself make it a test of the level and of the slope.
    """
    rule = kz.combinations.Binary((0.3, 0.6, 0.5))
    rng = np.random.default_rng(3)
    stack = rng.normal(size=(3, 12, 2))
    classifies = cls is kz.CompositeKernelClassification
    observed = np.arange(12) % 2 if classifies else rng.normal(size=12)
    noise = {} if classifies else {"rho": 3.0, "varrho": 0.5}
    kernels = kz.kernels.as_stack(stack)
    model = cls(kernels, observed, combination=rule, sigma=2.0, **noise)
    replicates, name = 120, "labels" if classifies else "targets"
    prior = pm.sample_prior_predictive(replicates, model=model, random_seed=1)
    gaps, spread = [], []
    for i in range(replicates):
        with model:
            pm.set_data({name: prior["prior_predictive"]["t"].values[0, i]})
        run = {"draws": 400, "tune": 50, "chains": 1, "progressbar": False}
        found = kz.fit(model, "gibbs", random_seed=i, log_likelihood=False, **run)
        p = kz.inclusion(found)["probability"].values
        gap = prior["prior"]["beta"].values[0, i] - p
        gaps.append(np.concatenate([gap, gap * p]))
        spread.append(p)
    assert_mean(np.array(gaps), 0.0)
    # The data tell something: probabilities differ between replicates.
    assert (np.std(spread, axis=0) > 0.1).all()


@pytest.mark.slow
def test_inclusion_of_vb_agrees_where_the_data_decide():
    rng = np.random.default_rng(0)
    stack = rng.normal(size=(3, 60, 2))
    y = stack[1] @ [1.0, -1.0] + 0.2 * rng.normal(size=60)
    kernels = kz.kernels.as_stack(stack)
    model = kz.CompositeKernelRegression(kernels, y, combination="binary")
    for engine, run in (("vb", {}), ("gibbs", {"draws": 300, "chains": 1})):
        found = kz.inclusion(kz.fit(model, engine, random_seed=1, progressbar=False, **run))
        np.testing.assert_allclose(found["probability"], [0, 1, 0], atol=0.2)
