"""Groups that ArviZ reads, from the results of all engines."""

import inspect

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy.stats import norm
from xarray import DataTree

import kernelzoo as kz

QUIET = {"progressbar": False, "random_seed": 1}
ADDED = {"posterior_predictive", "log_likelihood", "log_prior"}
BY_OBSERVATION = (
    kz.MultinomialProbit,
    kz.CompositeKernelRegression,
    kz.CompositeKernelClassification,
)
#: Engines with draws, and how they are run here.
RUNS = {
    "vb": ("vb", {}),
    "gibbs": ("gibbs", {"chains": 2, "tune": 50}),
    "nuts": ("nuts", {"chains": 2, "tune": 50}),
    "smc": ("smc", {"chains": 2}),
    "laplace": (kz.Laplace(), {}),
    "advi": (kz.ADVI(max_iterations=2_000), {}),
    "pathfinder": (kz.Pathfinder(paths=2), {}),
}
QUICK = {"vb", "gibbs"}
ENGINES = [
    pytest.param(engine, id=engine, marks=() if engine in QUICK else pytest.mark.slow)
    for engine in RUNS
]


@pytest.fixture(scope="module")
def fitted():
    """Model and extended result of an engine on a model's example, by (model, engine)."""
    known = {}

    def of(cls, engine="vb", draws=200):
        if (cls, engine) not in known:
            model = cls.example()
            settings, options = RUNS[engine]
            result = kz.fit(model, settings, draws=draws, **options, **QUIET)
            known[cls, engine] = model, kz.extend(model, result, **QUIET)
        return known[cls, engine]

    return of


def each(test):
    """Every model with observations, by every engine."""
    models = pytest.mark.parametrize("cls", BY_OBSERVATION, ids=lambda cls: cls.__name__)
    return pytest.mark.parametrize("engine", ENGINES)(models(test))


@each
def test_all_groups_have_the_names_dims_and_labels_of_the_model(fitted, cls, engine):
    model, result = fitted(cls, engine)
    assert set(result.children) >= ADDED
    (observed,) = model.observed_RVs
    posterior = result["posterior"]
    for group in ADDED - {"log_prior"}:
        values = result[group]["t"]
        assert values.dims == ("chain", "draw", "obs")
        assert values["obs"].values.tolist() == list(model.coords["obs"])
        assert observed.name == "t"
        assert values.sizes["draw"] == posterior.sizes["draw"]
        assert values.sizes["chain"] == posterior.sizes["chain"]
    assert {rv.name for rv in model.free_RVs} == set(result["log_prior"].data_vars)


@each
def test_log_densities_are_those_of_pymc(fitted, cls, engine):
    model, result = fitted(cls, engine)
    few = DataTree.from_dict({"posterior": result["posterior"].to_dataset().isel(draw=[0, 7])})
    for group, compute in (
        ("log_prior", pm.stats.compute_log_prior),
        ("log_likelihood", pm.compute_log_likelihood),
    ):
        compute(few, model=model, progressbar=False)
        own = result[group].to_dataset().isel(draw=[0, 7])
        for name, values in few[group].data_vars.items():
            assert own[name].dims == values.dims
            np.testing.assert_allclose(own[name], values, rtol=1e-6, atol=1e-9)


def test_posterior_predictive_draws_have_the_law_at_each_draw(fitted):
    """Standardised by the mean and deviation at its own draw, a target is standard normal."""
    model, result = fitted(kz.CompositeKernelRegression, "gibbs")
    posterior = result["posterior"].to_dataset()
    composite = xr.dot(posterior["beta"], xr.DataArray(model.design, dims=("kernel", "obs", "f")))
    mean = xr.dot(composite, posterior["alpha"].rename(function="f").drop_vars("f"), dim="f")
    drawn = result["posterior_predictive"]["t"]
    z = ((drawn - mean.to_numpy()) * np.sqrt(posterior["gamma"])).to_numpy().ravel()
    assert abs(z.mean()) < 4 / np.sqrt(z.size)
    assert abs(z.var() - 1) < 4 * np.sqrt(2 / z.size)


