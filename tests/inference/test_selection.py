"""Scale and weights chosen by held-out log scores."""

import itertools
import signal
from dataclasses import replace
from functools import reduce
from operator import or_

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from scipy.stats import norm
from threadpoolctl import threadpool_info, threadpool_limits
from xarray import DataArray

import kernelzoo as kz
from kernelzoo.inference import PAPERS, left_out
from kernelzoo.inference import choice as rooms
from kernelzoo.inference.choice import Selection, why_no_selection
from kernelzoo.inference.left_out import objects_of, splits
from kernelzoo.inference.variational.ascent import Ascent
from kernelzoo.models.combinations.sums import FixedWeights

QUIET = {"progressbar": False}


def objects(n=60, seed=0):
    """Two blocks of features, the first of which decides three classes, and a smooth response."""
    rng = np.random.default_rng(seed)
    x = {"a": rng.normal(size=(n, 2)), "b": rng.normal(size=(n, 3))}
    y = np.digitize(x["a"][:, 0], [-0.5, 0.5])
    return x, y, 2 * np.sin(2 * x["a"][:, 0])


def kernels():
    each = [kz.gaussian("median").on(block).named(block) for block in ("a", "b")]
    return (each[0] | each[1]).normalize("trace")


def declared(name, n=60):
    x, y, target = objects(n)
    stack = kernels()(x)
    if name == "probit":
        return kz.MultinomialProbit(stack, y)
    if name == "classification":
        return kz.CompositeKernelClassification(stack, y > 0)
    return kz.CompositeKernelRegression(stack, target - target.mean())


def score_probits_by(held_out, monkeypatch):
    """Replace the function of the paper that scores left-out objects."""
    paper = replace(PAPERS[kz.MultinomialProbit], held_out=held_out)
    monkeypatch.setitem(PAPERS, kz.MultinomialProbit, paper)


def folds_of(model, folds, *most):
    return splits(model, objects_of(model), folds, 0, *most)


@pytest.mark.parametrize("name", ["probit", "classification", "regression"])
def test_scores_are_those_of_fits_without_the_objects(name):
    """By hand: each fold is declared on its objects, fitted by VB, and predicts the others."""
    model = declared(name, 40).redeclared(combination="fixed")
    scale = 3.0
    scores = kz.select(model, scales=[scale], choose_weights=False, folds=3, **QUIET).log_scores
    assert scores.sizes == {"weights": 1, "scale": 1, "obs": 40}
    argument = "upsilon" if name == "probit" else "varsigma"
    K = model["K"].get_value()
    values = model["targets" if name == "regression" else "labels"].get_value()
    expected = np.empty(40)
    for train, new in folds_of(model, 3):
        part = type(model)(
            dict(zip(("a", "b"), K[:, train][:, :, train], strict=True)),
            values[train],
            **{argument: scale, "combination": "fixed"},
        )
        result = kz.fit(part, "vb", draws=4000, random_seed=1, **QUIET)
        rows = dict(zip(("a", "b"), K[:, new][:, :, train], strict=True))
        predicted = kz.predict(part, result, rows, **QUIET)
        if name == "regression":
            of_new = norm.logpdf(values[new], predicted["mean"], predicted["target_sd"])
        else:
            p = predicted["probability"].to_numpy()
            of_new = np.log(p[np.arange(len(new)), values[new]])
        expected[new] = of_new
    # A hundred draws here, and an ascent that ends within a nat.
    assert np.corrcoef(scores.to_numpy().ravel(), expected)[0, 1] > 0.98
    assert abs(float(scores.mean()) - expected.mean()) < 0.05


