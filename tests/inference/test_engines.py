"""The engine contract: dispatch, settings, seeds, one layout, results that save and load."""

import json

import arviz as az
import numpy as np
import pymc as pm
import pytest
from xarray import DataTree

import kernelzoo as kz
from kernelzoo.inference.engines import Engine, Handwritten, as_engine

# One row an engine: quick settings that reach its whole code path on the smallest example.
QUICK = {
    "NUTS": ({}, {"draws": 60, "tune": 60, "chains": 2}),
    "Gibbs": ({}, {"draws": 60, "tune": 60, "chains": 2}),
    "SMC": ({}, {"draws": 60, "chains": 2}),
    "ADVI": ({"iterations": 300}, {"draws": 60}),
    "MAP": ({"space": "unconstrained"}, {"draws": 60}),
    "Laplace": ({}, {"draws": 60}),
    "Pathfinder": ({"paths": 2}, {"draws": 60}),
    "VB": ({}, {"draws": 60}),
}
COMMON = {"random_seed": 4, "progressbar": False}


@pytest.fixture(scope="module")
def model():
    return kz.MultinomialProbit.example()


@pytest.fixture(scope="module")
def results(model):
    """Every engine's quick result, made once."""
    made: dict[str, DataTree] = {}

    def result(name):
        if name not in made:
            settings, options = QUICK[name]
            made[name] = kz.fit(
                model, Engine.registry[name.lower()](**settings), **options, **COMMON
            )
        return made[name]

    return result


def test_every_engine_is_tried_here():
    assert set(QUICK) == {cls.name for cls in Engine.registry.values()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", QUICK)
def test_results_have_one_layout(results, model, name):
    if name == "Pathfinder":
        pytest.importorskip("pymc_extras")
    tree = results(name)
    posterior = tree["posterior"]
    for rv in model.free_RVs:
        dims = ("chain", "draw", *model.named_vars_to_dims[rv.name])
        assert posterior[rv.name].dims == dims
        assert np.isfinite(posterior[rv.name]).all()
    np.testing.assert_allclose(posterior["beta"].sum("kernel"), 1)
    assert (posterior["zeta"] > 0).all()
    assert list(posterior["kernel"].values) == ["gaussian", "linear"]
    assert tree["log_likelihood"]["t"].dims == ("chain", "draw", "obs")
    assert set(tree["constant_data"].data_vars) >= {"K", "labels"}
    assert tree["observed_data"]["t"].dims == ("obs",)
    attributes = tree.attrs
    assert attributes["engine"] == name
    assert attributes["model"] == "MultinomialProbit"
    assert attributes["kind"] in {"mcmc", "vb", "point", "exact"}
    assert attributes["converged"] in {"yes", "no", "unknown"}
    assert attributes["random_seed"] == 4
    assert attributes["seconds"] > 0
    assert json.loads(attributes["versions"])["pymc"] == pm.__version__
    assert isinstance(json.loads(attributes["settings"]), dict)
    if attributes["kind"] == "vb":
        assert posterior.sizes["chain"] == 1
        assert "variational" in tree.children
        assert np.isfinite(attributes["pareto_k"]) or attributes["pareto_k"] == np.inf
    if attributes["kind"] == "point":
        assert set(tree["point"].data_vars) == {rv.name for rv in model.free_RVs}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", QUICK)
def test_results_save_and_load(results, tmp_path, name):
    if name == "Pathfinder":
        pytest.importorskip("pymc_extras")
    tree = results(name)
    tree.to_netcdf(tmp_path / "result.nc")
    loaded = az.from_netcdf(tmp_path / "result.nc")
    assert set(loaded.children) == set(tree.children)
    for group in tree.children:
        for variable, values in tree[group].data_vars.items():
            loaded_values = loaded[group][variable]
            assert loaded_values.dims == values.dims
            np.testing.assert_array_equal(loaded_values.values, values.values)
    assert loaded.attrs == tree.attrs


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["NUTS", "Gibbs", "VB", "ADVI"])
def test_arviz_reads_results(results, name):
    tree = results(name)
    summary = az.summary(tree, var_names=["beta", "rho"])
    assert list(summary.index) == [
        f"{v}[{k}]" for v in ("beta", "rho") for k in ("gaussian", "linear")
    ]
    assert np.isfinite(az.loo(tree).elpd)
    az.plot_forest(tree, var_names=["beta"])
    az.plot_dist(tree, var_names=["beta"])


@pytest.mark.parametrize("name", ["Gibbs", "VB"])
def test_seeds_repeat_and_differ(results, model, name):
    again = kz.fit(model, name, **QUICK[name][1], **COMMON)
    np.testing.assert_array_equal(
        again["posterior"]["W"].values, results(name)["posterior"]["W"].values
    )
    other = kz.fit(model, name, **QUICK[name][1], **(COMMON | {"random_seed": 5}))
    assert (other["posterior"]["W"].values != again["posterior"]["W"].values).all()


def test_a_missing_seed_is_chosen_and_recorded(model):
    first = kz.fit(model, "vb", draws=5, progressbar=False)
    second = kz.fit(model, "vb", draws=5, progressbar=False, random_seed=first.attrs["random_seed"])
    np.testing.assert_array_equal(first["posterior"]["W"], second["posterior"]["W"])


