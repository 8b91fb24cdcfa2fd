"""The transformer completes training objects among themselves, and new objects given them."""

import pickle

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import kernelzoo as kz
from family import assert_mean
from kernelzoo.estimators import KernelCompleter, KernelProbitClassifier
from kernelzoo.inference.completion import complete_kernels
from kernelzoo.inference.mutual_completion.new_rows import NewRows

N, TRAINED = 14, 9
TRAIN, NEW = np.arange(TRAINED), np.arange(TRAINED, N)
#: Objects that kernels lack: nested among the training objects, for "exact".
MISSING = ([1, 5, 10], [12])
Y = np.arange(N) % 2
#: Of classifiers: nothing is left to the choice by prediction.
KNOWN = {"upsilon": 1.0, "combination": "mean"}
UNCERTAIN = {"engine": "exact", "draws": 4, "random_state": 2}


def kernels(missing=MISSING):
    rng, stack = np.random.default_rng(0), []
    for lacking in missing:
        x = rng.normal(size=(N, 2)) + Y[:, None]
        K = np.exp(-((x[:, None] - x[None]) ** 2).sum(-1))
        K[lacking] = np.nan
        K[:, lacking] = np.nan
        stack.append(K)
    return np.stack(stack, axis=-1)


def split(X):
    return X[np.ix_(TRAIN, TRAIN)], X[np.ix_(NEW, TRAIN)]


def expected_failures(estimator):
    return {
        "check_positive_only_tag_during_fit": "it subtracts a number from all entries of a kernel",
        "check_estimators_dtypes": "it cuts entries of a kernel to whole numbers",
        "check_estimators_pickle": "it makes single entries of a kernel NaN",
    }


@pytest.mark.filterwarnings("ignore::UserWarning")
@parametrize_with_checks(
    [KernelCompleter(method="mean")], expected_failed_checks=expected_failures, xfail_strict=True
)
def test_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("method", ["mutual", "mean", "zero"])
def test_training_objects_are_completed_among_themselves(method):
    train, _ = split(kernels())
    completer = clone(KernelCompleter(method=method, **UNCERTAIN))
    found = completer.fit_transform(train)
    assert found.dims == ("obs", "basis", "kernel")
    np.testing.assert_allclose(np.trace(found.values), TRAINED)
    stack = {f"K{k}": train[:, :, k] for k in range(2)}
    expected = complete_kernels(
        stack, method=method, engine="exact", draws=4, random_seed=2, progressbar=False
    )
    np.testing.assert_array_equal(found.transpose("kernel", ...), expected.of(TRAIN).mean)
    np.testing.assert_array_equal(completer.completed_.draws, expected.of(TRAIN).draws)
    assert (completer.completion_.sd is None) == (method != "mutual")


@pytest.mark.parametrize("method", ["mean", "zero"])
def test_missing_objects_are_the_mean_of_training_objects_or_the_origin(method):
    x = np.random.default_rng(4).normal(size=(N, 3))
    X = np.stack([x @ x.T, kernels()[:, :, 1]], axis=-1)
    for lacking in (1, 5, 10):
        X[lacking, :, 0] = X[:, lacking, 0] = np.nan
    train, new = split(X)
    found = KernelCompleter(method=method, normalize=None).fit(train).transform(new)
    seen = np.delete(TRAIN, [1, 5])
    x[[1, 5, 10]] = x[seen].mean(0) if method == "mean" else 0
    np.testing.assert_allclose(found.sel(kernel="K0"), x[NEW] @ x[TRAIN].T)


def joint_covariance(stack, visible, strength, weights):
    """Covariance of beta and all rows for sigma = 1, straight from the declared densities."""
    n = stack.shape[1]
    first = np.eye(n) / strength
    maps = np.concatenate([np.eye(n), *stack])
    whole = maps @ first @ maps.T
    for k, K in enumerate(stack):
        at = slice((k + 1) * n, (k + 2) * n)
        whole[at, at] += K / weights[k]
    return whole[n:, n:]


