"""Estimators are the models fitted by hand, and work where scikit-learn's do."""

import copy
import pickle
import sys
import warnings
from types import SimpleNamespace

import arviz as az
import joblib
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import kernelzoo as kz
from kernelzoo.estimators import (
    CompositeKernelRegressor,
    KernelBlocks,
    KernelProbitClassifier,
    predictor,
)
from kernelzoo.estimators.predictor import weights_of
from kernelzoo.inference.engine.convergence import predictions_alone, warn_of_poor_approximation

VB = kz.VB(tolerance=0.1, remaining=1.0)
FEW = {"engine": VB, "draws": 30, "random_state": 5}
#: Nothing is left to the choice by prediction.
PROBIT = FEW | {"upsilon": 1.0, "combination": "mean"}
COMPOSITE = FEW | {"varsigma": 1.0, "combination": "mean"}
#: Known weights are fitted sooner, and being unequal they show blocks that changed places.
UNEQUAL = {"combination": kz.combinations.FixedWeights([0.3, 0.7])}
PREFIXES = {"rna": "g", "protein": "p"}
FIT = {"draws": 30, "random_seed": 5, "progressbar": False}
ESTIMATORS = {
    KernelProbitClassifier: (kz.MultinomialProbit, {"combination": "mean", "tau": 2.0}),
    CompositeKernelRegressor: (kz.CompositeKernelRegression, {"varsigma": 2.0, "rho": 3.0}),
}
KERNELS = kz.gaussian("median").normalize("trace")


def response(estimator, data):
    return data.target if estimator is CompositeKernelRegressor else data.y


def answers(fitted, X):
    """Whatever an estimator predicts, as one array of numbers."""
    if isinstance(fitted, CompositeKernelRegressor):
        return np.column_stack(fitted.predict(X, return_std=True))
    return fitted.predict_proba(X)


@pytest.fixture(scope="module")
def classifier(data):
    """A classifier of known scale that learns its weights."""
    return KernelProbitClassifier(**PROBIT).fit(data.train.X, data.train.y)


@pytest.fixture(scope="module")
def regressor(data):
    """A regressor of known scale that learns its weights."""
    return CompositeKernelRegressor(**COMPOSITE).fit(data.train.X, data.train.target)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_estimator_is_the_model_by_hand(estimator, data):
    declaration, options = ESTIMATORS[estimator]
    train, new = data.train, data.new
    fitted = estimator(**FEW, **options).fit(train.X, response(estimator, train))

    scalers = {block: StandardScaler().fit(train.X[block]) for block in ("rna", "protein")}
    scaled, scaled_new = (
        {
            block: pd.DataFrame(scaler.transform(each.X[block]), index=each.X.index)
            for block, scaler in scalers.items()
        }
        for each in (train, new)
    )
    y, mean, scale = response(estimator, train).to_numpy(), 0.0, 1.0
    if estimator is CompositeKernelRegressor:
        mean, scale = y.mean(), y.std()
        y = (y - mean) / scale
    model = declaration(KERNELS(scaled), y, **options)
    weights = "combination" not in options
    scales = [options["varsigma"]] if "varsigma" in options else predictor.SCALES
    model = kz.select(model, scales=scales, choose_weights=weights, progressbar=False).model
    result = kz.fit(model, VB, **FIT)
    by_hand = kz.predict(model, result, KERNELS(scaled_new, scaled))
    if estimator is CompositeKernelRegressor:
        expected = np.column_stack([mean + scale * by_hand["mean"], scale * by_hand["target_sd"]])
        np.testing.assert_array_equal(fitted.predict(new.X), answers(fitted, new.X)[:, 0])
    else:
        expected = by_hand["probability"].to_numpy()
        assert fitted.predict(new.X).tolist() == by_hand["label"].values.tolist()
        assert fitted.classes_.tolist() == ["case", "control"]
    np.testing.assert_allclose(answers(fitted, new.X), expected, rtol=1e-10)
    if model.learned:
        beta = result["posterior"]["beta"]
        mean, sd = beta.mean(("chain", "draw")), beta.std(("chain", "draw"))
    else:
        mean, sd = [0.5, 0.5], [np.nan, np.nan]
        assert fitted.weights_.attrs["note"].startswith("equal weights, chosen by held-out scores")
    np.testing.assert_allclose(fitted.weights_["mean"], mean, rtol=1e-10)
    np.testing.assert_allclose(fitted.weights_["sd"], sd, rtol=1e-10)
    assert fitted.weights_["kernel"].values.tolist() == ["rna", "protein"]
    assert fitted.weights_["description"].values[0].startswith("gaussian(median=")


def test_scale_of_targets_is_that_of_predictions(data, regressor):
    train, new = data.train, data.new
    mean, sd = regressor.predict(new.X, return_std=True)
    far = clone(regressor).fit(train.X, 50 * train.target - 9)
    far_mean, far_sd = far.predict(new.X, return_std=True)
    np.testing.assert_allclose(far_mean, 50 * mean - 9, rtol=1e-8)
    np.testing.assert_allclose(far_sd, 50 * sd, rtol=1e-8)


@pytest.mark.parametrize("size", [1e-300, 1e200])
def test_targets_whose_squares_are_no_numbers_are_predicted(data, regressor, size):
    """Bug: predictions were off by 298 digits, or infinite."""
    train, new = data.train, data.new
    expected = regressor.predict(new.X)
    found = clone(regressor).fit(train.X, size * train.target).predict(new.X)
    np.testing.assert_allclose(found / size, expected, rtol=1e-8)


def test_weights_that_are_known_or_a_point(data):
    X, y = data.train.X, data.train.y
    fixed = KernelProbitClassifier(**FEW, combination="fixed").fit(X, y).weights_
    assert fixed["mean"].values.tolist() == [0.5, 0.5]
    assert fixed["sd"].isnull().all()
    assert "note" not in fixed.attrs
    one = KernelProbitClassifier(kz.linear(), **FEW).fit(data.train.flat, y).weights_
    assert one["kernel"].values.tolist() == ["linear"]
    assert one["mean"].values.tolist() == [1]


def test_weights_of_a_point_have_no_deviation(classifier):
    draws = classifier.result_["posterior"].to_dataset().isel(chain=[0], draw=[3])
    weights = weights_of(classifier.model_, xr.DataTree.from_dict({"posterior": draws}))
    np.testing.assert_array_equal(weights["mean"], draws["beta"][0, 0])
    assert weights["sd"].isnull().all()


