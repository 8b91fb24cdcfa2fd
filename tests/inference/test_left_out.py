"""K-fold cross-validation with any engine."""

import itertools
import signal
from types import SimpleNamespace

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from scipy.stats import norm

import kernelzoo as kz
from kernelzoo.inference.left_out import kernels_of, log_scores, objects_of, parts, splits
from kernelzoo.models import Declaration
from kernelzoo.numerics.gaussian_process import NormalRegression

QUIET = {"progressbar": False}
SHORT = {"draws": 60, "tune": 30, "chains": 2, "cores": 1}


def data(n=30):
    rng = np.random.default_rng(0)
    x = {"a": rng.normal(size=(n, 2)), "b": rng.normal(size=(n, 3))}
    kernels = kz.gaussian("median").on("a").named("a") | kz.gaussian("median").on("b").named("b")
    return kernels.normalize("trace")(x), x["a"][:, 0]


def model(name, **options):
    stack, signal_ = data()
    if name == "regression":
        return kz.CompositeKernelRegression(stack, signal_ - signal_.mean(), **options)
    if name == "classification":
        return kz.CompositeKernelClassification(stack, signal_ > 0, **options)
    return kz.MultinomialProbit(stack, np.digitize(signal_, [-0.5, 0.5]), **options)


def folds_of(whole, folds, seed=0):
    return splits(whole, objects_of(whole, by_ids=True), folds, seed)


@pytest.mark.parametrize(
    ("name", "engine", "combination"),
    # A mode of learned weights is searched for seconds.
    [("probit", "vb", "mean"), ("classification", "map", "fixed"), ("regression", "gibbs", "mean")],
)
def test_scores_are_those_of_fits_without_the_objects(name, engine, combination):
    """By hand: each fold is declared on its objects, fitted by the engine, and predicts."""
    whole = model(name, combination=combination)
    found = kz.scores.loo_kfold(whole, engine, k=2, random_seed=5, **SHORT, **QUIET)
    K = whole["K"].get_value()
    values = whole["targets" if name == "regression" else "labels"].get_value()
    expected = np.empty(len(values))
    for train, new in folds_of(whole, 2, 5):
        names = ("a", "b")
        grams = dict(zip(names, K[:, train][:, :, train], strict=True))
        part = type(whole)(grams, values[train], combination=combination)
        result = kz.fit(part, engine, random_seed=5, **SHORT, **QUIET)
        rows = dict(zip(names, K[:, new][:, :, train], strict=True))
        predicted = kz.predict(part, result, rows, keep_draws=True, **QUIET)
        if name == "regression":
            sd = result["posterior"]["gamma"].to_numpy()[..., None] ** -0.5
            density = norm.pdf(values[new], predicted["mean_draws"], sd)
            expected[new] = np.log(density.mean((0, 1)))
        else:
            p = predicted["probability"].to_numpy()
            own = p[np.arange(len(new)), values[new]]
            expected[new] = np.log(np.maximum(own, np.finfo(float).tiny))
    np.testing.assert_allclose(found.elpd_i, expected, rtol=1e-6)
    assert found.elpd == pytest.approx(expected.sum())
    assert found.se == pytest.approx(np.sqrt(len(expected)) * expected.std())
    assert found.n_folds == 2
    assert found.n_samples == (1 if engine == "map" else 60 if engine == "vb" else 120)
    assert list(found.elpd_i["obs"].values) == list(whole.coords["obs"])


@pytest.mark.parametrize("outputs", [1, 2])
def test_targets_have_the_density_of_the_mixture_over_the_draws(outputs):
    """Bug: a normal density at the predicted mean and sd, and marginal ones of several outputs."""
    rng = np.random.default_rng(1)
    shape = (2, 50, 4, 2)[: 2 + outputs]
    dims = ("chain", "draw", "obs", "output")[: 2 + outputs]
    laws = {"mean_draws": 3 * rng.normal(size=shape), "target_sd_draws": rng.uniform(1, 2, shape)}
    predicted = xr.Dataset({name: (dims, values) for name, values in laws.items()})
    targets = rng.normal(size=(6, 2)[:outputs])
    model = {"targets": SimpleNamespace(get_value=lambda: targets)}
    new = np.array([5, 0, 3, 1])
    density = norm.pdf(targets[new], laws["mean_draws"], laws["target_sd_draws"])
    joint = density if outputs == 1 else density.prod(axis=-1)
    np.testing.assert_allclose(log_scores(model, predicted, new), np.log(joint.mean((0, 1))))


