"""The engine contract: dispatch, settings, seeds, one layout, results that save and load."""

import json
import re

import arviz as az
import numpy as np
import pymc as pm
import pytest
from xarray import DataTree

import kernelzoo as kz
from kernelzoo.inference.engine.engine import Engine, as_engine, coordinates
from kernelzoo.inference.engine.evaluation import python_mode
from kernelzoo.inference.engine.groups import by_observation
from kernelzoo.inference.engine.paper import identified
from kernelzoo.inference.engine.provenance import data_in, data_of, differing_data
from kernelzoo.inference.paper_engines import PaperEngine

# Quick settings of each engine, which reach its whole code path on a model's smallest example.
QUICK = {
    # Few gradients, which no compiler need make fast.
    "NUTS": (
        {"max_treedepth": 3},
        {
            "draws": 20,
            "tune": 2,
            "chains": 2,
            "early_max_treedepth": 3,
            "compile_kwargs": {"mode": python_mode()},
        },
    ),
    "Gibbs": ({}, {"draws": 20, "tune": 20, "chains": 2}),
    "SMC": ({}, {"draws": 20, "chains": 2}),
    "ADVI": ({"max_iterations": 300}, {"draws": 60}),
    "MAP": ({"space": "unconstrained"}, {"draws": 60}),
    "Laplace": ({}, {"draws": 60}),
    "Pathfinder": ({"paths": 2}, {"draws": 60}),
    "INLA": ({"max_points": 64}, {"draws": 60}),
    "VB": ({}, {"draws": 60}),
    "Exact": ({}, {"draws": 60}),
    "EM": ({}, {}),
}
COMMON = {"random_seed": 4, "progressbar": False}
MODELS = {model.__name__: model for model in kz.MODELS}
EXAMPLES = {name: model.example() for name, model in MODELS.items()}
# These ask nothing of a model that NUTS does not, and take minutes to compile; each is tried on the
# model that compiles fastest in the quick suite.
GENERIC = {"SMC", "ADVI", "Laplace", "MAP", "Pathfinder"}
FASTEST = "CompositeKernelRegression"
# Every engine on every model that it applies to.
PAIRS = [
    pytest.param(
        name,
        engine,
        id=f"{name}-{engine}",
        marks=[pytest.mark.slow] if engine in GENERIC and name != FASTEST else [],
    )
    for name, example in EXAMPLES.items()
    for engine in kz.engines(example).frame.query("applies != 'no'").index
]


@pytest.fixture(scope="module")
def model():
    return EXAMPLES["MultinomialProbit"]


@pytest.fixture(scope="module")
def results():
    """Quick result of every engine on every model, made once."""
    made: dict[tuple[str, str], DataTree] = {}

    def result(engine, model="MultinomialProbit"):
        if engine == "Pathfinder":
            pytest.importorskip("pymc_extras")
        if (model, engine) not in made:
            settings, options = QUICK[engine]
            made[model, engine] = kz.fit(
                EXAMPLES[model], Engine.registry[engine.lower()](**settings), **options, **COMMON
            )
        return made[model, engine]

    return result


def test_every_engine_is_tried_here():
    assert set(QUICK) == {cls.name for cls in Engine.registry.values()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "engine"), PAIRS)