@pytest.mark.filterwarnings("ignore::kernelzoo.ApproximationWarning")
def test_learned_weights_are_scored_as_fits_learn_them(monkeypatch):
    """From equal weights VB finds the signal; the best of its starts has the block of noise."""
    # In these folds it does.
    for module in (rooms, left_out):
        monkeypatch.setattr(module, "objects_of", lambda *_, **__: np.arange(30))
    rng = np.random.default_rng(1)
    y = np.arange(30) % 2
    x = {"signal": rng.normal(size=(30, 20)) + 0.3 * (2 * y[:, None] - 1)}
    x["noise"] = rng.normal(size=(30, 30))
    each = [kz.gaussian("median").on(block).named(block) for block in x]
    model = kz.MultinomialProbit((each[0] | each[1]).normalize("trace")(x), y, upsilon=1000.0)
    few = {"k": 2, "draws": rooms.DRAWS_OF_PREDICTIONS, **QUIET}
    one, best = (kz.scores.loo_kfold(model, kz.VB(starts=n), **few).elpd / 30 for n in (1, None))
    chosen = kz.select(model, scales=[1000.0], folds=2, choose_weights=False, **QUIET)
    assert chosen.log_scores.mean() == pytest.approx(best, abs=0.05)
    assert best < one - 0.2


@pytest.mark.parametrize(
    ("one", "several", "wins"), [(-0.6, -0.1, False), (-0.4, -0.9, False), (-0.4, -0.45, True)]
)
def test_learned_weights_win_only_as_fits_learn_them(one, several, wins, monkeypatch):
    """They are fitted from several starts if one start predicts better than equal weights."""
    fitted = []

    def scored(model, fold, scales, run, *, several_starts):
        fitted.append((fold.learned, several_starts))
        score = -0.5 if not fold.learned else several if several_starts else one
        return [np.full(len(fold.responses_new), score)] * len(scales)

    score_probits_by(scored, monkeypatch)
    chosen = kz.select(declared("probit"), scales=[1.0, 10.0], folds=2, **QUIET)
    assert chosen.model.learned == wins
    assert np.nanmax(chosen.log_scores[1]) == (one if one < -0.5 else several)
    assert [(False, False), (True, False), (True, True)][: 2 + (one > -0.5)] == fitted[::2]


def test_scale_follows_the_signal():
    """Separable classes want a large scale, labels without signal a small one."""
    x, y, _ = objects(90)
    stack = kernels()(x)
    few = {"scales": [1.0, 10.0, 100.0], "choose_weights": False, **QUIET}
    clear = kz.select(kz.MultinomialProbit(stack, y), **few)
    noise = np.random.default_rng(1).permutation(y)
    unclear = kz.select(kz.MultinomialProbit(stack, noise), **few)
    assert clear.settings["upsilon"] >= 100 > unclear.settings["upsilon"]
    assert clear.model.upsilon == clear.settings["upsilon"]
    mean = clear.log_scores.mean("obs").isel(weights=0)
    assert mean["scale"][int(mean.to_numpy().argmax())] == clear.settings["upsilon"]
    assert repr(clear).startswith(f"Selection(upsilon={clear.model.upsilon!r}")


@pytest.mark.parametrize(("scales", "at_the_end"), [((0.1, 1.0), True), ((0.1, 1.0, 9.0), False)])
def test_a_choice_at_the_end_of_the_scales_says_so(scales, at_the_end):
    """A wider range might predict better."""
    scored = DataArray(
        np.zeros((1, len(scales), 2)), {"scale": [*scales]}, ("weights", "scale", "obs")
    )
    selection = Selection(None, {"upsilon": 1.0}, scored)
    assert ("at the end of the scales" in repr(selection)) == at_the_end


