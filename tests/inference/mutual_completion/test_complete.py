"""Completion with draws, and models fitted on several completions."""

import pickle
from dataclasses import replace

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import kernelzoo as kz
from joint_completion import joint_probit
from kernelzoo.inference.completion import CompletedKernels, complete_kernels
from kernelzoo.inference.engine.completions import fit_each_completion, rubin
from kernelzoo.inference.engine.engine import Run

N = 24
IDS = [f"s{i:02d}" for i in range(N)]
Y = pd.Series(np.array(["x", "y", "z"])[np.arange(N) % 3], index=IDS)
TRAIN, NEW = IDS[:18], IDS[18:]
MISSING = {"a": [1, 5, 9, 20], "b": [2, 12, 22]}


def frames(missing=MISSING, n=N, units=(1.0, 5.0)):
    rng = np.random.default_rng(3)
    ids, kernels = IDS[:n], {}
    for name, unit in zip("ab", units, strict=True):
        x = rng.normal(size=(N, 3)) + 1.5 * np.eye(3)[np.arange(N) % 3]
        K = unit * np.exp(-((x[:, None] - x[None]) ** 2).sum(-1) / 6)[:n, :n]
        rows = missing.get(name, [])
        K[rows] = np.nan
        K[:, rows] = np.nan
        kernels[name] = pd.DataFrame(K, index=ids, columns=ids)
    return kernels


OPTIONS = {"random_seed": 1, "progressbar": False, "thin": 2, "tune": 50}


@pytest.fixture(scope="module")
def completion():
    with pytest.warns(UserWarning, match="effective draws"):
        return complete_kernels(frames(), draws=5, **OPTIONS)


def first(completion, number):
    """The first draws of the completed kernels."""
    return replace(completion, draws=completion.draws[:number])


def vb(model, **options):
    return kz.fit(model, "vb", draws=200, random_seed=7, progressbar=False, **options)


@pytest.fixture(scope="module")
def fitted(completion):
    model = kz.MultinomialProbit(completion.of(TRAIN), Y[TRAIN])
    return model, vb(model)


def test_visible_entries_stay_and_draws_are_positive_semidefinite(completion):
    assert len(completion) == 5
    for k, kernel in enumerate(frames().values()):
        seen = kernel.notna().to_numpy().any(0)
        np.testing.assert_array_equal(completion.visible[:, k], seen)
        block = np.ix_(seen, seen)
        for draw in (*completion.draws[:, k], completion.mean.values[k]):
            np.testing.assert_allclose(draw[block], kernel.to_numpy()[block], atol=1e-10)
            assert np.linalg.eigvalsh(draw)[0] > -1e-10
        sd = completion.sd.values[k]
        assert (sd[block] < 1e-12).all()
        assert (sd[~seen] > 1e-4).all()
    assert np.ptp(completion.draws, axis=0).max() > 0.01


def test_training_objects_alone_give_the_constants(completion):
    train, new = completion.of(TRAIN), completion.of(NEW, TRAIN)
    positions = np.ix_(range(18, 24), range(18))
    for m in range(5):
        np.testing.assert_allclose(np.trace(train[m].values, axis1=1, axis2=2), 18)
        for k in range(2):
            raw = completion.draws[m, k]
            scale = 18 / np.trace(raw[:18, :18])
            np.testing.assert_allclose(new[m].values[k], scale * raw[positions])


def test_few_draws_are_the_first_of_many(completion):
    """Of all chains in turns: each of two chains gives one draw here, and three there."""
    two = complete_kernels(frames(), draws=2, **OPTIONS)
    np.testing.assert_allclose(two.draws, completion.draws[:2])


def test_one_completion_is_a_plain_fit(completion):
    completion = first(completion, 1)
    model = kz.MultinomialProbit(completion.of(TRAIN), Y[TRAIN])
    one = vb(model)
    plain_model = kz.MultinomialProbit(completion.of(TRAIN)[0], Y[TRAIN])
    plain = vb(plain_model)
    for name in plain["posterior"]:
        np.testing.assert_array_equal(one["posterior"][name], plain["posterior"][name])
    assert "log_likelihood" in one.children
    expected = kz.predict(plain_model, plain, completion.of(NEW, TRAIN)[0])
    found = kz.predict(model, one, completion.of(NEW, TRAIN))
    np.testing.assert_allclose(found["probability"], expected["probability"])
    np.testing.assert_allclose(found["probability_sd"], expected["probability_sd"], atol=1e-8)