def test_results_have_one_layout_save_and_load(results, tmp_path, name, engine):
    """One test of both: processes that share the tests would else fit every pair twice."""
    tree, model = results(engine, name), EXAMPLES[name]
    posterior = tree["posterior"]
    kept = {rv.name for rv in model.free_RVs} - model.large
    if tree.attrs["kind"] == "point":
        assert set(tree["point"].data_vars) == set(posterior.data_vars)
    else:
        assert kept <= set(posterior.data_vars)
        assert not model.large & set(posterior.data_vars)
    for variable in posterior.data_vars:
        dims = model.named_vars_to_dims.get(variable, ())
        assert posterior[variable].dims == ("chain", "draw", *dims)
        assert np.isfinite(posterior[variable]).all()
    for rv in model.observed_RVs:
        assert tree["observed_data"][rv.name].dims == tuple(model.named_vars_to_dims[rv.name])
    assert set(tree["constant_data"].data_vars) <= {data.name for data in model.data_vars}
    for variable in model.streamed:
        if tree.attrs["kind"] != "point":
            mean = tree["moments"][f"{variable}_mean"]
            assert mean.dims[-2:] == tuple(model.named_vars_to_dims[variable])
            assert np.isfinite(mean).all()
    attributes = tree.attrs
    assert attributes["engine"] == engine
    assert attributes["model"] == attributes["family"] == name
    assert attributes["kind"] in {"mcmc", "vb", "point", "exact"}
    assert attributes["converged"] in {"yes", "no", "unknown", "no fixed point"}
    assert attributes["random_seed"] == 4
    assert attributes["seconds"] > 0
    assert json.loads(attributes["versions"])["pymc"] == pm.__version__
    assert isinstance(json.loads(attributes["settings"]), dict)
    if attributes["kind"] == "vb":
        assert posterior.sizes["chain"] == 1
        assert "variational" in tree.children
        assert np.isfinite(attributes["pareto_k"]) or attributes["pareto_k"] == np.inf
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
@pytest.mark.parametrize(
    "engine",
    ["NUTS", "Gibbs", "VB", *(pytest.param(e, marks=pytest.mark.slow) for e in sorted(GENERIC))],
)
def test_draws_of_the_multinomial_probit_are_on_their_own_scale(results, engine):
    tree = results(engine)
    posterior = tree["posterior"]
    np.testing.assert_allclose(posterior["beta"].sum("kernel"), 1)
    assert (posterior["zeta"] > 0).all()
    assert list(posterior["kernel"].values) == ["gaussian", "linear"]
    if tree.attrs["kind"] != "point":
        assert tree["log_likelihood"]["t"].dims == ("chain", "draw", "obs")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", ["NUTS", "Gibbs", "VB", pytest.param("ADVI", marks=pytest.mark.slow)]
)
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


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ["VB", "Gibbs", "NUTS"])
def test_only_named_variables_are_kept(model, engine):
    tree = kz.fit(model, engine, **QUICK[engine][1], **COMMON, var_names=["beta"])
    assert set(tree["posterior"].data_vars) == {"beta"}
    assert "log_likelihood" not in tree.children
    assert tree.attrs["converged"] in {"yes", "no"}
    with pytest.raises(ValueError, match="result with draws of W"):
        kz.predict(model, tree, model.design)


def test_settings_in_force_are_recorded(results):
    settings = json.loads(results("VB").attrs["settings"])
    assert settings["tolerance"] == 1e-6


def test_an_amended_model_has_no_closed_form_of_the_evidence():
    """The evidence of the declaration alone was given for that of the amended model."""
    model = kz.WishartCompletion.example()
    assert np.isfinite(kz.log_evidence(model))
    with model:
        pm.Potential("pull", -(model["B"][0, 0] ** 2))
    with pytest.raises(ValueError, match=r"log_evidence is not available .* added terms: 'pull'"):
        kz.log_evidence(model)


def test_an_amended_model_loses_its_handwritten_engines():
    amended = kz.MultinomialProbit.example()
    with amended:
        pm.Potential("pull", -(amended["beta"][0] ** 2))
    reasons = kz.engines(amended).frame["reason"]
    assert "with added terms: 'pull'" in reasons["Gibbs"]
    assert "with added terms: 'pull'" in reasons["VB"]
    assert reasons["NUTS"] == ""


def test_results_hold_the_data_by_which_others_are_told_apart(results, model):
    other = kz.fit(kz.MultinomialProbit.example(random_seed=1), "vb", draws=5, **COMMON)
    assert not differing_data(data_of(model), data_in(results("Gibbs")))
    assert differing_data(data_of(model), data_in(other)) == ["K"]


