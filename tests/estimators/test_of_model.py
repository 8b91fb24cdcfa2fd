"""Estimators of a model of choice, and the choice of kernels by leave-one-out scores."""

import arviz as az
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import norm
from sklearn.preprocessing import StandardScaler

import kernelzoo as kz
from kernelzoo.estimators import (
    CompositeKernelRegressor,
    KernelClassifier,
    KernelProbitClassifier,
    KernelRegressor,
    of_model,
)
from kernelzoo.estimators import classifier as classifier_module
from kernelzoo.inference.gaussian_process.choice import SCALES, TIMES
from kernelzoo.models.kernels.objects import Objects

FEW = {"draws": 30, "random_state": 5}


def response(estimator, data):
    return data.target if estimator is KernelRegressor else data.y


def answers(fitted, X):
    if isinstance(fitted, KernelRegressor):
        return np.column_stack(fitted.predict(X, return_std=True))
    return fitted.predict_proba(X)


@pytest.fixture(scope="module")
def classifier(data):
    return KernelClassifier().fit(data.train.X, data.train.y)


@pytest.fixture(scope="module")
def regressor(data):
    return KernelRegressor(random_state=5).fit(data.train.X, data.train.target)


@pytest.fixture
def fitted(request, classifier, regressor):
    return {KernelClassifier: classifier, KernelRegressor: regressor}[request.param]


BOTH = pytest.mark.parametrize("fitted", [KernelClassifier, KernelRegressor], indirect=True)


def kernels_by_hand(data, times):
    """Kernels (kernel, obs, basis) of the training objects and of new ones."""
    blocks = ("rna", "protein")
    scalers = {block: StandardScaler().fit(data.train.X[block]) for block in blocks}
    known, new = (
        {
            block: pd.DataFrame(scaler.transform(part.X[block]), index=part.X.index)
            for block, scaler in scalers.items()
        }
        for part in (data.train, data.new)
    )
    kernels = kz.kernels.inverse_multiquadric("median", times=times)
    kernels = kernels.on("rna") | kernels.on("protein")
    return kernels(known), kernels(new, known)


def test_the_default_classifier_is_the_model_by_hand(data, classifier):
    chosen = classifier.selection_.attrs
    known, new = kernels_by_hand(data, chosen["times"])
    labels = data.train.y
    model = kz.GaussianProcessClassification(
        known, labels, scale=chosen["scale"], combination="fixed"
    )
    result = kz.fit(model, "map", progressbar=False)
    by_hand = kz.predict(model, result, new)["probability"].values
    assert np.allclose(classifier.predict_proba(data.new.X), by_hand)
    assert classifier.result_.attrs["engine"] == "MAP"
    assert classifier.weights_.attrs["note"].startswith("weights that were set")
    assert np.allclose(classifier.weights_["mean"], 0.5)
    assert classifier.weights_["sd"].isnull().all()


def test_scores_of_left_out_objects_are_those_of_fits_without_them(data, classifier):
    """Of the mode of the scores: the probability at the mean of the left-out score."""
    selection = classifier.selection_
    best = selection.isel(candidate=int(selection["height"].argmax()))
    known, _ = kernels_by_hand(data, float(best["times"]))
    labels = data.train.y.to_numpy()
    refits = np.empty(len(labels))
    for left in range(len(labels)):
        kept = np.delete(np.arange(len(labels)), left)
        model = kz.GaussianProcessClassification(
            known[:, kept][:, :, kept],
            labels[kept],
            scale=float(best["scale"]),
            combination="fixed",
        )
        result = kz.fit(model, "map", progressbar=False)
        p = kz.predict(model, result, known[:, [left]][:, :, kept])["probability"]
        refits[left] = np.log(p.sel({"class": labels[left]}).item())
    # The objects of the scores are in another order.
    assert np.allclose(np.sort(best.values), np.sort(refits), atol=0.12)
    assert best.values.mean() == pytest.approx(refits.mean(), abs=0.02)