@pytest.mark.filterwarnings("ignore")
def test_scores_agree_with_those_of_arviz_which_may_stand_beside_them():
    """Few columns and many objects: leaving one out changes little."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(25, 1))
    stack = kz.linear().landmarks(1, seed=0)(X)
    declared = kz.CompositeKernelRegression(stack, X[:, 0] + rng.normal(size=25))
    few = {"draws": 400, "random_seed": 1}
    loo = az.loo(kz.fit(declared, "vb", **few, **QUIET), pointwise=True)
    folds = kz.scores.loo_kfold(declared, "vb", k=25, **few, **QUIET)
    np.testing.assert_allclose(folds.elpd_i, loo.elpd_i, atol=0.15)
    assert list(az.compare({"loo": loo, "folds": folds}).index) in (
        ["loo", "folds"],
        ["folds", "loo"],
    )


def test_arviz_compares_models():
    """Of two models on the same folds, that on the kernel which decides is first."""
    stack, target = data()
    y = np.digitize(target, [-0.5, 0.5])
    scores = {
        block: kz.scores.loo_kfold(
            kz.MultinomialProbit(stack.sel(kernel=[block]), y, upsilon=30.0),
            kz.VB(starts=1),
            k=3,
            draws=60,
            **QUIET,
        )
        for block in ("b", "a")
    }
    table = az.compare(scores)
    assert table.index[0] == "a"
    assert "3-fold cross validation" in str(scores["a"])


def test_as_many_folds_as_objects_leave_out_one_each():
    """Bug: folds were cut to the objects of the largest class, in silence."""
    whole = model("probit")
    assert [len(new) for _, new in folds_of(whole, 30)] == [1] * 30
    largest = np.bincount(whole["labels"].get_value()).max()
    assert len(list(folds_of(whole, 29))) == largest < 29


def test_fits_that_did_not_converge_are_marked():
    whole, few = model("regression", combination="fixed"), {"k": 2, "draws": 20, **QUIET}
    clean = kz.scores.loo_kfold(whole, "vb", **few)
    cut = kz.scores.loo_kfold(whole, kz.VB(max_iterations=1), **few)
    assert (clean.warning, cut.warning) == (False, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 1}, "2 or more"),
        ({"engine": "vbb"}, "'vb'"),
        ({"drows": 3}, "draws"),
        ({"random_seed": -1}, "random_seed"),
    ],
)
def test_bad_arguments_are_refused(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        kz.scores.loo_kfold(model("probit"), **options, **QUIET)


def test_other_models_are_refused():
    for other in (kz.WishartCompletion.example(), kz.MutualKernelCompletion.example()):
        with pytest.raises(ValueError, match="does not apply to this model"):
            kz.scores.loo_kfold(other, **QUIET)


def test_added_terms_are_refused_by_name():
    """Bug: each fold was declared without them, so that their scores were another model's."""
    amended = model("regression", combination="fixed")
    with amended:
        pm.Deterministic("twice", 2 * amended["alpha"])
    assert np.isfinite(kz.scores.loo_kfold(amended, "map", k=2, **QUIET).elpd)
    with amended:
        pm.Potential("zero", -1e8 * (amended["alpha"] ** 2).sum())
    with pytest.raises(ValueError, match="would lack the added terms: 'zero'"):
        kz.scores.loo_kfold(amended, "map", k=2, **QUIET)


def test_scores_go_by_ids_for_arviz_pairs_them_by_position():
    stack, target = data()
    ids = [f"s{i:02d}" for i in range(len(target))]
    stack = stack.assign_coords(obs=ids, basis=ids)
    turned = np.random.default_rng(1).permutation(len(ids))
    one, other = (
        kz.scores.loo_kfold(
            kz.CompositeKernelRegression(
                stack[:, rows][:, :, rows], target[rows], combination="fixed"
            ),
            "map",
            k=3,
            **QUIET,
        )
        for rows in (np.arange(len(ids)), turned)
    )
    assert other.elpd_i["obs"].values.tolist() == ids
    np.testing.assert_allclose(one.elpd_i, other.elpd_i, rtol=1e-3)