def test_weights_are_learned_where_one_block_decides():
    """Of five blocks, four are noise: learned weights predict better. The reverse without noise."""
    rng = np.random.default_rng(3)
    signal = rng.normal(size=(80, 2))
    y = (signal[:, 0] > 0).astype(int)
    noise = {f"noise {i}": rng.normal(size=(80, 4)) for i in range(4)}
    each = [kz.gaussian("median").on(b).named(b) for b in ("signal", *noise)]
    stack = reduce(or_, each).normalize("trace")({"signal": signal} | noise)
    chosen = kz.select(kz.MultinomialProbit(stack, y), scales=[10.0, 100.0], **QUIET)
    scale = chosen.settings["upsilon"]
    equal, declared = chosen.log_scores.mean("obs").sel(scale=scale).to_numpy()
    assert declared > equal + 0.02
    assert "combination" not in chosen.settings
    assert chosen.model.learned
    # Other scales are tried with equal weights only.
    others = chosen.log_scores.sel(weights="declared").drop_sel(scale=scale)
    assert others.isnull().all()


def test_equal_weights_are_kept_unless_learned_ones_predict_better(monkeypatch):
    model = declared("probit")

    def worse(model, fold, scales, run, *, several_starts):
        # On a few hundred objects, BLAS threads multiply the time.
        blas = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
        assert all(pool["num_threads"] == 1 for pool in blas)
        score = -1.1 if fold.learned else -1.0
        yield from (np.full(len(fold.responses_new), score) for _ in scales)

    score_probits_by(worse, monkeypatch)
    with threadpool_limits(2, user_api="blas"):
        chosen = kz.select(model, scales=[2.0], **QUIET)
    assert chosen.settings == {"upsilon": 2.0, "combination": FixedWeights()}
    assert not chosen.model.learned
    np.testing.assert_array_equal(chosen.model["beta"].get_value(), [0.5, 0.5])


def test_folds_leave_each_object_out_once_and_copies_together():
    x, y, _ = objects(30)
    rows = [*range(30), 3, 3, 7]
    ids = [f"P{row}" for row in rows]
    frames = {block: pd.DataFrame(values[rows], index=ids) for block, values in x.items()}
    model = kz.MultinomialProbit(kernels()(frames), y[rows])
    parts = list(folds_of(model, 4, rooms.MOST_OBJECTS))
    left_out = np.concatenate([new for _, new in parts])
    assert sorted(left_out) == list(range(33))
    for train, new in parts:
        assert {ids[row] for row in train}.isdisjoint(ids[row] for row in new)
        assert len(train) + len(new) == 33
    assert kz.select(model, scales=[1.0, 10.0], **QUIET).log_scores.notnull().any("scale").any()


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("name", ["probit", "regression"])
def test_order_of_objects_changes_no_choice(name, labelled, monkeypatch):
    """Bug: of objects without ids, those in the same places were left out."""
    monkeypatch.setattr(rooms, "MOST_OBJECTS", 30)
    x, y, target = objects(40)
    ids = np.array([f"P{row}" for row in range(40)])
    order = np.random.default_rng(2).permutation(40)

    def scores(rows):
        frames = {
            block: pd.DataFrame(v[rows], ids[rows]) if labelled else v[rows]
            for block, v in x.items()
        }
        stack = kernels()(frames)
        if name == "probit":
            model = kz.MultinomialProbit(stack, y[rows], combination="fixed")
        else:
            model = kz.CompositeKernelRegression(stack, target[rows], combination="fixed")
        found = kz.select(model, scales=[1.0], **QUIET).log_scores
        return found if labelled else found.assign_coords(obs=ids[rows[found["obs"].values]])

    one, other = scores(np.arange(40)), scores(order)
    assert one.sizes["obs"] < 40
    np.testing.assert_allclose(one, other.sel(obs=one["obs"]), rtol=1e-6)


def test_many_objects_are_sampled_by_class(monkeypatch):
    monkeypatch.setattr(rooms, "MOST_OBJECTS", 30)
    model = declared("probit", 90)
    scores = kz.select(model, scales=[1.0], choose_weights=False, **QUIET).log_scores
    assert scores.sizes["obs"] == 30
    codes = model.label_codes
    shares = np.bincount(codes[scores["obs"].values]) / 30
    np.testing.assert_allclose(shares, np.bincount(codes) / 90, atol=0.05)
    counts = np.array([np.bincount(codes[new]) for _, new in folds_of(model, 3, 30)])
    assert (np.ptp(counts, axis=0) <= 1).all()