def test_labelled_responses_go_by_id(data, classifier, regressor):
    train = data.train
    mixed = train.y.sample(frac=1, random_state=1)
    again = KernelProbitClassifier(**PROBIT).fit(train.X, mixed)
    np.testing.assert_array_equal(answers(again, data.new.X), answers(classifier, data.new.X))
    assert again.score(train.X, mixed) == again.score(train.X, train.y) > 0.7
    blocks = {"rna": train.rna, "protein": train.protein}
    assert again.score(blocks, mixed) == again.score(train.X, train.y)
    turned = train.target.iloc[::-1]
    assert regressor.score(train.X, turned) == regressor.score(train.X, train.target)
    stack = KernelBlocks().fit_transform(train.X)
    from_stack = KernelProbitClassifier("precomputed", **PROBIT).fit(stack, mixed)
    assert from_stack.score(stack, mixed) == again.score(train.X, train.y)


def test_weights_of_objects_go_with_their_responses(data, classifier, regressor):
    X, y = data.train.X, data.train.y
    right = pd.Series(classifier.predict(X) == y.to_numpy(), y.index)
    weights, turned = right.astype(float) + 0.25 * ~right, y.iloc[::-1]
    expected = classifier.score(X, y.to_numpy(), weights.to_numpy())
    assert classifier.score(X, y) < expected < 1
    for labels in (y, turned):
        for given in (weights, weights.iloc[::-1]):
            assert classifier.score(X, labels, given) == expected
    # Without ids of X, responses go by position, and weights by those of the responses.
    arrays = {block: X[block].to_numpy() for block in ("rna", "protein")}
    assert classifier.score(arrays, y, weights.iloc[::-1]) == expected
    with pytest.raises(ValueError, match=r"'sample_weight' argument.*labelled like y"):
        classifier.score(X, turned, weights.to_numpy())
    assert regressor.score(X, data.train.target, weights.iloc[::-1]) == regressor.score(
        X, data.train.target.iloc[::-1], weights
    )


@pytest.mark.parametrize(
    ("estimator", "fixed"),
    [(KernelProbitClassifier, PROBIT | UNEQUAL), (CompositeKernelRegressor, COMPOSITE | UNEQUAL)],
)
def test_weights_are_powers_of_the_likelihoods(data, estimator, fixed):
    X, y = data.train.X, data.train.y if estimator is KernelProbitClassifier else data.train.target
    # As many copies as objects, as in a bootstrap: the kernels are no Gram matrix for that.
    weights = pd.Series(np.arange(len(y)) % 3, y.index)
    weights.iloc[1] += len(y) - weights.sum()
    assert weights.sum() == len(y)
    weighted = estimator(**fixed).fit(X, y, sample_weight=weights.iloc[::-1])
    plain, model = estimator(**fixed).fit(X, y).model_, weighted.model_
    if estimator is CompositeKernelRegressor:
        # Targets are on the scale of those that count.
        counted = y.repeat(weights)
        plain = plain.redeclared(targets=(y - counted.mean()) / counted.std(ddof=0))
    rng, start = np.random.default_rng(2), plain.initial_point()
    point = {name: rng.normal(size=np.shape(value)) for name, value in start.items()}
    [observed] = plain.observed_RVs
    likelihoods = plain.compile_logp(vars=[observed], sum=False)(point)[0]
    prior = plain.compile_logp(vars=plain.free_RVs)(point)
    assert model.compile_logp()(point) == pytest.approx(prior + weights.to_numpy() @ likelihoods)
    # Without ids of X, responses go by position, and weights by those of the responses.
    arrays = {block: X[block].to_numpy() for block in ("rna", "protein")}
    by_position = estimator(**fixed).fit(arrays, y, weights.iloc[::-1]).model_
    assert by_position.compile_logp()(point) == pytest.approx(model.compile_logp()(point))
    # Of objects that do not count, the response says nothing.
    changed = y.where(weights > 0, y.iloc[0])
    assert (changed != y).any()
    again = estimator(**fixed).fit(X, changed, weights)
    np.testing.assert_array_equal(again.predict(X), weighted.predict(X))
    # Saved results have the order of the fit, whatever that of the objects is now.
    order = np.random.default_rng(0).permutation(len(y))
    for given in (weights, weights.to_numpy()[order]):
        saved = estimator.from_result(
            weighted.result_,
            X.iloc[order],
            y.to_numpy()[order],
            sample_weight=given,
            **weighted.get_params(),
        )
        np.testing.assert_allclose(answers(saved, X), answers(weighted, X), rtol=1e-9)


@pytest.mark.parametrize(
    ("weights", "error"),
    [
        ([0.5, 1], "whole numbers, the powers.* Got 0.5 for 'id0'"),
        ([1, -1], "whole numbers.* Got -1 for 'id1'"),
        ([1, np.nan], "whole numbers.* Got nan for 'id1'"),
        ([1, np.inf], "whole numbers.* Got inf for 'id1'"),
        ([0, 0], "not all zero. Got 0 for 'id0'"),
        ([1, 1, 1], r"'sample_weight' .* one for each of the 2 objects. Got shape \(3,\)"),
        (np.ones((2, 2)), r"'sample_weight' .* Got shape \(2, 2\)"),
        (2, r"'sample_weight' .* Got shape \(\)"),
        ([1, 1e9], r"'sample_weight' .* that memory holds. Got a sum of 1e\+09 for 2 objects"),
        ([1, 1e30], r"'sample_weight' .* that memory holds"),
        ([2, 0], "'sample_weight' .* above 0 for objects of at least two classes. Got only 'a'"),
        (pd.Series([1, 1], ["id0", "id7"]), "the unknown 'id7'"),
    ],
)
def test_weights_that_are_no_powers_are_refused(weights, error):
    X = pd.DataFrame([[0.0], [1.0]], ["id0", "id1"])
    with pytest.raises(ValueError, match=error):
        KernelProbitClassifier(**PROBIT).fit(X, ["a", "b"], sample_weight=weights)


def test_weights_are_refused_where_kernels_have_parameters(data):
    kernels = kz.gaussian(kz.kernels.Theta(1, 1))
    with pytest.raises(ValueError, match="without parameters to learn"):
        KernelProbitClassifier(kernels, **PROBIT).fit(
            data.train.rna, data.train.y, sample_weight=np.ones(len(data.train.y))
        )


