"""Blocks of features become kernels whose constants come from the training objects."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xarray as xr
from sklearn.compose import ColumnTransformer
from sklearn.gaussian_process.kernels import RBF
from sklearn.preprocessing import StandardScaler

import kernelzoo as kz
from kernelzoo.estimators import KernelBlocks
from kernelzoo.inference.engine.result import draws_to_tree
from kernelzoo.models.kernels import functions
from kernelzoo.models.kernels.labels import ids_along

SPLIT = {"rna": slice(0, 3), "protein": slice(3, None)}
PREFIXES = {"rna": "g", "protein": "p"}
LISTS = {"rna": ["g1", "g2", "g3"], "protein": ["p1", "p2"]}
BOTH = ["rna", "protein"]

FORMS = {
    "two levels": (None, lambda d: d.X),
    "dict": (None, lambda d: {"rna": d.rna, "protein": d.protein}),
    "dict in another order": (
        None,
        lambda d: {"rna": d.rna, "protein": d.protein.iloc[::-1, ::-1]},
    ),
    "dict of arrays": (None, lambda d: {"rna": d.rna.to_numpy(), "protein": d.protein.to_numpy()}),
    "array": (SPLIT, lambda d: d.flat.to_numpy()),
    "lists": (SPLIT, lambda d: d.flat.to_numpy().tolist()),
    "frame": (PREFIXES, lambda d: d.flat),
    "names": (LISTS, lambda d: d.flat),
    "positions": ({"rna": [0, 1, 2], "protein": np.array([3, 4])}, lambda d: d.flat),
    "text beside": (PREFIXES, lambda d: d.flat.assign(name="text")),
}


def by_hand(train, new, kernels=None):
    """Kernels of new objects (kernel, obs, basis) with all constants of the training objects."""
    scaled = [
        {
            name: (getattr(each, name) - getattr(train, name).mean())
            / getattr(train, name).std(ddof=0)
            for name in BOTH
        }
        for each in (new, train)
    ]
    return (kernels or kz.gaussian("median")).normalize("trace")(*scaled)


def test_widths_of_the_training_objects_are_computed_once(data, monkeypatch):
    fitted = KernelBlocks(blocks=SPLIT).fit(data.train.flat.to_numpy())
    expected = by_hand(data.train, data.new).transpose("obs", "basis", "kernel")
    fitted.transform(data.new.flat.to_numpy())
    monkeypatch.setattr(functions, "median_of_squared_distances", None)
    K = fitted.transform(data.new.flat.to_numpy())
    np.testing.assert_allclose(K, expected, rtol=1e-12, atol=1e-12)
    assert "gamma='median'" in repr(fitted.specification_)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_input_gives_kernels_with_the_constants_of_training(form, data):
    blocks, given = FORMS[form]
    fitted = KernelBlocks(blocks=blocks).fit(given(data.train))
    assert fitted.kernel_names_.tolist() == BOTH
    assert fitted.n_features_in_ == given(data)["rna"].shape[1] + 2 if blocks is None else True
    for objects in (data.new, data.train):
        K = fitted.transform(given(objects))
        assert K.dims == ("obs", "basis", "kernel")
        expected = by_hand(data.train, objects).transpose("obs", "basis", "kernel")
        np.testing.assert_allclose(K.values, expected.values, rtol=1e-12, atol=1e-12)
    first = KernelBlocks(blocks=blocks).fit_transform(given(data.train))
    np.testing.assert_allclose(first, fitted.transform(given(data.train)), rtol=1e-12, atol=1e-12)


def test_columns_and_blocks_of_new_objects_go_by_name(data):
    fitted = KernelBlocks().fit(data.train.X)
    K = fitted.transform(data.new.X)
    np.testing.assert_array_equal(fitted.transform(data.new.X.iloc[:, ::-1]), K)
    turned = {"protein": data.new.protein, "rna": data.new.rna.iloc[:, ::-1]}
    np.testing.assert_array_equal(fitted.transform(turned), K)
    # Rows have the order of the first block given.
    turned["rna"] = turned["rna"].iloc[::-1]
    np.testing.assert_array_equal(fitted.transform(turned), K)
    turned = {"rna": data.new.rna, "protein": data.new.protein.iloc[::-1]}
    np.testing.assert_array_equal(fitted.transform(turned), K)


def test_a_mask_of_columns_is_their_positions(data):
    """Bug: it chose objects."""
    rna = np.arange(data.train.X.shape[1]) < data.train.rna.shape[1]
    masks = {"rna": rna, "protein": (~rna).tolist()}
    places = {name: np.flatnonzero(mask) for name, mask in masks.items()}
    numbers = data.train.X.to_numpy()
    for X in (numbers, pd.DataFrame(numbers, data.train.X.index, list("abcde"))):
        one, other = (KernelBlocks(blocks=each).fit_transform(X) for each in (masks, places))
        np.testing.assert_array_equal(one, other)


def test_new_columns_numbered_otherwise_say_how_to_order_them(data):
    numbered = data.train.X.set_axis(range(data.train.X.shape[1]), axis=1)
    fitted = KernelBlocks(kz.gaussian("median")).fit(numbered)
    with pytest.raises(ValueError, match=r"other order \(X_new\[X_train.columns\] has the columns"):
        fitted.transform(numbered.iloc[:, ::-1])


def test_a_new_object_does_not_depend_on_the_others(data):
    fitted = KernelBlocks(kz.gaussian("median") | kz.linear()).fit(data.train.X)
    alone = fitted.transform(data.new.X.iloc[:1])
    others = data.new.X.copy()
    others.iloc[1:] *= 1e3
    np.testing.assert_allclose(fitted.transform(others)[:1], alone, rtol=1e-12)


def test_ids_of_training_objects_do_not_make_new_ones_a_gram_matrix(data):
    fitted = KernelBlocks().fit(data.train.X)
    again = data.train.X + 0.5
    expected = fitted.transform(again.set_axis([f"new {i}" for i in again.index]))
    np.testing.assert_array_equal(fitted.transform(again), expected)


def test_new_objects_keep_their_ids(data):
    """Bug: one id of a training object, or twice, and no object had its id: y went by position."""
    fitted = KernelBlocks().fit(data.train.X)
    known, new = data.train.X.index[:2], data.new.X.index[:2]
    features = pd.concat([data.train.X, data.new.X])
    for ids in (known, [*known, *new], [new[0], known[1], new[0]]):
        assert fitted.transform(features.loc[ids])["obs"].values.tolist() == list(ids)
        stack = fitted.kernel_stack(features.loc[ids])
        assert not isinstance(ids_along(stack, "obs"), range)
    shuffled = data.train.y.sample(frac=1, random_state=1)
    model = kz.MultinomialProbit(fitted.transform(data.train.X), shuffled)
    found = np.asarray(model.coords["class"])[model.label_codes]
    np.testing.assert_array_equal(found, data.train.y)


def test_truth_of_new_objects_with_ids_of_training_goes_by_ids(data):
    """Bug: shuffled truth was scored by position."""
    fitted = KernelBlocks().fit(data.train.X)
    model = kz.MultinomialProbit(fitted.transform(data.train.X), data.train.y)
    W = np.random.default_rng(1).normal(size=(5, *model["W"].eval().shape))
    result = draws_to_tree(model, {"W": W, "beta": np.full((5, 2), 0.5)})
    some = data.train.X.index[:5].append(data.new.X.index[:3])
    features = pd.concat([data.train.X, data.new.X]).loc[some] + 0.1
    predicted = kz.predict(model, result, fitted.transform(features), progressbar=False)
    truth = pd.concat([data.train.y, data.new.y])[some]
    turned = truth[::-1]
    assert (turned.to_numpy() != truth.to_numpy()).any()
    assert kz.scores.held_out(predicted, turned) == kz.scores.held_out(predicted, truth.to_numpy())


NAMES = {
    "rna, protein": kz.linear(),
    "linear[rna], linear[protein], gaussian[rna], gaussian[protein]": kz.linear() | kz.gaussian(),
    "a[rna], a[protein]": kz.linear().named("a"),
    "protein": {"protein": kz.linear()},
    "protein, linear[rna], gaussian[rna]": {
        "protein": kz.linear(),
        "rna": kz.linear() | kz.gaussian(),
    },
    "linear[rna]": kz.linear().on("rna"),
}


@pytest.mark.parametrize("names", NAMES)
def test_kernels_alone_in_their_block_have_its_name(names, data):
    fitted = KernelBlocks(NAMES[names]).fit(data.X)
    assert ", ".join(fitted.get_feature_names_out()) == names


def test_blocks_without_kernel_may_lack_objects_and_be_absent(data):
    X = data.X
    X.loc["P3", "protein"] = np.nan
    fitted = KernelBlocks({"rna": kz.linear()}).fit(X)
    expected = KernelBlocks(kz.linear()).fit({"rna": data.rna}).transform({"rna": data.rna})
    np.testing.assert_array_equal(fitted.transform(X), expected)
    np.testing.assert_array_equal(fitted.transform(X[["rna"]]), expected)


def test_features_as_they_are_and_normalisations_of_their_own(data):
    X = data.flat.to_numpy()
    K = KernelBlocks(kz.linear(), standardize=False, normalize=None).fit_transform(X)
    np.testing.assert_allclose(K[:, :, 0], X @ X.T, rtol=1e-12)
    kernels = kz.linear() | kz.linear().normalize("unit")
    K = KernelBlocks(kernels, standardize=False).fit_transform(X).transpose("kernel", ...)
    np.testing.assert_allclose(K[0], X @ X.T * len(X) / np.trace(X @ X.T), rtol=1e-12)
    np.testing.assert_allclose(np.diagonal(K[1]), 1)
    features = KernelBlocks(kz.linear().landmarks(4), normalize=None).fit_transform(X)
    assert features.shape == (len(X), 4, 1)
    plain = KernelBlocks(kz.linear().landmarks(4), standardize=False, normalize=None)
    plain = plain.fit_transform(X)
    columns = KernelBlocks(kz.linear().landmarks(4), standardize=False).fit_transform(X)
    np.testing.assert_allclose(columns, plain * len(X) / (X**2).sum(), rtol=1e-9)


@pytest.fixture
def grams(data):
    """Gram matrices (obs, basis, kernel) of all objects."""
    return np.stack([block @ block.T for block in (data.rna, data.protein)], axis=-1)


def test_precomputed_kernels_are_normalised_by_training_objects(data, grams):
    K, n = grams, len(data.train.y)
    fitted = KernelBlocks("precomputed").fit(K[:n, :n])
    assert fitted.kernel_names_.tolist() == ["K0", "K1"]
    assert fitted.n_features_in_ == n
    trace = np.trace(K[:n, :n])
    np.testing.assert_allclose(fitted.transform(K[n:, :n]), K[n:, :n] * n / trace, rtol=1e-12)
    one = KernelBlocks("precomputed").fit(K[:n, :n, 0])
    np.testing.assert_array_equal(
        one.transform(K[n:, :n, 0])[..., 0], fitted.transform(K[n:, :n])[..., 0]
    )


def test_labelled_precomputed_kernels_go_by_ids(data, grams):
    frames = {
        name: pd.DataFrame(grams[..., s], data.y.index, data.y.index) for s, name in enumerate(BOTH)
    }
    # Columns of the first, and rows of the second, in another order.
    train, new = data.train.y.index, data.new.y.index
    mixed = {
        "rna": frames["rna"].loc[train, train[::-1]],
        "protein": frames["protein"].loc[train[::-1], train],
    }
    fitted = KernelBlocks("precomputed").fit(mixed)
    given = {"protein": frames["protein"].loc[new, train], "rna": frames["rna"].loc[new, train]}
    n = len(train)
    expected = KernelBlocks("precomputed").fit(grams[:n, :n]).transform(grams[n:, :n])
    np.testing.assert_allclose(fitted.transform(given), expected, rtol=1e-12)
    # New objects may repeat.
    twice = [0, 0, 1]
    repeated = {name: frame.iloc[twice] for name, frame in given.items()}
    np.testing.assert_allclose(fitted.transform(repeated), expected[twice], rtol=1e-12)


def test_stacks_of_kernels_keep_the_names(data):
    made = KernelBlocks()
    stack = made.fit_transform(data.train.X)
    taken = KernelBlocks("precomputed").fit(stack)
    assert taken.kernel_names_.tolist() == BOTH
    new = made.transform(data.new.X)
    np.testing.assert_allclose(taken.transform(new), new, rtol=1e-12)
    np.testing.assert_allclose(taken.transform(new.transpose("kernel", ...)), new, rtol=1e-12)


def test_a_precomputed_block_beside_features_is_not_scaled(data, grams):
    kernels = {"rna": kz.linear(), "other": "precomputed"}
    n = len(data.train.y)
    fitted = KernelBlocks(kernels).fit({"rna": data.train.rna, "other": grams[:n, :n, 1]})
    K = fitted.transform({"rna": data.new.rna, "other": grams[n:, :n, 1]})
    expected = grams[n:, :n, 1] * n / np.trace(grams[:n, :n, 1])
    np.testing.assert_allclose(K.sel(kernel="other"), expected, rtol=1e-12)


def test_a_kernel_in_single_precision_does_not_round_the_others(data, grams):
    made = KernelBlocks({"other": "precomputed", "rna": kz.linear()})
    X = {"other": np.float32(grams[..., 1]), "rna": data.rna}
    K = made.fit_transform(X)
    np.testing.assert_allclose(K, made.transform(X), rtol=1e-12, atol=1e-12)
    expected = KernelBlocks({"rna": kz.linear()}).fit_transform({"rna": data.rna})
    np.testing.assert_allclose(K.sel(kernel=["rna"]), expected, rtol=1e-12, atol=1e-12)
    # Eigenvalues that are negative by rounding in single precision.
    one = KernelBlocks("precomputed").fit_transform(K)
    kz.kernels.as_stack(one)
    with pytest.raises(ValueError, match=r"semidefinite|symmetric"):
        kz.kernels.as_stack(one.drop_attrs())


def test_names_of_features(data):
    fitted = KernelBlocks().fit(data.X)
    assert fitted.n_features_in_ == 5
    assert not hasattr(fitted.fit(data.flat.to_numpy()), "feature_names_in_")
    assert KernelBlocks().fit(data.flat).feature_names_in_.tolist() == data.flat.columns.tolist()


def without(frame, value):
    frame = frame.copy()
    frame.iloc[4] = value
    return frame


# Parameters, input of `fit`, and part of the message.
def test_ranks_are_mean_ranks_of_the_training_objects():
    train = np.array([[0.0], [0.0], [0.0], [5.0], [9.0]])
    blocks = KernelBlocks(kz.linear(), standardize="rank", normalize=None)
    K = blocks.fit_transform(train).values[..., 0]
    # Zeros are lowest; ranks 0, 0, 0, 3, 4 of 4 steps, standardised.
    z = np.array([0, 0, 0, 0.75, 1])
    z = (z - z.mean()) / z.std()
    np.testing.assert_allclose(K, np.outer(z, z), atol=1e-12)
    same_order = blocks.fit_transform(train**3).values[..., 0]
    np.testing.assert_allclose(same_order, K, atol=1e-12)
    blocks.fit(train)
    low, high = blocks.transform(np.array([[-7.0], [100.0]])).values[..., 0]
    np.testing.assert_allclose([low, high], [z[0] * z, z[4] * z], atol=1e-12)
    constant = KernelBlocks(kz.linear(), standardize="rank", normalize=None)
    np.testing.assert_allclose(constant.fit_transform(np.ones((4, 1))).values, 0, atol=1e-12)


REFUSED = {
    "objects of one block": (
        {},
        lambda d: {"rna": d.rna, "protein": d.protein[2:]},
        r"X\[\"protein\"\].*the same objects.*none for 'P0', 'P1'",
    ),
    "objects of a block, joined": (
        {},
        lambda d: pd.concat({"rna": d.rna, "protein": d.protein[2:]}, axis=1),
        r"X\[\"protein\"\].*finite.*'P0', 'p1'",
    ),
    "empty names": ({"blocks": PREFIXES}, lambda d: without(d.flat, np.nan), "finite.*'P4', 'g1'"),
    "NaN": ({}, lambda d: d.flat.replace(d.flat.iloc[2, 2], np.nan), "1 NaN.*'P2', 'g3'"),
    "NaN in a block": (
        {},
        lambda d: {"rna": d.rna.replace(d.rna.iloc[2, 2], np.nan)},
        r"X\[\"rna\"\].*finite.*\(2, 2\)",
    ),
    "masked": ({}, lambda d: np.ma.masked_less(d.flat.to_numpy(), 0), "masked"),
    "numbers of rows": (
        {},
        lambda d: {"rna": d.rna.to_numpy(), "protein": d.protein.to_numpy()[2:]},
        "the same objects",
    ),
    "repeated columns": ({}, lambda d: d.X.iloc[:, [0, 0, 1]], r"distinct.*\('rna', 'g1'\)"),
    "three levels": ({}, lambda d: pd.concat({"a": d.X}, axis=1), "Got 3 levels"),
    "no block": ({}, lambda d: {}, "blocks.*none"),
    "one name twice": ({}, lambda d: {1: d.rna, "1": d.protein}, "'1' more than once"),
    "sparse": ({}, lambda d: scipy.sparse.csr_array(d.flat), "[Ss]parse"),
    "sparse block": ({}, lambda d: {"a": scipy.sparse.csr_array(d.flat)}, "dense"),
    "text": ({}, lambda d: {"rna": d.rna.assign(name="a")}, "real numbers.*str"),
    "three dims": ({}, lambda d: np.ones((3, 3, 2)), "dim 3"),
    "dims": (
        {"kernels": "precomputed"},
        lambda d: xr.DataArray(np.ones((2, 3, 3)), dims=("kernel", "a", "b")),
        "'obs', 'basis', 'kernel'",
    ),
    "kernels first": ({"kernels": "precomputed"}, lambda d: np.ones((2, 9, 9)), "square"),
    "names of kernels": (
        {"kernels": "precomputed", "blocks": ["a", "b"]},
        lambda d: np.ones((3, 3, 2)),
        "None for an array of kernels",
    ),
    "blocks named twice": ({"blocks": PREFIXES}, lambda d: d.X, "None, because X names its blocks"),
    "blocks without names": ({"blocks": BOTH}, lambda d: d.flat, "dict of columns"),
    "prefix": (
        {"blocks": {"a": "zz"}},
        lambda d: d.flat,
        r"blocks\[\"a\"\].*one column of X. Got 'zz'",
    ),
    "prefix of array": ({"blocks": PREFIXES}, lambda d: d.flat.to_numpy(), "g.*None of"),
    "unknown name": ({"blocks": {"a": ["g1", "q"]}}, lambda d: d.flat, "'q'.*not in index"),
    "unknown position": ({"blocks": {"a": [0, 9]}}, lambda d: d.flat, "out-of-bounds"),
    "column twice": ({"blocks": {"a": [0, 0]}}, lambda d: d.flat, "'g1' more than once"),
    "empty slice": ({"blocks": {"a": slice(9, None)}}, lambda d: d.flat, "one column"),
    "slice of names": ({"blocks": {"a": slice("g1", "g2")}}, lambda d: d.flat, "positions"),
    "number": ({"blocks": {"a": 1.5}}, lambda d: d.flat, "Got 1.5"),
    "position": ({"blocks": {"a": 3}}, lambda d: d.flat, r"blocks\[\"a\"\].*one position is \[3\]"),
    "text in a column": ({}, lambda d: d.flat.assign(g2="x"), r"X\['g2'\]' .* real numbers"),
    "text in an array": (
        {},
        lambda d: d.flat.assign(g2="x").to_numpy(),
        r"X\[1\]' .* real numbers",
    ),
    "category": (
        {},
        lambda d: d.flat.assign(c=d.y.astype("category")),
        r"X\['c'\]' .* real numbers .*get_dummies",
    ),
    "kernel by name": ({"kernels": "gaussian"}, lambda d: d.X, r'write kz.gaussian\("median"\)'),
    "kernel by another name": ({"kernels": "rbf"}, lambda d: d.flat, r"write kz.gaussian\("),
    "function of one object": (
        {"kernels": lambda A, B: A @ B[0]},
        lambda d: d.flat,
        r"'function' .* for so many objects. Got shape",
    ),
    "function that makes kernels": (
        {"kernels": kz.gaussian},
        lambda d: d.flat,
        r"what gaussian\(...\) returns",
    ),
    "class": ({"kernels": RBF}, lambda d: d.flat, r"what RBF\(...\) returns"),
    "features as they are beside scaled ones": (
        {"kernels": kz.kernels.tanimoto() | kz.linear()},
        lambda d: d.X.abs(),
        "give the table under two names",
    ),
    "negative counts": ({"kernels": kz.kernels.tanimoto()}, lambda d: -d.X, "not negative"),
    "list of kernels": ({"kernels": [kz.linear()]}, lambda d: d.X, r"\| kz.linear\(\)"),
    "unknown block": ({"kernels": {"rn": kz.linear()}}, lambda d: d.X, "nearest is 'rna'"),
    "unknown bound block": ({"kernels": kz.linear().on("rn")}, lambda d: d.X, "nearest is 'rna'"),
    "no blocks": ({"kernels": {"rna": kz.linear()}}, lambda d: d.flat, "no blocks"),
    "no kernel": ({"kernels": {}}, lambda d: d.X, "at least one block"),
    "normalisation": ({"normalize": "max"}, lambda d: d.X, "'trace', 'unit'"),
    "no normalisation": ({"normalize": False}, lambda d: d.X, "'trace', 'unit'"),
    "flag": ({"standardize": "no"}, lambda d: d.X, "True .as 'scale'., False, or 'auto'"),
    "kernels beside features": (
        {"kernels": kz.gaussian().landmarks(4) | kz.linear()},
        lambda d: d.X,
        "as many basis functions by every kernel",
    ),
    "learned": ({"kernels": kz.gaussian(kz.kernels.Theta())}, lambda d: d.X, "to learn"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_unfit_input_is_refused(case, data):
    parameters, given, message = REFUSED[case]
    # scikit-learn's message for sparse matrices is a TypeError.
    with pytest.raises((ValueError, TypeError), match=message):
        KernelBlocks(**parameters).fit(given(data))


def test_blocks_that_are_left_out_are_named(data):
    for kernels in ({"rna": kz.linear()}, kz.linear().on("rna")):
        with pytest.warns(kz.kernels.KernelWarning, match="left out.* no kernel: 'protein'"):
            KernelBlocks(kernels).fit(data.X)


def by_transformer(data):
    parts = [(block, StandardScaler(), list(getattr(data, block))) for block in BOTH]
    return ColumnTransformer(parts).set_output(transform="pandas").fit_transform(data.flat)


LOST = {
    "transformer": (by_transformer, "blocks={'rna': 'rna__', 'protein': 'protein__'}"),
    "tuples": (lambda d: d.X.set_axis(d.X.columns.to_flat_index(), axis=1), "from_tuples"),
}


@pytest.mark.parametrize("case", LOST)
def test_blocks_that_only_names_of_columns_tell_apart_are_named(case, data):
    make, remedy = LOST[case]
    flat = make(data)
    with pytest.warns(kz.kernels.KernelWarning, match="as one block.*'rna', 'protein'") as seen:
        KernelBlocks().fit(flat)
    [warning] = seen
    assert remedy in str(warning.message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if case == "tuples":
            apart = KernelBlocks().fit(
                flat.set_axis(pd.MultiIndex.from_tuples(flat.columns), axis=1)
            )
        else:
            apart = KernelBlocks(blocks={"rna": "rna__", "protein": "protein__"}).fit(flat)
        KernelBlocks().fit(data.flat)
        KernelBlocks().fit(data.flat.add_prefix("num__"))
    assert apart.kernel_names_.tolist() == BOTH


# Input of `fit`, input of `transform`, and part of the message.
REFUSED_LATER = {
    "block missing": (lambda d: d.X, lambda d: d.X[["rna"]], r"\['protein', 'rna'\].*\['rna'\]"),
    "block unknown": (
        lambda d: d.X,
        lambda d: {"rna": d.rna, "protein": d.protein, "text": d.rna},
        "'text'",
    ),
    "array": (
        lambda d: d.X,
        lambda d: d.flat.to_numpy(),
        "Got one array or frame without block names",
    ),
    "blocks": (
        lambda d: d.flat,
        lambda d: d.X,
        "one array or frame without block names.*Got the blocks",
    ),
    "column missing": (lambda d: d.X, lambda d: d.X.iloc[:, 1:], r"X\[\"rna\"\].*none for 'g1'"),
    "column renamed": (lambda d: d.X, lambda d: d.X.rename(columns={"g1": "h"}), "unknown 'h'"),
    "order of a flat frame": (lambda d: d.flat, lambda d: d.flat.iloc[:, ::-1], "same order"),
    "width": (
        lambda d: {"rna": d.rna.to_numpy()},
        lambda d: {"rna": d.rna.to_numpy()[:, 1:]},
        "3 features",
    ),
    "objects": (
        lambda d: d.X,
        lambda d: {"rna": d.rna, "protein": d.protein[1:]},
        r"X\[\"protein\"\].*none for 'P22'",
    ),
    "missing values": (
        lambda d: d.X,
        lambda d: d.X.where(d.X.index.to_series() != "P2"),
        "finite.*'P2', 'g1'",
    ),
}


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("case", REFUSED_LATER)
def test_new_objects_that_do_not_fit_are_refused(case, data):
    trained, given, message = REFUSED_LATER[case]
    fitted = KernelBlocks().fit(trained(data.train))
    with pytest.raises(ValueError, match=message):
        fitted.transform(given(data.new if "missing values" not in case else data.train))