def test_basis_expansions_keep_all_functions():
    x, y, _ = objects(50)
    stack = kz.gaussian("median").on("a").landmarks(6)(x)
    chosen = kz.select(kz.MultinomialProbit(stack, y), scales=[1.0, 100.0], **QUIET)
    assert chosen.model.upsilon == 100.0
    assert chosen.log_scores.sizes == {"weights": 1, "scale": 2, "obs": 50}


def test_seeds_reproduce():
    model = declared("probit", 30)
    one, two, other = (
        kz.select(model, scales=[1.0], folds=2, random_seed=s, **QUIET).log_scores
        for s in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, two)
    assert np.abs(one - other).max() > 0


def test_seeds_choose_objects_and_folds(monkeypatch):
    """MAP draws nothing: its scores differ by the folds alone."""
    model = declared("regression", 30).redeclared(combination="fixed")
    one, two, other = (
        kz.scores.loo_kfold(model, "map", k=3, random_seed=s, **QUIET).elpd_i for s in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, two)
    assert np.abs(one - other).max() > 1e-3
    monkeypatch.setattr(rooms, "MOST_OBJECTS", 20)
    one, two, other = (
        set(kz.select(model, scales=[1.0], random_seed=s, **QUIET).log_scores["obs"].values)
        for s in (1, 1, 2)
    )
    assert one == two != other


def test_known_weights_are_those_of_the_scores():
    """With the block of noise, labels cannot be predicted; with half of it, somewhat."""
    model = declared("probit", 40)
    signal, equal, noise = (
        kz.select(
            model.redeclared(combination=FixedWeights([share, 1 - share])), scales=[100.0], **QUIET
        ).log_scores.mean()
        for share in (0.99, 0.5, 0.01)
    )
    assert signal > equal + 0.1 > noise + 0.2


def test_scores_of_several_outputs_are_summed():
    """Twice the same output, with each object in a fold of its own."""
    x, _, target = objects(12)
    targets = (target - target.mean())[:, None]
    one, two = (
        kz.select(
            kz.CompositeKernelRegression(kernels()(x), each, combination="fixed"),
            scales=[1.0],
            folds=12,
            **QUIET,
        ).log_scores.to_numpy()
        for each in (targets, np.hstack([targets, targets]))
    )
    assert two.sum() == pytest.approx(2 * one.sum(), rel=0.1)


def test_data_set_since_are_those_of_the_choice():
    model = declared("probit", 30)
    codes = (model.label_codes + 1) % 3
    pm.set_data({"labels": codes}, model=model)
    chosen = kz.select(model, scales=[1.0], **QUIET)
    np.testing.assert_array_equal(chosen.model.label_codes, codes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scales": [1.0, 1.0]}, "'scales' argument of select must be increasing"),
        ({"scales": []}, "'scales' argument"),
        ({"scales": [-1.0]}, "'scales' argument of select must be a finite number above 0"),
        ({"folds": 1}, "'folds' argument of select must be 2 or more"),
        ({"choose_weights": "no"}, "'choose_weights' argument"),
    ],
)
def test_bad_arguments_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        kz.select(declared("probit", 20), **change, **QUIET)


def test_models_without_a_choice_are_refused():
    x, y, _ = objects(20)
    stack = kernels()(x)
    refused = {
        "products": kz.MultinomialProbit(stack, y, combination="product"),
        "parameters to learn": kz.MultinomialProbit(kz.gaussian(kz.kernels.Theta()).on("a")(x), y),
        "not available for WishartCompletion": kz.WishartCompletion.example(),
        "two distinct objects each": kz.MultinomialProbit({"a": np.eye(3) + 0.5}, [0, 1, 1]),
    }
    for message, model in refused.items():
        assert message in why_no_selection(model)
        with pytest.raises(ValueError, match=f"select does not apply to this model: .*{message}"):
            kz.select(model, **QUIET)
    with pytest.raises(TypeError, match=r"must be a pm\.Model"):
        kz.select(stack)


