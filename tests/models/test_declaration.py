"""What the seven declarations have in common."""

import copy
import inspect
import pickle
import warnings
from functools import cache

import cloudpickle
import joblib
import numpy as np
import pandas as pd
import polars as pl
import pymc as pm
import pytest
import xarray as xr

import kernelzoo as kz

pytestmark = pytest.mark.usefixtures("quick_compilation")

MODELS = {model.__name__: model for model in kz.MODELS}


@pytest.mark.parametrize("name", MODELS)
def test_editors_see_the_arguments_of_a_model(name):
    """PyMC's metaclass hides them."""
    seen = inspect.signature(MODELS[name])
    own = inspect.signature(MODELS[name].__init__)
    assert [*seen.parameters.values()] == [*own.parameters.values()][1:]
    assert not any(each.kind is each.VAR_KEYWORD for each in seen.parameters.values())


@pytest.mark.parametrize("name", MODELS)
def test_the_initial_point_is_one(name):
    """A variable whose start depends on an observed one starts from its value, not from a draw."""
    model = MODELS[name].example()
    first, second = model.initial_point(0), model.initial_point(1)
    for variable, values in first.items():
        np.testing.assert_array_equal(values, second[variable])


def test_the_initial_point_follows_the_data_and_what_is_asked_for():
    model = kz.WishartCompletion.example()
    before = model.initial_point()
    coefficients = np.linalg.solve(model.theta[:3, :3], model.theta[:3, 3:]).T
    np.testing.assert_allclose(before["K21"], coefficients @ model.K11_values)
    pm.set_data({"K11_values": 3 * model.K11_values}, model=model)
    np.testing.assert_allclose(model.initial_point()["K21"], 3 * before["K21"])
    K21 = np.ones((2, 3))
    start = model._make_initial_point(overrides={"K21": K21})(0)
    np.testing.assert_array_equal(start["K21"], K21)
    moved = model._make_initial_point(jitter_rvs={model["B"]})(0)
    gap = np.abs(moved["B"] - before["B"])
    assert (gap > 0).all()
    assert (gap < 1).all()
    np.testing.assert_allclose(moved["K21"], moved["B"] @ model.K11_values)


def log_density(model):
    return model.compile_logp(mode="FAST_COMPILE")(model.initial_point())


def cheapest(model):
    """Handwritten engine that takes the least time."""
    engines = (kz.Exact(), kz.VB(max_iterations=5), kz.EM(), kz.INLA(max_points=32))
    return next(engine for engine in engines if engine.why_not(model) is None)


@pytest.mark.parametrize(
    ("name", "data", "shape"),
    [
        ("WishartCompletion", "theta", (4, 4)),
        ("WishartKernelMixture", "K11_values", (2, 2)),
        ("MutualKernelCompletion", "Qvv_near_values", (2, 2)),
        ("CompositeKernelRegression", "K", (2, 8, 7)),
    ],
)
def test_data_of_another_size_are_refused_when_they_are_set(name, data, shape):
    model = MODELS[name].example()
    before = model[data].get_value()
    with pytest.raises(TypeError, match="not compatible"):
        model[data].set_value(np.ones(shape))
    np.testing.assert_array_equal(model[data].get_value(), before)


@pytest.mark.parametrize("name", MODELS)
def test_models_pickle(name):
    model = MODELS[name].example(random_seed=2)
    data = next(data for data in model.data_vars if data.dtype == "float64")
    pm.set_data({data.name: 1.1 * data.get_value()}, model=model)
    known = log_density(model)
    for library in (pickle, cloudpickle):
        again = library.loads(library.dumps(model))
        assert type(again) is type(model)
        assert again.coords == model.coords
        assert kz.engines(again).frame.equals(kz.engines(model).frame)
    assert log_density(again) == known


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_a_pickled_model_is_fitted_as_the_first(name):
    model = MODELS[name].example()
    again = pickle.loads(pickle.dumps(model))
    options = {"draws": 5, "random_seed": 1, "progressbar": False, "log_likelihood": False}
    found, known = (kz.fit(m, cheapest(m), **options)["posterior"] for m in (again, model))
    for variable in known.data_vars:
        np.testing.assert_array_equal(found[variable], known[variable])


