"""Results of one problem are recognised as such, and those of others are told apart."""

import tracemalloc

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from pymc.backends.arviz import find_constants

import kernelzoo as kz
from kernelzoo.inference.engine.evaluation import python_mode
from kernelzoo.inference.engine.provenance import (
    check_fitted,
    constants_of,
    data_of,
    differing_data,
    term_fingerprints,
)

KERNELS = np.stack([np.eye(4), np.diag([1.0, 2.0, 3.0, 4.0])])
LABELS = np.array([0, 1, 0, 1])


@pytest.mark.parametrize("model", kz.MODELS, ids=lambda model: model.__name__)
def test_a_declaration_made_twice_has_the_same_fingerprints(model):
    assert term_fingerprints(model.example()) == term_fingerprints(model.example())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"tau": 1, "upsilon": np.int64(2)}, {"tau": 1.0, "upsilon": 2.0}),
        ({"combination": kz.combinations.Mean(1, 1)}, {"combination": kz.combinations.Mean()}),
        (
            {"combination": kz.combinations.Product(2, 2)},
            {"combination": kz.combinations.Product(2.0, 2.0)},
        ),
    ],
)
def test_whole_numbers_are_numbers(one, other):
    assert term_fingerprints(kz.MultinomialProbit(KERNELS, LABELS, **one)) == term_fingerprints(
        kz.MultinomialProbit(KERNELS, LABELS, **other)
    )


def test_hyperparameters_change_the_fingerprints_of_what_depends_on_them():
    one = term_fingerprints(kz.MultinomialProbit(KERNELS, LABELS, tau=1.0))
    other = term_fingerprints(kz.MultinomialProbit(KERNELS, LABELS, tau=2.0))
    assert one.keys() == other.keys()
    assert {name for name in one if one[name] != other[name]} == {"zeta", "W", ""}
    assert one["beta"] == other["beta"]


def test_exchanged_parents_are_seen():
    """Of the same operations and constants."""

    def exchanged(first, second):
        with pm.Model() as model:
            parents = {"a": pm.Normal("a"), "b": pm.Normal("b")}
            pm.Normal("y", parents[first], pm.math.exp(parents[second]), observed=0.0)
        return term_fingerprints(model)

    one, other = exchanged("a", "b"), exchanged("b", "a")
    assert one["a"] == other["a"]
    assert one[""] != other[""]


def test_the_inside_of_a_distribution_is_seen():
    """Whose outside is the same: name, inputs, shapes."""

    def skewed(power):
        def dist(mu, size):
            return mu + pm.Normal.dist(size=size) ** power

        with pm.Model() as model:
            pm.CustomDist("x", 0.0, dist=dist, class_name="skewed")
        return term_fingerprints(model)

    assert skewed(2) == skewed(2)
    assert skewed(2) != skewed(3)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (kz.CompositeKernelRegression, {}),
        (kz.MutualKernelCompletion, {"lam": 0.5, "nu": 9.0}),
    ],
)
def test_collapsed_models_are_of_the_same_data_and_priors(model, options):
    if model is kz.MutualKernelCompletion:
        kernel = KERNELS[1] + 0.1
        missing = kernel.copy()
        missing[3], missing[:, 3] = np.nan, np.nan
        given = ({"whole": kernel, "lacking": missing},)
    else:
        given = (KERNELS, np.array([0.3, -0.1, 1.0, 0.0]))
    plain, collapsed = (model(*given, collapsed=c, **options) for c in (False, True))
    assert not differing_data(data_of(plain), data_of(collapsed))
    priors, others = term_fingerprints(plain), term_fingerprints(collapsed)
    common = (priors.keys() & others.keys()) - {""}
    assert common
    assert {name: priors[name] for name in common} == {name: others[name] for name in common}


def test_data_are_compared_by_value():
    one = {"K": np.array([1.0, np.nan, 1e-9]), "labels": np.array([0, 1]), "only": np.ones(2)}
    same = {"K": one["K"] * (1 + 1e-9), "labels": np.array([0, 1])}
    assert not differing_data(one, same)
    for name, values in (("K", np.array([1.0, 2.0, 0.0])), ("labels", np.array([1, 1, 0]))):
        assert differing_data(one, same | {name: values}) == [name]


@pytest.mark.parametrize("far", [1e4, 1e9])
def test_data_far_from_zero_are_compared_by_their_differences(far):
    y = far + np.random.default_rng(0).normal(size=9)
    assert differing_data({"y": y}, {"y": y[::-1]}) == ["y"]
    assert differing_data({"y": y}, {"y": np.nextafter(y, np.inf)}) == []


def test_data_of_a_result_are_the_model_s_and_cannot_be_changed(fitted):
    model = classifier()
    constants, wanted = constants_of(model), find_constants(model)
    assert constants.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_array_equal(constants[name], values)
        assert np.shares_memory(constants[name], model[name].get_value(borrow=True))
    for values in (constants["K"], model.design, fitted["constant_data"]["K"].values):
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 0.0
    # New data take other memory: those of an earlier result stay.
    pm.set_data({"K": kernels_of(3)}, model=model)
    np.testing.assert_array_equal(constants["K"], kernels_of(1))


