"""Chains that begin at another engine's result."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr

import kernelzoo as kz
from family import assert_z
from kernelzoo.inference.engine.chains import initial_values
from kernelzoo.inference.engine.compilation import python_mode

OPTIONS = {"progressbar": False, "random_seed": 1}


@pytest.fixture(scope="module")
def model():
    with pm.Model(coords={"k": ["a", "b", "c"]}) as model:
        x = pm.HalfNormal("x", dims="k")
        y = pm.Normal("y")
        pm.Normal("z", x.sum() + y, observed=1.0)
    return model


def result_with(draws=6, chains=2, **changes):
    """Draws in which every number tells its chain, draw and label."""
    shape = chains, draws, 3
    x = xr.DataArray(
        1 + np.arange(np.prod(shape), dtype=float).reshape(shape),
        dims=("chain", "draw", "k"),
        coords={"k": ["a", "b", "c"]},
        name="x",
    )
    posterior = xr.Dataset({"x": x, "y": -x.isel(k=0, drop=True)})
    return xr.DataTree.from_dict({"posterior": posterior.assign(**changes)})


def test_each_chain_has_a_draw_of_its_own(model):
    result = result_with()
    found = initial_values(result, model, 12, np.random.default_rng(1))
    firsts = sorted(values["x"][0] for values in found)
    assert firsts == sorted(result["posterior"]["x"].to_numpy()[..., 0].ravel())
    for values in found:
        np.testing.assert_array_equal(values["x"], values["x"][0] + np.arange(3))
        assert values["y"] == -values["x"][0]
    more = initial_values(result_with(draws=1, chains=1), model, 3, np.random.default_rng(1))
    assert [values["y"] for values in more] == [-1.0] * 3


def test_labels_decide_and_not_the_order(model):
    result = result_with()
    result["posterior"] = result["posterior"].to_dataset().isel(k=[2, 0, 1])
    for values in initial_values(result, model, 4, np.random.default_rng(1)):
        np.testing.assert_array_equal(values["x"], values["x"][0] + np.arange(3))


def test_a_variable_without_draws_begins_as_usual(model):
    result = result_with()
    result["posterior"] = result["posterior"].to_dataset().drop_vars("y")
    (values,) = initial_values(result, model, 1, np.random.default_rng(1))
    assert list(values) == ["x"]


def test_draws_that_are_not_finite_are_left_out(model):
    result = result_with()
    y = result["posterior"]["y"].to_numpy().copy()
    y[:, 1:] = np.nan
    result["posterior"] = result["posterior"].to_dataset().assign(y=(("chain", "draw"), y))
    found = initial_values(result, model, 2, np.random.default_rng(1))
    assert sorted(values["y"] for values in found) == [-19.0, -1.0]


def _renamed(result):
    posterior = result["posterior"].to_dataset()
    result["posterior"] = posterior.assign_coords(k=["a", "b", "d"])
    return result


def _without_variables(result):
    result["posterior"] = xr.Dataset({"other": (("chain", "draw"), np.ones((1, 2)))})
    return result


def _shorter(result):
    result["posterior"] = xr.Dataset({"x": (("chain", "draw", "i"), np.ones((1, 2, 2)))})
    return result


def _nowhere_finite(result):
    result["posterior"]["y"] = result["posterior"]["y"] * np.nan
    return result


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_renamed, "on the model's labels of k. Got no 'c' in x"),
        (_without_variables, "with draws of x, y"),
        (_shorter, r"with x of shape \(3,\). Got x of shape \(2,\)"),
        (_nowhere_finite, "finite draws"),
    ],
)
def test_results_that_do_not_fit_are_refused(model, spoil, message):
    with pytest.raises(ValueError, match=message):
        kz.fit(model, "nuts", start=spoil(result_with()), **OPTIONS)


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ("advi", "ADVI takes no start: only Gibbs and NUTS"),
        (kz.NUTS(backend="nutpie"), "moves the points where its chains begin"),
    ],
)
def test_engines_that_take_no_start(model, engine, message):
    if engine != "advi":
        pytest.importorskip("nutpie")
    with pytest.raises(ValueError, match=message):
        kz.fit(model, engine, start=result_with(), **OPTIONS)


def test_what_is_no_result_is_refused(model):
    with pytest.raises(TypeError, match=r"result of fit\. Got <class"):
        kz.fit(model, "nuts", start={"x": 1.0}, **OPTIONS)


def test_results_of_other_models_are_refused(model):
    start = result_with()
    start.attrs["model"] = "CompositeKernelRegression"
    with pytest.raises(ValueError, match=r"a result of a \w+. Got one of a CompositeKernelReg"):
        kz.fit(model, "nuts", start=start, **OPTIONS)


def test_the_user_gives_either_a_start_or_initial_values(model):
    with pytest.raises(ValueError, match="either 'start' or 'initvals'"):
        kz.fit(model, "nuts", start=result_with(), initvals={"y": 0.0}, **OPTIONS)


def test_chains_of_both_samplers_begin_there():
    """A chain that hardly moves stays where it begins."""
    model = kz.CompositeKernelRegression.example()
    vb = kz.fit(model, "vb", draws=50, **OPTIONS)
    draws = vb["posterior"]["alpha"].to_numpy()[0]
    short = {"draws": 1, "tune": 0, "chains": 3, "cores": 1, "compute_convergence_checks": False}
    still = {"step_scale": 1e-9}
    python = {"mode": python_mode()}
    nuts = kz.fit(model, "nuts", start=vb, compile_kwargs=python, **short, **still, **OPTIONS)
    first = nuts["posterior"]["alpha"].to_numpy()[:, 0]
    nearest = np.abs(draws - first[:, None]).max(-1).min(1)
    assert (nearest < 1e-4).all()
    assert len(np.unique(first[:, 0])) == 3
    gibbs = kz.fit(model, "gibbs", start=vb, **short, **OPTIONS)
    assert gibbs["posterior"].sizes["chain"] == 3


def test_the_law_does_not_depend_on_the_start():
    """From four draws far out in the tails, the chains find the posterior of all others."""
    model = kz.WishartCompletion.example()
    names = [rv.name for rv in model.free_RVs]
    watched = ["trace_K22", "log_det_Sigma22_1"]
    exact = kz.fit(model, "exact", draws=2_000, var_names=[*names, *watched], **OPTIONS)
    draws = exact["posterior"].to_dataset()
    order = np.argsort(draws["trace_K22"].to_numpy()[0])
    start = xr.DataTree.from_dict({"posterior": draws.isel(draw=order[[0, 1, -2, -1]])})
    result = kz.fit(model, "gibbs", start=start, draws=800, tune=100, cores=1, **OPTIONS)
    for name in watched:
        for chain in result["posterior"].to_dataset().chain:
            own = result["posterior"].to_dataset()[[name]].sel(chain=[chain])
            gap = own[name].mean() - draws[name].mean()
            error = np.hypot(az.mcse(own)[name], draws[name].std() / np.sqrt(draws.sizes["draw"]))
            assert_z(gap / error)


def test_dims_go_by_name():
    with pm.Model(coords={"a": [0, 1], "b": ["x", "y"]}) as model:
        pm.Normal("M", dims=("a", "b"))
    draws = np.arange(4.0).reshape(1, 1, 2, 2)
    posterior = xr.Dataset({"M": (("chain", "draw", "a", "b"), draws)})
    for dims in (("chain", "draw", "b", "a"), ("a", "b", "draw", "chain")):
        result = xr.DataTree.from_dict({"posterior": posterior.transpose(*dims)})
        (values,) = initial_values(result, model, 1, np.random.default_rng(1))
        np.testing.assert_array_equal(values["M"], draws[0, 0])
    result = xr.DataTree.from_dict({"posterior": posterior.isel(chain=0)})
    with pytest.raises(ValueError, match="M without chain"):
        initial_values(result, model, 1, np.random.default_rng(1))


def test_repeated_labels_are_taken_in_the_same_order_only(model):
    with pm.Model(coords={"k": ["u", "u", "w"]}) as repeated:
        pm.Normal("x", dims="k")
    result = result_with()
    posterior = result["posterior"].to_dataset().assign_coords(k=["u", "u", "w"])
    result["posterior"] = posterior
    (values,) = initial_values(result, repeated, 1, np.random.default_rng(1))
    np.testing.assert_array_equal(values["x"], values["x"][0] + np.arange(3))
    result["posterior"] = posterior.isel(k=[2, 0, 1])
    with pytest.raises(ValueError, match="'u' more than once"):
        initial_values(result, repeated, 1, np.random.default_rng(1))


def test_draws_on_the_boundary_are_left_out(model):
    result = result_with()
    x = result["posterior"]["x"].to_numpy().copy()
    x[0] = 0.0
    result["posterior"] = result["posterior"].to_dataset().assign(x=(("chain", "draw", "k"), x))
    found = initial_values(result, model, 6, np.random.default_rng(1))
    assert all(values["x"].min() > 0 for values in found)
    result["posterior"] = result["posterior"].to_dataset().isel(chain=[0])
    with pytest.raises(ValueError, match="finite draws inside the support of x"):
        initial_values(result, model, 1, np.random.default_rng(1))
