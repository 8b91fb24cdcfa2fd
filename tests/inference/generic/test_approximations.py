"""ADVI and Pathfinder: the right coordinates, honest densities."""

import numpy as np
import pymc as pm
import pytest

import kernelzoo as kz

QUIET = {"random_seed": 1, "progressbar": False}


@pytest.fixture(scope="module")
def model():
    """Variables of different sizes and scales: a permuted coordinate shows."""
    with pm.Model() as model:
        pm.Normal("a", 3.0, 0.1)
        b = pm.Normal("b", [-5.0, 7.0], [1.0, 0.3])
        pm.LogNormal("c", -1.0, 0.5)
        pm.Normal("y", b.sum(), 50.0, observed=2.0)
    return model


@pytest.mark.parametrize(
    "covariance", ["mean-field", pytest.param("full-rank", marks=pytest.mark.slow)]
)
def test_advi_puts_every_coordinate_in_its_place(model, covariance):
    result = kz.fit(
        model,
        kz.ADVI(covariance=covariance, max_iterations=2500, learning_rate=0.04),
        draws=500,
        **QUIET,
    )
    posterior = result["posterior"]
    mean = {name: posterior[name].mean(("chain", "draw")).values for name in ("a", "b")}
    # Stochastic gradients leave an error: units are prior standard deviations.
    assert abs(mean["a"] - 3.0) < 0.5 * 0.1
    np.testing.assert_array_less(np.abs(mean["b"] - [-5.0, 7.0]), [0.5, 0.15])
    assert abs(np.log(posterior["c"]).mean() + 1.0) < 0.25
    spread = result["variational"]["sd"].values
    np.testing.assert_allclose(spread, [0.1, 1.0, 0.3, 0.5], rtol=0.5)
    assert result["variational"]["coordinate"].values.tolist() == ["a", "b[0]", "b[1]", "c_log__"]
    # The family holds the posterior, so k-hat must not complain.
    assert result.attrs["pareto_k"] < 0.7


@pytest.mark.parametrize(("covariance", "correlated"), [("mean-field", False), ("full-rank", True)])
def test_advi_has_the_covariance_that_is_asked_for(covariance, correlated):
    with pm.Model() as narrow:
        b = pm.Normal("b", 0.0, 1.0, shape=2)
        pm.Normal("y", b.sum(), 0.5, observed=0.0)
    result = kz.fit(narrow, kz.ADVI(covariance=covariance, max_iterations=1000), draws=500, **QUIET)
    correlation = np.corrcoef(result["posterior"]["b"].values[0].T)[0, 1]
    assert (correlation < -0.4) == correlated


@pytest.mark.parametrize("engine", [kz.ADVI(max_iterations=20), kz.Laplace()], ids=lambda e: e.name)
def test_seeds_repeat_and_differ(model, engine):
    quiet = {"draws": 5, "progressbar": False}
    draws = [
        kz.fit(model, engine, random_seed=seed, **quiet)["posterior"]["b"].values
        for seed in (1, 1, 2)
    ]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert np.abs(draws[0] - draws[2]).min() > 1e-4


def test_advi_says_when_it_has_not_settled():
    with pm.Model() as far:
        pm.Normal("y", pm.Normal("x", 0.0, 1000.0), 1.0, observed=100.0)
    result = kz.fit(far, kz.ADVI(max_iterations=2000, learning_rate=5e-3), draws=20, **QUIET)
    assert result["posterior"]["x"].mean() < 50
    assert result.attrs["converged"] == "no"
    elbo = result["trajectory"]["elbo"].values.ravel()
    assert len(elbo) == 2000
    assert elbo[-500:].mean() > elbo[:500].mean()


def test_pathfinder_finds_a_gaussian(model):
    pytest.importorskip("pymc_extras")
    result = kz.fit(model, kz.Pathfinder(paths=4), draws=500, **QUIET)
    assert abs(result["posterior"]["a"].mean() - 3.0) < 0.05
    np.testing.assert_allclose(
        result["posterior"]["b"].mean(("chain", "draw")), [-5.0, 7.0], atol=0.5
    )
    assert np.isfinite(result.attrs["pareto_k"])