def test_a_check_of_equal_data_takes_little_memory():
    rng = np.random.default_rng(1)
    one = {"K": rng.normal(size=(2, 500, 500))}
    other = {"K": one["K"].copy()}
    tracemalloc.start()
    try:
        assert not differing_data(one, other)
        assert tracemalloc.get_traced_memory()[1] < one["K"].nbytes / 4
    finally:
        tracemalloc.stop()


def kernels_of(seed):
    return np.random.default_rng(seed).normal(size=(2, 4, 3))


def classifier(**changes):
    given = {"kernels": kernels_of(1), "labels": list("abab"), "combination": "mean"} | changes
    stack = kz.kernels.as_stack(given.pop("kernels"))
    return kz.MultinomialProbit(stack, given.pop("labels"), **given)


@pytest.fixture(scope="module")
def fitted():
    return kz.fit(classifier(), "vb", draws=5, progressbar=False, random_seed=1)


@pytest.fixture(scope="module")
def stored(fitted, tmp_path_factory):
    path = tmp_path_factory.mktemp("fitted") / "fitted.nc"
    fitted.to_netcdf(path)
    with xr.open_datatree(path) as tree:
        yield tree


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kernels": kernels_of(2)}, "Got a result with other values of K"),
        (
            {"kernels": kernels_of(1)[::-1]},
            "Got a result with other values of K",
        ),
        (
            {"kernels": kernels_of(1)[:, ::-1]},
            "Got a result with other values of K",
        ),
        (
            {"labels": list("abba")},
            "Got a result with other values of labels, t",
        ),
        ({"tau": 2.0}, "Got a result that differs in .*zeta"),
        ({"combination": "binary"}, "priors and likelihood"),
    ],
)
def test_predictions_refuse_a_result_of_another_model(fitted, stored, changes, message):
    other = classifier(**changes)
    for result in (fitted, stored):
        with pytest.raises(ValueError, match=message):
            kz.predict(other, result, np.ones((2, 1, 3)))


def test_predictions_take_a_result_of_an_equal_model(fitted, stored):
    for result in (fitted, stored):
        kz.predict(classifier(), result, np.ones((2, 1, 3)))


def test_a_likelihood_with_a_variable_of_its_own_is_another_model(fitted):
    """Bug: its result was taken for one with a variable integrated out."""
    amended, new = classifier(), np.ones((2, 1, 3))
    with amended:
        sigma = pm.HalfNormal("sigma")
        pm.Normal("alcohol", amended["zeta"].sum(), sigma, observed=1.0)
    sizes = {"draws": 4, "tune": 2, "chains": 1, "progressbar": False, "random_seed": 1}
    by_numpy = {"compile_kwargs": {"mode": python_mode()}}
    result = kz.fit(amended, kz.NUTS(max_treedepth=2), **sizes, **by_numpy)
    for model, given in ((classifier(), result), (amended, fitted)):
        with pytest.raises(ValueError, match="differs in the term 'alcohol'"):
            kz.predict(model, given, new)
    predictions = kz.predict(amended, result, new, keep_draws=True)
    assert predictions["t"].sizes == {"chain": 1, "draw": 4, "obs": 1}


def test_other_orders_of_the_objects_are_told():
    X = pd.DataFrame(np.random.default_rng(1).normal(size=(6, 2)), list("uvwxyz"))
    y = pd.Series(list("ababab"), X.index)
    kernels, turned = kz.gaussian(0.5), X.iloc[::-1]
    model = kz.MultinomialProbit(kernels(X), y)
    result = kz.fit(model, "vb", draws=5, progressbar=False, random_seed=1)
    other = kz.MultinomialProbit(kernels(turned), y)
    with pytest.raises(ValueError, match=r"labels of (obs|basis), in their order. Got the same"):
        kz.predict(other, result, kernels(X[:2], turned))
    # New objects with the ids of the training objects: the same patients, a year later.
    later = X + np.random.default_rng(2).normal(size=X.shape)
    found = kz.predict(model, result, kernels(later, X))
    unnamed = kz.predict(model, result, kernels(later.reset_index(drop=True), X))
    np.testing.assert_array_equal(found["probability"], unnamed["probability"])
    with pytest.raises(ValueError, match="finite"):
        kz.predict(model, result, kernels(later, X).where(kernels(later, X) < 0.5))


def test_predictions_refuse_a_result_from_before_set_data(fitted):
    model = classifier()
    pm.set_data({"labels": [1, 0, 1, 0]}, model=model)
    with pytest.raises(ValueError, match="Got a result with other values of labels, t"):
        kz.predict(model, fitted, np.ones((2, 1, 3)))
    again = kz.fit(model, "vb", draws=5, progressbar=False, random_seed=1)
    kz.predict(model, again, np.ones((2, 1, 3)))