def test_new_rows_have_the_moments_of_the_joint_normal_distribution():
    rng, n = np.random.default_rng(1), 4
    roots = rng.normal(size=(3, n, 2 * n))
    stack, visible = roots @ roots.swapaxes(1, 2) / n, np.ones((n, 3), dtype=bool)
    visible[1, 0] = visible[[0, 2], 1] = False
    rows = rng.normal(size=(3, 1, n))
    rows[2] = np.nan
    rows[~visible.T[:, None]] = np.nan
    distribution = NewRows(stack, visible, 0.7, np.array([5.0, 4.0, 6.0]))
    known = ~np.isnan(rows.ravel())
    S = joint_covariance(stack, visible, 0.7, distribution.weights)
    y, onto = rows.ravel()[known], np.linalg.solve(S[np.ix_(known, known)], S[known])
    np.testing.assert_allclose(distribution.mean(rows).ravel(), onto.T @ y)
    draws = np.stack([distribution.draw(rows, [7, m]).ravel() for m in range(2000)])
    np.testing.assert_allclose(draws[:, known], np.broadcast_to(y, (2000, known.sum())))
    # The mean of sigma given the known entries.
    a, b = 0.7 + n + 2 + known.sum(), 0.7 + y @ np.linalg.solve(S[np.ix_(known, known)], y)
    expected = b / (a - 2) * (S - S[:, known] @ onto)[np.ix_(~known, ~known)]
    centred = draws[:, ~known] - (onto.T @ y)[~known]
    error = centred.std(0) / np.sqrt(2000)
    assert (abs(centred.mean(0)) < 4 * error).all()
    products = centred[:, :, None] * centred[:, None, :]
    assert (abs(products.mean(0) - expected) < 4 * products.std(0) / np.sqrt(2000)).all()


def test_draws_of_new_rows_follow_student_s_law():
    """Standard deviations of few draws mislead: the tails are those of Student's t."""
    rng, n, draws, weight = np.random.default_rng(1), 3, 2000, 5.0
    roots = rng.normal(size=(2, n, 2 * n))
    stack = roots @ roots.swapaxes(1, 2) / n
    rows = np.stack([rng.normal(size=(1, n)), np.full((1, n), np.nan)])
    distribution = NewRows(stack, np.ones((n, 2), dtype=bool), 0.7, np.full(2, weight))
    found = np.stack([distribution.draw(rows, [4, m])[1, 0] for m in range(draws)])
    S = joint_covariance(stack, None, 0.7, distribution.weights)
    known, onto = rows[0, 0], np.linalg.solve(S[:n, :n], S[:n, n:])
    degrees = 0.7 + n + 2 + n
    size = 0.7 + known @ np.linalg.solve(S[:n, :n], known)
    scale = np.linalg.cholesky((S[n:, n:] - S[n:, :n] @ onto) * size / degrees)
    whitened = np.linalg.solve(scale, (found - known @ onto).T)
    for each in whitened:
        assert stats.kstest(each, stats.t(degrees).cdf).pvalue > 1e-3
    squares = (whitened**2).mean(axis=0)
    assert stats.kstest(squares, stats.f(n, degrees).cdf).pvalue > 1e-3


def test_residual_variance_of_new_rows_has_its_degrees_of_freedom():
    """Little is known of the rows and there are few objects: one degree more or less is seen."""
    strength, n_kernels, weight = 0.1, 12, 1e-8
    Q = np.random.default_rng(0).gamma(2.0, size=(n_kernels, 1, 1))
    distribution = NewRows(
        Q, np.ones((1, n_kernels), dtype=bool), strength, np.full(n_kernels, weight)
    )
    rows = np.full((n_kernels, 1, 1), np.nan)
    draws = np.stack([distribution.draw(rows, [3, m])[:, 0, 0] for m in range(400)])
    # All but variance of the residuals, whose sum of squares is sigma times chi-square.
    squares = np.sum(weight * draws**2 / Q[:, 0, 0], axis=1)
    # M^-1 of two objects has lambda' + 3 degrees of freedom, and scale 1 / lambda'.
    assert_mean((n_kernels - 2) / squares, (strength + 3) / strength)