def test_rows_go_by_the_first_table_used_or_not(data):
    train, new = data.train, data.new
    beside = {"protein": train.protein.sample(frac=1, random_state=1), "rna": train.rna}
    few = PROBIT | {"kernels": {"rna": kz.gaussian("median")}}
    y = train.y.loc[beside["protein"].index]
    fitted = KernelProbitClassifier(**few).fit({"rna": train.rna.loc[y.index]}, train.y)
    turned = {"protein": new.protein.iloc[::-1], "rna": new.rna}
    expected = answers(fitted, {"rna": new.rna})[::-1]
    assert np.abs(expected - expected[::-1]).max() > 0.1
    both = KernelProbitClassifier(**few).fit(beside, train.y)
    np.testing.assert_allclose(answers(both, turned), expected, rtol=1e-7)
    # An array of labels goes with the first table.
    by_position = KernelProbitClassifier(**few).fit(beside, y.to_numpy())
    np.testing.assert_array_equal(answers(by_position, turned), answers(both, turned))
    assert both.score(beside, train.y) == both.score(beside, y.to_numpy()) > 0.7
    beside["rna"] = beside["rna"].loc[y.index].to_numpy()
    arrays = KernelProbitClassifier(**few).fit(beside, train.y)
    np.testing.assert_allclose(answers(arrays, turned), expected, rtol=1e-7)


def test_first_tables_of_other_objects_are_refused(data):
    fitted = KernelProbitClassifier({"rna": kz.linear()}, **PROBIT).fit(data.train.X, data.train.y)
    for rna in (data.new.rna, data.new.rna.to_numpy()):
        with pytest.raises(ValueError, match="same objects"):
            fitted.predict({"protein": data.new.protein[1:], "rna": rna})


def test_permuted_new_objects_have_permuted_answers(data, classifier):
    turned = data.new.X.iloc[::-1]
    expected = answers(classifier, data.new.X)[::-1]
    np.testing.assert_allclose(answers(classifier, turned), expected, rtol=1e-10)


def test_repeated_measurements_are_predicted(data, classifier):
    """Other features of the training objects, under their ids, are new objects."""
    again = data.train.X * 1.3
    expected = answers(classifier, again.set_axis([f"again {i}" for i in again.index]))
    np.testing.assert_array_equal(answers(classifier, again), expected)


def test_bootstrap_samples_are_fitted_by_position(data):
    rows = [0, 3, 3, *range(1, len(data.train.y)), 0]
    X, y = data.train.X.iloc[rows], data.train.y.iloc[rows]
    probit = KernelProbitClassifier(**PROBIT)
    expected = clone(probit).fit(X.reset_index(drop=True), y.to_numpy()).predict_proba(data.new.X)
    found = probit.fit(X, y).predict_proba(data.new.X)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    twice = data.new.X.iloc[[1, 0, 1]]
    np.testing.assert_allclose(
        probit.predict_proba(twice), probit.predict_proba(data.new.X)[[1, 0, 1]], rtol=1e-10
    )
    bagging = BaggingClassifier(clone(probit), n_estimators=2, random_state=1)
    assert bagging.fit(data.train.X, data.train.y).predict(data.new.X).shape == (len(data.new.y),)


def test_kernels_of_new_objects_go_by_their_ids(data, classifier):
    """Truths in another order than the features are scored as truths in their order."""
    shuffled = data.new.y.sample(frac=1, random_state=1)
    assert (shuffled.to_numpy() != data.new.y.to_numpy()).any()
    predictions = kz.predict(
        classifier.model_, classifier.result_, classifier.kernel_stack(data.new.X)
    )
    assert kz.scores.held_out(predictions, shuffled) == kz.scores.held_out(predictions, data.new.y)


def test_permuted_training_objects_give_the_same_answer(data):
    settings = {"random_state": 5, "draws": 2000, "upsilon": 1.0, "combination": "mean"}
    one = KernelProbitClassifier(**settings).fit(data.train.X, data.train.y)
    mixed = data.train.X.sample(frac=1, random_state=2)
    other = KernelProbitClassifier(**settings).fit(mixed, data.train.y)
    p = [
        kz.predict(each.model_, each.result_, each.kernel_stack(data.new.X))
        for each in (one, other)
    ]
    error = np.hypot(*(each["probability_sd"] for each in p)) / np.sqrt(2000)
    difference = p[0]["probability"] - p[1]["probability"]
    assert (np.abs(difference) < 5 * error + 1e-3).all()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_order_of_rows_without_ids_changes_no_choice(estimator, data):
    """Bug: probabilities moved by a third, since rows in the same places were left out."""
    X, y = data.flat.to_numpy(), response(estimator, data).to_numpy()
    order = np.random.default_rng(2).permutation(len(y))
    few = {"draws": 20, "random_state": 1, "combination": "fixed"}
    one = estimator(**few).fit(X, y).selection_
    other = estimator(**few).fit(X[order], y[order]).selection_
    assert one["features"].values.tolist() == ["gaussian", "inverse_multiquadric"]
    assert one.attrs == other.attrs
    np.testing.assert_allclose(one[..., order], other, rtol=1e-6)


@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_predictions_from_landmarks_are_the_same_in_any_order_of_rows(estimator, ids, data):
    """Bug: landmarks were drawn by position; now by content, in blocks alike."""
    y = response(estimator, data.train).to_numpy()
    kernels = kz.gaussian("median").landmarks(9)
    parameters = FEW | UNEQUAL | {"kernels": kernels}
    parameters |= {"upsilon" if estimator is KernelProbitClassifier else "varsigma": 10.0}
    rows = np.arange(len(y))
    found = []
    for order in rows, rows[::-1], np.random.default_rng(2).permutation(rows):
        tables = [{name: each.X[name] for name in PREFIXES} for each in (data.train, data.new)]
        if not ids:
            tables = [{name: X.to_numpy() for name, X in each.items()} for each in tables]
        X, new = tables
        X = {name: X.iloc[order] if ids else X[order] for name, X in X.items()}
        found.append(answers(estimator(**parameters).fit(X, y[order]), new))
    for each in found[1:]:
        np.testing.assert_allclose(each, found[0], rtol=1e-6)


def test_an_object_left_out_does_not_leak(data):
    """Scales, widths and traces of a fold are those of its training objects."""
    folds = KFold(2)
    X = data.X
    fixed = COMPOSITE | {"combination": "fixed"}
    estimator = CompositeKernelRegressor(kz.gaussian("median") | kz.linear(), **fixed)
    mean = cross_val_predict(estimator, X, data.target, cv=folds)
    X.iloc[4] *= 1e3
    changed = cross_val_predict(estimator, X, data.target, cv=folds)
    # Object 4 is in the first fold, whose model has not seen it.
    (_, first), (_, second) = folds.split(X)
    first = np.setdiff1d(first, 4)
    np.testing.assert_allclose(changed[first], mean[first], rtol=1e-10)
    assert np.abs(changed[second] - mean[second]).max() > 1e-3