def test_log_likelihood_can_be_left_out(model):
    tree = kz.fit(model, "vb", draws=5, log_likelihood=False, **COMMON)
    assert "log_likelihood" not in tree.children


def test_generic_engines_run_on_a_plain_model():
    with pm.Model() as plain:
        x = pm.Normal("x")
        pm.Normal("y", x, 1, observed=[1.0, 2.0])
    tree = kz.fit(plain, "map", **COMMON)
    np.testing.assert_allclose(tree["point"]["x"], 1.0, atol=1e-4)
    assert tree.attrs["converged"] == "yes"
    table = {row.engine: row.reason for row in kz.engines(plain).rows}
    assert "written for MultinomialProbit" in table["VB"]
    assert table["NUTS"] is None
    with pytest.raises(ValueError, match=r"VB does not apply: .*Engines that do: .*NUTS"):
        kz.fit(plain, "vb")


def test_observed_copies_lose_the_handwritten_engines(model):
    copy = pm.do(model, {"rho": np.ones(2)})
    reasons = {row.engine: row.reason for row in kz.engines(copy).rows}
    assert reasons["Gibbs"] is not None
    assert reasons["NUTS"] is None


def test_discrete_variables_exclude_gradients():
    with pm.Model() as discrete:
        pm.Poisson("count", 3)
    reasons = {row.engine: row.reason for row in kz.engines(discrete).rows}
    assert "count is discrete" in reasons["NUTS"]
    assert "no observed variable" in reasons["SMC"]


class Unknown:
    """Stands for a combination rule that only the declaration knows."""

    check = kz.Mean.check
    combine = kz.FixedWeights.combine

    def declare(self):
        return pm.Dirichlet("beta", np.ones(2), dims="kernel")


def test_engines_refuse_a_combination_they_do_not_know(model):
    other = kz.MultinomialProbit(model.design, model.label_codes, combination=Unknown())
    reasons = {row.engine: row.reason for row in kz.engines(other).rows}
    assert "this is Unknown" in reasons["VB"]
    assert "this is Unknown" in reasons["Gibbs"]
    assert reasons["NUTS"] is None
    with pytest.raises(ValueError, match=r"VB does not apply: .*Unknown.*Engines that do: .*NUTS"):
        kz.fit(other, "vb")


def test_engines_print_as_text_and_html(model):
    table = kz.engines(model)
    text, html = repr(table), table._repr_html_()
    for row in table.rows:
        assert row.engine in text
        assert row.engine in html
    settings = {row.engine: row.settings for row in table.rows}
    assert settings["VB"]["weights"] == "mean-field"


@pytest.mark.parametrize(
    ("engine", "options", "message"),
    [
        ("nutz", {}, "'engine' argument of fit.*nearest is 'nuts'"),
        (kz.VB(max_iteration=3), {}, "VB on MultinomialProbit.*nearest is 'max_iterations'"),
        (kz.VB(weights="plugin"), {}, "weights"),
        (kz.VB(starts=0), {}, "'starts'.*1 or more"),
        (kz.VB(starts=1.5), {}, "'starts'.*1 or more"),
        (kz.VB(tolerance=-1), {}, "tolerance"),
        (kz.VB(max_iterations=0), {}, "max_iterations"),
        (kz.Gibbs(moves=0), {}, "'moves'.*1 or more"),
        ("vb", {"draws": 0}, "'draws' argument of fit.*1 or more"),
        ("vb", {"draws": 1.5}, "'draws' argument of fit"),
        ("gibbs", {"chains": 0}, "'chains' argument of fit"),
        ("gibbs", {"tune": -1}, "'tune' argument of fit"),
        ("vb", {"initvals": {}}, "takes no 'initvals'"),
        ("vb", {"random_seed": "one"}, "'random_seed' argument of fit"),
        ("vb", {"random_seed": -1}, "'random_seed' argument of fit"),
    ],
)
def test_bad_requests_are_refused(model, engine, options, message):
    with pytest.raises(ValueError, match=message):
        kz.fit(model, engine, **options)


@pytest.mark.parametrize(
    "make",
    [
        lambda: kz.NUTS(backend="stan"),
        lambda: kz.ADVI(covariance="full"),
        lambda: kz.ADVI(iterations=0),
        lambda: kz.SMC(kernel="HMC"),
        lambda: kz.MAP(space="log"),
        lambda: kz.Laplace(max_iterations=-1),
        lambda: kz.Pathfinder(paths=0),
    ],
)
def test_bad_settings_are_refused_at_once(make):
    with pytest.raises(ValueError, match=r"argument of (NUTS|ADVI|SMC|MAP|Laplace|Pathfinder)"):
        make()


def test_fit_wants_a_model():
    with pytest.raises(TypeError, match="'model' argument of fit"):
        kz.fit("wine", "vb")


def test_handwritten_engines_compare_by_settings():
    assert kz.VB(starts=2) == kz.VB(starts=2)
    assert kz.VB(starts=2) != kz.VB(starts=3)
    assert kz.VB() != kz.Gibbs()
    assert repr(kz.VB(starts=2)) == "VB(starts=2)"
    assert as_engine("Gibbs") == kz.Gibbs()
    assert as_engine(kz.VB) == kz.VB()


def test_subclasses_inherit_their_parents_engines():
    class Special(kz.MultinomialProbit):
        pass

    model = Special.example()
    assert kz.VB().why_not(model) is None
    assert issubclass(kz.VB, Handwritten)