def test_new_kernels_have_the_labels_of_new_objects():
    """Bug: kernels against the objects of the declaration passed for those against the new ones."""
    rng, kernels = np.random.default_rng(3), kz.gaussian(0.5) | kz.linear()
    X = pd.DataFrame(rng.normal(size=(8, 2)), list("abcdefgh"))
    X_set = pd.DataFrame(rng.normal(size=(8, 2)), list("stuvwxyz"))
    y, X_new = pd.Series(rng.normal(size=8), X_set.index), pd.DataFrame(rng.normal(size=(3, 2)))
    data, ids = {"K": kernels(X_set).values, "targets": y.values}, list(X_set.index)
    model = kz.CompositeKernelRegression(kernels(X), y.to_numpy())
    options = {"draws": 5, "progressbar": False, "random_seed": 1}
    pm.set_data(data, coords={"obs": ids}, model=model)
    for call in (lambda: kz.fit(model, "vb"), lambda: kz.select(model)):
        with pytest.raises(ValueError, match=r"coords=\{\"obs\": ids, \"basis\": ids\}"):
            call()
    pm.set_data(data, coords={"obs": ids, "basis": ids}, model=model)
    declared = kz.CompositeKernelRegression(kernels(X_set), y)
    expected, found = (
        kz.predict(each, kz.fit(each, "vb", **options), kernels(X_new, X_set))["mean"]
        for each in (declared, model)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    with pytest.raises(ValueError, match="unknown 'a'"):
        kz.predict(model, kz.fit(model, "vb", **options), kernels(X_new, X))


def test_data_may_be_added_to_a_declaration():
    model = kz.CompositeKernelRegression.example()
    with model:
        pm.Data("extra", np.ones(3))
    result = kz.fit(model, "vb", draws=5, progressbar=False, random_seed=1)
    kz.predict(model, result, model.kernel_values()[:, :2])


def test_labels_and_attributes_of_kernels_do_not_pass_to_other_models():
    """1 and 1.0 are one key of a dict; attributes from files may be lists."""
    K = kz.gaussian(0.5)(np.random.default_rng(4).normal(size=(6, 2)))
    found = []
    for ids in (np.arange(6.0), np.arange(6), np.array(list("abcdef"))):
        kernels = K.assign_coords(obs=ids, basis=ids)
        kernels["kernel"].attrs["note"] = ["a", "b"]
        model = kz.CompositeKernelRegression(kernels, np.arange(6.0))
        result = kz.fit(model, "vb", draws=5, progressbar=False, random_seed=1)
        found.append(kz.predict(model, result, K.values[:, :2])["obs"].to_numpy().tolist())
    assert found == [[0, 1], [6, 7], [0, 1]]


def test_known_weights_in_place_of_random_ones_are_told_apart():
    kernels, targets = kz.kernels.as_stack(kernels_of(1)), np.arange(4.0)
    random = kz.CompositeKernelRegression(kernels, targets)
    known = kz.CompositeKernelRegression(kernels, targets, combination="fixed")
    options = {"draws": 5, "progressbar": False, "random_seed": 1}
    for model, other in ((known, random), (random, known)):
        result = kz.fit(model, "vb", **options)
        with pytest.raises(ValueError, match=r"beta.* is random, or known, and the reverse here"):
            kz.predict(other, result, kernels.to_numpy()[:, :2])


@pytest.mark.parametrize("length", [2, 99])
def test_data_of_different_lengths_are_refused_by_name(length):
    """Bug: the error was that of a matrix product, or of the compiler."""
    model = kz.CompositeKernelRegression.example()
    with model:
        pm.set_data({"targets": np.zeros(length)}, coords={"obs": range(length)})
    for engine in ("vb", "gibbs", "laplace"):
        with pytest.raises(ValueError, match=r"'(K|targets)' .*along 'obs'.* Set both by pm.set"):
            kz.fit(model, engine, draws=5, progressbar=False)


def test_labels_in_another_order_are_refused():
    model = kz.MultinomialProbit.example()
    result = kz.fit(model, "vb", draws=3, random_seed=1, progressbar=False)
    swapped = result.copy()
    posterior = result["posterior"].to_dataset()
    swapped["posterior"] = xr.DataTree(
        posterior.assign_coords(kernel=posterior["kernel"][::-1].values)
    )
    check_fitted(model, result, "predict")
    with pytest.raises(ValueError, match=r"labels of kernel, in their order.*another order"):
        check_fitted(model, swapped, "predict")


@pytest.fixture(scope="module")
def approximated():
    model = kz.MultinomialProbit.example()
    return model, kz.fit(model, "vb", draws=5, random_seed=1, progressbar=False)


@pytest.mark.parametrize("name", ["declared", "terms", "pareto_k", "seconds"])
@pytest.mark.parametrize("text", ["{", "3]", np.array([1, 2])])
def test_a_damaged_attribute_is_named(approximated, name, text):
    """Bug: an error of the JSON reader about a character."""
    model, result = approximated[0], approximated[1].copy()
    result.attrs[name] = text
    with pytest.raises(ValueError, match=f"attribute {name!r} of the result is damaged: .*"):
        kz.compare_engines({"a": result, "b": result}, model=model)