def test_each_completion_has_its_kernels_and_predictions_are_their_mixture(completion, fitted):
    model, result = fitted
    assert result["posterior"]["completion"].values.tolist() == [0, 1, 2, 3, 4]
    seeds, each = json_list(result.attrs["completion_seeds"]), []
    for m, seed in enumerate(seeds):
        alone = kz.MultinomialProbit(completion.of(TRAIN)[m], Y[TRAIN])
        fit = kz.fit(alone, "vb", draws=200, random_seed=seed, progressbar=False)
        each.append(kz.predict(alone, fit, completion.of(NEW, TRAIN)[m]))
    p, sd = (np.stack([one[name] for one in each]) for name in ("probability", "probability_sd"))
    found = kz.predict(model, result, completion.of(NEW, TRAIN), keep_draws=True)
    np.testing.assert_allclose(found["probability"], p.mean(0))
    np.testing.assert_allclose(found["probability_sd"] ** 2, (sd**2).mean(0) + p.var(0))
    np.testing.assert_allclose(found["probability_between"], p.std(0, ddof=1))
    draws = found["probability_draws"]
    assert draws.sizes["chain"] == 5
    np.testing.assert_allclose(draws.mean(("chain", "draw")), p.mean(0))
    np.testing.assert_allclose(draws.std(("chain", "draw")), found["probability_sd"])
    assert (found["label"].values == found["class"].values[p.mean(0).argmax(1)]).all()


def json_list(text):
    return [int(number) for number in text.strip("[]").split(",")]


def test_moments_follow_rubins_rules(fitted):
    _, result = fitted
    W, found = result["posterior"]["W"].values, result["completions"]
    means, variances = W.mean(1), W.var(1, ddof=1)
    np.testing.assert_allclose(found["W_mean"], means.mean(0))
    np.testing.assert_allclose(found["W_within"], variances.mean(0))
    np.testing.assert_allclose(found["W_between"], means.var(0, ddof=1))
    total = variances.mean(0) + (1 + 1 / 5) * means.var(0, ddof=1)
    np.testing.assert_allclose(found["W_total"], total)
    # The law of total variance, for the draws themselves.
    split = W.var(1).mean(0) + means.var(0)
    np.testing.assert_allclose(W.reshape(-1, *W.shape[2:]).var(0), split)


def test_rubin_pools_the_chains_of_a_completion():
    rng, of = np.random.default_rng(0), np.array([0, 0, 0, 1, 1])
    x = rng.normal(size=(5, 50)) + 3 * of[:, None]
    posterior = xr.Dataset(
        {"x": (("chain", "draw"), x)}, coords={"completion": ("chain", of.tolist())}
    )
    found, split = rubin(posterior), [x[of == m].ravel() for m in range(2)]
    within = np.mean([part.var(ddof=1) for part in split])
    between = np.var([part.mean() for part in split], ddof=1)
    np.testing.assert_allclose(found["x_within"], within)
    np.testing.assert_allclose(found["x_between"], between)
    np.testing.assert_allclose(found["x_total"], within + (1 + 1 / 2) * between)


def test_the_model_is_not_changed_even_by_errors(completion):
    model = kz.MultinomialProbit(first(completion, 2).of(TRAIN), Y[TRAIN])
    before = model["K"].get_value()
    vb(model)
    np.testing.assert_array_equal(model["K"].get_value(), before)
    with pytest.raises(ValueError, match="scheme"):
        kz.fit(model, "gibbs", draws=5, tune=5, progressbar=False, scheme="none")
    np.testing.assert_array_equal(model["K"].get_value(), before)


