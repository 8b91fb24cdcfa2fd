"""Groups of objects: left out together wherever left-out objects choose or judge."""

from contextlib import nullcontext

import arviz as az
import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn import config_context
from sklearn.model_selection import GroupKFold, cross_validate

import kernelzoo as kz
from kernelzoo.estimators import (
    CompositeKernelRegressor,
    KernelClassifier,
    KernelProbitClassifier,
    KernelRegressor,
)
from kernelzoo.estimators.near_copies import warn_of_near_copies
from kernelzoo.inference.left_out import splits

FEW_PERSONS = 30
SAMPLES = 4
#: Log loss of class rates of one half.
CLASS_RATES = np.log(2)
SEEDS = range(3)


def persons(n, samples, seed, within=0.5):
    """Samples of persons, whose target they share."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(n, 10))
    target = u[:, 0] + 0.5 * u[:, 1] + 0.7 * rng.normal(size=n)
    X = np.repeat(u, samples, axis=0) + within * rng.normal(size=(n * samples, 10))
    return X, np.repeat(target, samples), np.repeat(np.arange(n), samples)


@pytest.fixture(scope="module")
def sampled():
    return persons(FEW_PERSONS, SAMPLES, 0)


@pytest.mark.filterwarnings("ignore:.* rows of X")
def test_new_persons_are_predicted_as_well_as_left_out_ones():
    """Without groups the scale is that of the samples, and surer than class rates are right."""
    losses = {"without": [], "groups": [], "left out": []}
    for seed in SEEDS:
        X, target, group = persons(FEW_PERSONS, SAMPLES, seed)
        X_new, target_new, _ = persons(400, 1, seed + 100)
        for name, groups in (("without", None), ("groups", group)):
            fitted = KernelClassifier().fit(X, target > 0, groups=groups)
            p = fitted.predict_proba(X_new)[np.arange(400), (target_new > 0).astype(int)]
            losses[name].append(-np.log(p).mean())
        losses["left out"].append(-fitted.selection_.mean("obs").max().item())
    mean = {name: np.mean(each) for name, each in losses.items()}
    assert mean["without"] > CLASS_RATES
    assert mean["groups"] < 0.68
    assert abs(mean["groups"] - mean["left out"]) < 0.12


@pytest.mark.filterwarnings("ignore:.* rows of X")
def test_intervals_of_new_persons_cover():
    within = {"without": [], "groups": []}
    scores = {"without": [], "groups": []}
    for seed in SEEDS:
        X, target, group = persons(FEW_PERSONS, SAMPLES, seed)
        X_new, target_new, _ = persons(400, 1, seed + 100)
        for name, groups in (("without", None), ("groups", group)):
            fitted = KernelRegressor(random_state=1).fit(X, target, groups=groups)
            mean, sd = fitted.predict(X_new, return_std=True)
            within[name].append(np.abs(target_new - mean) < norm.ppf(0.95) * sd)
            scores[name].append(norm.logpdf(target_new, mean, sd))
    assert np.mean(within["without"]) < 0.82
    assert 0.85 < np.mean(within["groups"]) < 0.95
    assert np.mean(scores["groups"]) > np.mean(scores["without"]) + 0.1


@pytest.mark.parametrize("estimator", [KernelClassifier(), KernelRegressor(random_state=1)])
def test_groups_of_one_object_each_change_nothing(estimator):
    X, target, _ = persons(40, 1, 1)
    y = target > 0 if isinstance(estimator, KernelClassifier) else target
    plain = estimator.fit(X, y).selection_
    single = estimator.fit(X, y, groups=np.random.default_rng(0).permutation(40)).selection_
    assert plain.identical(single)


@pytest.mark.parametrize(
    "estimator",
    [
        KernelClassifier(),
        KernelProbitClassifier(draws=20, random_state=1),
        CompositeKernelRegressor(draws=20, random_state=1),
        KernelRegressor(random_state=1, draws=20),
    ],
    ids=lambda each: type(each).__name__,
)
def test_saved_choices_are_those_of_groups(estimator, sampled, tmp_path):
    """Whatever the order of the objects, with ids; and importance is that of left-out groups."""
    X, target, group = sampled
    ids = pd.Index([f"s{n}" for n in range(len(X))])
    X = pd.DataFrame(X, ids, [f"x{d}" for d in range(10)])
    y = pd.Series(target > 0.3 if hasattr(estimator, "predict_proba") else target, ids)
    groups = pd.Series([f"p{g}" for g in group], ids)
    with pytest.warns(UserWarning, match="rows of X") if y.dtype == float else nullcontext():
        alone = estimator.fit(X, y).selection_.mean("obs").max()
    order = np.random.default_rng(0).permutation(len(ids))
    fitted = estimator.fit(X, y, groups=groups.iloc[order])
    assert fitted.selection_.mean("obs").max() < alone - 0.1
    fitted.result_.to_netcdf(tmp_path / "result.nc")
    result = az.from_netcdf(tmp_path / "result.nc")
    parameters = fitted.get_params()
    again = type(estimator).from_result(
        result, X.iloc[order], y.iloc[order], groups=groups, **parameters
    )
    predict = "predict_proba" if hasattr(fitted, "predict_proba") else "predict"
    one, two = (getattr(each, predict)(X) for each in (fitted, again))
    np.testing.assert_allclose(one, two, rtol=1e-6)
    if hasattr(fitted, "importance_"):
        pd.testing.assert_frame_equal(fitted.importance_, again.importance_)


def test_errors_of_importance_are_those_of_groups(sampled):
    """Ten copies of each person, but for rounding, are no tenfold number of objects."""
    X, target, _ = persons(40, 1, 2)
    once = KernelClassifier().fit(X, target > 0).importance_
    rng = np.random.default_rng(0)
    copies = np.repeat(X, 10, axis=0)
    copies += 1e-6 * rng.normal(size=copies.shape)
    group = np.repeat(np.arange(40), 10)
    often = KernelClassifier().fit(copies, np.repeat(target > 0, 10), groups=group).importance_
    np.testing.assert_allclose(often["alone_se"], once["alone_se"], rtol=0.5)


def test_copies_in_a_group_count_as_in_the_fit():
    """Bug: the scale was that of one copy of each person, and the fit had eight."""
    X, target, _ = persons(FEW_PERSONS, 1, 4)
    group = np.repeat(np.arange(FEW_PERSONS), 8)
    copies = np.repeat(X, 8, axis=0)
    nearly = copies + 1e-6 * np.random.default_rng(0).normal(size=copies.shape)
    y = np.repeat(target > 0, 8)
    scales = [
        KernelClassifier().fit(each, y, groups=group).selection_.attrs["scale"]
        for each in (copies, nearly)
    ]
    assert scales[0] == scales[1]


@pytest.mark.parametrize("engine", [None, "inla"])
def test_every_engine_has_the_scale_that_left_out_groups_choose(engine, sampled):
    """Bug: engines that learn the scale took samples of a person as independent."""
    X, target, group = sampled
    options = {"engine": engine, "draws": 20, "random_state": 1}
    fitted = KernelClassifier(**options).fit(X, target > 0, groups=group)
    assert fitted.model_.scale == fitted.selection_.attrs["scale"]


@pytest.mark.parametrize(("given", "found"), [("scale", "gamma"), ("gamma", "scale")])
def test_the_noise_is_that_of_the_given_scale(given, found, sampled):
    """Bug: each of the two was chosen for the best value of the other, and not the given one."""
    X, target, group = sampled
    chosen = []
    for value in (0.02, 50.0):
        options = {"model_options": {given: value}, "random_state": 1, "draws": 20}
        fitted = KernelRegressor(**options).fit(X, target, groups=group)
        assert getattr(fitted.model_, given) == value
        chosen.append(getattr(fitted.model_, found))
    assert abs(np.log(chosen[0] / chosen[1])) > 0.2


def test_groups_that_change_nothing_say_so(sampled):
    X, target, group = sampled
    kernels = kz.kernels.inverse_multiquadric("median").landmarks(30)
    with pytest.warns(UserWarning, match="'groups' change nothing in this fit"):
        KernelRegressor(kernels, random_state=1, draws=20).fit(X, target, groups=group)


@pytest.mark.parametrize("k", [3, FEW_PERSONS])
@pytest.mark.parametrize("of_classes", [False, True])
def test_folds_hold_whole_groups(sampled, k, of_classes):
    X, target, group = sampled
    stack = kz.gaussian("median")(X)
    y = target > 0 if of_classes else target
    model = (kz.GaussianProcessClassification if of_classes else kz.GaussianProcessRegression)(
        stack, y
    )
    numbers = np.random.default_rng(0).permutation(len(X))
    folds = list(splits(model, numbers, k, 0, groups=group))
    assert len(folds) == k
    for train, new in folds:
        assert set(group[train]).isdisjoint(group[new])
        assert len(train) + len(new) == len(X)
    if of_classes and k == 3:
        shares = [np.mean(y[new]) for _, new in folds]
        assert np.ptp(shares) < 0.2


def test_log_scores_of_left_out_groups_are_those_of_fits_without_them(sampled):
    X, target, group = (each[:24] for each in sampled)
    kernels = kz.gaussian("median").normalize("trace")
    stack = kernels(X)
    settings = {"scale": 1.0, "gamma": 4.0, "combination": "fixed"}
    model = kz.GaussianProcessRegression(stack, target, **settings)
    quiet = {"progressbar": False}
    scores = kz.scores.loo_kfold(model, "map", k=6, groups=group, **quiet).elpd_i
    for person in range(6):
        new = group == person
        part = kz.GaussianProcessRegression(stack[:, ~new, ~new], target[~new], **settings)
        result = kz.fit(part, "map", **quiet)
        predicted = kz.predict(
            part,
            result,
            stack[:, new, ~new].assign_coords(
                variance=(("kernel", "obs"), np.ones((1, new.sum())))
            ),
            **quiet,
        )
        density = norm.logpdf(target[new], predicted["mean"], predicted["target_sd"])
        np.testing.assert_allclose(scores.values[new], density, atol=1e-3)


def test_metadata_routing_passes_groups():
    """To the splitter and to each fit; a fit that asks for none has none."""
    X, target, group = persons(12, 3, 3)
    names = pd.Series([f"p{g}" for g in group])
    seen = []

    class Recorded(KernelClassifier):
        def fit(self, X, y, sample_weight=None, groups=None):
            seen.append(groups)
            return super().fit(X, y, sample_weight, groups)

    with config_context(enable_metadata_routing=True):
        for asked in (True, False):
            cross_validate(
                Recorded().set_fit_request(groups=asked),
                X,
                target > 0,
                params={"groups": names},
                cv=GroupKFold(3),
            )
    parts = [set(each) for each in seen[:3]]
    assert all(len(part) == 8 for part in parts)
    assert set.intersection(*parts) == set()
    assert seen[3:] == [None] * 3


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (np.arange(7) % 3, r"'groups' .* for each of the 8 objects. Got shape \(7,\)"),
        (np.zeros(8), "'groups' .* at least two groups.* only 0.0"),
        ([0, 0, 1, 1, np.nan, 2, 2, 3], r"'groups' .* a group for every object. Got none for 's4'"),
        ([0, 0, 1, 1, None, 2, 2, 3], r"'groups' .* a group for every object. Got none for 's4'"),
        (np.ones((8, 2)), r"'groups' .* Got shape \(8, 2\)"),
        (
            pd.Series(range(8), [f"t{n}" for n in range(8)]),
            "'groups' .* labelled by the ids of the objects. Got the unknown 't0'",
        ),
        (np.ma.masked_equal(np.arange(8) // 2, 1), "'groups' .* mask"),
        (
            [0, 1, 0, 1, 2, 2, 2, 2],
            "'groups' .* two classes or more have objects in two groups each. "
            "Got one group for all objects of 'b'",
        ),
    ],
)
@pytest.mark.parametrize("model", [True, False], ids=["model", "estimator"])
def test_groups_that_are_none_are_refused(groups, message, model):
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(8, 2)), [f"s{n}" for n in range(8)])
    y = pd.Series(list("aaaabbbb"), X.index)
    probit = kz.MultinomialProbit(kz.gaussian("median")(X), y)
    for call in (
        (
            (lambda: kz.select(probit, groups=groups, progressbar=False)),
            (lambda: kz.scores.loo_kfold(probit, groups=groups, progressbar=False)),
        )
        if model
        else ((lambda: KernelClassifier().fit(X, y, groups=groups)),)
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_a_failed_fit_keeps_the_last_one(sampled):
    X, target, group = sampled
    fitted = KernelClassifier().fit(X, target > 0, groups=group)
    before = fitted.predict_proba(X)
    with pytest.raises(ValueError, match="'groups'"):
        fitted.fit(X, target > 1, groups=group[:-1])
    np.testing.assert_array_equal(fitted.predict_proba(X), before)


def test_a_group_that_holds_a_class_is_named():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    y = np.repeat(["a", "b", "c"], 10)
    groups = np.r_[np.arange(20) // 2, np.full(10, 99)]
    with pytest.warns(UserWarning, match="in one group: 'c'. Where KernelClassifier leaves"):
        fitted = KernelClassifier().fit(X, y, groups=groups)
    assert np.isfinite(fitted.selection_).all()
    probit = kz.MultinomialProbit(kz.gaussian("median")(X), y)
    with pytest.warns(UserWarning, match="Where loo_kfold leaves"):
        scores = kz.scores.loo_kfold(probit, k=4, groups=groups, draws=20, progressbar=False)
    assert np.isfinite(scores.elpd)


@pytest.mark.parametrize("estimator", [KernelClassifier(), KernelRegressor(random_state=1)])
def test_rows_that_are_nearly_copies_are_named(estimator, recwarn):
    X, target, group = persons(30, 3, 4, within=0.05)
    y = target if isinstance(estimator, KernelRegressor) else target > 0
    estimator.fit(X, y)
    (warning,) = (each for each in recwarn if "Most rows of X" in str(each.message))
    assert warning.filename == __file__
    recwarn.clear()
    estimator.fit(X, y, groups=group)
    other = persons(90, 1, 4)
    estimator.fit(other[0], other[1] if y is target else y)
    if y is not target:
        # Copies are one object to the choice; a regressor's noise is learned by all.
        estimator.fit(np.repeat(X[::3], 3, axis=0), y)
    assert not [each for each in recwarn if "rows of X" in str(each.message)]


def test_targets_that_neighbours_share_are_named(sampled, recwarn):
    """Samples are far from copies; targets of persons are the same for all of theirs."""
    X, target, _ = sampled
    KernelRegressor(random_state=1).fit(X, target)
    assert any(
        "Many rows of X are nearest to a row with the same y" in str(w.message) for w in recwarn
    )
    recwarn.clear()
    KernelRegressor(random_state=1).fit(X, np.round(target))
    # Persons are known by their labels here.
    tables = {"x": X, "person": persons(FEW_PERSONS, SAMPLES, 0)[2]}
    kernels = {"x": kz.gaussian("median"), "person": kz.kernels.same()}
    KernelRegressor(kernels, random_state=1, draws=20).fit(tables, target)
    KernelRegressor(random_state=1).fit(X, np.random.default_rng(0).permutation(target))
    assert not [each for each in recwarn if "rows of X" in str(each.message)]


def test_targets_of_copies_are_named(recwarn):
    X, target, _ = persons(20, 4, 5, within=0)
    KernelRegressor(random_state=1, draws=20).fit(X, target)
    assert any("nearest to a row with the same y" in str(each.message) for each in recwarn)


@pytest.mark.parametrize(
    "table",
    [
        lambda rng: np.c_[np.eye(20)[rng.integers(20, size=300)], rng.normal(size=300)],
        lambda rng: np.c_[rng.normal(size=300), np.ones((300, 6))],
        lambda rng: np.outer(rng.normal(size=300), rng.normal(size=8)),
        lambda rng: rng.poisson(1.0, size=(300, 8)),
        lambda rng: rng.normal(size=(300, 40)).cumsum(axis=1),
    ],
    ids=["categories", "constants", "line", "counts", "walks"],
)
def test_rows_that_are_near_by_chance_are_no_copies(table, recwarn):
    rng = np.random.default_rng(0)
    warn_of_near_copies([table(rng)], rng.normal(size=(300, 1)))
    assert not recwarn


@pytest.mark.parametrize("kernels", [None, kz.kernels.tanimoto(), kz.kernels.same()])
def test_features_as_they_are_need_no_scalers(kernels):
    bits = np.random.default_rng(0).integers(2, size=(24, 6))
    fitted = KernelClassifier(kernels, standardize=False).fit(bits, bits[:, 0])
    assert fitted.standardize_ is False