def test_models_without_classes_or_targets_are_refused():
    """Bug: a KeyError 'targets'."""

    class OwnModel(Declaration):
        def __init__(self, kernels):
            super().__init__({dim: range(len(kernels)) for dim in ("obs", "basis")})
            with self:
                K = pm.Data("K", kernels, dims=("obs", "basis"))
                pm.Normal("y", K.sum(axis=1) * pm.Normal("w"), observed=np.zeros(len(kernels)))
            self.seal()

    with pytest.raises(ValueError, match="OwnModel has neither classes nor data named 'targets'"):
        kz.scores.loo_kfold(OwnModel(np.eye(6)), **QUIET)


def test_classifiers_whose_parts_cannot_be_declared_are_refused():
    """Bug: a TypeError of the constructor, and an AttributeError."""

    class Kinds(kz.MultinomialProbit):
        def __init__(self, kernels, kinds, classes=None):
            super().__init__(kernels, kinds, classes=classes)

    class OwnModel(Declaration):
        def __init__(self, kernels):
            super().__init__({dim: range(len(kernels)) for dim in ("obs", "basis", "class")})
            with self:
                pm.Normal("w", observed=np.zeros(len(kernels)))
            self.seal()

    stack, signal_ = data()
    with pytest.raises(ValueError, match=r"by arguments that Kinds lacks: 'labels'\."):
        kz.scores.loo_kfold(Kinds(stack, signal_ > 0), **QUIET)
    with pytest.raises(ValueError, match="OwnModel has classes, but no data named 'labels'"):
        kz.scores.loo_kfold(OwnModel(np.eye(6)), **QUIET)


@pytest.mark.parametrize("ids", [[f"s{i}" for i in range(9)], [4, 2, 7, 1, 9, 5, 3, 8, 6], None])
@pytest.mark.parametrize("made", ["by a specification", "by hand"])
@pytest.mark.parametrize("rows", [np.arange(9), np.repeat(np.arange(9), 2), [0, 0, 1, 3, 4, 4, 6]])
def test_columns_of_left_out_objects_go_for_any_rows(rows, made, ids):
    """Bug: where rows were copies of objects, or not all of them, every column stayed."""
    x = np.random.default_rng(1).normal(size=(9, 2))
    stack = kz.linear()(x if ids is None else pd.DataFrame(x, ids))
    if made == "by hand":
        stack = kz.kernels.as_stack(stack.drop_attrs())
    whole = kz.CompositeKernelRegression(stack.isel(obs=rows), x[rows, 0])
    observed, every = set(np.asarray(rows)), set(range(9))
    for train, new in splits(whole, objects_of(whole), 3, 0):
        part, kernels_new = parts(whole, kernels_of(whole), train, new)
        kept = set(np.asarray(part.coords["basis"]) - len(rows))
        assert kernels_new["basis"].values.tolist() == list(part.coords["basis"])
        gone = {rows[row] for row in new}
        # Nothing tells numbers of a part of the objects from numbers of functions.
        if ids is None and made == "by hand" and observed < every:
            gone = set()
        assert kept == every - gone


def test_functions_stay_whatever_their_numbers():
    x = np.random.default_rng(1).normal(size=(9, 4))
    functions = kz.kernels.as_stack(xr.DataArray(x[None], dims=("kernel", "obs", "basis")))
    whole = kz.CompositeKernelRegression(functions, x[:, 0])
    for train, new in splits(whole, objects_of(whole), 3, 0):
        assert len(parts(whole, kernels_of(whole), train, new)[0].coords["basis"]) == 4


def test_one_ctrl_c_ends_all_folds(monkeypatch):
    from kernelzoo.inference import left_out

    number = itertools.count()

    def interrupted(part, engine, **options):
        next(number)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(left_out, "fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kz.scores.loo_kfold(model("probit"), **QUIET)
    assert next(number) == 1


@pytest.mark.parametrize("landmarks", [False, True])
def test_gaussian_processes_are_declared_without_the_objects(landmarks):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(9, 2))
    kernels = kz.gaussian(0.5)
    stack = (kernels.landmarks(9) if landmarks else kernels)(X)
    targets = np.sin(X[:, 0])
    known = {"scale": 2.0, "gamma": 5.0, "combination": "fixed"}
    model = kz.GaussianProcessRegression(stack, targets, **known)
    scores = kz.scores.loo_kfold(model, "inla", k=9, draws=4000, progressbar=False)
    K = 2.0 * kernels(X).to_numpy()[0]
    mean, variance = NormalRegression(K, targets[:, None], np.array([0.2])).left_out()
    expected = norm.logpdf(targets, mean[:, 0], variance[:, 0] ** 0.5)
    assert np.allclose(scores.elpd_i, expected, atol=0.05)