def test_results_are_saved_and_others_refused(completion, fitted, tmp_path):
    model, result = fitted
    new = completion.of(NEW, TRAIN)
    result.to_netcdf(tmp_path / "r.nc")
    loaded = xr.open_datatree(tmp_path / "r.nc")
    xr.testing.assert_identical(kz.predict(model, loaded, new), kz.predict(model, result, new))
    assert pickle.loads(pickle.dumps(completion)).key == completion.key
    turned = CompletedKernels(
        completion.mean, completion.draws[::-1], completion.visible, None, completion.steps
    )
    with pytest.raises(ValueError, match="'kernels_new' argument of predict"):
        kz.predict(model, result, turned.of(NEW, TRAIN))
    with pytest.raises(ValueError, match="'kernels_new' argument of predict"):
        kz.predict(model, result, new.mean)
    with pytest.raises(TypeError, match=r"completion\.of\(train\)"):
        kz.MultinomialProbit(completion, Y)
    other = kz.MultinomialProbit(turned.of(TRAIN), Y[TRAIN])
    with pytest.raises(ValueError, match="'result' argument of predict"):
        kz.predict(other, result, turned.of(NEW, TRAIN))


def test_nothing_missing_is_the_plain_answer():
    kernels = frames({})
    completion = complete_kernels(kernels, draws=20, normalize=None, **OPTIONS)
    whole = {name: kernel.loc[TRAIN, TRAIN] for name, kernel in kernels.items()}
    across = {name: kernel.loc[NEW, TRAIN] for name, kernel in kernels.items()}
    model, plain = (kz.MultinomialProbit(K, Y[TRAIN]) for K in (completion.of(TRAIN), whole))
    found = kz.predict(model, vb(model), completion.of(NEW, TRAIN))
    expected = kz.predict(plain, vb(plain), across)
    np.testing.assert_allclose(found["probability"], expected["probability"], atol=1e-10)


def test_complete_training_objects_are_fitted_once():
    with pytest.warns(UserWarning, match="effective draws"):
        completion = complete_kernels(frames({"a": [20]}), draws=4, **OPTIONS)
    model = kz.MultinomialProbit(completion.of(TRAIN), Y[TRAIN])
    result = vb(model)
    assert result["posterior"].sizes["chain"] == 1
    found = kz.predict(model, result, completion.of(NEW, TRAIN))
    between = found["probability_between"].max("class")
    lacking = found["obs"] == IDS[20]
    assert between[lacking] > 1e-3
    assert (between[~lacking] < 1e-10).all()


def entropy(p):
    return -(p * np.log(p)).sum(-1)


def test_a_mixture_is_no_sharper_than_its_completions_on_average(completion, fitted):
    """Entropy is concave and the largest probability convex; single objects may get sharper."""
    model, result = fitted
    new = completion.of(NEW, TRAIN)
    found = kz.predict(model, result, new)["probability"].values
    each = []
    for m in range(5):
        alone = kz.MultinomialProbit(completion.of(TRAIN)[m], Y[TRAIN])
        part = xr.DataTree.from_dict(
            {"posterior": result["posterior"].to_dataset().isel(chain=[m])}
        )
        each.append(kz.predict(alone, part, new[m])["probability"].values)
    each = np.stack(each)
    assert (entropy(found) > entropy(each).mean(0)).all()
    assert (found.max(-1) <= each.max(-1).mean(0) + 1e-12).all()
    # A lacking block is averaged over: p(t | what is known) is the mean of p(t | all blocks).
    np.testing.assert_allclose(found, each.mean(0))


def test_draws_are_those_of_the_posterior():
    """Gibbs against independent exact draws."""
    kernels = frames({"a": [1, 4], "b": []}, 5)
    options = {"random_seed": 1, "progressbar": False}
    exact = complete_kernels(kernels, engine="exact", draws=4000, **options)
    found = complete_kernels(kernels, draws=120, thin=8, tune=100, **options)
    upper = np.triu_indices(5)
    hidden = exact.sd.sel(kernel="a").values[upper] > 1e-6
    for each in (found, exact):
        # Complete, in the units given.
        np.testing.assert_allclose(each.draws[:, 1], np.tile(kernels["b"], (len(each), 1, 1)))
    one, two = (each.draws[:, 0][:, *upper][:, hidden] for each in (found, exact))
    assert one.shape[1] == 9
    # Products too: entries of one draw must belong together.
    i, j = np.triu_indices(9)
    for functional in (lambda x: x, lambda x: x[:, i] * x[:, j]):
        x, y = functional(one), functional(two)
        error = np.sqrt(x.var(0) / len(x) + y.var(0) / len(y))
        assert (abs(x.mean(0) - y.mean(0)) < 4 * error).all()
        assert (error < 0.3 * y.std(0)).all()
    mean = found.mean.sel(kernel="a").values[upper][hidden]
    assert (abs(mean - two.mean(0)) < 0.2 * two.std(0)).all()