@pytest.mark.parametrize("engine", ENGINES)
def test_posterior_predictive_classes_have_the_posterior_probabilities(fitted, engine):
    model, result = fitted(kz.MultinomialProbit, engine)
    p = kz.predict(model, result, model.design, keep_draws=True)["probability_draws"]
    drawn = result["posterior_predictive"]["t"]
    for code in range(3):
        expected = p.isel({"class": code})
        excess = ((drawn == code) - expected).mean(("chain", "draw"))
        sd = np.sqrt((expected * (1 - expected)).sum(("chain", "draw"))) / drawn[:, :, 0].size
        assert (np.abs(excess) < 4.5 * sd).all()


def test_missing_parents_are_not_drawn_from_the_prior():
    """PyMC does so without a word. The weights' precisions are no parents of targets."""
    model = kz.CompositeKernelRegression.example()
    of_some = kz.fit(model, "vb", draws=30, var_names=["beta", "alpha", "gamma"], **QUIET)
    extended = kz.extend(model, of_some, ["posterior_predictive"], **QUIET)
    whole = kz.fit(model, "vb", draws=30, **QUIET)
    same = kz.extend(model, whole, ["posterior_predictive"], **QUIET)
    for group in ("posterior", "posterior_predictive"):
        name = "alpha" if group == "posterior" else "t"
        xr.testing.assert_equal(extended[group][name], same[group][name])
    lacking = kz.fit(model, "vb", draws=30, var_names=["beta", "gamma"], **QUIET)
    with pytest.raises(ValueError, match=r"'posterior_predictive': it needs draws of alpha, which"):
        kz.extend(model, lacking, ["posterior_predictive"], **QUIET)
    with pytest.raises(ValueError, match=r"'log_prior': it needs draws of phi, varphi, which fit"):
        kz.extend(model, of_some, "log_prior")


def test_what_cannot_be_made_is_left_out_and_explained():
    model = kz.WishartCompletion.example()
    result = kz.fit(model, "exact", draws=5, **QUIET)
    assert not ADDED & set(kz.extend(model, result, **QUIET).children)
    for group, reason in (
        ("posterior_predictive", "needs draws of Sigma11, which fit"),
        ("log_prior", "K21"),
        ("log_likelihood", "dependent"),
    ):
        with pytest.raises(ValueError, match=reason):
            kz.extend(model, result, group, **QUIET)
    names = [rv.name for rv in model.free_RVs]
    result = kz.fit(model, "exact", draws=5, var_names=names, **QUIET)
    extended = kz.extend(model, result, **QUIET)
    assert extended["posterior_predictive"]["K11"].dims == ("chain", "draw", "train", "train_")


def test_a_point_has_no_draws():
    model = kz.CompositeKernelRegression.example(combination="fixed")
    result = kz.fit(model, "map", **QUIET)
    for group in sorted(ADDED):
        with pytest.raises(ValueError, match=rf"of MAP on a .* Got '{group}': .*not a point"):
            kz.extend(model, result, group)


def test_results_of_another_model_and_unknown_groups_are_refused(fitted):
    model, result = fitted(kz.MultinomialProbit)
    with pytest.raises(ValueError, match=r"'result' argument of extend .* other values of K"):
        kz.extend(kz.MultinomialProbit.example(2), result)
    with pytest.raises(ValueError, match=r"'groups' argument of extend .*nearest is 'log_prior'"):
        kz.extend(model, result, ["log_priors"])
    with pytest.raises(TypeError, match="'result' argument of extend must be a result of fit"):
        kz.extend(model, result["posterior"].to_dataset())


