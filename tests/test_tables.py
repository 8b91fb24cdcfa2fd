"""Tables of every library are read alike: columns go by their names, rows by position."""

from decimal import Decimal
from fractions import Fraction
from uuid import UUID

import arviz as az
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xarray as xr
from sklearn.model_selection import cross_val_score
from sklearn.svm import SVC

import kernelzoo as kz
from kernelzoo.estimators import (
    CompositeKernelRegressor,
    KernelBlocks,
    KernelCompleter,
    KernelProbitClassifier,
)
from kernelzoo.inference.kernel_completion.classifiers import KernelNearestMean
from kernelzoo.inference.mutual_completion.scores import kernel_alignment
from kernelzoo.models.combinations.sums import FixedWeights
from kernelzoo.models.kernels.labels import as_frame

N = 12
RNG = np.random.default_rng(4)
#: Features of different scales, so that columns in another order show.
FEATURES = pd.DataFrame(RNG.normal(size=(N, 3)) * [1, 3, 9], columns=["age", "dose", "mass"])
NEW = pd.DataFrame(RNG.normal(size=(4, 3)) * [1, 3, 9], columns=FEATURES.columns)
EARLY = np.arange(N)[:, None] + np.zeros(3)
ANOTHER = ["mass", "age", "dose"]
IDS = [f"p{i}" for i in range(N)]
SHUFFLED = [IDS[i] for i in RNG.permutation(N)]
GRAM = pd.DataFrame(kz.gaussian(0.05)(FEATURES)[0].to_numpy(), columns=IDS)
#: The same kernel, its rows and columns in another order.
OTHER = GRAM.set_axis(IDS).loc[SHUFFLED, SHUFFLED].reset_index(drop=True)
CROSS = pd.DataFrame(kz.gaussian(0.05)(NEW, FEATURES)[0].to_numpy(), columns=IDS)
Y = np.where(FEATURES["age"] > 0, "case", "control")
BY_ID = pd.Series(Y, index=IDS)
KERNEL = kz.gaussian(0.05)
VB = kz.VB(tolerance=0.1, remaining=1.0)
FEW = {"engine": VB, "draws": 10, "random_state": 5}

LIBRARIES = {
    "polars": pl.from_pandas,
    "polars lazy": lambda frame: pl.from_pandas(frame).lazy(),
    "pyarrow": pa.Table.from_pandas,
    "pyarrow batch": pa.RecordBatch.from_pandas,
}


@pytest.fixture(params=LIBRARIES, scope="module")
def library(request):
    """Function that makes a table of a library, and nothing of an index, from one of pandas."""
    make = LIBRARIES[request.param]
    return lambda frame: make(frame.reset_index(drop=True))


def kernels_of_new(read, order):
    return KERNEL(read(NEW[order]), read(FEATURES))


def kernels_of_spaces(read, order):
    trained = {"a": read(FEATURES), "b": read(FEATURES[["mass", "dose"]])}
    new = {"a": read(NEW[order]), "b": read(NEW[[c for c in order if c != "age"]])}
    return KERNEL(new, trained)


def features_of_new(read, order):
    return KERNEL.landmarks(5)(read(NEW[order]), read(FEATURES))


def blocks_of_a_dict(read, order):
    blocks = KernelBlocks(KERNEL).fit({"a": read(FEATURES), "b": read(FEATURES)})
    return blocks.transform({"b": read(NEW[order]), "a": read(NEW)})


def blocks_by_names(read, order):
    blocks = KernelBlocks(KERNEL, blocks={"a": ["dose", "age"], "b": "mass"})
    return blocks.fit(read(FEATURES)).transform(read(NEW))


DOORS = [
    kernels_of_new,
    kernels_of_spaces,
    features_of_new,
    blocks_of_a_dict,
    blocks_by_names,
]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("order", [list(FEATURES), ANOTHER], ids=["in order", "shuffled"])
def test_new_features_go_by_the_names_of_columns(door, order, library):
    expected = door(lambda frame: frame, list(FEATURES))
    np.testing.assert_allclose(door(library, order), expected, atol=1e-12)


def probit_on_grams(read):
    return kz.MultinomialProbit({"a": read(GRAM), "b": read(OTHER)}, BY_ID)["K"].get_value()


def probit_on_one(read):
    model = kz.MultinomialProbit(read(OTHER), BY_ID)
    order = [list(model.coords["obs"]).index(one) for one in IDS]
    np.testing.assert_array_equal(np.asarray(model.coords["class"])[model.label_codes][order], Y)
    return model["K"].get_value()[:, order][:, :, order]