def test_cross_validation_takes_rows_and_columns_of_precomputed_kernels(data):
    X = {block: data.X[block].to_numpy() for block in ("rna", "protein")}
    grams = np.stack([x @ x.T for x in X.values()], axis=-1)
    flat, y = data.flat.to_numpy(), data.target.to_numpy()
    options = {"blocks": {"rna": slice(3), "protein": slice(3, None)}, "standardize": False}
    features = CompositeKernelRegressor(kz.linear(), **options, **COMPOSITE | UNEQUAL)
    given = CompositeKernelRegressor("precomputed", **COMPOSITE | UNEQUAL)
    expected = cross_val_predict(features, flat, y, cv=2)
    np.testing.assert_allclose(cross_val_predict(given, grams, y, cv=2), expected, rtol=1e-6)
    given.set_params(combination="fixed")
    assert np.isfinite(cross_val_score(given, grams[..., 0], y, cv=2)).all()


def test_pipeline_of_kernels_and_estimator_is_the_estimator(data, classifier):
    steps = make_pipeline(KernelBlocks(), KernelProbitClassifier("precomputed", **PROBIT))
    fitted = steps.fit(data.train.X, data.train.y)
    np.testing.assert_allclose(
        fitted.predict_proba(data.new.X), answers(classifier, data.new.X), rtol=1e-8
    )
    assert fitted[-1].weights_["kernel"].values.tolist() == ["rna", "protein"]


def test_pipelines_pass_frames_on(data, classifier):
    """After set_output, steps of scikit-learn return frames with ids and names."""
    train, new = data.train, data.new
    scaled = make_pipeline(StandardScaler(), KernelProbitClassifier(blocks=PREFIXES, **PROBIT))
    scaled.set_output(transform="pandas").fit(train.flat, train.y.iloc[::-1])
    expected = answers(classifier, new.X)
    np.testing.assert_allclose(scaled.predict_proba(new.flat), expected, rtol=1e-8)


def test_search_over_kernels_combinations_and_engines(data):
    grid = [
        {"kernels": [kz.linear(), {"rna": kz.gaussian("median")}]},
        {
            "combination": [kz.combinations.FixedWeights()],
            "engine": [kz.VB(tolerance=0.2, remaining=1.0)],
        },
    ]
    search = GridSearchCV(KernelProbitClassifier(**PROBIT), grid, cv=2, error_score="raise")
    search.fit(data.X, data.y)
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert search.best_params_ == search.cv_results_["params"][scores.argmax()]
    assert search.predict(data.X).shape == data.y.shape


def test_clones_have_equal_parameters():
    kernels = {"rna": kz.gaussian("median") | kz.linear().normalize("unit")}
    estimator = KernelProbitClassifier(
        kernels, combination=kz.combinations.Mean(2, 3), engine=kz.Gibbs()
    )
    assert clone(estimator).get_params() == estimator.get_params()
    assert repr(clone(estimator)) == repr(estimator)
    assert "linear().normalize('unit')" in repr(estimator)
    changed = clone(estimator).set_params(kernels=kz.linear())
    assert changed.get_params() != estimator.get_params()


def test_calibration(data):
    classifier = KernelProbitClassifier(**PROBIT)
    calibrated = CalibratedClassifierCV(classifier, cv=2).fit(data.X, data.y)
    probabilities = calibrated.predict_proba(data.X)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert (calibrated.predict(data.X) == data.y).mean() > 0.7


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_pickled_and_saved_estimators_predict_the_same(
    estimator, data, classifier, regressor, tmp_path
):
    train, y = data.train, response(estimator, data.train)
    known = regressor if estimator is CompositeKernelRegressor else classifier
    # Others use it, and parameters change here.
    fitted = copy.copy(known)
    expected = answers(fitted, data.new.X)
    # Parameters set after the fit are those of the next fit.
    fitted.set_params(**dict.fromkeys(ESTIMATORS[estimator][1], 3))
    pickled = pickle.loads(pickle.dumps(fitted))
    assert pickled.get_params() == fitted.get_params()
    np.testing.assert_array_equal(answers(pickled, data.new.X), expected)
    fitted.set_params(**known.get_params())
    fitted.result_.to_netcdf(tmp_path / "result.nc")
    saved = az.from_netcdf(tmp_path / "result.nc")
    again = estimator.from_result(saved, train.X, y, **fitted.get_params())
    np.testing.assert_array_equal(answers(again, data.new.X), expected)
    assert again.weights_.identical(fitted.weights_)
    # The tables were written anew, with other rows first; the responses with ids, or beside X.
    mixed = train.X.sample(frac=1, random_state=1)
    tables = {"rna": mixed["rna"], "protein": mixed["protein"].iloc[::-1]}
    order = train.X.index.get_indexer(mixed.index)
    for X, values in ((mixed, y), (tables, y), (mixed, np.asarray(y)[order])):
        again = estimator.from_result(saved, X, values, **fitted.get_params())
        np.testing.assert_allclose(answers(again, data.new.X), expected, atol=1e-9)


def test_saved_results_under_other_parameters_are_refused_with_the_remedy(data, classifier):
    given = classifier.get_params() | {"tau": 2.5}
    with pytest.raises(ValueError, match=r"parameters must be those of the estimator that was fit"):
        type(classifier).from_result(classifier.result_, data.train.X, data.train.y, **given)


@pytest.mark.parametrize(
    ("name", "text"), [("features", None), ("scale", "many"), ("scale", -1.0), ("weights", "{")]
)
def test_damaged_attributes_of_a_saved_choice_are_named(data, classifier, name, text):
    """Bug: KeyError or the error of a model about its argument."""
    result = classifier.result_.copy()
    saved = {"features": "gaussian", "scale": 1.0, "weights": "mean"} | {name: text}
    attributes = {key: value for key, value in saved.items() if value is not None}
    result["selection"] = xr.DataTree(xr.Dataset(attrs=attributes))
    with pytest.raises(ValueError, match=f"attribute {name!r} of the result is damaged"):
        KernelProbitClassifier.from_result(
            result, data.train.X, data.train.y, **classifier.get_params()
        )


def test_saved_results_under_swapped_names_of_blocks_are_refused(data):
    X, y = data.train.X.to_numpy(), data.train.y.to_numpy()
    first, second = slice(0, 2), slice(2, X.shape[1])
    fitted = KernelProbitClassifier(blocks={"a": first, "b": second}, **PROBIT).fit(X, y)
    given = fitted.get_params() | {"blocks": {"b": first, "a": second}}
    with pytest.raises(ValueError, match=r"labels of kernel, in their order. .*'a' instead of 'b'"):
        KernelProbitClassifier.from_result(fitted.result_, X, y, **given)