def test_log_likelihood_can_be_left_out(model):
    tree = kz.fit(model, "vb", draws=5, log_likelihood=False, **COMMON)
    assert "log_likelihood" not in tree.children
    tree = kz.fit(model, "vb", draws=5, var_names=["beta"], **COMMON)
    assert "log_likelihood" not in tree.children


def test_a_point_has_no_log_likelihood():
    model = kz.CompositeKernelRegression.example(combination="fixed")
    tree = kz.fit(model, "map", **COMMON)
    with pytest.raises(TypeError, match="log likelihood not found"):
        az.loo(tree)
    with pytest.raises(ValueError, match="loo needs draws from the posterior"):
        kz.extend(model, tree, "log_likelihood")


def test_log_likelihood_is_left_out_unless_by_observation():
    """One number for all objects is no observation of az.loo."""
    expectations = {
        kz.MultinomialProbit: True,
        kz.CompositeKernelClassification: True,
        kz.WishartCompletion: False,
    }
    for cls, expected in expectations.items():
        assert by_observation(cls.example()) == expected
    for collapsed in (False, True):
        model = kz.CompositeKernelRegression.example(collapsed=collapsed)
        assert by_observation(model) != collapsed
    tree = kz.fit(kz.WishartCompletion.example(), "exact", draws=5, **COMMON)
    assert "log_likelihood" not in tree.children
    with pm.Model() as rows:
        mean = pm.Normal("mean", shape=2)
        pm.MvNormal("rows", mean, np.eye(2), observed=np.zeros((3, 2)))
    assert by_observation(rows)


def test_generic_engines_run_on_a_plain_model():
    with pm.Model() as plain:
        x = pm.Normal("x")
        pm.Normal("y", x, 1, observed=[1.0, 2.0])
    tree = kz.fit(plain, "map", **COMMON)
    np.testing.assert_allclose(tree["point"]["x"], 1.0, atol=1e-4)
    assert tree.attrs["converged"] == "yes"
    table = kz.engines(plain).frame["reason"]
    assert re.search("available for .*MultinomialProbit", table["VB"])
    assert table["NUTS"] == ""
    with pytest.raises(ValueError, match=r"VB does not apply: .*Engines that do: .*NUTS"):
        kz.fit(plain, "vb")


def test_data_of_a_plain_model_need_no_dims():
    with pm.Model(coords={"obs": range(3)}) as plain:
        known = pm.Data("known", np.zeros(3))
        observed = pm.Data("observed", [1.0, 2.0, 3.0], dims="obs")
        pm.Normal("y", pm.Normal("x") + known, 1, observed=observed)
    tree = kz.fit(plain, "map", **COMMON)
    np.testing.assert_allclose(tree["point"]["x"], 1.5, atol=1e-4)


def test_observed_copies_lose_the_handwritten_engines(model):
    copy = pm.do(model, {"rho": np.ones(2)})
    reasons = kz.engines(copy).frame["reason"]
    assert "not available" in reasons["Gibbs"]
    assert reasons["NUTS"] == ""


def test_discrete_variables_exclude_gradients():
    with pm.Model() as discrete:
        pm.Poisson("count", 3)
    reasons = kz.engines(discrete).frame["reason"]
    assert "count is discrete" in reasons["NUTS"]
    assert "no observed variable" in reasons["SMC"]


class Unknown:
    """Stands for a combination rule that only the declaration knows."""

    combine = kz.combinations.FixedWeights.combine

    def for_kernels(self, names):
        return self

    def check(self, stack):
        """Any stack will do."""

    def declare(self):
        return pm.Dirichlet("beta", np.ones(2), dims="kernel")


def test_engines_refuse_a_combination_they_do_not_know(model):
    other = kz.MultinomialProbit(model.design, model.label_codes, combination=Unknown())
    reasons = kz.engines(other).frame["reason"]
    assert "with a method variational_factor, not Unknown" in reasons["VB"]
    assert reasons["Gibbs"].endswith(", not Unknown")
    assert reasons["NUTS"] == ""
    with pytest.raises(ValueError, match=r"VB does not apply: .*Unknown.*Engines that do: .*NUTS"):
        kz.fit(other, "vb")