def test_seeds_repeat_and_completions_have_their_own(completion, fitted):
    model, result = fitted
    again = vb(model)
    xr.testing.assert_equal(again["posterior"], result["posterior"])
    assert result.attrs["random_seed"] == 7
    seeds = json_list(result.attrs["completion_seeds"])
    assert seeds[0] == 7
    assert len(set(seeds)) == 5
    with pytest.warns(UserWarning, match="effective draws"):
        same = complete_kernels(frames(), draws=5, **OPTIONS)
    assert same.key == completion.key


def test_groups_of_one_model_are_refused_for_several_completions(completion, fitted):
    model, result = fitted
    for group in ("log_likelihood", "posterior_predictive", "log_prior"):
        with pytest.raises(ValueError, match="pooled over completions"):
            kz.extend(model, result, group)
    assert "log_likelihood" not in result.children


def test_observations_of_new_objects_are_drawn_per_completion(completion, fitted):
    model, result = fitted
    new = completion.of(NEW, TRAIN)
    t = kz.predict(model, result, new, keep_draws=True, random_seed=1)["t"]
    assert t.sizes["chain"] == 5
    assert t.sizes["obs"] == len(NEW)


def test_an_amended_model_takes_completions(completion):
    model = kz.MultinomialProbit(completion.of(TRAIN), Y[TRAIN])
    with model:
        pm.Deterministic("first", model["W"][0, 0])
    copy = model.copied()
    copy.set_data("K", completion.of(TRAIN).draws[1])
    assert abs(copy["K"].get_value() - model["K"].get_value()).max() > 1e-3
    assert "first" in copy.named_vars
    assert copy.kernel_source.key == completion.key


def test_an_interrupt_keeps_the_completions_before_it(completion, fitted):
    model, _ = fitted
    fits = []

    def fit_one(copy, run):
        fits.append(run)
        tree = vb(kz.MultinomialProbit(completion.of(TRAIN)[0], Y[TRAIN]))
        if len(fits) == 2:
            tree.attrs["ended_by"] = "interrupt"
        return tree

    pooled = fit_each_completion(fit_one, model, Run(progressbar=False))
    assert len(fits) == pooled["posterior"].sizes["chain"] == 2
    assert pooled.attrs["ended_by"] == "interrupt"
    assert pooled.attrs["converged"] == "no"


def test_the_worst_completion_decides(completion, fitted):
    """Bug: k-hat and convergence of the pooled draws were those of the best completion."""
    _, result = fitted
    model = kz.MultinomialProbit(completion.of(TRAIN), Y[TRAIN])
    for k_hats, states, k_hat, state in (
        ((0.3, 0.9, 0.5, 0.2, 0.1), ("yes", "yes", "yes", "no", "yes"), 0.9, "no"),
        ((np.nan, 0.4, 0.5, np.nan, 0.1), ("yes", "yes", "unknown", "yes", "yes"), 0.5, "unknown"),
        ((0.1, 0.1, 0.1, 0.1, 0.2), ("yes",) * 5, 0.2, "yes"),
    ):
        each = iter(zip(k_hats, states, strict=True))

        def fit_one(copy, run, each=each):
            posterior = result["posterior"].to_dataset().isel(chain=[0]).drop_vars("completion")
            groups = {"posterior": posterior, "constant_data": result["constant_data"].to_dataset()}
            part = xr.DataTree.from_dict(groups)
            found, verdict = next(each)
            part.attrs |= {"pareto_k": found, "converged": verdict, "seconds": 1.0}
            return part

        pooled = fit_each_completion(fit_one, model, Run(10, random_seed=1, progressbar=False))
        assert (pooled.attrs["pareto_k"], pooled.attrs["converged"]) == (k_hat, state)