def precomputed(read):
    return kz.kernels.precomputed()({"a": read(GRAM), "b": read(OTHER)})


def completed(read):
    gaps = {"a": read(GRAM), "b": read(OTHER)}
    return kz.completion.complete_kernels(gaps, method="mean", normalize=()).mean


def completer(read):
    fitted = KernelCompleter(method="mean", normalize=None).fit({"a": read(GRAM), "b": read(OTHER)})
    return fitted.transform({"a": read(GRAM), "b": read(GRAM[SHUFFLED])}).transpose("kernel", ...)


def alignment(read):
    return kernel_alignment(read(GRAM), read(OTHER)) * np.array([GRAM, GRAM])


@pytest.mark.parametrize(
    "door", [probit_on_grams, probit_on_one, precomputed, completed, completer, alignment]
)
def test_gram_matrices_go_by_the_names_of_their_columns(door, library):
    np.testing.assert_allclose(door(library), np.broadcast_to(GRAM, door(library).shape))


def test_precomputed_kernels_of_new_objects_go_by_training_objects(library):
    classifier = KernelProbitClassifier("precomputed", **FEW).fit(library(OTHER), BY_ID)
    expected = classifier.predict_proba(CROSS[SHUFFLED].to_numpy())
    mean = KernelNearestMean().fit(library(OTHER), BY_ID)
    np.testing.assert_allclose(
        mean.decision_function(library(CROSS)),
        mean.decision_function(CROSS[SHUFFLED].to_numpy()),
    )
    with pytest.raises(ValueError, match="order"):
        classifier.predict_proba(library(CROSS))
    both = KernelProbitClassifier("precomputed", **FEW).fit({"a": library(OTHER)}, BY_ID)
    np.testing.assert_allclose(both.predict_proba({"a": library(CROSS)}), expected)


def test_completion_models_know_training_objects_by_columns(library):
    some = OTHER[SHUFFLED[:5]].iloc[:5]
    theta = GRAM + np.eye(N)
    ids = SHUFFLED[:5]
    labelled = some.set_axis(ids) + np.eye(5)
    by_name = kz.WishartCompletion(theta.set_axis(IDS), labelled)
    ours = kz.WishartCompletion(library(theta), library(labelled))
    assert list(ours.coords["train"]) == list(by_name.coords["train"]) == ids


def test_masks_have_rows_by_position(library):
    visible = pd.DataFrame({"b": np.arange(N) > 3, "a": np.full(N, True)})
    model = kz.MutualKernelCompletion({"a": GRAM, "b": GRAM}, visible=library(visible))
    assert [len(kernel.hidden) for kernel in model.problem.kernels] == [0, 4]


@pytest.mark.parametrize(
    "column", [pl.Series, lambda y: pa.chunked_array([y.tolist()]), lambda y: pa.array(y.tolist())]
)
def test_series_of_classes_go_by_position(column):
    ids = [12, 3, 30, 7, 1, 0, 25, 18, 9, 2, 5, 4]
    features = FEATURES.set_axis(ids)
    model = kz.MultinomialProbit(KERNEL(features), column(Y))
    np.testing.assert_array_equal(np.asarray(model.coords["class"])[model.label_codes], Y)
    assert list(model.coords["obs"]) == ids
    estimator = KernelProbitClassifier(KERNEL, **FEW).fit(features, column(Y))
    assert estimator.score(features, column(Y)) == estimator.score(features, Y)


#: One id for two objects.
TWICE = [*IDS[:-1], IDS[0]]
REPEATED = GRAM.set_axis(TWICE).set_axis(TWICE, axis=1)
STACK = REPEATED.to_numpy()[None]
AT_ONCE = {"obs": TWICE, "basis": TWICE}


@pytest.mark.parametrize(
    "read",
    [
        lambda: kz.MultinomialProbit(REPEATED, Y),
        lambda: kz.MultinomialProbit({"a": REPEATED, "b": REPEATED}, pd.Series(Y, index=TWICE)),
        lambda: kz.CompositeKernelRegression(REPEATED, FEATURES["age"].to_numpy()),
        lambda: kz.kernels.as_stack(xr.DataArray(STACK, AT_ONCE, ("kernel", "obs", "basis"))),
        lambda: kz.kernels.as_stack(REPEATED),
        lambda: kz.kernels.precomputed()(REPEATED),
        lambda: KernelNearestMean().fit(REPEATED, Y),
    ],
)
def test_one_id_with_two_rows_is_refused(read):
    with pytest.raises(ValueError, match=r"distinct ids, or equal .* different rows for 'p0'"):
        read()