def test_groups_are_replaced_only_when_asked(fitted):
    model, result = fitted(kz.CompositeKernelRegression)
    before = result["posterior_predictive"]["t"].copy()
    with pytest.raises(ValueError, match=r"Got one with posterior_predictive \(result.drop_n"):
        kz.extend(model, result, ["posterior_predictive", "log_prior"])
    xr.testing.assert_identical(kz.extend(model, result, "log_prior"), result)
    xr.testing.assert_identical(kz.extend(model, result), result)
    without = result.drop_nodes("posterior_predictive")
    again = kz.extend(model, without, "posterior_predictive", random_seed=2)
    assert not again["posterior_predictive"]["t"].equals(before)
    assert "posterior_predictive" not in without.children
    xr.testing.assert_identical(result["posterior_predictive"]["t"], before)


def test_the_seed_is_recorded_and_repeats(fitted):
    model, result = fitted(kz.CompositeKernelRegression)
    group = "posterior_predictive"
    options, result = {"progressbar": False}, result.drop_nodes(group)
    rng = np.random.default_rng(3)
    one, two = (kz.extend(model, result, group, random_seed=rng, **options) for _ in range(2))
    used = one[group].attrs["random_seed"]
    same = kz.extend(model, result, group, random_seed=used, **options)
    assert one["posterior_predictive"].equals(same["posterior_predictive"])
    assert not one["posterior_predictive"].equals(two["posterior_predictive"])
    assert one.attrs["random_seed"] == result.attrs["random_seed"]


def test_groups_save_and_load(fitted, tmp_path):
    model, whole = fitted(kz.MultinomialProbit)
    whole.to_netcdf(tmp_path / "whole.nc")
    with xr.open_datatree(tmp_path / "whole.nc") as loaded:
        for group in ADDED:
            xr.testing.assert_equal(loaded[group].to_dataset(), whole[group].to_dataset())
        # Data read again are the model's still.
        without = loaded.drop_nodes("posterior_predictive")
        again = kz.extend(model, without, "posterior_predictive", **QUIET)
        xr.testing.assert_equal(
            again["posterior_predictive"]["t"], whole["posterior_predictive"]["t"]
        )


# ArviZ's functions, on the models where they make sense.

CLASSES = (kz.MultinomialProbit, kz.CompositeKernelClassification)
NUMBERS = (kz.CompositeKernelRegression,)
PLOTS = {
    "plot_ppc_dist": (NUMBERS, {}),
    "plot_ppc_pit": (NUMBERS, {}),
    "plot_ppc_interval": (NUMBERS, {}),
    "plot_ppc_tstat": (BY_OBSERVATION, {}),
    "plot_ppc_pava": (CLASSES, {"data_type": "categorical"}),
    "plot_ppc_rootogram": ((kz.MultinomialProbit,), {}),
    "plot_loo_pit": (NUMBERS, {}),
    "plot_loo_interval": (NUMBERS, {}),
    # Of ArviZ 1.3, which cannot take a variable named alpha.
    "plot_psense_dist": ((kz.MultinomialProbit,), {"var_names": ["beta"]}),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("plot", "cls"), [(plot, cls) for plot, (models, _) in PLOTS.items() for cls in models]
)
def test_plots_of_arviz_draw(fitted, plot, cls, engine):
    _, result = fitted(cls, engine)
    drawn = getattr(az, plot)(result, **PLOTS[plot][1])
    assert drawn.viz["figure"].item() is not None
    plt.close("all")


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
@each
def test_loo_and_compare_take_the_results(fitted, cls, engine):
    _, result = fitted(cls, engine)
    found = az.loo(result, pointwise=True)
    assert found.n_data_points == result["observed_data"]["t"].size
    assert np.isfinite(found.elpd)
    table = az.compare({"one": result, "other": result}, round_to="none")
    np.testing.assert_allclose(table["elpd"], found.elpd)