def test_engines_say_where_a_model_is_too_large_for_them():
    n, n1 = 60, 40
    large = kz.WishartCompletion(np.eye(n), np.eye(n1))
    # Sigma11, then Sigma22.1 and K22.1, then B and K21.
    size = 40 * 41 // 2 + 2 * (20 * 21 // 2) + 2 * 20 * 40
    frame = kz.engines(large).frame
    assert f"the model has {size:,} coordinates" in frame["reason"]["NUTS"]
    assert {*frame["reason"][["ADVI", "MAP", "Exact", "Gibbs"]]} == {""}
    applies = frame["applies"]
    assert applies["NUTS"] == applies["SMC"] == "small n"
    assert applies["ADVI"] == applies["Exact"] == "yes"
    # Advice, no refusal.
    assert kz.NUTS().why_not(large) is None
    own = kz.engines(kz.CompositeKernelRegression.example(combination="fixed"))
    assert "small n" not in {*own.frame["applies"]}


@pytest.mark.parametrize("name", MODELS)
def test_the_count_of_coordinates_is_that_of_the_initial_point(name, monkeypatch):
    # A model of its own: the counts of the others are known.
    model = MODELS[name].example()
    start = model.initial_point()
    # The length of a packed matrix is not that of a dim.
    if name != "DiagonalWishartCompletion":
        monkeypatch.setattr(type(model), "initial_point", None, raising=False)
    assert coordinates(model) == sum(map(np.size, start.values()))


def test_the_count_of_coordinates_follows_the_model():
    with pm.Model() as model:
        data = pm.Data("data", np.zeros(3))
        pm.Normal("x", shape=data.shape)
    assert coordinates(model) == 3
    pm.set_data({"data": np.zeros(5)}, model=model)
    assert coordinates(model) == 5
    with model:
        pm.Gamma("s", 1, 1)
    assert coordinates(model) == 6
    # A simplex has a coordinate less than its dim has labels.
    with pm.Model(coords={"k": range(4)}) as model:
        pm.Dirichlet("w", pm.Data("a", np.ones(4)), dims="k")
        pm.Normal("x", dims="k")
        pm.Gamma("y", 1, 1, dims="k", default_transform=pm.distributions.transforms.simplex)
    assert coordinates(model) == 3 + 4 + 3


def test_engines_print_as_text_and_html(model):
    table = kz.engines(model)
    text, html = repr(table), table._repr_html_()
    for engine in table.frame.index:
        assert engine in text
        assert engine in html
    assert table.frame["settings"]["VB"]["tolerance"] == 1e-6