def test_the_regressor_is_the_model_by_hand(data, regressor):
    times = regressor.selection_.attrs["times"]
    known, new = kernels_by_hand(data, times)
    target = data.train.target
    mean, sd = target.mean(), target.std(ddof=0)
    model = kz.GaussianProcessRegression(known, (target - mean) / sd)
    engine = kz.INLA(max_points=64)
    result = kz.fit(model, engine, draws=100, random_seed=5, progressbar=False)
    by_hand = kz.predict(model, result, new)
    found, found_sd = regressor.predict(data.new.X, return_std=True)
    assert np.allclose(found, mean + sd * by_hand["mean"])
    assert np.allclose(found_sd, sd * by_hand["target_sd"])
    assert (regressor.weights_["sd"] > 0).all()


def test_the_evidence_chooses_the_width_of_regressions(data, regressor):
    """Highest evidence times priors over a grid of scales and noises, by SciPy's density."""
    from scipy.stats import multivariate_normal

    target = data.train.target
    t = ((target - target.mean()) / target.std(ddof=0)).to_numpy()
    selection = regressor.selection_
    for candidate in range(selection.sizes["candidate"]):
        one = selection.isel(candidate=candidate)
        K = kernels_by_hand(data, float(one["times"]))[0].values.mean(axis=0)
        tried = []
        for log_scale in np.linspace(-5, 9, 57):
            for log_noise in np.linspace(-9, 1, 41):
                covariance = np.exp(log_scale) * K + np.exp(log_noise) * np.eye(len(t))
                evidence = multivariate_normal.logpdf(t, np.zeros(len(t)), covariance)
                prior = norm.logpdf([log_scale, -log_noise], np.log(10.0), 3.5).sum()
                tried.append((evidence + prior, evidence))
        # Of the highest on the grid.
        assert float(one["height"]) * len(t) == pytest.approx(max(tried)[1], abs=0.1)
    best = selection["times"].values[selection["height"].argmax()]
    assert selection.attrs["times"] == best


@pytest.mark.parametrize("estimator", [KernelClassifier, KernelRegressor])
def test_the_order_of_rows_does_not_matter(estimator, data, monkeypatch):
    # A sample of the objects chooses the kernels.
    monkeypatch.setattr(of_model, "MOST_OBJECTS", 15)
    monkeypatch.setattr(of_model, "LANDMARKS", 12)
    X, y = data.train.flat.to_numpy(), response(estimator, data.train).to_numpy()
    blocks = {"rna": slice(0, 3), "protein": slice(3, 5)}
    found = []
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(y))
        each = estimator(blocks=blocks, **FEW).fit(X[order], y[order])
        found.append(each)
    if estimator is KernelClassifier:
        new = data.new.flat.to_numpy()
        for other in found[1:]:
            assert np.allclose(other.predict_proba(new), found[0].predict_proba(new), atol=1e-6)
    chosen = {each.selection_.attrs["times"] for each in found}
    assert len(chosen) == 1


def test_many_objects_have_columns_at_landmarks(data, monkeypatch):
    monkeypatch.setattr(of_model, "MOST_OBJECTS", 15)
    monkeypatch.setattr(of_model, "LANDMARKS", 12)
    X, y = data.train.X, data.train.y
    fitted = KernelClassifier().fit(X, y)
    assert len(fitted.model_.coords["basis"]) == 12
    assert fitted.selection_.sizes["obs"] == 15
    assert fitted.predict_proba(data.new.X).shape == (8, 2)
    again = KernelClassifier.from_result(fitted.result_, X, y)
    assert np.allclose(again.predict_proba(data.new.X), fitted.predict_proba(data.new.X))
    assert list(fitted.importance_.index) == ["rna", "protein"]


def test_weights_of_objects_are_powers_of_their_likelihoods(data):
    X, y = data.train.X, data.train.y
    weights = pd.Series(np.arange(len(y)) % 3, y.index)
    options = {"kernels": kz.gaussian("median"), "model_options": {"scale": 5.0}}
    fitted = KernelClassifier(**options).fit(X, y, sample_weight=weights)
    model = fitted.model_
    assert len(model.coords["obs"]) == weights.sum()
    K = fitted.kernel_stack(X).sel(obs=y.index[weights > 0])
    K = 5.0 * K.values.mean(axis=0)
    K += 1e-6 * K.diagonal().mean() * np.eye(len(K))
    signs = np.where(y[weights > 0] == fitted.classes_[1], 1.0, -1.0)
    powers = weights[weights > 0].to_numpy()
    f = np.zeros(len(K))
    for _ in range(50):
        p = expit(f)
        W = powers * p * (1 - p)
        slope = powers * ((signs > 0) - p)
        B = np.eye(len(K)) + K * W
        f = np.linalg.solve(B, K @ (W * f + slope))
    expected = fitted.kernel_stack(data.new.X).values.mean(axis=0) * 5.0 @ np.linalg.solve(K, f)
    found = fitted.predict_proba(data.new.X)[:, 1]
    assert np.allclose(found, expit(expected), atol=1e-4)
    ones = KernelClassifier(**options).fit(X, y, sample_weight=weights.clip(1, 1))
    plain = KernelClassifier(**options).fit(X, y)
    assert np.array_equal(ones.predict_proba(X), plain.predict_proba(X))


