"""Regression with several outputs: its density, its dims, and what it refuses."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from scipy import stats

from kernelzoo import CompositeKernelRegression
from kernelzoo.inference.engine.groups import log_density
from kernelzoo.models.combinations import DirichletWeights

pytestmark = pytest.mark.usefixtures("quick_compilation")

K = CompositeKernelRegression.example()["K"].get_value()
IDS = [f"P{i}" for i in range(8)]
TARGETS = pd.DataFrame(np.random.default_rng(0).normal(size=(8, 3)), IDS, ["a", "b", "c"])
KERNELS = {name: pd.DataFrame(k, IDS, IDS) for name, k in zip("uv", K, strict=True)}
PRIORS = {"sigma": 1.7, "varsigma": 0.6, "rho": 1.3, "varrho": 0.4}
OWN = {
    "weights": {"alpha", "gamma"},
    "all": {"alpha"},
}


def declared(targets=TARGETS, **options):
    return CompositeKernelRegression(KERNELS, targets, **PRIORS | options)


def prior_draws(model, draws=4):
    prior = pm.sample_prior_predictive(draws, model=model, random_seed=1)["prior"]
    return {rv.name: prior[rv.name].values[0] for rv in model.free_RVs}


def of_output(model, point, o):
    """Values of the variables of one output."""
    of = model.named_vars_to_dims
    return {
        name: value[o] if "output" in of.get(name, ()) else value for name, value in point.items()
    }


@pytest.mark.parametrize("shared", OWN)
@pytest.mark.parametrize("bias", [True, False])
def test_density_is_that_of_scipy(shared, bias):
    """Each variable counts once, the targets once an output."""
    model = declared(shared=shared, bias=bias, combination=DirichletWeights(2.0, 0.7))
    draws = prior_draws(model)
    expected = []
    for i in range(4):
        point = {name: values[i] for name, values in draws.items()}
        total = 0.0
        for o in range(3):
            v = of_output(model, point, o)
            K_beta = np.tensordot(v["beta"], K, axes=1)
            y = K_beta @ v["alpha"][-8:] + (v["alpha"][0] if bias else 0.0)
            total += stats.norm.logpdf(model.target_values[:, o], y, v["gamma"] ** -0.5).sum()
            prior = {
                "varphi": stats.gamma.logpdf(v["varphi"], 2.0, scale=1 / 0.7).sum(),
                "beta": stats.dirichlet.logpdf(v["beta"], v["varphi"]),
                "phi": stats.gamma.logpdf(v["phi"], 1.7, scale=1 / 0.6).sum(),
                "alpha": stats.norm.logpdf(v["alpha"], 0, v["phi"] ** -0.5).sum(),
                "gamma": stats.gamma.logpdf(v["gamma"], 1.3, scale=1 / 0.4),
            }
            total += sum(prior[name] for name in prior if o == 0 or name in OWN[shared])
        expected.append(total)
    np.testing.assert_allclose(log_density(model, draws), expected, atol=2e-6)


@pytest.mark.parametrize("shared", OWN)
def test_what_is_an_outputs_own(shared):
    model = declared(shared=shared)
    of = model.named_vars_to_dims
    assert {name for name, dims in of.items() if dims[0] == "output"} == OWN[shared]
    assert of["t"] == of["targets"] == ("obs", "output")
    assert list(model.coords["output"]) == ["a", "b", "c"]


def test_tables_go_by_their_labels():
    expected = declared().target_values
    shuffled = TARGETS.iloc[[3, 1, 0, 2, 7, 6, 5, 4]]
    np.testing.assert_array_equal(declared(shuffled).target_values, expected)
    array = xr.DataArray(shuffled.T, dims=("output", "obs"))
    model = declared(array)
    np.testing.assert_array_equal(model.target_values, expected)
    assert list(model.coords["output"]) == ["a", "b", "c"]
    assert list(declared(TARGETS.to_numpy()).coords["output"]) == [0, 1, 2]


def test_one_column_keeps_its_dim():
    model = declared(TARGETS[["b"]])
    assert model.target_values.shape == (8, 1)
    assert list(model.coords["output"]) == ["b"]
