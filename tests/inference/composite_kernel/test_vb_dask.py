"""Composite kernels in a Dask array: VB and densities as in memory."""

import numpy as np
import pytest
import xarray as xr

import kernelzoo as kz
from kernelzoo.inference.engine.groups import log_density
from kernelzoo.models.combinations.sums import Binary, DirichletWeights, FixedWeights

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

pytestmark = pytest.mark.filterwarnings("ignore:VB did not converge")

RNG = np.random.default_rng(7)
X = RNG.normal(size=(1300, 3))
X_NEW = RNG.normal(size=(6, 3))
KERNELS = (kz.gaussian(0.3) | kz.linear()).landmarks(6, seed=1)
Y = np.sin(X[:, 0]) + 0.3 * RNG.normal(size=len(X))
OUTPUTS = np.stack([Y, X[:, 1] + RNG.normal(size=len(X))], axis=1)
LABELS = Y > 0.2
# More objects a block than are multiplied at once, and a shorter last block.
SIZE = 1100
QUIET = {"progressbar": False, "random_seed": 1, "draws": 60, "log_likelihood": False}
RULES = [DirichletWeights(), FixedWeights([0.3, 0.7]), Binary()]
CASES = [
    (kz.CompositeKernelRegression, Y, {}),
    (kz.CompositeKernelRegression, OUTPUTS, {}),
    (kz.CompositeKernelRegression, OUTPUTS, {"shared": "all"}),
    (kz.CompositeKernelClassification, LABELS, {}),
]


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def in_memory_and_in_blocks(declare, response, **settings):
    stack = KERNELS(da.from_array(X, chunks=(SIZE, -1)))
    return [declare(K, response, **settings) for K in (KERNELS(X), stack)]


def check_same_answer(one, other):
    for group in ("trajectory", "variational", "posterior"):
        assert set(one[group].data_vars) == set(other[group].data_vars)
        for name in other[group].data_vars:
            a, b = (found[group][name].values for found in (one, other))
            np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-7, err_msg=name)
    assert other.attrs["pareto_k"] == pytest.approx(one.attrs["pareto_k"], rel=1e-4)


@pytest.mark.parametrize(
    ("rule", "bias"), [*((rule, True) for rule in RULES), (DirichletWeights(), False)]
)
@pytest.mark.parametrize(("declare", "response", "settings"), CASES)
def test_the_answer_is_that_in_memory(declare, response, settings, rule, bias):
    models = in_memory_and_in_blocks(declare, response, **settings, combination=rule, bias=bias)
    check_same_answer(*(kz.fit(model, kz.VB(starts=1), **QUIET) for model in models))


@pytest.mark.parametrize(("declare", "response", "settings"), CASES)
def test_densities_and_predictions_are_those_in_memory(declare, response, settings):
    one, other = in_memory_and_in_blocks(declare, response, **settings)
    results = [kz.fit(model, kz.VB(starts=1), **QUIET) for model in (one, other)]
    values = results[0]["posterior"].isel(chain=0)
    draws = {name: values[name].values[:3] for name in values.data_vars}
    np.testing.assert_allclose(log_density(other, draws), log_density(one, draws), rtol=1e-10)
    K_new = KERNELS(X_NEW, X)
    a, b = (kz.predict(m, r, K_new) for m, r in zip((one, other), results, strict=True))
    xr.testing.assert_allclose(a, b, rtol=1e-5)
    table = kz.compare_engines({"a": results[1], "b": results[1]}, model=other)
    assert {"y", "beta"} <= set(table.variables.reset_index()["variable"])


def test_what_needs_memory_says_so():
    stack = KERNELS(da.from_array(X, chunks=(SIZE, -1)))
    regression, classification = kz.CompositeKernelRegression, kz.CompositeKernelClassification
    with pytest.raises(ValueError, match=r"'collapsed'.*False for kernels in a Dask array"):
        regression(stack, Y, collapsed=True)
    model = classification(stack, LABELS)
    reasons = kz.engines(model).frame["reason"]
    assert "in memory" in reasons["Gibbs"]
    with pytest.raises(ValueError, match="a Dask array"):
        _ = model.design