def test_order_of_ids_and_kernels_does_not_matter(completion):
    order = np.random.default_rng(0).permutation(IDS).tolist()
    turned = {"b": frames()["b"].loc[order, order[::-1]], "a": frames()["a"].loc[order[::-1]]}
    with pytest.warns(UserWarning, match="effective draws"):
        other = complete_kernels(turned, draws=5, **OPTIONS)
    one, two = completion.of(TRAIN), other.of(TRAIN)
    for m in range(5):
        xr.testing.assert_allclose(two[m].sel(kernel=["a", "b"]), one[m])
    labels = Y[order[::-1]].loc[lambda y: y.index.isin(TRAIN)]
    kernels = first(completion, 1).of(TRAIN)
    models = [kz.MultinomialProbit(kernels, each) for each in (Y[TRAIN], labels)]
    xr.testing.assert_identical(*(vb(m)["posterior"]["W"] for m in models))


@pytest.mark.parametrize("make", [kz.CompositeKernelRegression, kz.CompositeKernelClassification])
def test_composite_models_carry_completions(completion, make):
    completion = first(completion, 3)
    regression = make is kz.CompositeKernelRegression
    target = pd.Series(np.sin(np.arange(N)), index=IDS)
    model = make(completion.of(TRAIN), target[TRAIN] if regression else Y[TRAIN] == "x")
    result = vb(model)
    assert result["posterior"].sizes["chain"] == 3
    found = kz.predict(model, result, completion.of(NEW, TRAIN))
    assert (found["mean_between" if regression else "probability_between"] > 0).all()


def test_collapsed_regression_predicts_with_each_completions_training_kernels(completion):
    completion, y = first(completion, 2), np.sin(np.arange(18.0))
    model = kz.CompositeKernelRegression(completion.of(TRAIN), y, collapsed=True)
    options = {"draws": 20, "tune": 20, "chains": 1, "cores": 1, "progressbar": False}
    result = kz.fit(model, "gibbs", random_seed=1, **options)
    found, means = kz.predict(model, result, completion.of(NEW, TRAIN)), []
    for m, seed in enumerate(json_list(result.attrs["completion_seeds"])):
        alone = kz.CompositeKernelRegression(completion.of(TRAIN)[m], y, collapsed=True)
        fit = kz.fit(alone, "gibbs", random_seed=seed, **options)
        means.append(kz.predict(alone, fit, completion.of(NEW, TRAIN)[m])["mean"])
    np.testing.assert_allclose(found["mean"], np.mean(means, axis=0), rtol=1e-6)


def test_time_ends_after_a_completion(completion, fitted):
    model, _ = fitted
    with pytest.warns(UserWarning, match="max_seconds"):
        result = vb(model, max_seconds=1e-3)
    assert result.attrs["ended_by"] == "max_seconds"
    assert result.attrs["converged"] == "no"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c, m: c.of(["s00", "nobody"]), r"ids of completed objects. Got the unknown 'nob"),
        (lambda c, m: c.of(["s00", "s00"]), r"'s00' more than once"),
        (lambda c, m: c.of([]), r"one id or more"),
        (lambda c, m: c.of("s00"), r"'rows' argument .* a list of ids. Got 's00'"),
        (lambda c, m: c.of(None), r"'rows' argument .* a list of ids. Got None"),
        (lambda c, m: c.of([["s00"]]), r"'rows' argument .* a list of ids"),
        (lambda c, m: c.of(["s00"], "s01"), r"'columns' argument .* a list of ids. Got 's01'"),
        (lambda c, m: kz.MultinomialProbit(c.of(TRAIN), Y), r"the unknown 's18'"),
        (lambda c, m: vb(m, store="somewhere"), r"VB cannot write a store"),
        (lambda c, m: complete_kernels(frames(), method="median"), r"'method' argument"),
        (lambda c, m: complete_kernels(frames(), engine="vb"), r"'engine' argument"),
        (lambda c, m: complete_kernels(frames(), normalize="size"), r"'normalize' argument"),
        (
            lambda c, m: complete_kernels(frames(), lam=0.1),
            r"'model' argument .* mapping: model={'lam': 0.1}\. Got",
        ),
        (
            lambda c, m: complete_kernels(frames({"a": [3], "b": [3]})),
            r"each object is in at least one kernel. Got 1 in none: 's03'",
        ),
        (
            lambda c, m: complete_kernels(frames() | {"no": frames()["a"] * np.nan}, engine="em"),
            r"at least one visible object each: leave the others out. Got none in 'no'",
        ),
    ],
)
def test_bad_input_is_refused(completion, fitted, call, message):
    with pytest.raises(ValueError, match=message):
        call(completion, fitted[0])