@BOTH
def test_saved_results_are_read_and_nothing_is_chosen_again(fitted, data, tmp_path, monkeypatch):
    estimator = type(fitted)
    fitted.result_.to_netcdf(tmp_path / "result.nc")
    saved = az.from_netcdf(tmp_path / "result.nc")
    monkeypatch.setattr(estimator, "_choose", None)
    y = response(estimator, data.train)
    again = estimator.from_result(saved, data.train.X, y, **fitted.get_params())
    assert np.allclose(answers(again, data.new.X), answers(fitted, data.new.X))
    with pytest.raises(ValueError, match="must be those of the estimator that was fitted"):
        estimator.from_result(saved, data.train.X, y, kernels=kz.linear())


@pytest.mark.parametrize("name", ["times", "scale"])
def test_damaged_choices_are_named(name, data, classifier):
    damaged = classifier.result_.copy()
    damaged["selection"] = damaged["selection"].copy()
    damaged["selection"].attrs[name] = "wide"
    with pytest.raises(ValueError, match=name):
        KernelClassifier.from_result(damaged, data.train.X, data.train.y)


@pytest.mark.parametrize("options", [{}, {"upsilon": 10.0, "combination": "mean"}])
def test_a_papers_model_is_that_of_its_own_estimator(options, data):
    X, y = data.train.X, data.train.y
    engine = kz.VB(tolerance=0.1, remaining=1.0)
    by_name = KernelClassifier(
        model=kz.MultinomialProbit, model_options=options, engine=engine, **FEW
    )
    own = KernelProbitClassifier(engine=engine, **FEW, **options)
    assert np.array_equal(
        by_name.fit(X, y).predict_proba(data.new.X), own.fit(X, y).predict_proba(data.new.X)
    )
    assert (by_name.selection_ is None) == (own.selection_ is None)


def test_a_papers_regression_is_that_of_its_own_estimator(data):
    X, y = data.train.X, data.train.target
    options = {"varsigma": 2.0, "combination": "mean"}
    by_name = KernelRegressor(model=kz.CompositeKernelRegression, model_options=options, **FEW)
    own = CompositeKernelRegressor(**FEW, **options)
    assert np.array_equal(by_name.fit(X, y).predict(X), own.fit(X, y).predict(X))
    assert by_name.result_.attrs["engine"] == "VB"


def test_inla_learns_the_weights(data):
    fitted = KernelClassifier(engine="inla", **FEW).fit(data.train.X, data.train.y)
    weights = fitted.weights_
    assert "note" not in weights.attrs
    assert (weights["sd"] > 0).all()
    # The response is made of a gene.
    assert weights["mean"].sel(kernel="rna") > 0.5
    assert np.isnan(fitted.selection_.attrs["scale"])


def test_given_arguments_of_the_model_are_kept(data):
    options = {"scale": 7.0, "combination": kz.combinations.FixedWeights([0.9, 0.1])}
    fitted = KernelClassifier(model_options=options).fit(data.train.X, data.train.y)
    assert fitted.model_.scale == 7.0
    assert np.allclose(fitted.weights_["mean"], [0.9, 0.1])
    assert set(fitted.selection_["scale"].values) == {7.0}
    given = KernelClassifier(kz.gaussian("median")).fit(data.train.X, data.train.y)
    assert given.selection_.attrs["features"] == "given"
    learned = KernelClassifier(model_options={"scale": kz.LearnedScale()}, **FEW)
    learned.fit(data.train.X, data.train.y)
    assert learned.result_.attrs["engine"] == "INLA"