@each
def test_psense_takes_the_results(fitted, cls, engine):
    _, result = fitted(cls, engine)
    table = az.psense_summary(
        result, var_names=["beta"], prior_var_names=list(result["log_prior"].data_vars)[:1]
    )
    assert len(table) == result["posterior"].sizes["kernel"]
    assert np.isfinite(table[["prior", "likelihood"]].to_numpy(float)).all()


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
def test_importance_ratios_correct_loo_of_an_approximation():
    """Of a Gaussian that is too narrow, in a model whose leave-one-out densities are known."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=15)
    with pm.Model(coords={"obs": range(15)}) as model:
        pm.Normal("t", pm.Normal("mu", 0, 1), 1.0, observed=y, dims="obs")
    n, draws = len(y), 4000
    center, sd = y.sum() / (n + 1) + 0.2, 0.9 / np.sqrt(n + 1)
    mu = rng.normal(center, sd, size=(1, draws))
    result = DataTree.from_dict({"posterior": xr.Dataset({"mu": (("chain", "draw"), mu)})})
    result = kz.extend(model, result, ["log_likelihood", "log_prior"])
    log_p = result["log_prior"]["mu"] + result["log_likelihood"]["t"].sum("obs")
    others = y.sum() - y
    exact = norm.logpdf(y, others / n, np.sqrt(1 + 1 / n)).sum()
    corrected = az.loo_approximate_posterior(
        result, log_p, xr.zeros_like(log_p) + norm.logpdf(mu, center, sd)
    )
    assert abs(corrected.elpd - exact) < 0.05
    assert abs(az.loo(result).elpd - exact) > 0.1


def test_the_docstring_of_extend_names_every_group():
    assert all(f"``{group}``" in inspect.getdoc(kz.extend) for group in ADDED)


# Predictions of every draw.


@pytest.mark.parametrize("cls", CLASSES)
def test_classes_of_new_objects_are_drawn_with_the_probabilities_of_their_draw(fitted, cls):
    model, result = fitted(cls, "gibbs")
    rng = np.random.default_rng(0)
    new = rng.normal(size=(2, 5, model["K"].get_value().shape[2]))
    predictions = kz.predict(model, result, new, keep_draws=True, **QUIET)
    assert predictions["t"].dims == ("chain", "draw", "obs")
    assert "t" not in kz.predict(model, result, new, **QUIET)
    p, drawn = predictions["probability_draws"], predictions["t"]
    for code in range(p.sizes["class"]):
        expected = p.isel({"class": code})
        excess = ((drawn == code) - expected).mean(("chain", "draw"))
        sd = np.sqrt((expected * (1 - expected)).sum(("chain", "draw"))) / drawn[:, :, 0].size
        assert (np.abs(excess) < 4.5 * sd).all()


@pytest.mark.parametrize("collapsed", [False, True])
def test_targets_of_new_objects_have_the_predictive_moments(collapsed):
    """Responses of two new objects share the regression weights, whether these are drawn or not."""
    model = kz.CompositeKernelRegression.example(collapsed=collapsed)
    result = kz.fit(model, "gibbs", draws=1000, tune=200, chains=1, **QUIET)
    # Two copies of an object.
    new = np.repeat(model["K"].get_value()[:, :1], 2, axis=1)
    predictions = kz.predict(model, result, new, keep_draws=True, **QUIET)
    drawn = predictions["t"].to_numpy()[0]
    mean, sd = predictions["mean"].to_numpy(), predictions["target_sd"].to_numpy()
    ess = float(az.ess(predictions["t"]).min())
    assert (np.abs(drawn.mean(0) - mean) < 4 * sd / np.sqrt(ess)).all()
    assert np.allclose(drawn.std(0), sd, rtol=4 * np.sqrt(1 / ess))
    # The covariance is the variance of the shared response.
    shared = float(np.cov(drawn.T)[0, 1])
    assert abs(shared - predictions["response_sd"].to_numpy()[0] ** 2) < 5 * sd[0] ** 2 / np.sqrt(
        ess
    )
