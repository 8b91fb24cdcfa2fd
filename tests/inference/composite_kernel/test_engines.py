"""Engines of the composite-kernel models against a posterior integrated by brute force."""

import arviz as az
import numpy as np
import pytest
import xarray as xr

import composite_fixture as fixture
import kernelzoo as kz
from family import assert_z

MODELS = {
    "regression": fixture.regression,
    "collapsed regression": lambda: fixture.regression(collapsed=True),
    "classification": fixture.classification,
}

# What mean field gives away here: nats of the bound, and its error of E[beta_1].
GAPS = {"regression": 0.474, "classification": 1.076}
BIASES = {"regression": 0.010, "classification": 0.060}


@pytest.fixture(scope="module")
def exact():
    """Brute force, once a likelihood: the collapsed declaration has the posterior of the other."""
    regression = fixture.brute_force(fixture.regression())
    return {
        "regression": regression,
        "collapsed regression": regression,
        "classification": fixture.brute_force(fixture.classification()),
    }


def functions_of_draws(result) -> xr.Dataset:
    """Draws of the functions whose means brute force knows."""
    posterior = result["posterior"].to_dataset()
    beta = posterior["beta"].isel(kernel=0, drop=True)
    draws = {"beta": beta, "beta squared": beta**2}
    if "alpha" in posterior:
        bias, slope = (np.tanh(posterior["alpha"].isel(function=i, drop=True)) for i in (0, 1))
        draws |= {"tanh bias": bias, "tanh slope": slope, "beta tanh slope": beta * slope}
    return xr.Dataset(draws)


@pytest.mark.parametrize(
    ("name", "engine", "options"),
    [
        # Densities are compared with the paper's in the tests of models, in no time.
        *(
            pytest.param(name, engine, {"draws": 1000, "tune": 600}, marks=pytest.mark.slow)
            for name, engine in (
                ("regression", kz.NUTS(target_accept=0.95)),
                ("collapsed regression", kz.NUTS()),
                ("classification", kz.NUTS(target_accept=0.95)),
            )
        ),
        ("regression", kz.Gibbs(), {"draws": 1000, "tune": 200}),
        ("classification", kz.Gibbs(), {"draws": 1000, "tune": 200}),
        ("regression", kz.Gibbs(scheme="paper"), {"draws": 2000, "tune": 300}),
        ("classification", kz.Gibbs(scheme="paper"), {"draws": 2500, "tune": 300}),
    ],
)
def test_samplers_find_the_posterior(exact, name, engine, options):
    result = kz.fit(
        MODELS[name](),
        engine,
        chains=2,
        cores=1,
        random_seed=1,
        progressbar=False,
        log_likelihood=False,
        **options,
    )
    draws = functions_of_draws(result)
    error, effective = az.mcse(draws), az.ess(draws)
    assert min(float(effective[n]) for n in draws) > 100
    assert_z([(float(draws[n].mean()) - exact[name].moments[n]) / float(error[n]) for n in draws])


@pytest.mark.parametrize("name", ["regression", "classification"])
def test_vb_stays_below_the_evidence(exact, name):
    """Catches a bound with a term missing: by how much it is below is on record."""
    result = kz.fit(MODELS[name](), "vb", draws=10, random_seed=1, progressbar=False)
    trajectory = result["trajectory"].to_dataset()
    best = trajectory["elbo"].isel(start=trajectory.attrs["best_start"])
    gap = exact[name].log_evidence - float(best.max())
    np.testing.assert_allclose(gap, GAPS[name], atol=0.01)
    beta = float(result["variational"]["beta_mean"][0])
    np.testing.assert_allclose(beta - exact[name].moments["beta"], BIASES[name], atol=0.005)