def test_a_pickle_holds_the_kernels_once():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    kernels = (kz.gaussian(0.1) | kz.linear())(X)
    model = kz.MultinomialProbit(kernels, rng.permutation(np.arange(60) % 3))
    before = pickle.dumps(model)
    assert len(before) < 1.2 * kernels.nbytes
    with model:
        pm.set_data({"labels": np.roll(model["labels"].get_value(), 1)})
    after = pickle.dumps(model)
    assert len(after) < 1.2 * kernels.nbytes
    again = pickle.loads(pickle.dumps(pickle.loads(after)))
    np.testing.assert_array_equal(again["labels"].get_value(), model["labels"].get_value())
    np.testing.assert_array_equal(again["K"].get_value(), model["K"].get_value())


def test_a_pickle_is_read_without_the_warnings_of_the_declaration():
    with pytest.warns(kz.kernels.KernelWarning):
        model = kz.MultinomialProbit({"K": np.eye(20)}, np.arange(20) % 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = pickle.loads(pickle.dumps(model))
    with pytest.warns(kz.kernels.KernelWarning):
        kz.MultinomialProbit(again["K"].get_value(), np.arange(20) % 3)


def test_a_pickled_model_has_the_options_and_objects_that_it_had():
    model = kz.CompositeKernelRegression.example(bias=False, collapsed=True, rho=2.5)
    x = np.random.default_rng(3).normal(size=(3, 2))
    kernels = (kz.gaussian(0.3) | kz.linear())(x, np.ones((8, 2)))
    new = {"K": kernels.values, "targets": np.arange(3.0)}
    labels = {"obs": ["a", "b", "c"]}
    plain = kz.CompositeKernelRegression(model["K"].get_value(), model.target_values)
    with plain:
        pm.set_data(new, coords=labels)
    for known in (model, plain):
        again = pickle.loads(pickle.dumps(known))
        assert again.variant == known.variant
        assert (again.bias, again.rho) == (known.bias, known.rho)
        assert again.coords == known.coords
        np.testing.assert_array_equal(again["K"].get_value(), known["K"].get_value())


def test_variants_tell_priors_and_options_apart():
    example, rule = kz.MultinomialProbit.example(), kz.combinations.Mean(mu=1, lam=5)
    assert example.variant == example.redeclared(tau=1, upsilon=1.0).variant == "Mean"
    changes = [{"tau": 3}, {"upsilon": 3.0}, {"combination": rule}]
    changes += [{"upsilon": kz.LearnedScale()}, {"upsilon": kz.LearnedScale(sigma=1.0)}]
    assert [example.redeclared(**each).variant for each in changes] == [
        "Mean, tau=3",
        "Mean, upsilon=3.0",
        "Mean, lam=5",
        "Mean, upsilon=LearnedScale(median=10.0, sigma=3.5)",
        "Mean, upsilon=LearnedScale(median=10.0, sigma=1.0)",
    ]
    regression = kz.CompositeKernelRegression.example(bias=False, collapsed=True)
    assert regression.variant == "DirichletWeights, bias=False, collapsed=True"
    mutual = kz.MutualKernelCompletion.example()
    assert mutual.redeclared(collapsed=True).variant == f"{mutual.variant}, collapsed=True"
    result = kz.fit(example.redeclared(tau=3), "vb", draws=2, progressbar=False)
    assert result.attrs["variant"] == "Mean, tau=3"


def test_an_amended_model_keeps_its_amendments():
    model = kz.WishartCompletion.example()
    with model:
        pm.Potential("pull", -(model["K21"] ** 2).sum())
    again = cloudpickle.loads(cloudpickle.dumps(model))
    assert again.amendments() == ["pull"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ["nuts", "gibbs", "smc"])
def test_chains_in_new_processes_are_the_same(engine):
    """Processes that are not forked read the model, and steps that refer to it, from a pickle."""
    model = kz.WishartCompletion.example()
    options = {"draws": 20, "chains": 2, "random_seed": 1, "progressbar": False}
    options |= {"tune": 20, "var_names": ["K21"]}
    here = kz.fit(model, engine, cores=1, **options)
    there = kz.fit(model, engine, cores=2, mp_ctx="spawn", **options)
    np.testing.assert_array_equal(here["posterior"]["K21"], there["posterior"]["K21"])


@pytest.mark.slow
def test_joblib_fits_in_processes_of_its_own():
    models = [kz.WishartCompletion.example(random_seed=seed) for seed in (1, 2)]
    options = {"draws": 5, "random_seed": 1, "progressbar": False}
    fits = joblib.Parallel(n_jobs=2)(
        joblib.delayed(kz.fit)(model, "exact", **options) for model in models
    )
    for model, found in zip(models, fits, strict=True):
        known = kz.fit(model, "exact", **options)["moments"]["K21_mean"]
        np.testing.assert_array_equal(found["moments"]["K21_mean"], known)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_inside_another_says_why_not(name):
    with pm.Model() as outer, pytest.raises(ValueError, match=f"{name} must be declared outside"):
        MODELS[name].example()
    assert not outer.named_vars
    assert not outer.coords


def test_a_model_takes_no_name():
    with pytest.raises(ValueError, match="'name' argument of WishartCompletion must be left out"):
        kz.WishartCompletion(np.eye(3), np.eye(2), name="inner")


def test_what_was_added_to_a_model_is_in_its_copy():
    model = kz.WishartCompletion.example()
    with model:
        pm.Deterministic("twice", 2 * model["K21"])
        pm.Data("extra", np.arange(3.0))
    copy = cloudpickle.loads(cloudpickle.dumps(model))
    assert "twice" in copy.named_vars
    np.testing.assert_array_equal(copy["extra"].get_value(), [0, 1, 2])
    started = kz.MultinomialProbit.example()
    started.set_initval(started["W"], np.full((3, 12), 0.5))
    copy = cloudpickle.loads(cloudpickle.dumps(started))
    np.testing.assert_array_equal(copy.initial_point()["W"], 0.5)


def test_labels_of_data_are_in_a_copy():
    model = kz.MultinomialProbit.example()
    ids = [f"object {i}" for i in range(12)]
    with model:
        pm.set_data({"labels": model["labels"].get_value()}, coords={"obs": ids})
    copy = pickle.loads(pickle.dumps(model))
    assert list(copy.coords["obs"]) == ids


@pytest.mark.parametrize(
    ("name", "data", "spoil", "message"),
    [
        ("MultinomialProbit", "K", lambda K: K * np.nan, "'K' argument of pm.set_data .*NaN"),
        ("MultinomialProbit", "K", lambda K: K * np.inf, "'K' argument of pm.set_data .*finite"),
        ("MultinomialProbit", "K", lambda K: K * 1e200, "'K' .* at most 1e.60 in size"),
        ("CompositeKernelRegression", "targets", lambda t: t * 1e200, "'targets' .* at most 1e.60"),
        ("MultinomialProbit", "K", lambda K: K + np.eye(12, k=1), r"'K\[0\]' .* symmetric"),
        ("CompositeKernelRegression", "K", lambda K: -K, r"'K\[0\]' .* positive semidefinite"),
        ("WishartCompletion", "theta", lambda theta: -theta, "'theta' .* positive semidefinite"),
        ("MutualKernelCompletion", "Qvv_near_values", lambda Q: -Q, "positive semidefinite"),
    ],
)
def test_engines_refuse_data_that_the_constructor_would(name, data, spoil, message):
    model = MODELS[name].example()
    pm.set_data({data: spoil(model[data].get_value())}, model=model)
    with pytest.raises(ValueError, match=message):
        kz.fit(model, cheapest(model), progressbar=False)


def test_new_data_that_the_constructor_would_take_are_fitted():
    """Rectangular data, such as features, need no symmetry; users' own data are theirs."""
    model = kz.MultinomialProbit.example()
    pm.set_data({"K": 2 * model["K"].get_value()}, model=model)
    with model:
        pm.Data("own", [np.inf])
    model.check_data()
    features = np.random.default_rng(1).normal(size=(2, 12, 5))
    model = kz.MultinomialProbit(kz.kernels.as_stack(features), np.tile([0, 1, 2], 4))
    pm.set_data({"K": -features}, model=model)
    model.check_data()


@pytest.mark.parametrize(
    ("name", "attribute"),
    [
        ("MultinomialProbit", "tau"),
        ("CompositeKernelRegression", "sigma"),
        ("CompositeKernelClassification", "combination"),
        ("WishartCompletion", "r"),
        ("DiagonalWishartCompletion", "eta"),
        ("WishartKernelMixture", "rho"),
    ],
)
def test_attributes_of_a_declaration_are_fixed(name, attribute):
    """Some engines would read the new value, while the declared density keeps the old one."""
    model = MODELS[name].example()
    before = getattr(model, attribute)
    with pytest.raises(AttributeError, match=f"{attribute} of a {name} is fixed"):
        setattr(model, attribute, 3.0)
    assert getattr(model, attribute) is before
    model.remark = "a user's own attributes are free"
    again = pickle.loads(pickle.dumps(model))
    with pytest.raises(AttributeError, match="is fixed"):
        setattr(again, attribute, 3.0)


@pytest.mark.parametrize(
    ("declare", "argument"),
    [
        (lambda: kz.CompositeKernelRegression.example(bias="no"), "bias"),
        (lambda: kz.CompositeKernelRegression.example(collapsed="no"), "collapsed"),
        (lambda: kz.CompositeKernelClassification.example(bias=1), "bias"),
        (lambda: kz.WishartKernelMixture.example(collapsed="no"), "collapsed"),
        (lambda: kz.DiagonalWishartCompletion(np.eye(3), np.eye(2), diagonal_W22_1="no"), "W22"),
        (lambda: kz.kernels.Theta(ard="yes"), "ard"),
        (lambda: kz.combinations.Binary(empty="no"), "empty"),
    ],
)
def test_flags_are_true_or_false(declare, argument):
    with pytest.raises(ValueError, match=f"{argument}.* must be True or False"):
        declare()


def test_other_rows_of_a_gram_matrix_are_a_basis():
    """As in the constructor: only kernels whose rows and columns are the same objects are Gram."""
    model = kz.CompositeKernelRegression.example()
    K, targets = model["K"].get_value(), model.target_values
    kz.CompositeKernelRegression(kz.kernels.as_stack(K[:, :5]), targets[:5])
    with model:
        pm.set_data({"K": K[:, :5], "targets": targets[:5]}, coords={"obs": np.arange(5)})
    model.check_data()


def test_a_second_seal_hides_no_term():
    model = kz.MultinomialProbit.example()
    with model:
        pm.Potential("force", 60 * pm.math.log(model["beta"][0]))
    with pytest.raises(ValueError, match="is sealed by its own constructor"):
        model.seal()
    assert model.amendments()


AMENDMENTS = {
    "none": lambda model: None,
    "Deterministic": lambda model: pm.Deterministic("double", 2 * model["W"]),
    "Potential": lambda model: pm.Potential("penalty", -model["W"].sum()),
    "Data": lambda model: pm.Data("more", [1.0, 2.0]),
    "variable": lambda model: pm.Normal("extra"),
    "start": lambda model: model.set_initval(model["beta"], np.array([0.3, 0.7])),
}


@cache
def amended(kind):
    """Amended model, a point and the log density there."""
    model = kz.MultinomialProbit.example()
    with model:
        AMENDMENTS[kind](model)
    point = model.initial_point()
    return model, point, model.compile_logp()(point)


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))]
)
@pytest.mark.parametrize("kind", AMENDMENTS)
def test_copies_are_declarations_with_their_amendments(kind, copied):
    model, point, density = amended(kind)
    twin = copied(model)
    assert type(twin) is kz.MultinomialProbit
    assert list(twin.named_vars) == list(model.named_vars)
    assert twin.amendments() == model.amendments()
    assert twin.compile_logp()(point) == pytest.approx(density)