@pytest.mark.parametrize(("name", "scale"), [("probit", "upsilon"), ("regression", "varsigma")])
def test_a_number_is_chosen_in_place_of_a_learned_scale(name, scale):
    model = declared(name, 30)
    learned = model.redeclared(**{scale: kz.LearnedScale()})
    few = {"scales": [0.1, 10.0], "folds": 2, **QUIET}
    one, two = (kz.select(each, **few) for each in (model, learned))
    assert one.settings == two.settings
    np.testing.assert_array_equal(one.log_scores, two.log_scores)
    with learned:
        pm.Normal("more")
    with pytest.raises(ValueError, match="select does not apply"):
        kz.select(learned, **QUIET)


def test_amended_models_are_refused():
    model = declared("probit", 20)
    with model:
        pm.Normal("more")
    with pytest.raises(ValueError, match="with added terms: 'more'"):
        kz.select(model, **QUIET)


@pytest.mark.parametrize(("one_fold", "scored"), [(30, 10), (60, 40)])
def test_of_few_columns_many_objects_take_part(one_fold, scored, monkeypatch):
    for name, number in {
        "MOST_OBJECTS": 20,
        "MOST_OBJECTS_OF_FEW_COLUMNS": 40,
        "OBJECTS_OF_ONE_FOLD": one_fold,
    }.items():
        monkeypatch.setattr(rooms, name, number)
    x, y, _ = objects(60)
    few, many = (
        kz.MultinomialProbit(kz.gaussian("median").on("a").landmarks(n)(x), y) for n in (6, 25)
    )
    assert kz.select(few, scales=[1.0], **QUIET).log_scores.sizes["obs"] == scored
    assert kz.select(many, scales=[1.0], **QUIET).log_scores.sizes["obs"] == 20


@pytest.mark.parametrize("name", ["probit", "classification", "regression"])
def test_scale_of_the_declaration_does_not_matter(name):
    model = declared(name, 30)
    other = model.redeclared(**{"upsilon" if name == "probit" else "varsigma": 500.0})
    few = {"scales": [10.0], "folds": 2, **QUIET}
    one, two = (kz.select(each, **few).log_scores for each in (model, other))
    np.testing.assert_allclose(one, two, rtol=1e-10)


@pytest.mark.parametrize("name", ["probit", "classification"])
def test_rare_classes_are_in_every_training_part(name, monkeypatch):
    monkeypatch.setattr(rooms, "MOST_OBJECTS", 30)
    x, _, _ = objects(300)
    rare = np.arange(300) < 6
    declared = {"probit": kz.MultinomialProbit, "classification": kz.CompositeKernelClassification}
    model = declared[name](kernels()(x), rare)
    for train, _ in folds_of(model, 4, rooms.MOST_OBJECTS):
        assert rare[train].sum() >= 2
    assert kz.select(model, scales=[1.0], **QUIET).log_scores.sizes["obs"] < 40


def test_equal_weights_are_those_of_the_plain_average():
    model = declared("probit", 30)
    fixed = model.redeclared(combination="fixed")
    one, two = (kz.select(each, scales=[10.0], **QUIET).log_scores[0] for each in (model, fixed))
    np.testing.assert_allclose(one, two, rtol=1e-10)


@pytest.mark.filterwarnings("ignore:VB was interrupted")
def test_one_ctrl_c_ends_a_choice_of_many_fits(monkeypatch):
    """VB returns what it has, and the next fit would begin."""
    advance, calls = Ascent.advance, itertools.count()

    def pressing(*arguments, **options):
        if next(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return advance(*arguments, **options)

    model = declared("probit", 40)
    monkeypatch.setattr(Ascent, "advance", pressing)
    with pytest.raises(KeyboardInterrupt):
        kz.select(model, **QUIET)
    assert next(calls) == 4