@pytest.fixture(scope="module")
def tables():
    """Two classes that the first of five tables tells apart."""
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    noise = {f"t{k}": pd.DataFrame(rng.normal(size=(80, 3))) for k in range(1, 5)}
    informative = pd.DataFrame(rng.normal(size=(80, 2)) + 1.2 * y[:, None])
    return {"t0": informative} | noise, y


def test_weights_are_learned_where_they_predict_better(tables, tmp_path):
    X, y = tables
    fitted = KernelClassifier().fit(X, y)
    weights = fitted.weights_
    assert weights["mean"].values[0] > 0.4
    assert weights["sd"].isnull().all()
    assert "predict left-out objects better than equal ones" in weights.attrs["note"]
    scores = fitted.selection_
    learned = scores[scores["weights"].values == "learned"]
    equal = scores[scores["weights"].values == "equal"]
    equal = equal.isel(candidate=int(equal["height"].argmax()))
    gain = learned[0] - equal
    assert gain.mean() > gain.std(ddof=1) / np.sqrt(gain.size)
    # They are those of the model's posterior, at its mode.
    model = fitted.model_.redeclared(combination="mean", scale=kz.LearnedScale())
    empirical = kz.fit(model, kz.INLA(integrate=False), random_seed=1, progressbar=False)
    mode = empirical["posterior"]["beta"].values[0, 0]
    assert np.allclose(weights["mean"], mode, atol=0.01)
    fitted.result_.to_netcdf(tmp_path / "result.nc")
    again = KernelClassifier.from_result(az.from_netcdf(tmp_path / "result.nc"), X, y)
    assert np.allclose(again.predict_proba(X), fitted.predict_proba(X))


def test_weights_stay_equal_where_they_serve(tables):
    X, y = tables
    half = y[:40]
    alike = {f"t{k}": X["t0"].iloc[:40] + 0.01 * k for k in range(3)}
    fitted = KernelClassifier().fit(alike, half)
    assert np.allclose(fitted.weights_["mean"], 1 / 3)
    assert fitted.weights_.attrs["note"].startswith("weights that were set")
    given = KernelClassifier(model_options={"combination": "fixed"}).fit(X, y)
    assert np.allclose(given.weights_["mean"], 0.2)
    assert "learned" not in given.selection_["weights"]


def test_weights_stay_equal_where_one_class_could_teach_them(monkeypatch, tables):
    X, y = tables
    monkeypatch.setattr(of_model, "MOST_LEARNED", 1)
    fitted = KernelClassifier().fit(X, y)
    assert np.allclose(fitted.weights_["mean"], 0.2)


def test_kernels_with_parameters_are_learned(data):
    fitted = KernelClassifier(kz.gaussian(kz.kernels.Theta()), **FEW)
    fitted.fit(data.train.X, data.train.y)
    assert fitted.result_["posterior"]["theta"].sizes["parameter"] == 2
    assert fitted.selection_ is None
    with pytest.raises(AttributeError, match="'importance_' only of kernels with a column"):
        fitted.importance_  # noqa: B018


@BOTH
def test_importance_tells_the_block_that_informs(fitted):
    importance = fitted.importance_
    assert importance.loc["rna", "alone"] > importance.loc["protein", "alone"]
    assert importance.loc["rna", "gain"] > 2 * importance.loc["rna", "gain_se"]
    # With two blocks, each is what is left without the other.
    assert importance.loc["rna", "without"] == importance.loc["protein", "alone"]
    gain = importance.attrs["all"] - importance["without"]
    assert np.allclose(importance["gain"], gain)


def test_importance_of_all_is_the_score_of_the_choice(classifier):
    selection = classifier.selection_
    chosen = selection.isel(candidate=int(selection["height"].argmax()))
    assert classifier.importance_.attrs["all"] == pytest.approx(float(chosen.mean()))
    error = float(chosen.std(ddof=1)) / np.sqrt(chosen.size)
    assert classifier.importance_.attrs["all_se"] == pytest.approx(error)


def test_importance_of_a_single_kernel(data):
    fitted = KernelClassifier().fit(data.train.rna, data.train.y)
    importance = fitted.importance_
    assert importance["without"].isna().all()
    assert importance["alone"].item() == importance.attrs["all"]