@pytest.mark.parametrize(
    "kind",
    [list, np.array, pd.Series, pd.Categorical, xr.DataArray, pl.Series],
    ids=lambda kind: f"{kind.__module__}.{kind.__name__}",
)
def test_labels_changed_in_place_do_not_change_a_pickled_model(kind):
    labels = kind([0, 1, 0, 1])
    model = kz.MultinomialProbit(np.eye(4) + 1.0, labels)
    for i, label in enumerate([1, 1, 0, 0]):
        labels[i] = label
    twin = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(twin.label_codes, [0, 1, 0, 1])


def test_weights_changed_in_place_do_not_change_a_pickled_model():
    weights = np.array([0.9, 0.1])
    kernels = {"a": np.eye(4) + 1.0, "b": np.eye(4)}
    rule = kz.combinations.FixedWeights(weights)
    model = kz.MultinomialProbit(kernels, [0, 1, 0, 1], combination=rule)
    point = model.initial_point()
    before = model.compile_logp()(point)
    weights[:] = [0.1, 0.9]
    twin = pickle.loads(pickle.dumps(model))
    assert twin.compile_logp()(point) == pytest.approx(before)


def test_a_model_that_is_declared_again_leaves_the_filters_of_warnings(monkeypatch):
    """Bug: where two threads did so at once, all UserWarnings were ignored for good."""
    model, seen = kz.MultinomialProbit.example(), []
    before = list(warnings.filters)
    declare = kz.MultinomialProbit.seal

    def noting(self):
        seen.append(list(warnings.filters))
        declare(self)

    monkeypatch.setattr(kz.MultinomialProbit, "seal", noting)
    model.redeclared(upsilon=2.0)
    assert seen == [before]
