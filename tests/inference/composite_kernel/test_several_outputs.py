"""Regression with several outputs: engines and predictions against regressions on one output."""

import pickle

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from xarray import DataTree

import kernelzoo as kz
from family import assert_z

SHARED = ("weights", "all")
NAMES = ["a", "b", "c"]
QUIET = {"random_seed": 1, "progressbar": False}
VB = kz.VB(tolerance=1e-10, remaining=1e-6)
pytestmark = pytest.mark.filterwarnings("ignore::kernelzoo.ApproximationWarning")


def problem(n_obs=14):
    """Three responses to two descriptions; the last is mostly noise."""
    rng = np.random.default_rng(2)
    x, z = rng.normal(size=(2, n_obs, 2))
    kernels = (kz.gaussian(0.5) | kz.linear()).normalize("trace")
    stack = kernels(np.hstack([x, z]))
    signal = np.stack([np.sin(2 * x[:, 0]), x[:, 1] + z[:, 0], 0 * x[:, 0]], axis=1)
    return stack, pd.DataFrame(
        signal + [0.1, 0.3, 1.0] * rng.normal(size=(n_obs, 3)), columns=NAMES
    )


STACK, TARGETS = problem()


def regression(targets=TARGETS, **options):
    return kz.CompositeKernelRegression(STACK, targets, **options)


@pytest.fixture(scope="module")
def vb_results():
    return {shared: kz.fit(regression(shared=shared), VB, draws=50, **QUIET) for shared in SHARED}