def test_importance_is_plotted(classifier):
    axes = kz.plots.plot_importance(classifier.importance_)
    assert [text.get_text() for text in axes.get_yticklabels()] == ["rna", "protein"]
    with pytest.raises(ValueError, match="the attribute importance_"):
        kz.plots.plot_importance(classifier.weights_)


def test_distinct_objects_are_a_sample_in_any_order(monkeypatch):
    monkeypatch.setattr(of_model, "MOST_OBJECTS", 40)
    x = np.repeat(np.arange(60.0), 2)
    rng = np.random.default_rng(1)
    found = []
    for _ in range(2):
        order = rng.permutation(len(x))
        objects = Objects({None: x[order, None]}, np.arange(len(x)), {None: None})
        chosen = of_model.distinct_objects(objects, np.arange(len(x)), np.zeros((len(x), 1)))
        found.append(x[order][chosen])
    assert np.array_equal(*found)
    assert len(set(found[0])) == 40
    # Bug: the first ones were those of the smallest features.
    assert found[0][:20].mean() > 15


def test_widths_and_scales_are_climbed_to_a_peak(classifier):
    selection = classifier.selection_
    assert set(selection["times"].values) <= set(TIMES)
    assert set(selection["scale"].values) <= set(SCALES)
    heights = selection["height"].values
    best = heights.argmax()
    assert np.allclose(heights, selection.mean("obs"))
    assert selection.attrs["times"] == selection["times"].values[best]
    assert selection.attrs["scale"] == selection["scale"].values[best]
    neighbours = np.flatnonzero(np.isin(TIMES, selection["times"].values))
    assert np.array_equal(neighbours, np.arange(neighbours[0], neighbours[-1] + 1))


def test_a_scale_at_the_end_is_said(data, monkeypatch, classifier):
    assert "note" not in classifier.selection_.attrs
    for module in (of_model, classifier_module):
        monkeypatch.setattr(module, "SCALES", (0.1, 0.2))
    fitted = KernelClassifier().fit(data.train.X, data.train.y)
    assert fitted.selection_.attrs["scale"] == 0.2
    assert "is at the end of the scales" in fitted.selection_.attrs["note"]


def test_heavy_tails_become_ranks_where_these_predict_better(data):
    rng = np.random.default_rng(1)
    latent = rng.normal(size=(60, 3))
    y = np.where(latent[:, 0] + 0.3 * rng.normal(size=60) > 0, "a", "b")
    fitted = KernelClassifier().fit(np.exp(4 * latent), y)
    assert fitted.standardize_ == "rank"
    assert set(fitted.selection_["features"].values) == {"scale", "rank"}
    again = KernelClassifier.from_result(fitted.result_, np.exp(4 * latent), y)
    assert again.standardize_ == "rank"


def test_several_outputs(data):
    targets = pd.concat({"one": data.train.target, "two": -data.train.target}, axis=1)
    fitted = KernelRegressor(**FEW).fit(data.train.X, targets)
    mean = fitted.predict(data.new.X)
    assert mean.shape == (8, 2)
    assert np.allclose(mean[:, 0], -mean[:, 1], atol=0.3)


BAD = {
    "a name": ({"model": "probit"}, "the class of a model with 'labels', one of kz."),
    "a regression": ({"model": kz.CompositeKernelRegression}, "model with 'labels'"),
    "a string": ({"model_options": "upsilon"}, "a dict of arguments of the model by name"),
    "another model's": ({"model_options": {"upsilon": 1.0}}, "combination, scale. Got 'upsilon'"),
    "a product": ({"model_options": {"combination": "product"}}, "one of 'mean', 'fixed'"),
    "an engine": ({"engine": "vb"}, "VB does not apply: not available for GaussianProcessC"),
    "a scale": ({"model_options": {"scale": -1.0}}, "'scale' argument of GaussianProcessC"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_settings_are_refused(case, data):
    options, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        KernelClassifier(**options).fit(data.train.X, data.train.y)


@pytest.mark.parametrize("estimator", [KernelClassifier, KernelRegressor])
def test_every_parameter_is_documented(estimator):
    for name in estimator().get_params():
        assert name in estimator.__doc__


@BOTH
def test_nothing_warns_because_it_is_displayed(fitted, recwarn):
    fitted._repr_html_()
    repr(fitted)
    assert not recwarn.list
