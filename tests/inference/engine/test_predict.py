"""Class probabilities of new objects: averages over draws, whatever the blocks."""

import inspect
import re
import tracemalloc

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from xarray import DataTree

import kernelzoo as kz
from kernelzoo.inference import new_objects
from kernelzoo.inference.engine.paper import PAPERS, identified
from probit_moments import log_probability

QUIET = {"draws": 5, "random_seed": 1, "progressbar": False}


@pytest.fixture(scope="module")
def setting():
    """A model, draws that need no fit, and kernels of five new objects."""
    rng = np.random.default_rng(3)
    model = kz.MultinomialProbit.example()
    shape = (2, 7)
    posterior = xr.Dataset(
        {
            "beta": (("chain", "draw", "kernel"), rng.dirichlet([1, 1], size=shape)),
            "W": (("chain", "draw", "class", "basis"), rng.normal(size=(*shape, 3, 12))),
        },
        coords={"class": [0, 1, 2], "kernel": ["gaussian", "linear"]},
    )
    result = DataTree.from_dict({"posterior": posterior})
    result.attrs.update(model="MultinomialProbit", engine="Gibbs")
    new = rng.normal(size=(2, 5, 12))
    return model, result, new


def by_hand(result, new):
    """Average of eq (4) over draws, one object, class and draw at a time."""
    posterior = result["posterior"]
    W = posterior["W"].values.reshape(-1, 3, 12)
    beta = posterior["beta"].values.reshape(-1, 2)
    p = np.zeros((len(W), new.shape[1], 3))
    for i, (w, b) in enumerate(zip(W, beta, strict=True)):
        f = np.tensordot(b, new, 1) @ w.T
        for c in range(3):
            p[i, :, c] = np.exp(log_probability(f, np.full(len(f), c)))
    return p


def test_probabilities_average_over_draws(setting):
    model, result, new = setting
    predictions = kz.predict(model, result, new)
    p = by_hand(result, new)
    np.testing.assert_allclose(predictions["probability"], p.mean(0), atol=1e-8)
    np.testing.assert_allclose(predictions["probability_sd"], p.std(0), atol=1e-6)
    np.testing.assert_allclose(predictions["probability"].sum("class"), 1)
    np.testing.assert_array_equal(predictions["label"], p.mean(0).argmax(-1))
    assert predictions["probability"].dims == ("obs", "class")
    assert predictions.attrs == {"engine": "Gibbs", "model": "MultinomialProbit"}


def test_draws_are_kept_on_request(setting):
    model, result, new = setting
    predictions = kz.predict(model, result, new, keep_draws=True)
    assert predictions["probability_draws"].dims == ("chain", "draw", "obs", "class")
    np.testing.assert_allclose(
        predictions["probability_draws"].values.reshape(-1, 5, 3), by_hand(result, new), atol=1e-8
    )


def test_blocks_do_not_change_the_answer(setting, monkeypatch):
    model, result, new = setting
    whole = kz.predict(model, result, new)
    monkeypatch.setattr(new_objects, "BLOCK_NUMBERS", 1)
    xr.testing.assert_allclose(kz.predict(model, result, new), whole)


