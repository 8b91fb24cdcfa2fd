"""Kernels of tables with gaps are those of the objects that have the block, and NaN elsewhere."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline

import kernelzoo as kz
from kernelzoo.estimators import KernelBlocks, KernelCompleter, KernelProbitClassifier

#: Positions of the objects that have each block; the data have 30 objects.
HAS = {"rna": np.arange(20), "protein": np.r_[5:10, 12:30]}


def tables(data, has=HAS):
    return {block: getattr(data, block).iloc[rows] for block, rows in has.items()}


def by_hand(table):
    """Gaussian kernel of the median width, of standardised features, with mean diagonal one."""
    z = ((table - table.mean()) / table.std(ddof=0)).to_numpy()
    squares = ((z[:, None] - z[None]) ** 2).sum(-1)
    return np.exp(-squares / (2 * np.median(squares[np.triu_indices(len(z), 1)])))


def forms(data):
    given = tables(data)
    whole = pd.concat(given, axis=1).reindex(data.rna.index)
    flat = whole.set_axis(whole.columns.get_level_values(1), axis=1)
    columns = {"rna": slice(0, 3), "protein": slice(3, None)}
    return {
        "two levels": (None, whole),
        "dict of tables": (None, given | {"protein": given["protein"].iloc[::-1, ::-1]}),
        "dict with NaN": (None, {block: whole[block] for block in given}),
        "dict of arrays": (None, {block: whole[block].to_numpy() for block in given}),
        "frame": ({"rna": "g", "protein": "p"}, flat),
        "array": (columns, flat.to_numpy()),
    }


@pytest.mark.parametrize(
    "form", ["two levels", "dict of tables", "dict with NaN", "dict of arrays", "frame", "array"]
)
def test_kernels_are_those_of_the_objects_that_have_the_block(form, data):
    blocks, X = forms(data)[form]
    K = KernelBlocks(blocks=blocks, missing="nan").fit_transform(X)
    assert K["kernel"].values.tolist() == ["rna", "protein"]
    if "array" not in form:
        K = K.sel(obs=data.rna.index, basis=data.rna.index)
    for block, rows in HAS.items():
        expected = np.full((30, 30), np.nan)
        expected[np.ix_(rows, rows)] = by_hand(getattr(data, block).iloc[rows])
        np.testing.assert_allclose(K.sel(kernel=block), expected, atol=1e-12)


def test_rows_of_new_objects_are_those_of_kernels_without_gaps(data):
    has = {"rna": np.arange(15), "protein": np.arange(4, 20)}
    transformer = KernelBlocks(missing="nan").fit(tables(data, has))
    new = pd.concat({"rna": data.rna.iloc[20:27], "protein": data.protein.iloc[24:]}, axis=1)
    K = transformer.transform(new)
    np.testing.assert_array_equal(K["obs"], data.rna.index[20:])
    for block, rows, known in (
        ("rna", slice(0, 7), new["rna"]),
        ("protein", slice(4, 10), new["protein"]),
    ):
        alone = KernelBlocks().fit({block: getattr(data, block).iloc[has[block]]})
        expected = np.full((10, 20), np.nan)
        expected[rows, has[block]] = alone.transform({block: known.dropna()}).to_numpy()[..., 0]
        np.testing.assert_allclose(K.sel(kernel=block), expected, atol=1e-12)
    # Nobody has the block; objects under the ids of training objects; objects without ids.
    nobody = transformer.transform({"rna": data.rna.iloc[20:], "protein": data.protein.iloc[:0]})
    assert nobody.sel(kernel="protein").isnull().all()
    again = transformer.transform(tables(data, has))
    np.testing.assert_array_equal(again["obs"], np.arange(20))
    assert not again.sel(kernel="rna").isnull().all()
    arrays = {block: new[block].to_numpy() for block in HAS}
    np.testing.assert_allclose(transformer.transform(arrays), K, atol=1e-12)


def test_without_gaps_nothing_changes(data):
    both = (kz.gaussian("median").named("near") | kz.linear()).normalize("trace")
    for kernels in (None, both, {"protein": kz.linear(), "rna": kz.kernels.inverse_multiquadric()}):
        plain = KernelBlocks(kernels).fit(data.train.X)
        gaps = KernelBlocks(kernels, missing="nan").fit(data.train.X)
        for X in (data.new.X, data.train.X):
            one, other = plain.transform(X), gaps.transform(X)
            other = other.sel(kernel=one["kernel"])
            np.testing.assert_allclose(one, other, atol=1e-12)
            np.testing.assert_array_equal(one["obs"], other["obs"])
            assert one.attrs == other.attrs
        fitted = gaps.set_params(missing="error").fit(data.train.X)
        with pytest.raises(ValueError, match="measured for every object"):
            fitted.transform(data.new.X.reindex([*data.new.X.index, "P99"]))


@pytest.mark.filterwarnings("ignore::kernelzoo.ApproximationWarning")
def test_tables_with_gaps_go_through_a_pipeline(data):
    X = pd.concat(tables(data), axis=1).reindex(data.rna.index)
    # A scale that is not chosen, because folds depend on the order of objects without ids.
    classifier = KernelProbitClassifier("precomputed", upsilon=1.0, random_state=1)
    pipeline = make_pipeline(KernelBlocks(missing="nan"), KernelCompleter(engine="em"), classifier)
    p = cross_val_predict(pipeline, X, data.y, cv=3, method="predict_proba")
    fitted = clone(pipeline).fit(X.iloc[::-1], data.y.iloc[::-1])
    expected = pipeline.fit(X, data.y).predict_proba(X)
    # The labels depend on the first feature of rna.
    right = (p.argmax(1) == (data.y == "control")).to_numpy()
    assert right[HAS["rna"]].mean() > 0.7
    # EM and VB end near their limits, but not at them.
    np.testing.assert_allclose(fitted.predict_proba(X), expected, atol=0.05)
    again = pickle.loads(pickle.dumps(pipeline))
    np.testing.assert_array_equal(again.predict_proba(X), expected)


def test_kernels_with_gaps_are_what_completion_takes(data):
    K = KernelBlocks(missing="nan").fit_transform(tables(data)).transpose("kernel", "obs", "basis")
    completion = kz.completion.complete_kernels(K, engine="em", progressbar=False)
    assert completion.visible.sum(0).tolist() == [20, 23]
    np.testing.assert_allclose(completion.mean.where(K.notnull(), 0), K.fillna(0), atol=1e-6)


def _(change):
    def changed(data):
        given = {block: table.copy() for block, table in tables(data).items()}
        changes = change(given)
        return given if changes is None else changes

    return changed


BAD = {
    "no block": (
        _(lambda t: t["rna"].__setitem__(slice("P2", "P2"), np.nan)),
        r"each object has at least one block\. Got no value for 'P2'",
    ),
    "single values": (
        _(lambda t: t["rna"].__setitem__("g2", t["rna"]["g2"].where(t["rna"].index != "P3"))),
        r'X\["rna"\].*complete or wholly NaN in each row; impute.*single missing values of \'P3\'',
    ),
    "other ids": (
        _(lambda t: {"rna": t["rna"].reset_index(drop=True), "protein": t["protein"]}),
        r'X\["rna"\].*labelled by ids.*20 rows without ids',
    ),
    "an id twice": (
        _(lambda t: {"rna": t["rna"], "protein": pd.concat([t["protein"], t["protein"].iloc[:1]])}),
        r"'P5' more than once",
    ),
    "one object": (
        _(lambda t: t | {"protein": t["protein"].iloc[:1]}),
        r'X\["protein"\].*two objects',
    ),
    "lengths": (
        _(lambda t: {block: table.to_numpy() for block, table in t.items()}),
        r"a row for every object",
    ),
    "one table": (_(lambda t: t["rna"]), "one table without blocks"),
    "masked": (
        _(lambda t: {"rna": np.ma.masked_equal(np.ones((3, 1)), 1), "protein": np.ones((3, 1))}),
        "mask",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tables_are_refused_by_name(case, data):
    change, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        KernelBlocks(missing="nan").fit(change(data))


def test_bad_arguments_are_refused(data):
    for given, message in (
        ({"missing": None}, "'missing' argument of KernelBlocks"),
        ({"kernels": kz.linear().landmarks(2)}, "kernels, not basis functions"),
        ({"kernels": kz.linear().on("dna")}, "'dna'"),
        ({"kernels": kz.gaussian(kz.kernels.Theta())}, "without parameters to learn"),
        (
            {"kernels": kz.linear().named("linear[rna]").on("protein") | kz.linear().on("rna")},
            r"'linear\[rna\]' more than once",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            KernelBlocks(**{"missing": "nan"} | given).fit(tables(data))
    fitted = KernelBlocks(missing="nan").fit(tables(data))
    with pytest.raises(ValueError, match=r"of the blocks \['protein', 'rna'\]"):
        fitted.transform({"rna": data.rna})
    with pytest.raises(ValueError, match=r"'g9'|g1"):
        fitted.transform({"rna": data.rna.rename(columns={"g1": "g9"}), "protein": data.protein})