@pytest.mark.parametrize("shared", SHARED)
@pytest.mark.parametrize(
    ("engine", "options"),
    [
        (VB, {"draws": 20}),
        (kz.Gibbs(), {"draws": 20, "tune": 10, "chains": 1}),
        (kz.Gibbs(scheme="paper"), {"draws": 20, "tune": 10, "chains": 1}),
    ],
    ids=["VB", "Gibbs", "Gibbs given alpha"],
)
def test_one_output_gives_the_draws_of_the_model_without_the_dim(shared, engine, options):
    one = kz.fit(regression(TARGETS["a"]), engine, **options, **QUIET)
    column = kz.fit(regression(TARGETS[["a"]], shared=shared), engine, **options, **QUIET)
    for name, draws in one["posterior"].data_vars.items():
        same = column["posterior"][name].isel(output=0, missing_dims="ignore")
        np.testing.assert_allclose(same, draws, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("shared", SHARED)
def test_the_bound_never_falls(shared):
    model = regression(shared=shared)
    plain = kz.fit(model, kz.VB(max_iterations=60, starts=1), draws=1, **QUIET)
    bound = plain["trajectory"]["elbo"].values[0]
    bound = bound[np.isfinite(bound)]
    assert len(bound) > 10
    assert np.all(np.diff(bound) > -1e-8 * abs(bound[-1]))


@pytest.mark.parametrize("shared", SHARED)
def test_order_of_the_outputs_does_not_matter(shared, vb_results):
    first = vb_results[shared]["variational"].to_dataset()
    permuted = kz.fit(regression(TARGETS[["c", "a", "b"]], shared=shared), VB, draws=1, **QUIET)
    second = permuted["variational"].to_dataset()
    second = second.sel(output=NAMES) if "output" in second.dims else second
    for name in ("alpha_mean", "alpha_sd", "phi_rate", "gamma_rate", "beta_mean"):
        np.testing.assert_allclose(second[name], first[name], rtol=1e-4, err_msg=name)


def test_outputs_have_their_own_noise(vb_results):
    """The last output is noise; with one noise for all, the first gets some of it."""
    q = vb_results["weights"]["variational"]
    noise = q["gamma_rate"] / q["gamma_shape"]
    assert float(noise.sel(output="a")) < 0.5 * float(noise.sel(output="c"))
    q = vb_results["all"]["variational"]
    assert q["gamma_rate"].dims == ()


def test_gibbs_agrees_with_vb_on_responses(vb_results):
    """Means of the responses, which mean field finds, within the spread of the posterior."""
    model = regression()
    gibbs = kz.fit(model, "gibbs", draws=150, tune=50, chains=1, **QUIET)
    of_gibbs, of_vb = (
        kz.predict(model, result, STACK, progressbar=False)
        for result in (gibbs, vb_results["weights"])
    )
    assert of_gibbs["mean"].dims == ("obs", "output")
    gap = abs(of_gibbs["mean"] - of_vb["mean"]) / of_gibbs["response_sd"]
    assert float(gap.mean()) < 0.4


def made_up_result(model, alpha, beta, gamma):
    draws = ("chain", "draw")
    of = model.named_vars_to_dims
    values = {"alpha": alpha, "beta": beta, "gamma": gamma}
    posterior = xr.Dataset(
        {name: ((*draws, *of.get(name, ())), value[None]) for name, value in values.items()},
        coords={"output": NAMES},
    )
    data = xr.Dataset({"K": (("kernel", "obs", "basis"), model["K"].get_value())})
    return DataTree.from_dict({"posterior": posterior, "constant_data": data})


@pytest.mark.parametrize("shared", SHARED)
def test_predictions_are_averages_over_draws(shared):
    model, rng = regression(shared=shared), np.random.default_rng(4)
    new = rng.normal(size=(2, 5, 14))
    alpha = rng.normal(size=(6, 3, 15))
    beta = rng.dirichlet([1, 2], size=6)
    gamma = rng.gamma(2.0, size=6 if shared == "all" else (6, 3))
    result = made_up_result(model, alpha, beta, gamma)
    y = np.empty((6, 5, 3))
    for d in range(6):
        for o in range(3):
            y[d, :, o] = np.tensordot(beta[d], new, axes=1) @ alpha[d, o, 1:] + alpha[d, o, 0]
    noise = np.broadcast_to((1 / gamma).mean(0), 3)
    predictions = kz.predict(model, result, new, keep_draws=True, progressbar=False)
    np.testing.assert_allclose(predictions["mean"], y.mean(0))
    np.testing.assert_allclose(predictions["target_sd"] ** 2, y.var(0) + noise)
    np.testing.assert_allclose(predictions["mean_draws"][0], y)
    assert predictions["mean_draws"].dims == ("chain", "draw", "obs", "output")
    assert list(predictions["output"].values) == NAMES


@pytest.mark.parametrize("shared", SHARED)
def test_new_targets_have_the_noise_of_their_output(shared):
    model, n = regression(shared=shared), 4_000
    beta = np.tile([0.5, 0.5], (n, 1))
    gamma = np.full(n, 4.0) if shared == "all" else np.tile([100.0, 4.0, 1.0], (n, 1))
    result = made_up_result(model, np.zeros((n, 3, 15)), beta, gamma)
    new = np.zeros((2, 1, 14))
    t = kz.predict(model, result, new, keep_draws=True, random_seed=1, progressbar=False)["t"]
    assert t.dims == ("chain", "draw", "obs", "output")
    spread = t.std(("chain", "draw")).values.ravel()
    np.testing.assert_allclose(spread, [0.5] * 3 if shared == "all" else [0.1, 0.5, 1.0], rtol=0.05)


def test_groups_for_arviz(vb_results):
    model = regression()
    tree = kz.extend(model, vb_results["weights"], random_seed=1, progressbar=False)
    for group in ("posterior_predictive", "log_likelihood"):
        assert tree[group]["t"].dims == ("chain", "draw", "obs", "output")
    # One draw by hand.
    alpha, beta, gamma = (
        tree["posterior"][name].isel(chain=0, draw=3).values for name in ("alpha", "beta", "gamma")
    )
    y = np.tensordot(beta, STACK.values, axes=1) @ alpha[:, 1:].T + alpha[:, 0]
    expected = -0.5 * gamma * (TARGETS.values - y) ** 2 + 0.5 * np.log(gamma / (2 * np.pi))
    found = tree["log_likelihood"]["t"].isel(chain=0, draw=3)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_result_of_other_outputs_is_refused(vb_results):
    other = regression(TARGETS[["c", "a", "b"]])
    with pytest.raises(ValueError, match="labels of output, in their order"):
        kz.predict(other, vb_results["weights"], STACK)


def test_held_out_tables_go_by_their_labels(vb_results):
    predictions = kz.predict(regression(), vb_results["weights"], STACK, progressbar=False)
    expected = kz.scores.held_out(predictions, TARGETS.to_numpy())
    assert kz.scores.held_out(predictions, TARGETS[["c", "a", "b"]]) == expected
    with pytest.raises(ValueError, match="the unknown 'd'"):
        kz.scores.held_out(predictions, TARGETS.rename(columns={"a": "d"}))


@pytest.mark.slow
@pytest.mark.parametrize("shared", SHARED)
def test_nuts_agrees_with_gibbs(shared):
    """The declaration, which NUTS samples, against the steps written for it."""
    stack = np.random.default_rng(3).normal(size=(2, 6, 1))
    noise = np.random.default_rng(4).normal(size=(6, 2))
    targets = stack[0] * [1.5, -0.7] + 0.5 * noise
    functions = xr.DataArray(stack, dims=("kernel", "obs", "basis"), coords={"basis": ["x"]})
    rule = kz.combinations.DirichletWeights(4.0, 2.0)
    model = kz.CompositeKernelRegression(
        functions, targets, combination=rule, sigma=1.5, rho=2.0, shared=shared
    )
    draws = {
        engine: kz.fit(model, engine, draws=1500, tune=700, chains=2, cores=1, **QUIET)["posterior"]
        for engine in ("gibbs", "nuts")
    }
    z = []
    for name in ("beta", "alpha", "gamma"):
        # Bounded, since tails of alpha are long.
        of = {engine: np.arctan(tree[name].to_dataset(name=name)) for engine, tree in draws.items()}
        error = np.hypot(*(az.mcse(each)[name] for each in of.values()))
        means = [each[name].mean(("chain", "draw")) for each in of.values()]
        z.append(np.ravel((means[0] - means[1]) / error))
    assert_z(np.concatenate(z))


def test_saved_results_predict_the_same(vb_results, tmp_path):
    for shared in SHARED:
        model = regression(shared=shared)
        vb_results[shared].to_netcdf(tmp_path / "result.nc")
        loaded = az.from_netcdf(tmp_path / "result.nc")
        expected = kz.predict(model, vb_results[shared], STACK, progressbar=False)
        xr.testing.assert_allclose(kz.predict(model, loaded, STACK, progressbar=False), expected)
        loaded.close()


def test_targets_that_were_set_are_fitted():
    model = pickle.loads(pickle.dumps(regression(TARGETS[["c", "b", "a"]])))
    with model:
        pm.set_data({"targets": TARGETS.to_numpy()})
    found = kz.fit(model, VB, draws=1, **QUIET)["variational"]["alpha_mean"]
    expected = kz.fit(regression(), VB, draws=1, **QUIET)["variational"]["alpha_mean"]
    np.testing.assert_allclose(found, expected)