def test_rows_of_one_id_may_differ_by_rounding():
    rows = [*range(N), 0]
    gram = GRAM.set_axis(IDS).iloc[rows, rows]
    gram.iloc[0, 3] *= 1 + 1e-15
    assert kz.MultinomialProbit(gram, Y[rows]).coords["obs"][-1] == IDS[0]


@pytest.mark.parametrize(
    "read",
    [
        lambda: KernelBlocks(blocks={1: ["age"], "1": ["dose", "mass"]}).fit(FEATURES),
        lambda: KernelBlocks({1: KERNEL, "1": kz.linear()}).fit({"1": FEATURES}),
        lambda: KernelBlocks().fit({1: FEATURES, "1": FEATURES}),
        lambda: KernelCompleter(method="mean").fit({1: GRAM, "1": GRAM}),
        lambda: KERNEL({1: FEATURES, "1": FEATURES}),
        lambda: kz.MultinomialProbit({1: GRAM, "1": GRAM}, Y),
        lambda: FixedWeights({1: 0.5, "1": 0.5}),
    ],
)
def test_names_that_differ_by_type_only_are_refused(read):
    with pytest.raises(ValueError, match=r"'1' (twice|more than once)|distinct names"):
        read()


def test_missing_entries_are_missing():
    table = as_frame(pl.DataFrame({"a": [1, None], "b": [None, "x"], "c": [True, None]}))
    assert table.isna().to_numpy().tolist() == [[False, True, False], [True, False, True]]
    with pytest.raises(ValueError, match="finite"):
        KERNEL(pl.DataFrame({"a": [1, None], "b": [1.0, 2.0]}))
    with pytest.raises(ValueError, match=r"X\['id'\].* real numbers .* Got str"):
        KERNEL(pl.DataFrame({"id": ["x", "y"], "b": [1.0, 2.0]}))


def test_index_of_a_table_in_partitions_stays():
    dask = pytest.importorskip("dask.dataframe")
    labelled = FEATURES.set_axis(IDS)
    stack = KERNEL(dask.from_pandas(labelled, npartitions=2, sort=False))
    assert list(stack["obs"].values) == IDS


DAY = pd.Timestamp("2020-01-01")
#: Labels that netCDF does not store, or not with their types.
UNSTORABLE = {
    "uuid": [UUID(int=i) for i in range(N)],
    "date": [(DAY + pd.Timedelta(days=i)).date() for i in range(N)],
    "period": pd.period_range(DAY, periods=N, freq="M"),
    "interval": pd.interval_range(0, N),
    "time zone": pd.date_range(DAY, periods=N, tz="UTC"),
    "duration": pd.timedelta_range("1d", periods=N),
    "decimal": [Decimal(i) + Decimal("0.5") for i in range(N)],
    "mixed": ["a", *range(N - 1)],
    "fraction": [Fraction(i, 7) for i in range(N)],
    "NUL within": [f"a\0{i}" for i in range(N)],
    "NUL at the end": [f"a{i}\0" for i in range(N)],
    "NUL in bytes": [b"a%d\0" % i for i in range(N)],
}