@pytest.mark.parametrize("engine", ["exact", "em"])
def test_other_engines(engine):
    n_draws = 1 if engine == "em" else 9
    completion = complete_kernels(
        frames({"a": [1, 5]}), engine=engine, random_seed=1, progressbar=False, draws=n_draws
    )
    assert len(completion) == n_draws
    assert (completion.sd is None) == (engine == "em")
    if engine == "exact":
        np.testing.assert_allclose(completion.sd, completion.draws.std(0, ddof=1), atol=1e-12)


def test_em_takes_kernels_of_low_rank_and_is_the_same_for_others():
    low = frames({"a": [1, 5]})
    low["b"] = low["b"] * 0 + np.outer(np.arange(N), np.arange(N))
    options = {"engine": "em", "random_seed": 1, "progressbar": False}
    assert np.isfinite(complete_kernels(low, **options).mean).all()
    with pytest.raises(ValueError, match="positive definite among its visible objects"):
        complete_kernels(low, model={"collapsed": False}, **options)
    means = [
        complete_kernels(frames(), model={"collapsed": collapsed}, **options).mean
        for collapsed in (False, True)
    ]
    np.testing.assert_allclose(*means, rtol=1e-10)


def nuts(model, draws):
    """Draws of the probabilities of new objects."""
    result = kz.fit(
        model, kz.NUTS(target_accept=0.9), draws=draws, random_seed=1, progressbar=False,
        chains=2, cores=1, var_names=["probability"], moments=[], log_likelihood=False,
    )  # fmt: skip
    return result["posterior"]["probability"]


WELL = {"nu": 20.0, "lam": 0.5}
FEW = {"tau": 3.0, "upsilon": 1.0}


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [{"a": [6, 7]}, {"a": [1, 3, 7], "b": [2]}])
def test_joint_model_against_completion_first(hidden):
    """They agree if the training objects have all rows: then labels do not inform kernels."""
    train, new = IDS[:6], IDS[6:8]
    kernels, labels = frames(hidden, 8, units=(1.0, 1.0)), Y[train].replace("z", "y")
    draws = nuts(joint_probit(kernels, labels, new=new, completion=WELL, **FEW), 1000)
    informed, p = len(hidden) > 1, draws.mean(("chain", "draw")).values
    completion = complete_kernels(
        kernels,
        draws=60 if informed else 400,
        normalize=(),
        random_seed=1,
        progressbar=False,
        model=WELL,
    )
    model = kz.MultinomialProbit(completion.of(train), labels, combination="fixed", **FEW)
    options = {"chains": 2, "cores": 1, "random_seed": 1, "progressbar": False}
    result = kz.fit(model, "gibbs", draws=1000, **options)
    few = result.isel(draw=slice(None, None, 10))
    found = kz.predict(model, few, completion.of(new, train))
    between = found["probability_between"].values / np.sqrt(len(completion))
    within = found["probability_sd"].values / np.sqrt(200)
    error = np.sqrt(az.mcse(draws).values ** 2 + between**2 + within**2)
    difference = abs(p - found["probability"].values)
    assert error.max() < 0.03
    if informed:
        assert difference.max() < 0.1
    else:
        assert (difference < 4 * error).all()