def test_memory_does_not_grow_with_the_draws(setting, monkeypatch):
    """Scores of all draws at once took N x draws x C numbers, and several times over."""
    model, result, _ = setting
    rng = np.random.default_rng(0)
    posterior = result["posterior"].to_dataset()
    many = posterior.isel(draw=np.zeros(1000, dtype=int)).assign_coords(draw=np.arange(1000))
    new = rng.normal(size=(2, 200, 12))
    monkeypatch.setattr(new_objects, "BLOCK_NUMBERS", 10_000)
    tracemalloc.start()
    kz.predict(model, DataTree.from_dict({"posterior": many}), new, progressbar=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 2000 * 200 * 3


@pytest.mark.usefixtures("terminal")
def test_progress_is_shown_where_there_are_several_blocks(setting, monkeypatch, capsys):
    kz.predict(*setting)
    assert not capsys.readouterr().out
    monkeypatch.setattr(new_objects, "BLOCK_NUMBERS", 30)
    kz.predict(*setting)
    assert "14/14" in capsys.readouterr().out
    kz.predict(*setting, progressbar=False)
    assert not capsys.readouterr().out


def test_probabilities_ignore_a_shift_of_all_classes(setting):
    model, result, new = setting
    shifted = result.copy()
    shifted["posterior"] = DataTree(
        result["posterior"].to_dataset().assign(W=result["posterior"]["W"] + 3.0)
    )
    np.testing.assert_allclose(
        kz.predict(model, shifted, new)["probability"],
        kz.predict(model, result, new)["probability"],
        atol=1e-7,
    )


def test_what_is_compared_ignores_a_shift_of_all_classes(setting):
    model, result, _ = setting
    compared = []
    for shift in (0.0, 3.0):
        posterior = result["posterior"].to_dataset()
        K = (("kernel", "obs", "basis"), model.design)
        tree = DataTree.from_dict(
            {
                "posterior": posterior.assign(W=posterior["W"] + shift),
                "constant_data": xr.Dataset({"K": K}, coords={"obs": np.arange(12)}),
            }
        )
        compared.append(identified(tree, model)["contrast"])
    xr.testing.assert_allclose(*compared)


def test_labels_are_the_users():
    model = kz.MultinomialProbit(np.eye(4), ["cat", "dog", "cat", "dog"])
    result = kz.fit(model, "vb", draws=30, random_seed=1, progressbar=False)
    predictions = kz.predict(model, result, np.eye(4)[:2])
    assert set(predictions["label"].values) <= {"cat", "dog"}
    assert list(predictions["class"].values) == ["cat", "dog"]


def test_fixed_weights_are_used():
    grams = {"a": np.eye(4), "b": np.ones((4, 4))}
    model = kz.MultinomialProbit(
        grams, [0, 1, 0, 1], combination=kz.combinations.FixedWeights([0.0, 2.0])
    )
    result = kz.fit(model, "vb", draws=30, random_seed=1, progressbar=False)
    new = np.random.default_rng(0).normal(size=(2, 3, 4))
    changed = new + np.array([5.0, 0.0])[:, None, None]
    xr.testing.assert_allclose(kz.predict(model, result, new), kz.predict(model, result, changed))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda new: new.transpose(0, 2, 1), "transposed"),
        (lambda new: new[:1], "kernels_new"),
        (lambda new: new[:, :, :7], "kernels_new"),
        (lambda new: {"gaussian": new[0], "liner": new[1]}, "liner"),
        (lambda new: np.where(new > 1, np.nan, new), "finite"),
    ],
)
def test_kernels_that_do_not_fit_are_refused(setting, change, message):
    model, result, new = setting
    with pytest.raises(ValueError, match=message):
        kz.predict(model, result, change(new))


def test_means_over_chains_are_weighted_by_their_draws():
    """A chain that was interrupted at its first draw does not outvote ten draws."""
    model = kz.WishartCompletion.example()
    K11 = np.asarray(model.K11_values)
    # The test objects are near the first class in the long chain, near the second in the other.
    means = np.stack([K11[[0, 0]], 2 * K11[[2, 2]] - K11[[0, 0]]])
    result = DataTree.from_dict(
        {
            "moments": xr.Dataset(
                {"K21_mean": (("chain", "test", "train"), means)},
                coords={"chain": [0, 1], "draws": ("chain", [10, 1])},
            )
        }
    )
    labels = ["a", "a", "b"]
    assert kz.predict(model, result, labels=labels)["label"].values.tolist() == ["a", "a"]
    assert "chain" in result["moments"].dims
    swapped = result["moments"].to_dataset().assign_coords(draws=("chain", [1, 10]))
    result["moments"] = DataTree(swapped)
    assert kz.predict(model, result, labels=labels)["label"].values.tolist() == ["b", "b"]


def test_unknown_options_are_named():
    """Each model says which options its predictions take."""
    completion, composite = kz.WishartCompletion.example(), kz.CompositeKernelRegression.example()
    with pytest.raises(TypeError, match=r"Regression got unexpected 'labels'; .* are 'keep_draws'"):
        kz.predict(composite, DataTree(), labels=[1])
    with pytest.raises(TypeError, match=r"unexpected 'rank'; .* 'keep_draws', 'labels', 'rule'"):
        kz.predict(completion, DataTree(), labels=[1], rank=1)