def test_estimators_that_are_not_fitted_are_saved():
    estimator = KernelProbitClassifier(**FEW)
    loaded = pickle.loads(pickle.dumps(estimator))
    assert loaded.get_params() == estimator.get_params()
    assert not hasattr(loaded, "result_")


def test_further_arguments_reach_fit(data, classifier):
    X, y = data.train.X, data.train.y
    fitted = clone(classifier).set_params(fit_options={"log_likelihood": False}).fit(X, y)
    assert "log_likelihood" in classifier.result_.children
    assert "log_likelihood" not in fitted.result_.children
    np.testing.assert_array_equal(answers(fitted, X), answers(classifier, X))


def test_files_hold_the_features_once(tmp_path):
    """Bug: joblib, which does not notice that arrays are the same, wrote them for each kernel."""
    rng = np.random.default_rng(0)
    X, kernels = rng.normal(size=(30, 2_000)), kz.gaussian("median") | kz.linear()
    fitted = KernelProbitClassifier(kernels, **PROBIT).fit(X, rng.integers(0, 2, 30))
    p = fitted.predict_proba(X[:2])
    joblib.dump(fitted, tmp_path / "fitted.joblib")
    assert (tmp_path / "fitted.joblib").stat().st_size < 1.5 * X.nbytes + 200_000
    np.testing.assert_array_equal(joblib.load(tmp_path / "fitted.joblib").predict_proba(X[:2]), p)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_second": 3}, "max_second.*Did you mean 'max_seconds'"),
        ({"draws": 3}, "'fit_options' argument of KernelProbitClassifier .* own parameters"),
        ({"random_seed": 3}, "'fit_options' argument .* without .* seed"),
        ("tune=3", "'fit_options' argument of KernelProbitClassifier must be a dict"),
    ],
)
def test_unfit_further_arguments_are_refused(options, message, data):
    with pytest.raises((ValueError, TypeError), match=message):
        KernelProbitClassifier(**PROBIT, fit_options=options).fit(data.train.X, data.train.y)


def test_results_of_something_else_are_refused(data, classifier):
    train, result = data.train, classifier.result_
    for X, y, parameters in (
        (train.X, train.y, {"kernels": kz.linear()}),
        (train.X, train.y, {"standardize": False}),
        (train.X, train.y, {"tau": 2.0}),
        (train.X.iloc[::-1].to_numpy(), train.y.to_numpy(), {}),
        (train.X, train.y.replace({"case": "x", "control": "a"}), {}),
    ):
        with pytest.raises(ValueError, match="'result' argument of KernelProbitClassifier"):
            KernelProbitClassifier.from_result(result, X, y, **PROBIT | parameters)
    refused = "of CompositeKernelRegressor.from_result must be a result of fit on a CompositeKernel"
    with pytest.raises(ValueError, match=refused):
        CompositeKernelRegressor.from_result(result, train.X, train.target)


def test_seeds(data, classifier):
    drawn, few = np.random.RandomState(1), {"engine": VB, "draws": 2, "random_state": None}
    estimator = clone(classifier).set_params(**few | {"random_state": drawn})
    fits = [estimator.fit(data.train.X, data.train.y).result_.attrs["random_seed"] for _ in "ab"]
    assert fits[0] != fits[1]
    assert fits[0] == np.random.RandomState(1).randint(2**31 - 1)
    assert classifier.result_.attrs["random_seed"] == 5
    other = clone(classifier).set_params(random_state=6).fit(data.train.X, data.train.y)
    assert np.abs(answers(other, data.new.X) - answers(classifier, data.new.X)).max() > 0


def test_weights_that_cannot_be_read_say_so(data):
    X, y = data.train.X, data.train.y
    with warnings.catch_warnings():
        warnings.simplefilter("error", kz.ApproximationWarning)
        few = {"draws": 200, "upsilon": 1.0, "random_state": 1}
        vb = KernelProbitClassifier(**few, combination="mean").fit(X, y)
        known = KernelProbitClassifier(**few, combination="fixed").fit(X, y)
        assert vb.result_.attrs["pareto_k"] > 0.7 < known.result_.attrs["pareto_k"]
        assert "unreliable" not in known.weights_.attrs
    with pytest.warns(kz.ApproximationWarning, match="VB is .* Fit with engine='gibbs' to read"):
        weights = vb.weights_
    large = clone(vb).set_params(upsilon=100.0).fit(X, y)
    with pytest.warns(kz.ApproximationWarning, match="'gibbs', perhaps also with a smaller"):
        large.weights_  # noqa: B018
    # The scale is upsilon / tau.
    same = clone(large).set_params(tau=100.0).fit(X, y)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        same.weights_  # noqa: B018
    assert not any("smaller upsilon" in str(each.message) for each in seen)
    assert "k-hat of VB" in weights.attrs["unreliable"]
    short = {"engine": "gibbs", "draws": 4, "tune": 0, "chains": 2}
    gibbs = clone(vb).set_params(**short).fit(X, y)
    with pytest.warns(kz.ApproximationWarning, match=r"because R-hat is .* at beta\[.*more draws"):
        gibbs.weights_  # noqa: B018


def test_weights_are_judged_by_their_own_chains():
    """Bug: one contrast of many with a large R-hat made weights unreliable that had converged."""
    beta = np.random.default_rng(1).dirichlet([1, 1], (2, 300))
    for shift, state in ((0.0, "yes"), (0.5, "no")):
        draws = xr.DataArray(beta, dims=("chain", "draw", "kernel")) + shift * np.eye(2)[:, None]
        result = xr.DataTree.from_dict({"posterior": draws.to_dataset(name="beta")})
        result.attrs |= {"kind": "mcmc", "engine": "Gibbs", "converged": "no"}
        weights = weights_of(SimpleNamespace(learned=True), result)
        assert weights.attrs["converged"] == state
        assert weights.attrs.get("unreliable", "").startswith("R-hat" if state == "no" else "")
    assert "at beta[" in weights.attrs["unreliable"]


def test_ids_are_in_the_result(classifier, data):
    assert classifier.result_["observed_data"]["obs"].values.tolist() == list(data.train.y.index)


def test_kernels_with_parameters_are_learned(data):
    few = {"engine": "gibbs", "draws": 20, "tune": 20, "chains": 1, "random_state": 1}
    fitted = KernelProbitClassifier(kz.gaussian(kz.kernels.Theta()), **few)
    fitted.fit(data.train.X, data.train.y)
    assert fitted.result_["posterior"]["theta"].sizes["parameter"] == 2
    np.testing.assert_allclose(answers(fitted, data.new.X).sum(1), 1)