@pytest.mark.parametrize(
    ("engine", "options", "message"),
    [
        ("nutz", {}, "'engine' argument of fit.*nearest is 'nuts'"),
        (kz.EM(memory=3), {}, "EM does not apply"),
        (kz.Gibbs(moves=0), {}, "'moves'.*does not apply: MarginalProbit"),
        ("vb", {"draws": 0}, "'draws' argument of fit.*1 or more"),
        ("vb", {"draws": 1.5}, "'draws' argument of fit"),
        ("gibbs", {"chains": 0}, "'chains' argument of fit"),
        ("gibbs", {"tune": -1}, "'tune' argument of fit"),
        *(("gibbs", {"cores": n}, "'cores' argument of fit.*1 or more") for n in (0, -1, "2")),
        *(("vb", {"blas_threads": n}, "'blas_threads'.*1 or more or None") for n in (0, -3, "a")),
        *(
            ("vb", {flag: "no"}, f"'{flag}' argument of fit must be True or False")
            for flag in ("progressbar", "log_likelihood")
        ),
        ("vb", {"var_names": ["beta", "beta"]}, "'var_names' argument of fit.*'beta' twice"),
        ("vb", {"moments": ["beta", "beta"]}, "'moments' argument of fit.*'beta' twice"),
        ("vb", {"max_seconds": "1"}, "'max_seconds' argument of fit"),
        ("HMC", {}, "'engine' argument of fit.*here 'nuts'"),
        ("vb", {"initvals": {}}, r"fit\(\) got an unexpected argument 'initvals' for VB\.$"),
        ("vb", {"draw": 5}, r"unexpected argument 'draw' for VB\. Did you mean 'draws'\?$"),
        ("vb", {"seed": 5}, r"'seed' for VB\. Did you mean 'random_seed'\?$"),
        ("gibbs", {"seed": 5}, r"'seed' for Gibbs\. Did you mean 'random_seed'\?$"),
        (kz.Gibbs, {}, r"'engine' argument of fit must be an engine: Gibbs\(\)"),
        ("vb", {"starts": 5}, r"'starts' .* the setting VB\(starts="),
        ("nuts", {"target_acept": 0.9}, r"'target_acept' .*setting NUTS\(target_accept="),
        ("nuts", {"target_accept": 0.9}, r"the setting NUTS\(target_accept=...\)"),
        ("nuts", {"step_scal": 0.9}, "Did you mean 'step_scale'"),
        ("nuts", {"return_inferencedata": False}, "argument 'return_inferencedata' for NUTS"),
        (kz.NUTS(backend="numpyro"), {"step_scale": 0.9}, "argument 'step_scale' for NUTS"),
        ("gibbs", {"initval": {}}, "Did you mean 'initvals'"),
        ("smc", {"treshold": 0.3}, "Did you mean 'threshold'"),
        ("vb", {"var_names": ["weights"]}, "'var_names' argument of fit"),
        ("gibbs", {"step": []}, "itself sets 'step'"),
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
        lambda: kz.NUTS(target_accept=3),
        lambda: kz.NUTS(target_accept="high"),
        lambda: kz.NUTS(max_treedepth=0),
        lambda: kz.ADVI(covariance="full"),
        lambda: kz.ADVI(max_iterations=0),
        lambda: kz.SMC(kernel="HMC"),
        lambda: kz.Laplace(max_iterations=-1),
        lambda: kz.Pathfinder(paths=0),
    ],
)
def test_bad_settings_are_refused_at_once(make):
    with pytest.raises(ValueError, match=r"argument of (NUTS|ADVI|SMC|Laplace|Pathfinder) "):
        make()


@pytest.mark.parametrize(
    "engine",
    [
        kz.MAP(method="newton"),
        kz.MAP(space="log"),
        kz.VB(starts=0),
        kz.VB(starts=1.5),
        kz.VB(tolerance=-1),
        kz.VB(remaining=0),
        kz.VB(max_iterations=0),
        kz.Gibbs(marginal_moves=-1),
    ],
    ids=repr,
)
def test_bad_settings_of_the_models_algorithm_are_refused(engine):
    (setting,) = engine.settings
    message = f"^The '{setting}' argument of {engine.name} on MultinomialProbit must be "
    with pytest.raises(ValueError, match=message):
        kz.fit(kz.MultinomialProbit.example(), engine)


@pytest.mark.parametrize(
    ("model_type", "engine"),
    [
        (kz.WishartCompletion, kz.EM(max_iterations=0)),
        (kz.MutualKernelCompletion, kz.EM(memory=-1)),
        (kz.GaussianProcessRegression, kz.INLA(integrate="no")),
    ],
)
def test_bad_settings_of_other_algorithms_are_refused(model_type, engine):
    (setting,) = engine.settings
    message = f"^The '{setting}' argument of {engine.name} on {model_type.__name__} must be "
    with pytest.raises(ValueError, match=message):
        kz.fit(model_type.example(), engine)