@pytest.mark.parametrize("turn", [lambda tree: tree["posterior"].to_dataset(), lambda tree: "VB"])
def test_what_is_no_result_is_refused(setting, turn):
    model, result, new = setting
    with pytest.raises(TypeError, match="'result' argument of predict must be a result of fit"):
        kz.predict(model, turn(result), new)


def test_plain_models_are_sent_to_pymc(setting):
    _, result, new = setting
    with pm.Model() as plain:
        pm.Normal("x")
    with pytest.raises(TypeError, match="sample_posterior_predictive"):
        kz.predict(plain, result, new)


MODELS = {model.__name__: model for model in kz.MODELS}
#: What predictions need beside a result, where it is not kernels of new objects.
GIVEN = {
    "WishartCompletion": {"labels": [0, 0, 1]},
    "DiagonalWishartCompletion": {"labels": [0, 0, 1]},
    "WishartKernelMixture": {"labels": [0, 0, 1]},
    "MutualKernelCompletion": {"ci_prob": 0.5},
}


def example(name):
    """Smallest instance; of mutual completion one with entries, whose kernel has a short name."""
    if name != "MutualKernelCompletion":
        return MODELS[name].example()
    visible = np.array([[1, 1], [1, 1], [1, 0]], dtype=bool)
    return kz.MutualKernelCompletion(
        {"a": np.eye(3), "b": np.eye(3)}, visible, lam=0.5, nu=9.0, entries={"b": [(2, 0)]}
    )


def made_up_result(model):
    """Three draws of every variable, which need no fit."""
    rng = np.random.default_rng(0)
    variables = {}
    for variable in (*model.free_RVs, *model.deterministics):
        dims = model.named_vars_to_dims.get(variable.name, ())
        shape = (1, 3, *(len(model.coords[dim]) for dim in dims))
        variables[variable.name] = (("chain", "draw", *dims), rng.random(shape))
    coords = {dim: list(names) for dim, names in model.coords.items()}
    return DataTree.from_dict({"posterior": xr.Dataset(variables, coords)})


def documented_predictions():
    """Dims of the variables that the docstring of `predict` lists, by model; <k> is "b"."""
    table, models = {}, []
    for line in kz.predict.__doc__.replace("<k>", "b").splitlines():
        cells = re.split(r"\s{2,}", line.strip())
        names = line.strip().split(", ")
        if set(names) <= MODELS.keys():
            models = names
            table |= {model: {} for model in models}
        elif models and len(cells) == 3 and cells[0].isidentifier():
            variable, dims, _ = cells
            for model in models:
                table[model][variable] = tuple(dims.split(", "))
    return table


@pytest.mark.parametrize("name", MODELS)
def test_the_docstring_lists_what_is_predicted(name):
    model = example(name)
    given = GIVEN.get(name) or {"kernels_new": model["K"].get_value()[:, :1]}
    result = made_up_result(model)
    predictions = kz.predict(model, result, keep_draws=True, **given)
    found = {variable: values.dims for variable, values in predictions.items()}
    assert found == documented_predictions()[name]


def test_the_docstring_names_every_option():
    told = kz.predict.__doc__.partition("**options")[2].partition("Returns")[0]
    for model in kz.MODELS:
        parameters = inspect.signature(PAPERS[model].predict).parameters.values()
        named = inspect.signature(kz.predict).parameters
        options = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY} - set(named)
        # Of the sentence that begins with the models' names.
        sentence = re.search(rf"`{model.__name__}`.*?(?=\.|$)", told, re.DOTALL)
        assert set(re.findall(r"``(\w+)``", sentence[0] if sentence else "")) == options