LABELS = {
    "one class": (lambda y: ["a"] * len(y), "at least two classes.*only 'a'"),
    "missing": (lambda y: y.where(y.index != "P2"), "a response for every object.*'P2'"),
    "None": (lambda y: [None, *y[1:]], "a response for every object.*none for 0"),
    "NA": (lambda y: pd.array([pd.NA, *y[1:]], dtype="string"), "a response for every object"),
    "masked": (lambda y: np.ma.masked_equal(np.arange(len(y)) % 2, 0), "masked"),
    "continuous": (lambda y: np.linspace(0.5, 2, len(y)), "Unknown label type: continuous"),
    "two columns": (lambda y: np.column_stack([y, y]), "1d array"),
    "too few": (lambda y: y.to_numpy()[1:], "inconsistent numbers of samples"),
    "other ids": (lambda y: y.rename({"P3": "Q3"}), "unknown 'Q3'; none for 'P3'"),
    "fewer ids": (lambda y: y.drop("P3"), "none for 'P3'"),
    "more ids": (lambda y: pd.concat([y, y.iloc[:1].rename({y.index[0]: "Q"})]), "unknown 'Q'"),
    "numbers among strings": (lambda y: [1, *map(str, y[1:])], "labels of one type.*int and str"),
}


@pytest.mark.parametrize("case", LABELS)
def test_unfit_labels_are_refused(case, data):
    given, message = LABELS[case]
    with pytest.raises(ValueError, match=message):
        KernelProbitClassifier(**PROBIT).fit(data.train.X, given(data.train.y))


@pytest.mark.parametrize("labels", ["category", "string", "bool"])
def test_labels_of_any_type_are_predicted_as_given(labels, data):
    y = data.train.y == "case" if labels == "bool" else data.train.y.astype(labels)
    if labels == "category":
        y = y.cat.add_categories("unused")
    fitted = KernelProbitClassifier(**PROBIT | UNEQUAL).fit(data.train.X, y)
    assert fitted.classes_.tolist() == sorted(set(y))
    assert set(fitted.predict(data.new.X).tolist()) <= set(y)


@pytest.mark.parametrize("estimator", [*ESTIMATORS, KernelBlocks])
def test_every_parameter_is_documented(estimator):
    text = estimator.__doc__
    for name in estimator().get_params():
        assert f"{name}" in text.partition("Attributes\n")[0]


def test_ordered_categories_keep_their_order_in_the_model(data):
    """scikit-learn's classes are sorted, and so are the columns of probabilities."""
    X, names = data.train.X, ["low", "mid", "high"]
    y = pd.Series(np.digitize(data.train.target, [-0.5, 0.5]), data.train.y.index)
    ranked = y.map(dict(enumerate(names))).astype(pd.CategoricalDtype([*names, "top"], True))
    fitted = KernelProbitClassifier(**PROBIT | UNEQUAL).fit(X, ranked.iloc[::-1])
    assert list(fitted.model_.coords["class"]) == names
    assert list(kz.MultinomialProbit(kz.linear()(X["rna"]), ranked).coords["class"]) == names
    assert fitted.classes_.tolist() == sorted(names)
    # The codes have the order of the categories.
    expected = KernelProbitClassifier(**PROBIT | UNEQUAL).fit(X, y).predict_proba(data.new.X)
    np.testing.assert_array_equal(fitted.predict_proba(data.new.X), expected[:, [2, 0, 1]])
    labels = np.array(names)[expected.argmax(axis=1)]
    assert fitted.predict(data.new.X).tolist() == labels.tolist()
    again = KernelProbitClassifier.from_result(
        fitted.result_, X, ranked, **fitted.get_params()
    ).predict_proba(data.new.X)
    np.testing.assert_allclose(again, fitted.predict_proba(data.new.X), rtol=1e-10)


def test_a_class_whose_objects_have_no_weight_stays(data):
    """Bug: it was dropped from `classes_` without a word."""
    X = data.train.X
    y = pd.Series(np.digitize(data.train.target, [-0.5, 0.5]), data.train.y.index)
    fitted = KernelProbitClassifier(**PROBIT | UNEQUAL)
    fitted.fit(X, y, sample_weight=(y != 1).astype(int))
    assert fitted.classes_.tolist() == list(fitted.model_.coords["class"]) == [0, 1, 2]
    p = fitted.predict_proba(data.new.X)
    assert p.shape == (len(data.new.y), 3)
    assert p[:, 1].mean() < 1 / 3


def test_a_scale_at_the_end_of_those_tried_is_noted(data, monkeypatch):
    monkeypatch.setattr(predictor, "SCALES", (1.0, 10.0))
    X, y = data.train.X, data.train.y
    few = FEW | {"kernels": kz.linear(), "combination": "fixed"}
    chosen = KernelProbitClassifier(**few).fit(X, y).selection_
    note = f"upsilon={chosen.attrs['scale']:g} is at the end of the scales that were tried"
    assert chosen.attrs["note"] == note
    monkeypatch.setattr(predictor, "SCALES", (1e-6, chosen.attrs["scale"], 1e9))
    between = KernelProbitClassifier(**few).fit(X, y).selection_
    assert "note" not in between.attrs


@pytest.mark.filterwarnings("error::kernelzoo.ApproximationWarning")
def test_nothing_warns_because_it_was_displayed(data):
    """Bug: scikit-learn's table of attributes reads `weights_`, which warned twice."""
    fitted = KernelProbitClassifier(**PROBIT | {"draws": 200}).fit(data.train.X, data.train.y)
    assert fitted.result_.attrs["pareto_k"] > 0.7
    assert "weights_" in fitted._repr_mimebundle_()["text/html"]
    assert "weights_" in make_pipeline(fitted)._repr_mimebundle_()["text/html"]
    with pytest.raises(kz.ApproximationWarning, match="weights are unreliable"):
        fitted.weights_  # noqa: B018


def test_class_weight_is_refused_with_what_to_write():
    with pytest.raises(TypeError, match=r"no 'class_weight'.*sample_weight"):
        KernelProbitClassifier(class_weight="balanced")


def test_weights_of_the_wrong_shape_are_named_in_scores_too(data, classifier):
    for weights in (np.ones(3), np.ones((len(data.train.y), 2))):
        with pytest.raises(ValueError, match=r"'sample_weight' .* one for each of the"):
            classifier.score(data.train.X, data.train.y, weights)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("given", [lambda K: K.to_numpy(), lambda K: K, lambda K: {"a": K.values}])