@pytest.mark.parametrize("excess", [2.0, 9.0])
def test_a_new_row_has_the_mean_of_exact_draws_of_all_objects(excess):
    """Training objects lack nothing, so that the new object says nothing about them."""
    X = kernels(([], [5], []))[:6, :6]
    settings = {"engine": "exact", "draws": 2, "lam": 0.3, "excess": excess, "random_state": 1}
    completer = KernelCompleter(normalize=None, **settings)
    found = completer.fit(X[:5, :5]).transform(X[5:, :5])
    # Kernels have diagonals of 1, so that units do not depend on the objects.
    model = kz.MutualKernelCompletion(np.moveaxis(X, -1, 0), lam=0.3, nu=4 + excess)
    exact = kz.fit(model, "exact", draws=5000, var_names=["Q_K1"], random_seed=1)
    draws = exact["posterior"]["Q_K1"].values[0, :, 5, :5]
    error = draws.std(0) / np.sqrt(len(draws))
    assert (abs(draws.mean(0) - found.sel(kernel="K1").values[0]) < 4 * error).all()
    assert error.max() < 0.02


@pytest.mark.parametrize("method", ["mutual", "mean"])
def test_a_new_object_does_not_depend_on_the_others(method):
    train, new = split(kernels())
    completer = KernelCompleter(method=method, **UNCERTAIN).fit(train)
    alone = completer.completions(new[1:])
    np.testing.assert_allclose(completer.completions(new).draws[:, :, 1:], alone.draws)
    found = completer.transform(new)[1:].transpose("kernel", ...)
    np.testing.assert_allclose(found, alone.mean)


@pytest.mark.parametrize("method", ["mutual", pytest.param("mean", marks=pytest.mark.slow)])
def test_cross_validation_completes_training_folds_alone(method):
    folds, X = KFold(2), kernels(([3, 12], [6]))
    completer = KernelCompleter(method=method, engine="em")
    pipeline = make_pipeline(
        completer, KernelProbitClassifier("precomputed", **KNOWN, random_state=1)
    )
    found = cross_val_predict(pipeline, X, Y, cv=folds, method="predict_proba")
    for train, test in folds.split(X):
        fold = clone(completer)
        classifier = KernelProbitClassifier("precomputed", **KNOWN, random_state=1)
        classifier.fit(fold.fit_transform(X[np.ix_(train, train)]), Y[train])
        expected = classifier.predict_proba(fold.transform(X[np.ix_(test, train)]))
        np.testing.assert_allclose(found[test], expected)
        # With the test objects among those that are completed, probabilities differ.
        stack = {f"K{k}": X[:, :, k] for k in range(2)}
        leaking = complete_kernels(stack, method=method, engine="em", progressbar=False)
        rows = [leaking.of(train), leaking.of(test, train)]
        trained, new = (each.mean.transpose("obs", "basis", "kernel").values for each in rows)
        other = clone(classifier).fit(trained, Y[train]).predict_proba(new)
        assert abs(other - expected).max() > 1e-3


def test_degrees_of_freedom_are_tuned():
    completer = KernelCompleter(draws=2, random_state=1)
    few = {"engine": kz.VB(tolerance=0.1, remaining=1.0), "draws": 20, "random_state": 1}
    pipeline = make_pipeline(completer, KernelProbitClassifier("precomputed", **KNOWN, **few))
    grid = [
        {"kernelcompleter__engine": ["exact"], "kernelcompleter__excess": [1.0, 30.0]},
        {"kernelcompleter__engine": ["em"], "kernelcompleter__lam": [0.1, 1.0]},
    ]
    options = {"cv": 2, "error_score": "raise", "scoring": "neg_log_loss"}
    X = kernels(([1, 5, 10], []))
    search = GridSearchCV(pipeline, grid, **options).fit(X, Y)
    assert np.unique(search.cv_results_["mean_test_score"]).size == 4
    assert search.predict(X).shape == (N,)


def test_saved_completers_answer_the_same():
    train, new = split(kernels())
    completer = KernelCompleter(**UNCERTAIN).fit(train)
    loaded = pickle.loads(pickle.dumps(completer))
    assert loaded.completed_.key == completer.completed_.key
    draws = (each.completions(new).draws for each in (loaded, completer))
    np.testing.assert_array_equal(*draws)