@pytest.mark.parametrize(
    ("declare", "y"),
    [
        (kz.MultinomialProbit, np.arange(12) % 3),
        (kz.CompositeKernelRegression, np.arange(12) / 6),
        (kz.CompositeKernelClassification, np.arange(12) % 2),
    ],
)
def test_kernels_that_are_normalised_otherwise_are_refused(declare, y):
    """Names and shapes are equal, so that only what the specification tells can differ."""
    rng = np.random.default_rng(0)
    X, X_new = rng.normal(size=(12, 3)), rng.normal(size=(4, 3))
    plain = kz.gaussian(0.3) | kz.linear()
    traced = plain.normalize("trace")
    options = {"draws": 5, "random_seed": 1, "progressbar": False}
    for trained, other, message in (
        (traced, plain, r"\(trace;.*Got gaussian\(0.3\): not at all"),
        (plain, traced, r"\(not at all;.*Got gaussian\(0.3\): trace"),
    ):
        model = declare(trained(X), y)
        fitted = kz.fit(model, kz.VB(starts=1), **options)
        kz.predict(model, fitted, trained(X_new, X))
        # Arrays tell nothing of their making.
        kz.predict(model, fitted, other(X_new, X).values)
        for new in (other(X_new, X), other(X_new, X).chunk(obs=3)):
            with pytest.raises(ValueError, match=message):
                kz.predict(model, fitted, new)
        # After a normalisation by hand.
        kz.predict(model, fitted, other(X_new, X).drop_attrs())
        again = model.copied()
        with pytest.raises(ValueError, match=message):
            kz.predict(again, fitted, other(X_new, X))


def objects(n, seed):
    features = np.random.default_rng(seed).normal(size=(n, 3))
    return pd.DataFrame(features, [f"{seed}-{i}" for i in range(n)], list("abc"))


@pytest.fixture(scope="module")
def by_position():
    """Specification, training objects without ids, a model of their kernels and a result."""
    X, kernels = objects(9, 0).to_numpy(), (kz.gaussian(0.3) | kz.linear()).normalize("trace")
    model = kz.MultinomialProbit(kernels(X), np.arange(9) % 3)
    return kernels, X, model, kz.fit(model, kz.VB(starts=1), **QUIET)


@pytest.mark.parametrize(
    "change", [lambda X: X[::-1], lambda X: X + 1.0, lambda X: X[[1, 0, *range(2, 9)]]]
)
def test_kernels_against_other_training_objects_are_refused(change, by_position):
    kernels, X, model, fitted = by_position
    X_new = objects(4, 1).to_numpy()
    for new in (kernels(X_new, change(X)), kernels(X_new, change(X)).chunk(obs=3)):
        with pytest.raises(ValueError, match=r"'gaussian\(0.3\)' against objects with other feat"):
            kz.predict(model, fitted, new)
    kz.predict(model, fitted, kernels(X_new, change(X)).to_numpy())


def test_kernels_of_another_width_under_the_same_name_are_refused():
    X, X_new = objects(9, 0), objects(4, 1)
    kernels, other = (kz.gaussian(width).named("a").normalize("trace") for width in (0.3, 0.6))
    model = kz.MultinomialProbit(kernels(X), np.arange(9) % 3)
    fitted = kz.fit(model, kz.VB(starts=1), **QUIET)
    # Single precision and the order of the objects do not make another kernel.
    kz.predict(model, fitted, kernels(X_new.astype("float32"), X.astype("float32").iloc[::-1]))
    with pytest.raises(ValueError, match="'a' by another kernel, such as one of another width"):
        kz.predict(model, fitted, other(X_new, X))


@pytest.mark.parametrize("far", [1e5, 1e8])
def test_training_objects_far_from_zero_are_told_apart(far):
    """Relative to their size, all objects are close, and single precision rounds them alike."""
    X = objects(9, 0).to_numpy() + far
    kernels, X_new = kz.gaussian(0.3), objects(4, 1).to_numpy() + far
    model = kz.MultinomialProbit(kernels(X), np.arange(9) % 3)
    fitted = kz.fit(model, kz.VB(starts=1), **QUIET)
    kz.predict(model, fitted, kernels(X_new, X.copy()))
    with pytest.raises(ValueError, match="against objects with other features"):
        kz.predict(model, fitted, kernels(X_new, X[::-1]))