def test_kernels_among_new_objects_say_what_is_expected(given, data):
    K = data.rna @ data.rna.T
    fitted = KernelProbitClassifier("precomputed", **PROBIT)
    fitted.fit(given(K.iloc[:22, :22]), data.train.y.to_numpy())
    with pytest.raises(ValueError, match=r"[nN]ew objects.*training objects"):
        fitted.predict(given(K.iloc[22:, 22:]))


@pytest.mark.slow
def test_parallel_cross_validation_is_the_same(data):
    options = {"cv": 3, "method": "predict_proba"}
    estimator = KernelProbitClassifier(**PROBIT)
    one, two = (cross_val_predict(estimator, data.X, data.y, n_jobs=n, **options) for n in (1, 2))
    np.testing.assert_allclose(one, two, rtol=1e-10)


def several(data):
    """Two targets of other scales; the second is known to both blocks."""
    second = 40 + 10 * data.protein["p2"] + data.rna["g2"]
    return pd.DataFrame({"rate": data.target, "mass": second}, data.target.index)


def test_several_targets_are_predicted_on_their_scales(data):
    train, new = data.train, data.new
    regressor = CompositeKernelRegressor(**COMPOSITE).fit(train.X, several(train))
    mean, sd = regressor.predict(new.X, return_std=True)
    assert mean.shape == sd.shape == (len(new.y), 2)
    assert list(regressor.model_.coords["output"]) == ["rate", "mass"]
    values = several(train).to_numpy()
    scaled = (values - values.mean(0)) / values.std(0)
    np.testing.assert_allclose(regressor.model_.target_values, scaled)
    by_hand = kz.predict(regressor.model_, regressor.result_, regressor.kernel_stack(new.X))
    np.testing.assert_allclose(mean, by_hand["mean"] * values.std(0) + values.mean(0))
    np.testing.assert_allclose(sd, by_hand["target_sd"] * values.std(0))
    expected = r2_score(several(new), mean)
    assert regressor.score(new.X, several(new)) == expected
    assert regressor.score(new.X, several(new)[["mass", "rate"]].iloc[::-1]) == expected
    assert regressor.score(new.X, several(new).to_numpy()) == expected
    with pytest.raises(ValueError, match="the unknown 'weight'"):
        regressor.score(new.X, several(new).rename(columns={"mass": "weight"}))


def test_tables_of_targets_go_by_id(data):
    train, table = data.train, several(data.train)
    known = COMPOSITE | UNEQUAL
    expected = CompositeKernelRegressor(**known).fit(train.X, table)
    turned = CompositeKernelRegressor(**known).fit(train.X, table.iloc[::-1])
    array = CompositeKernelRegressor(**known).fit(train.X, table.to_numpy())
    for other in (turned, array):
        np.testing.assert_array_equal(other.predict(train.X), expected.predict(train.X))


def test_a_column_of_targets_stays_a_column(data, regressor):
    train, flat = data.train, regressor
    column = clone(regressor).fit(train.X, train.target.to_numpy()[:, None])
    assert column.predict(train.X).shape == (len(train.y), 1)
    np.testing.assert_allclose(column.predict(train.X)[:, 0], flat.predict(train.X), rtol=1e-6)


def test_missing_targets_of_a_table_are_named(data):
    table = several(data.train)
    table.iloc[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"a response for every object\. Got none for 'P3'"):
        CompositeKernelRegressor(**COMPOSITE).fit(data.train.X, table)


@pytest.mark.parametrize("kernels", ["precomputed", kz.kernels.precomputed()])
def test_rows_without_similarities_are_named_with_who_completes_them(kernels):
    """scikit-learn would offer other classifiers."""
    K = np.eye(9) + 0.5
    K[3] = K[:, 3] = np.nan
    with pytest.raises(ValueError, match=r"rows without similarities: 3 .*KernelCompleter"):
        kz.estimators.KernelProbitClassifier(kernels).fit(K, np.arange(9) % 3)


def with_outliers(heavy):
    """Features of which only the order says something, or their logarithms, and classes."""
    rng = np.random.default_rng(5)
    y = rng.integers(2, size=60)
    logs = 2.5 * (rng.normal(size=(60, 4)) + 1.2 * y[:, None])
    return np.exp(logs) if heavy else logs, y


@pytest.mark.parametrize("heavy", [True, False])
def test_ranks_replace_heavy_tailed_features_if_they_predict_better(heavy):
    X, y = with_outliers(heavy)
    few = {"kernels": kz.gaussian("median"), **FEW}
    fitted = KernelProbitClassifier(**few).fit(X, y)
    if not heavy:
        assert fitted.selection_.dims == ("weights", "scale", "obs")
        return
    scores = fitted.selection_.mean("obs").max(("weights", "scale"))
    assert scores["features"].values.tolist() == ["given", "given, rank"]
    assert scores[1] > scores[0]
    assert fitted.standardize_ == "rank"
    ranked = KernelProbitClassifier(**few, standardize="rank").fit(X, y)
    np.testing.assert_array_equal(fitted.predict_proba(X + 1), ranked.predict_proba(X + 1))