def test_a_grid_search_tunes_the_completion():
    pipeline = make_pipeline(
        KernelCompleter(method="zero"), KernelProbitClassifier("precomputed", **KNOWN)
    )
    grid = {"kernelcompleter__method": ["zero", "mean"]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(kernels(), Y)
    assert set(search.best_params_) == set(grid)


def test_uncertainty_reaches_predictions():
    train, new = split(kernels())
    completer = KernelCompleter(**UNCERTAIN).fit(train)
    rows = completer.completions(new)
    np.testing.assert_allclose(completer.transform(new).transpose("kernel", ...), rows.mean)
    lacking = np.isnan(new).all(1)
    assert lacking.sum() == 2
    widths = rows.draws.std(0).mean(2).T
    assert widths[lacking].min() > widths[~lacking].max()
    model = kz.MultinomialProbit(completer.completed_, Y[TRAIN])
    result = kz.fit(model, "vb", draws=100, random_seed=1, progressbar=False)
    found = kz.predict(model, result, rows)
    assert found["probability_between"].sizes["obs"] == len(NEW)
    with pytest.raises(ValueError, match="'kernels_new' argument of predict"):
        kz.predict(model, result, clone(completer).set_params(draws=3).fit(train).completions(new))


def test_new_objects_have_draws_where_training_objects_lack_nothing():
    train, new = split(kernels(([10], [])))
    completer = KernelCompleter(**UNCERTAIN).fit(train)
    rows = completer.completions(new)
    assert len(completer.completed_) == len(rows) == 4
    assert rows.draws[:, 0, 1].std(0).min() > 0.01
    assert np.ptp(rows.draws[:, :, [0, 2]], axis=0).max() == 0
    model = kz.MultinomialProbit(completer.completed_, Y[TRAIN])
    result = kz.fit(model, "vb", draws=100, random_seed=1, progressbar=False)
    assert result["posterior"].sizes["chain"] == 1
    between = kz.predict(model, result, rows)["probability_between"].max("class").values
    assert between[1] > 1e-3
    assert between[[0, 2]].max() < 1e-10


def frames(X, rows, columns):
    return {
        name: pd.DataFrame(X[:, :, k], index=rows, columns=columns)
        for k, name in enumerate(("one", "two"))
    }


@pytest.mark.parametrize("method", ["mutual", "mean"])
def test_labels_align_kernels_and_columns(method):
    ids, new_ids = [f"t{i}" for i in TRAIN], [f"n{i}" for i in NEW]
    train, new = split(kernels())
    train, new = frames(train, ids, ids), frames(new, new_ids, ids)
    completer = KernelCompleter(method=method, **UNCERTAIN)
    expected = completer.fit(train).transform(new)
    order = np.random.default_rng(0).permutation(ids).tolist()
    turned = {name: train[name].loc[order, order[::-1]] for name in ("two", "one")}
    other = clone(completer).fit(turned)
    found = other.transform({"two": new["two"].loc[:, order[::-1]], "one": new["one"]})
    xr.testing.assert_allclose(found.sel(basis=ids, kernel=["one", "two"]), expected)


def with_entry(X, place, value):
    X = X.copy()
    X[place] = value
    return X


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c, X: c.transform(with_entry(X, (0, 0, 0), np.nan)), r"NaN at \(.*0\) of kernel"),
        (lambda c, X: c.transform(with_entry(X, (0, 1, 0), 0.5)), r"a number at \(.*1\) of kernel"),
        (lambda c, X: c.transform(with_entry(X, 0, np.nan)), r"in at least one kernel"),
        (lambda c, X: c.transform(X[:, :, :1]), r"the kernels \['K0', 'K1'\]"),
        (lambda c, X: c.transform(X[:, :4]), r"9 features|9 training objects"),
        (lambda c, X: c.transform({"K0": X[:, :, 0], "other": X[:, :, 1]}), r"the kernels \['K0'"),
        (lambda c, X: c.transform(np.ma.masked_invalid(X)), r"'X' argument"),
        (lambda c, X: c.set_params(excess=0).fit(X), r"'excess' argument of KernelCompleter must"),
        (lambda c, X: c.set_params(lam=-1).fit(np.nan_to_num(X)), r"'lam' argument of KernelComp"),
        (lambda c, X: c.set_params(jitter="no").fit(np.nan_to_num(X)), r"'jitter' argument of Ker"),
        (
            lambda c, X: c.set_params(excess="2").fit(X),
            r"'excess' argument of KernelCompleter.*'2'",
        ),
        (lambda c, X: c.set_params(normalize="unit").fit(X[:, :0]), r"'normalize' argument"),
    ],
)
def test_bad_input_is_refused(call, message):
    train, new = split(kernels())
    with pytest.raises(ValueError, match=message):
        call(KernelCompleter(method="mean").fit(train), new)