@pytest.mark.parametrize("kind", UNSTORABLE)
def test_labels_that_files_cannot_hold_are_refused(kind):
    ids = UNSTORABLE[kind]
    message = r"labelled by .*(which files can hold|ids of one type). Got .*astype"
    with pytest.raises(ValueError, match=message):
        KERNEL(FEATURES.set_axis(ids))
    with pytest.raises(ValueError, match=message):
        kz.MultinomialProbit(GRAM.set_axis(ids).set_axis(ids, axis=1), Y)
    with pytest.raises(ValueError, match=message):
        KernelProbitClassifier(KERNEL, **FEW).fit(FEATURES.set_axis(ids), Y)
    outputs = pd.DataFrame(np.ones((N, 2)), columns=list(ids[:2]))
    with pytest.raises(ValueError, match=message):
        kz.CompositeKernelRegression(GRAM, outputs)
    if kind not in ("mixed", "decimal", "fraction"):
        with pytest.raises(ValueError, match=message):
            kz.MultinomialProbit(GRAM, list(ids[:2]) * (N // 2))


@pytest.mark.parametrize("ids", [pd.date_range(DAY, periods=N), np.arange(N) + 0.5, IDS])
def test_ids_that_files_hold_are_found_again(ids, tmp_path):
    model = kz.MultinomialProbit(KERNEL(FEATURES.set_axis(ids)), pd.Series(Y, index=ids))
    kz.fit(model, VB, draws=5, random_seed=1, progressbar=False).to_netcdf(tmp_path / "result.nc")
    result = az.from_netcdf(tmp_path / "result.nc")
    kz.predict(model, result, KERNEL(NEW, FEATURES.set_axis(ids)))


DATES = pd.DataFrame({"day": pd.date_range(DAY, periods=N)})


@pytest.mark.parametrize("unit", ["ns", "s"])
@pytest.mark.parametrize("form", [lambda t: t, lambda t: t.to_numpy(), lambda t: t.astype(object)])
@pytest.mark.parametrize(
    "read",
    [
        lambda t: KernelBlocks(KERNEL).fit(t),
        lambda t: KernelBlocks(KERNEL, blocks={"a": slice(0, 1)}).fit(t),
        lambda t: KernelBlocks(KERNEL).fit(FEATURES[["age"]].to_numpy()).transform(t),
        lambda t: KERNEL(t),
        lambda t: CompositeKernelRegressor(KERNEL).fit(FEATURES, t),
        lambda t: kz.CompositeKernelRegression(GRAM, t),
        lambda t: KernelNearestMean().fit(t, Y),
        lambda t: kernel_alignment(t, t),
        lambda t: KernelCompleter(method="mean").fit(t),
    ],
)
def test_dates_are_no_numbers(read, form, unit):
    with pytest.raises(ValueError, match=r"must be (numbers|real numbers)"):
        read(form(DATES.astype(f"datetime64[{unit}]")))


VIEWS = [FEATURES.to_numpy(), FEATURES.to_numpy()[:, :2]]
SAME_SHAPE = [FEATURES.to_numpy(), FEATURES.to_numpy() ** 2]
AS_OBJECTS = np.empty(2, dtype=object)
AS_OBJECTS[:] = VIEWS


@pytest.mark.parametrize(
    "views",
    [VIEWS, SAME_SHAPE, tuple(VIEWS), AS_OBJECTS, [FEATURES, FEATURES], [FEATURES]],
    ids=["list", "one shape", "tuple", "array", "frames", "one"],
)
@pytest.mark.parametrize(
    "read",
    [
        KERNEL,
        KERNEL.landmarks(4),
        lambda x: KERNEL(FEATURES, x),
        lambda x: KERNEL({"a": x}),
        lambda x: KernelBlocks(KERNEL).fit(x),
        lambda x: KernelBlocks(KERNEL).fit({"a": x}),
        lambda x: KernelBlocks(KERNEL).fit(FEATURES).transform(x),
        lambda x: KernelProbitClassifier(KERNEL, **FEW).fit(x, Y),
        lambda x: CompositeKernelRegressor(KERNEL, **FEW).fit(x, FEATURES["age"]),
        lambda x: KernelCompleter(method="mean").fit(x),
    ],
)
def test_lists_of_views_are_refused_with_the_dict_to_give(read, views):
    with pytest.raises(ValueError, match=r'or a dict of tables by name, \{"a": .* several tables'):
        read(views)


def test_lists_of_kernels_go_to_models_and_not_to_estimators():
    gram, square = GRAM.to_numpy(), GRAM.to_numpy() ** 2
    model = kz.MultinomialProbit([gram, square], Y)
    np.testing.assert_allclose(model["K"].get_value(), [gram, square])
    for read in (
        KernelProbitClassifier("precomputed", **FEW).fit,
        KernelCompleter(method="mean").fit,
        lambda kernels, y: kz.kernels.precomputed()(kernels),
    ):
        with pytest.raises(ValueError, match=r'dict of tables by name, \{"a": '):
            read([gram, square], Y)
    stacked = np.stack([gram, square])
    with pytest.raises(ValueError, match=r"np.stack\(kernels, axis=-1\). Got shape \(2, 12, 12\)"):
        KernelProbitClassifier("precomputed", **FEW).fit(stacked, Y)
    KernelBlocks("precomputed").fit(np.moveaxis(stacked, 0, -1))


COLUMN = pd.DataFrame({"class": Y}, index=IDS)


@pytest.mark.filterwarnings("ignore:A column-vector y:sklearn.exceptions.DataConversionWarning")
@pytest.mark.parametrize(
    ("features", "y"),
    [
        (FEATURES, COLUMN.reset_index(drop=True)),
        (FEATURES, pl.DataFrame({"class": Y})),
        (FEATURES, Y[:, None]),
        (FEATURES.set_axis(IDS), COLUMN.loc[SHUFFLED]),
    ],
    ids=["frame", "polars", "array", "by ids"],
)
def test_a_table_of_one_column_is_a_response_of_classifiers(features, y):
    # A known scale, because the folds that choose one depend on the ids.
    known = FEW | {"upsilon": 1.0}
    expected = KernelProbitClassifier(KERNEL, **known).fit(FEATURES, Y)
    fitted = KernelProbitClassifier(KERNEL, **known).fit(features, y)
    np.testing.assert_array_equal(fitted.predict_proba(NEW), expected.predict_proba(NEW))
    assert fitted.score(features, y) == expected.score(FEATURES, Y)


def test_cross_validation_of_a_kernel_takes_an_array():
    """scikit-learn cuts a matrix of objects by objects by positions, which frames refuse."""
    gram, options = GRAM.set_axis(IDS), {"cv": 2, "error_score": "raise"}
    for labelled in (gram, pl.from_pandas(GRAM)):
        for estimator in (SVC(kernel="precomputed"), KernelProbitClassifier("precomputed", **FEW)):
            with pytest.raises((TypeError, IndexError, pd.errors.InvalidIndexError)):
                cross_val_score(estimator, labelled, Y, **options)
    ours = KernelProbitClassifier("precomputed", **FEW)
    folds = cross_val_score(ours, gram.to_numpy(), Y, **options)
    features = KernelProbitClassifier(KERNEL, standardize=False, **FEW)
    np.testing.assert_array_equal(folds, cross_val_score(features, FEATURES, Y, **options))


def test_ids_of_rows_alone_are_those_of_the_columns():
    rows_only = OTHER.set_axis(SHUFFLED).set_axis(range(N), axis=1)
    for read in (kz.kernels.as_stack, kz.kernels.as_stack, kz.kernels.precomputed()):
        stack = read({"a": rows_only, "b": GRAM.set_axis(IDS)})
        assert list(stack["basis"].values) == list(stack["obs"].values) == SHUFFLED
        np.testing.assert_allclose(stack[0], stack[1], atol=1e-15)
    moved = rows_only.iloc[[1, 0, *range(2, N)]]
    for read in (kz.kernels.as_stack, lambda gram: kz.MultinomialProbit(gram, Y)):
        with pytest.raises(ValueError, match="symmetric"):
            read(moved)


@pytest.fixture(scope="module")
def modalities():
    anndata = pytest.importorskip("anndata")
    cells = FEATURES.set_axis(IDS)
    return {
        "rna": anndata.AnnData(cells),
        "protein": anndata.AnnData(cells.loc[SHUFFLED, ["mass", "dose"]]),
    }


def test_anndata_is_a_table_of_its_observations_by_their_names(modalities):
    tables = {name: each.to_df() for name, each in modalities.items()}
    assert list(tables["protein"].index) == SHUFFLED
    np.testing.assert_allclose(KERNEL(modalities["rna"]), KERNEL(FEATURES), rtol=1e-6)
    for read in (KERNEL, lambda given: KernelBlocks(KERNEL).fit_transform(given)):
        xr.testing.assert_equal(read(modalities), read(tables))
    by_ids, by_rows = KERNEL(modalities), KERNEL({"a": FEATURES, "b": FEATURES[["mass", "dose"]]})
    np.testing.assert_allclose(by_ids, by_rows, rtol=1e-5)
    fitted = KernelProbitClassifier(KERNEL, **FEW).fit(modalities, BY_ID.loc[SHUFFLED])
    assert list(fitted.kernel_names_) == ["rna", "protein"]
    with pytest.raises(ValueError, match=r"pass kernels\(X\)"):
        kz.MultinomialProbit(modalities["rna"], Y)


def test_mudata_is_a_dict_of_modalities(modalities):
    mudata = pytest.importorskip("mudata")
    data = mudata.MuData(modalities)
    xr.testing.assert_equal(KERNEL(data.mod), KERNEL(modalities))
    data["rna"].obs["type"] = pd.Categorical(Y)
    fitted = KernelProbitClassifier(KERNEL, **FEW).fit(data.mod, data["rna"].obs["type"])
    assert list(fitted.classes_) == sorted(set(Y))
    for read in (KERNEL, KernelBlocks(KERNEL).fit, lambda x: kz.MultinomialProbit(x, Y)):
        with pytest.raises(ValueError, match=r"Got a MuData, whose tables are in \.mod"):
            read(data)
    partly = mudata.MuData({"rna": modalities["rna"], "protein": modalities["protein"][:9]})
    with pytest.raises(ValueError, match="same objects"):
        KERNEL(partly.mod)