@pytest.mark.parametrize(("heavy", "tried"), [(2, False), (3, True)])
def test_ranks_are_tried_where_most_features_have_heavy_tails(heavy, tried):
    """Of five features the median decides, not the heaviest."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(40, 5))
    X[:, :heavy] **= 40
    few = FEW | {"kernels": kz.gaussian("median"), "combination": "fixed"}
    scores = KernelProbitClassifier(**few).fit(X, X[:, 4] > 0.5).selection_
    assert ("features" in scores.dims) == tried


def test_ranks_are_tried_with_the_kernels_that_predict_better(monkeypatch):
    """Gaussian, inverse multiquadric, and ranks of the second: each is better than the last."""
    selected, better = predictor.selected, iter((-3.0, -2.0, -1.0))

    def scored(*arguments, **options):
        settings, log_scores = selected(*arguments, **options)
        return settings, 0 * log_scores + next(better)

    monkeypatch.setattr(predictor, "selected", scored)
    X, y = with_outliers(True)
    fitted = KernelProbitClassifier(**FEW, combination="fixed").fit(X, y)
    assert fitted.selection_.attrs["features"] == "inverse_multiquadric, rank"
    assert fitted.standardize_ == "rank"
    assert fitted.kernel_names_[0].startswith("inverse_multiquadric")


def test_ranks_that_predict_worse_are_not_used():
    """A straight boundary is none between ranks."""
    rng = np.random.default_rng(0)
    X = rng.standard_t(2, size=(60, 2))
    y = (X[:, 0] - 3 * X[:, 1] + 0.2 * rng.normal(size=60) > 0).astype(int)
    few = {"kernels": kz.linear(), "combination": "fixed", **FEW}
    fitted = KernelProbitClassifier(**few).fit(X, y)
    scores = fitted.selection_.mean("obs").max(("weights", "scale"))
    assert scores["features"].values.tolist() == ["given", "given, rank"]
    assert scores[1] < scores[0]
    assert fitted.standardize_ == "scale"
    scaled = KernelProbitClassifier(**few, standardize="scale").fit(X, y)
    np.testing.assert_array_equal(fitted.predict_proba(X + 1), scaled.predict_proba(X + 1))


def test_results_without_a_saved_choice_make_it_again(data):
    """Results of earlier versions have no group "selection"."""
    X, y = data.train.X, data.train.y
    fitted = KernelProbitClassifier(**FEW, combination="fixed").fit(X, y)
    old = fitted.result_.filter(lambda group: group.name != "selection")
    assert "selection" in fitted.result_.children
    assert "selection" not in old.children
    again = KernelProbitClassifier.from_result(old, X, y, **fitted.get_params())
    assert again.model_.upsilon == fitted.model_.upsilon
    np.testing.assert_array_equal(answers(again, data.new.X), answers(fitted, data.new.X))


@pytest.mark.parametrize("winner", ["gaussian", "inverse_multiquadric"])
def test_default_kernels_are_those_that_predict_better(winner):
    """A straight boundary with noise, and a small ring among objects with long tails."""
    if winner == "gaussian":
        rng = np.random.default_rng(2)
        X = rng.normal(size=(90, 2))
        y = (X.sum(axis=1) + 0.8 * rng.normal(size=90) > 0).astype(int)
    else:
        X = np.random.default_rng(1).standard_t(1.5, size=(90, 2))
        y = (np.hypot(*X.T) < 0.7).astype(int)
    few = FEW | {"standardize": "scale"}
    fitted = KernelProbitClassifier(**few).fit(X, y)
    scores = fitted.selection_.mean("obs").max(("weights", "scale"))
    assert scores["features"].values.tolist()[:2] == ["gaussian", "inverse_multiquadric"]
    assert scores["features"].values[int(scores[:2].argmax("features"))] == winner
    kernels = getattr(kz.kernels, winner)("median")
    given = KernelProbitClassifier(kernels, **few).fit(X, y)
    assert given.selection_.dims == ("weights", "scale", "obs")
    found, alone = fitted.selection_.sel(features=winner, drop=True), given.selection_
    if winner == "gaussian":
        xr.testing.assert_equal(found.drop_attrs(), alone.drop_attrs())
    else:
        # All candidates have the folds of the first one, which go by its kernels.
        xr.testing.assert_allclose(found.mean("obs"), alone.mean("obs"), atol=0.1)
    np.testing.assert_array_equal(fitted.predict_proba(X[:9]), given.predict_proba(X[:9]))
    known = KernelProbitClassifier(**PROBIT)
    assert known.fit(X, y).selection_ is None
    assert known.kernel_names_[0].startswith("gaussian")


@pytest.mark.parametrize("heavy", [True, False])
def test_saved_choices_are_read_and_not_made_again(heavy, monkeypatch):
    X, y = with_outliers(heavy)
    X = pd.DataFrame(X, [f"i{row}" for row in range(60)], list("abcd"))
    fitted = KernelProbitClassifier(**FEW).fit(X, y)

    def no_choice(*_, **__):
        raise AssertionError

    monkeypatch.setattr(predictor, "selected", no_choice)
    again = KernelProbitClassifier.from_result(fitted.result_, X, y, **fitted.get_params())
    assert again.standardize_ == fitted.standardize_ == ("rank" if heavy else "scale")
    assert again.model_.upsilon == fitted.model_.upsilon
    assert type(again.model_.combination) is type(fitted.model_.combination)
    new = pd.DataFrame(X.to_numpy()[:9] * 1.01, columns=X.columns)
    np.testing.assert_allclose(again.predict_proba(new), fitted.predict_proba(new), rtol=1e-12)


def test_saved_choices_do_not_hide_other_parameters(data, tmp_path):
    X, y = data.train.X, data.train.y
    fitted = KernelProbitClassifier(**FEW).fit(X, y)
    fitted.result_.to_netcdf(tmp_path / "result.nc")
    saved = az.from_netcdf(tmp_path / "result.nc")
    again = KernelProbitClassifier.from_result(saved, X, y, **fitted.get_params())
    np.testing.assert_array_equal(answers(again, data.new.X), answers(fitted, data.new.X))
    for other in ({"upsilon": 3.0}, {"combination": "binary"}, {"kernels": kz.linear()}):
        with pytest.raises(ValueError, match="must be those of the estimator that was fitted"):
            KernelProbitClassifier.from_result(saved, X, y, **fitted.get_params() | other)


@pytest.mark.filterwarnings("error::kernelzoo.ApproximationWarning")
def test_fits_leave_the_warnings_of_other_threads_alone(monkeypatch):
    """Filters that `catch_warnings` changes are those of all threads; libraries may, we do not."""
    original = warnings.catch_warnings

    def of_libraries(*args, **kwargs):
        assert not sys._getframe(1).f_globals["__name__"].startswith("kernelzoo")
        return original(*args, **kwargs)

    model = kz.MultinomialProbit.example()
    with monkeypatch.context() as patch:
        patch.setattr(warnings, "catch_warnings", of_libraries)
        with predictions_alone():
            kz.fit(model, VB, **FIT)
            warn_of_poor_approximation("VB", 1.0, [])


@pytest.mark.parametrize(("engine", "draws"), [("vb", 100), (VB, 100), ("gibbs", 1000)])
def test_independent_draws_are_few_unless_they_are_given(monkeypatch, engine, draws):
    asked = []

    def fit(model, engine, **options):
        asked.append(options["draws"])
        raise RuntimeError("seen")

    monkeypatch.setattr("kernelzoo.estimators.predictor.fit", fit)
    X, y = np.random.default_rng(0).normal(size=(8, 2)), np.arange(8) % 2
    for given, expected in ((None, draws), (7, 7)):
        estimator = KernelProbitClassifier(
            kz.linear(), combination="fixed", upsilon=1.0, engine=engine, draws=given
        )
        with pytest.raises(RuntimeError, match="seen"):
            estimator.fit(X, y)
        assert asked[-1] == expected