@pytest.mark.parametrize(
    ("engine", "misspelt", "nearest"),
    [
        (kz.VB, "max_iter", "max_iterations"),
        (kz.Gibbs, "shceme", "scheme"),
        (kz.EM, "max_iteration", "max_iterations"),
        (kz.MAP, "spcae", "space"),
        (kz.NUTS, "target_acept", "target_accept"),
    ],
)
def test_misspelt_settings_are_refused_at_once(engine, misspelt, nearest):
    with pytest.raises(ValueError, match=f"argument of {engine.name} .*nearest is '{nearest}'"):
        engine(**{misspelt: 3})


def test_options_that_samplers_know_are_passed_on():
    with pm.Model() as plain:
        pm.Normal("x")
    options = {"initvals": {"x": 1.0}, "compile_kwargs": {"mode": "FAST_COMPILE"}}
    for option in ({"step_scale": 0.1}, {"init": "adapt_diag"}, {"Emax": 500.0}):
        kz.fit(plain, "nuts", draws=5, tune=5, chains=1, **option, **options, **COMMON)


def test_fit_wants_a_model():
    with pytest.raises(TypeError, match="'model' argument of fit"):
        kz.fit("wine", "vb")


def test_handwritten_engines_compare_by_settings():
    assert kz.VB(starts=2) == kz.VB(starts=2)
    assert kz.VB(starts=2) != kz.VB(starts=3)
    assert kz.VB() != kz.Gibbs()
    assert repr(kz.VB(starts=2)) == "VB(starts=2)"
    assert as_engine("Gibbs") == kz.Gibbs()


@pytest.mark.filterwarnings("ignore")
def test_subclasses_inherit_their_parents_engines_and_quantities():
    class Special(kz.MultinomialProbit):
        pass

    model = Special.example()
    assert kz.VB().why_not(model) is None
    tree = kz.fit(model, "vb", draws=5, **COMMON)
    assert tree.attrs["model"] == "Special"
    assert set(identified(tree).data_vars) == {"contrast", "beta"}


def test_subclasses_of_an_engine_keep_its_implementations(model):
    class Hasty(kz.VB):
        pass

    assert Hasty().why_not(model) is None
    assert issubclass(Hasty, PaperEngine)


def test_two_engines_of_one_name_are_refused():
    with pytest.raises(TypeError, match="engine of the name 'VB'"):
        type("Other", (PaperEngine,), {"name": "VB"})


@pytest.mark.parametrize("engine", ["vb", "gibbs"])
def test_a_user_who_makes_underflows_errors_gets_results(engine):
    X = np.random.default_rng(0).normal(size=(12, 2))
    with np.errstate(all="raise"):
        kernels = (kz.gaussian(0.1) | kz.linear())(30 * X)
        model = kz.MultinomialProbit(kernels, np.arange(12) % 3)
        result = kz.fit(model, engine, draws=20, tune=20, chains=1, cores=1, **COMMON)
        predictions = kz.predict(model, result, kernels)
        kz.extend(model, result, progressbar=False)
    assert np.isfinite(predictions["probability"]).all()


@pytest.mark.parametrize("declare", [kz.MultinomialProbit, kz.CompositeKernelClassification])
def test_log_likelihoods_comparisons_and_pictures_of_such_a_user(declare):
    """Entries of a kernel of far objects are so small that their products underflow."""
    X = np.random.default_rng(0).normal(size=(40, 2))
    kernels = (kz.gaussian(0.3) | kz.linear())(30 * X)
    model = declare(kernels, np.arange(40) % 2)
    expected = kz.fit(model, "gibbs", draws=10, tune=10, chains=1, **COMMON)
    with np.errstate(all="raise"):
        found = kz.fit(model, "gibbs", draws=10, tune=10, chains=1, **COMMON)
        kz.compare_engines({"one": found, "other": expected})
        kz.plots.plot_engines({"one": found, "other": expected})
        kz.plots.plot_kernels(kernels)
    assert found["log_likelihood"].equals(expected["log_likelihood"])