def test_grams_of_other_training_objects_are_refused(by_position):
    _, X, _, fitted = by_position
    kernels, gram = kz.kernels.precomputed().normalize("trace"), X @ X.T
    model = kz.MultinomialProbit(kernels(gram), np.arange(9) % 3)
    fitted = kz.fit(model, kz.VB(starts=1), **QUIET)
    kz.predict(model, fitted, kernels(gram[:2], gram))
    with pytest.raises(ValueError, match="'precomputed' against objects with other features"):
        kz.predict(model, fitted, kernels(gram[:2], 2 * gram))


def test_training_objects_may_be_single_precision_shuffled_with_ids_or_a_part():
    X, X_new = objects(9, 0), objects(4, 1)
    kernels = kz.gaussian(0.3) | kz.linear()
    model = kz.MultinomialProbit(kernels(X), np.arange(9) % 3)
    fitted = kz.fit(model, kz.VB(starts=1), **QUIET)
    expected = kz.predict(model, fitted, kernels(X_new, X))["probability"]
    for same in (X.astype(np.float32), X.iloc[::-1, [2, 0, 1]]):
        found = kz.predict(model, fitted, kernels(X_new, same))["probability"]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    everything = kernels(pd.concat([X, X_new]))
    found = kz.predict(model, fitted, everything.sel(obs=X_new.index, basis=X.index))
    np.testing.assert_allclose(found["probability"], expected, rtol=1e-12)


def test_kernels_of_specifications_stand_beside_others():
    """What a specification tells of them must not stand in the way of xarray."""
    X = np.random.default_rng(0).normal(size=(9, 3))
    stack = (kz.gaussian(0.3) | kz.linear()).normalize("trace")(X)
    own = kz.kernels.as_stack({"own": X @ X.T})
    options = {"draws": 5, "random_seed": 1, "progressbar": False}
    one = stack.sel(kernel="linear").expand_dims("kernel")
    for kernels in (xr.concat([stack, own], "kernel"), xr.concat([own, stack], "kernel"), one):
        model = kz.MultinomialProbit(kernels, np.arange(9) % 3)
        kz.predict(model, kz.fit(model, kz.VB(starts=1), **options), kernels.drop_vars("obs"))


@pytest.mark.parametrize(
    ("declare", "regressors"),
    [
        (lambda K: kz.MultinomialProbit(K, np.arange(12) % 3), "W"),
        (lambda K: kz.CompositeKernelClassification(K, np.arange(12) % 2), "alpha"),
        (lambda K: kz.CompositeKernelRegression(K, np.linspace(-1, 1, 12)), "alpha"),
    ],
    ids=["probit", "classification", "regression"],
)
def test_predictions_of_certain_models_under_a_users_floating_point_errors(declare, regressors):
    """Probabilities of scores of thousands underflow, which the user made an error."""
    kernels = kz.gaussian(0.1) | kz.linear()
    X = np.random.default_rng(0).normal(size=(12, 2))
    model = declare(kernels(X))
    result = kz.fit(model, kz.VB(starts=1, max_iterations=3), **QUIET)
    posterior = result["posterior"].to_dataset()
    result["posterior"] = posterior.assign({regressors: 1e3 * posterior[regressors]})
    new = kernels(10 * X[:4], X)
    expected = kz.predict(model, result, new)
    with np.errstate(all="raise"):
        found = kz.predict(model, result, new)
        extended = kz.extend(model, result, groups=("log_likelihood",), progressbar=False)
    assert found.identical(expected)
    assert "log_likelihood" in extended.children


@pytest.mark.parametrize(
    ("declaration", "name"),
    [
        (kz.MultinomialProbit, "W"),
        (kz.CompositeKernelClassification, "beta"),
        (kz.CompositeKernelRegression, "gamma"),
    ],
)
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_draws_that_are_no_numbers_are_refused_by_name(declaration, name, wrong):
    """Bug: every object had NaN for its probabilities, and the first class."""
    model = declaration.example()
    result = made_up_result(model)
    result["posterior"][name].values[0, 1] = wrong
    new = model["K"].get_value()[:, :2]
    with pytest.raises(ValueError, match=rf"of predict must be .* finite draws of {name}\. Got"):
        kz.predict(model, result, new)
