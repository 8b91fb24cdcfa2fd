"""What carries ids goes by ids, or is refused by name: kernels, features, labels and targets.

Tables of inputs against entry points. ``IDS`` are the objects' ids; numbers that count rows are
none. Readers of results are in ``tests/inference/test_alignment.py``.
"""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from kernelzoo.inference.kernel_completion.classifiers import KernelNearestMean
from kernelzoo.models.combinations.products import FixedProduct
from kernelzoo.models.combinations.sums import Binary, FixedWeights
from kernelzoo.models.completion.input import PartitionedStack
from kernelzoo.models.composite_kernel import (
    CompositeKernelClassification,
    CompositeKernelRegression,
)
from kernelzoo.models.kernels import (
    Theta,
    as_stack,
    basis_expansion,
    gaussian,
    linear,
    precomputed,
)
from kernelzoo.models.kernels.labels import NUMBERED as NUMBERS
from kernelzoo.models.kernels.labels import aligned, counts_rows, order_of
from kernelzoo.models.multinomial_probit import MultinomialProbit
from kernelzoo.models.mutual_kernel_completion import MutualKernelCompletion
from kernelzoo.models.wishart_completion import WishartCompletion
from kernelzoo.validation import check_labels

N, D = 8, 3
IDS = [f"p{i}" for i in range(N)]
#: Ids as a split of a longer table leaves them: numbers, but not those of the rows.
SPLIT = [12, 3, 30, 7, 1, 0, 25, 18]
SHUFFLED = np.array([5, 2, 7, 0, 3, 6, 1, 4])
NAMES = ["age", "dose", "mass"]
FEATURES = np.random.default_rng(5).normal(size=(N, D))
Y = np.array(["a", "b", "b", "a", "b", "a", "a", "a"])
T = np.arange(N) / 4.0


def frame(ids=IDS, names=NAMES, values=FEATURES):
    return pd.DataFrame(values, index=ids, columns=names)


def series(values=Y, ids=IDS):
    return pd.Series(values, index=ids)


def renamed(change):
    return pd.Series(Y, index=[change.get(one, one) for one in IDS])


def probit(kernels, labels):
    model = MultinomialProbit(kernels, labels)
    return np.asarray(model.coords["class"])[model.label_codes]


def classification(kernels, labels):
    model = CompositeKernelClassification(kernels, labels)
    return np.asarray(model.coords["class"])[model.label_codes]


def regression(kernels, targets):
    return CompositeKernelRegression(kernels, targets).target_values


READERS = {
    "probit": (probit, Y),
    "classification": (classification, Y),
    "regression": (regression, T),
}


# --- labels and targets ----------------------------------------------------------------------


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "given",
    [
        lambda s: s,
        lambda s: s.iloc[SHUFFLED],
        lambda s: s.iloc[::-1],
        lambda s: xr.DataArray(s.iloc[SHUFFLED].rename_axis("sample")),
        lambda s: s.to_numpy(),
        lambda s: s.tolist(),
        lambda s: s.reset_index(drop=True),
        lambda s: xr.DataArray(s.to_numpy(), dims="obs"),
    ],
)
@pytest.mark.parametrize("ids", [IDS, SPLIT])
def test_labels_and_targets_go_by_the_ids_of_the_kernels(reader, given, ids):
    read, values = READERS[reader]
    stack = linear()(frame(ids))
    assert read(stack, given(series(values, ids))).tolist() == values.tolist()


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("ids", [range(N), SPLIT, IDS, pd.date_range("2020", periods=N)])
def test_kernels_without_ids_take_a_series_by_position(reader, ids):
    """As after a scaler: ``kernels(scaler.transform(X_train))`` with the Series ``y_train``."""
    read, values = READERS[reader]
    for stack in (linear()(FEATURES), linear()(pd.DataFrame(FEATURES))):
        assert read(stack, series(values, ids)).tolist() == values.tolist()


def test_a_model_learns_from_a_shuffled_series_what_it_learns_from_an_array():
    """By position the labels were noise, without a word: accuracy fell from .52 to .24 once."""
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b", "c"], 20)
    X = rng.normal(size=(60, 2)) + 4 * np.array([[0, 0], [1, 0], [0, 1]]).repeat(20, axis=0)
    ids = [f"s{i:02}" for i in range(60)]
    labels = pd.Series(y, ids).sample(frac=1, random_state=1)
    model = MultinomialProbit(gaussian(0.5)(pd.DataFrame(X, ids)), labels)
    K = model.design[0]

    def accuracy(codes):
        classes = np.asarray(model.coords["class"])
        return np.mean(classes[KernelNearestMean().fit(K, codes).predict(K)] == y)

    assert accuracy(model.label_codes) > 0.95
    assert accuracy(np.unique(labels.to_numpy(), return_inverse=True)[1]) < 0.6


#: Ids of a bootstrap sample.
TWICE = ["p1", "p1", "p4", "p0", "p4", "p7", "p1", "p2"]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("ids", "given"),
    [
        (range(N), TWICE),
        (range(N), [None, *IDS[1:]]),
        (TWICE, TWICE),
        (TWICE, range(N)),
        (TWICE, None),
    ],
)
def test_ids_that_repeat_go_by_position_where_none_are_needed(reader, ids, given):
    read, values = READERS[reader]
    labels = values if given is None else series(values, given)
    features = frame().loc[TWICE] if ids is TWICE else frame(ids)
    assert read(linear()(features), labels).tolist() == values.tolist()


@pytest.mark.parametrize("beside", [{}, {"b": FEATURES}])
def test_one_id_with_two_contents_is_refused(beside):
    match = r"equal wherever an id repeats. Got different rows for 'p1', 'p4'"
    with pytest.raises(ValueError, match=match):
        linear()({"a": frame(TWICE), **beside})
    with pytest.raises(ValueError, match=match):
        linear()(frame(TWICE), frame())


def test_a_bootstrap_sample_is_predicted_and_scored():
    labels, sample = series(ids=TWICE), frame().loc[TWICE]
    kernels = gaussian(0.3) | linear()
    stack = kernels(sample, sample)
    assert stack["obs"].values.tolist() == stack["basis"].values.tolist() == TWICE
    xr.testing.assert_allclose(as_stack(stack, like=stack), stack)
    both = kernels({"a": sample, "b": sample})
    assert both.sizes == {"kernel": 4, "obs": N, "basis": N}
    assert probit(stack, labels).tolist() == Y.tolist()
    names = ["age", "age", "mass"]
    np.testing.assert_allclose(
        linear()(frame(names=names), frame(names=names)), linear()(frame(), frame())
    )


NUMBERED = list(range(N))
PERMUTED = SHUFFLED.tolist()
AMBIGUOUS = "in the same order, .* Got the numbers 0 to 7, on one side in another order"
REFUSED_LABELS = {
    "unknown": (IDS, renamed({"p2": "q2"}), r"Got the unknown 'q2'; none for 'p2'\."),
    "all unknown": (
        IDS,
        series(ids=[one.upper() for one in IDS]),
        "unknown 'P0', 'P1', 'P2', 'P3', 'P4' and 3 more; none for 'p0', .* and 3 more",
    ),
    "too few": (IDS, series().iloc[2:], r"Got none for 'p0', 'p1'\."),
    "too many": (IDS[2:], series(), r"Got the unknown 'p0', 'p1'\."),
    "repeated": (IDS, renamed({"p2": "p1", "p4": "p3"}), "distinct ids. Got 'p1', 'p3' more than"),
    "repeated, in another order": (
        IDS,
        renamed({"p2": "p1"}).iloc[::-1],
        "distinct ids. Got 'p1' more than once",
    ),
    "repeated in the kernels": (
        ["p1", *IDS[1:]],
        series(),
        "an array, aligned by position, .* are repeated. Got 'p1' more than once",
    ),
    "repeated, too few, no ids in kernels": (
        NUMBERED,
        renamed({"p2": "p1"}).iloc[1:],
        "(length|shape|numbers).* 7|7,",
    ),
    "gap": (IDS, renamed({"p2": None}), "without gaps. Got 1 missing, the first at position 2"),
    "other split": (SPLIT, series(ids=[*SPLIT[1:], 99]), "the unknown 99; none for 12"),
    "strings for numbers": (
        SPLIT,
        series(ids=list(map(str, SPLIT))),
        "unknown '12', .* none for 12",
    ),
    "counted kernels, shuffled Series": (NUMBERED, series(ids=PERMUTED), AMBIGUOUS),
    "shuffled kernels, counted Series": (PERMUTED, series(ids=NUMBERED), AMBIGUOUS),
    "no ids, too few": (NUMBERED, series(ids=SPLIT).iloc[1:], "(length|shape|numbers).* 7|7,"),
    "one column": (IDS, series().to_frame(), "(one-dimensional|numbers)"),
    "masked": (IDS, np.ma.masked_array(np.arange(N), np.arange(N) == 3), r"1 masked, .* \(3,\)"),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("case", REFUSED_LABELS)
def test_labels_and_targets_are_refused_by_name(reader, case):
    read, values = READERS[reader]
    ids, given, message = REFUSED_LABELS[case]
    if reader == "regression" and isinstance(given, pd.Series):
        given = pd.Series(values[: len(given)], index=given.index)
    argument = "targets" if reader == "regression" else "labels"
    rows = [ids.index(one) for one in ids]
    stack = linear()(frame(ids, values=FEATURES[rows]))
    with pytest.raises(ValueError, match=rf"The '{argument}' argument of \w+ must .*(?:{message})"):
        read(stack, given)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", np.nan, "b"], "without missing labels. Got 1 missing, the first at position 1"),
        (pd.Series(["a", None, "b"], dtype="string"), "Got 1 missing, the first at position 1"),
        (pd.Series([1, None, 2], dtype="Int64"), "Got 1 missing, the first at position 1"),
        (["1", 1, "1"], "labels of one type, .* Got int and str"),
        ([True, 2, 1], "labels of one type, .* Got bool and int"),
        ([0.5, 1.25, 0.5], r"not measurements. Got 0\.5"),
        ([1.0, np.inf, 2.0], "not measurements. Got inf"),
        (np.array([1 + 1j, 2, 1]), r"not measurements. Got \(1\+1j\)"),
    ],
)
@pytest.mark.parametrize("classes", [None, ["a", "b", 1]])
def test_what_is_no_class_is_refused(labels, message, classes):
    with pytest.raises(ValueError, match=message):
        check_labels(labels, "labels", "Y", classes=classes)


def test_labels_of_every_kind_keep_their_values():
    for labels in ([2.0, 1.0], [3, 1], ["b", "a"], [True, False], [np.int8(4), 3]):
        codes, classes = check_labels(labels, "labels", "Y")
        assert codes.tolist() == [1, 0]
        assert classes[codes].tolist() == labels


# --- features --------------------------------------------------------------------------------

NEW = frame(["q0", "q1"], values=FEATURES[:2] + 1)
TURNED = NEW[["mass", "age", "dose"]]
SPECIFICATIONS = {
    "gaussian": gaussian(0.3),
    "normalised": linear().normalize("unit"),
    "landmarks": gaussian(0.3).landmarks(4),
    "expansion": basis_expansion(lambda X: X[:, :2]).named("first two"),
    "parameters": gaussian(Theta(ard=True)) | linear(),
}


@pytest.mark.parametrize("kernels", SPECIFICATIONS.values(), ids=SPECIFICATIONS)
@pytest.mark.parametrize("turned", [TURNED, xr.DataArray(TURNED.rename_axis("s"), dims=("s", "g"))])
def test_columns_of_new_features_go_by_name(kernels, turned):
    expected, given = kernels(NEW, frame()), kernels(turned, frame())
    if not isinstance(expected, xr.DataArray):
        for one, other in zip(expected.learned, given.learned, strict=True):
            np.testing.assert_array_equal(one.rows, other.rows)
        expected, given = expected.start, given.start
    xr.testing.assert_identical(expected, given)


def test_columns_go_by_name_in_every_space_and_rows_by_id():
    kernels = gaussian(0.2) | linear().on("b").named("l")
    train = {"a": frame(), "b": frame(names=[5, 3, 4], values=FEATURES**2)}
    new = {"a": NEW, "b": frame(NEW.index, [5, 3, 4], values=NEW.to_numpy() ** 2)}
    expected = kernels(new, train)
    mixed = {"a": TURNED, "b": new["b"].loc[["q1", "q0"], [3, 4, 5]]}
    shuffled = {"a": train["a"], "b": train["b"].iloc[SHUFFLED]}
    xr.testing.assert_allclose(kernels(mixed, shuffled), expected)
    xr.testing.assert_allclose(kernels(shuffled), kernels(train))
    arrays = {"a": frame().iloc[SHUFFLED], "b": train["b"].iloc[SHUFFLED].to_numpy()}
    xr.testing.assert_allclose(kernels(arrays).sel(obs=IDS, basis=IDS), kernels(train))


def test_columns_that_only_count_go_by_position():
    expected = linear()(NEW, frame()).values
    for new, train in [
        (NEW.to_numpy(), frame()),
        (NEW, FEATURES),
        (pd.DataFrame(NEW.to_numpy()), frame()),
        (NEW, pd.DataFrame(FEATURES)),
    ]:
        np.testing.assert_array_equal(linear()(new, train).values, expected)


GRAM = pd.DataFrame(FEATURES @ FEATURES.T, IDS, IDS)
CROSS = pd.DataFrame(NEW.to_numpy() @ FEATURES.T, NEW.index, IDS)


def test_precomputed_similarities_go_by_the_ids_of_rows_and_columns():
    shuffled = [IDS[i] for i in SHUFFLED]
    kernels = precomputed().normalize("trace")
    expected = kernels(CROSS, GRAM)
    xr.testing.assert_identical(kernels(GRAM[shuffled]), kernels(GRAM))
    xr.testing.assert_identical(kernels(CROSS[shuffled], GRAM), expected)
    xr.testing.assert_identical(kernels(CROSS, GRAM[shuffled]), expected)
    np.testing.assert_allclose(kernels(CROSS.to_numpy(), GRAM.to_numpy()).values, expected.values)
    both = linear().on("x") | precomputed().on("s")
    mixed = both({"x": NEW, "s": CROSS[shuffled]}, {"x": frame(), "s": GRAM.to_numpy()})
    np.testing.assert_allclose(mixed[0], mixed[1])


MASKED = np.ma.masked_array(FEATURES, np.isin(FEATURES, FEATURES[2, 1]))
REFUSED_FEATURES = {
    "renamed": (
        NEW.rename(columns={"dose": "Dose"}),
        frame(),
        r"'X' .* of the features that the training .* Got the unknown 'Dose'; none for 'dose'\.",
    ),
    "missing": (NEW[["mass", "age"]], frame(), r"Got none for 'dose'\."),
    "extra": (NEW.assign(sex=1.0), frame(), r"Got the unknown 'sex'\."),
    "repeated, new": (NEW[["age", "age", "mass"]], frame(), "Got 'age' more than once"),
    "repeated, training": (
        NEW,
        frame(names=["age", "dose", "age"]),
        "an array, aligned by position, .* are repeated. Got 'age' more than once",
    ),
    "renamed in a space": (
        {"a": NEW, "b": NEW.rename(columns={"age": "AGE"})},
        {"a": frame(), "b": frame()},
        r"""'X\["b"\]' .* unknown 'AGE'""",
    ),
    "counted, turned": (
        pd.DataFrame(NEW.to_numpy())[[2, 0, 1]],
        pd.DataFrame(FEATURES),
        "0 to 2, on one side in another order",
    ),
    "row twice in a space": (
        {"a": frame(), "b": frame(["p0", *IDS[:-1]])},
        None,
        r"""'X\["b"\]' .* Got 'p0' more than once""",
    ),
    "rows twice, in another order": (
        {"a": frame().loc[["p0", *IDS[:-1]]], "b": frame().loc[["p0", *IDS[:-1]]].iloc[::-1]},
        None,
        r"""'X\["b"\]' .* Got 'p0' more than once""",
    ),
    "frame that counts beside ids": (
        {"a": frame(), "b": frame(NUMBERED)},
        None,
        r"""'X\["b"\]' .* Got the unknown 0, 1, .* none for 'p0'""",
    ),
    "ids beside a frame that counts": (
        {"a": frame(NUMBERED), "b": frame()},
        None,
        r"""'X\["b"\]' .* Got the unknown 'p0', .* none for 0""",
    ),
    "new row without id": (frame([None, "q"], values=FEATURES[:2]), frame(), "1 missing"),
    "row without id": (frame([None, *IDS[1:]]), None, "1 missing, the first at position 0"),
    "other rows in a space": (
        {"a": frame(), "b": frame([*IDS[:-1], "r"])},
        None,
        r"""'X\["b"\]' .* Got the unknown 'r'; none for 'p7'""",
    ),
    "fewer rows in a space": (
        {"a": frame(), "b": frame().iloc[1:]},
        None,
        r"""'X\["b"\]' .* Got none for 'p0'\.""",
    ),
    "spaces of one name": (
        {1: frame(), "1": frame()},
        None,
        "distinct names. Got '1' more than once",
    ),
    "masked": (MASKED, None, r"'X' .* without masked .* 1 masked, the first at position \(2, 1\)"),
    "masked space": ({"a": FEATURES, "b": MASKED}, None, r"""'X\["b"\]' .* without masked"""),
    "masked, new": (MASKED, FEATURES, "'X' .* without masked"),
    "complex": (FEATURES + 0j, None, "real numbers. Got complex"),
    "dates": (np.full((2, 2), np.datetime64("2020-01-01")), None, "real numbers. Got datetime64"),
    "strings": ([["1", "2"]], None, "real numbers. Got str"),
}


@pytest.mark.parametrize("case", REFUSED_FEATURES)
def test_features_are_refused_by_name(case):
    new, train, message = REFUSED_FEATURES[case]
    with pytest.raises(ValueError, match=rf"argument of Kernels must .*|{message}") as error:
        linear()(new, train)
    assert error.match(message)


@pytest.mark.parametrize(
    ("new", "train", "message"),
    [
        (
            None,
            GRAM.rename(columns={"p0": "P0"}),
            "alike in rows and columns. Got the unknown 'P0'",
        ),
        (CROSS.rename(columns={"p0": "P0"}), GRAM, "the unknown 'P0'; none for 'p0'"),
        (CROSS.iloc[:, 1:], GRAM, r"none for 'p0'\."),
    ],
)
def test_precomputed_similarities_are_refused_by_name(new, train, message):
    given = [train] if new is None else [new, train]
    with pytest.raises(ValueError, match=message):
        precomputed()(*given)


def test_truth_values_are_features():
    table = pd.DataFrame({"a": [True, False, True], "b": [0.5, 1.0, 2.0]})
    np.testing.assert_allclose(linear()(table)[0], table.astype(float) @ table.astype(float).T)
    np.testing.assert_allclose(linear()(np.eye(2, dtype=bool))[0], np.eye(2))


# --- kernels ---------------------------------------------------------------------------------

TRAIN = (gaussian(0.3) | linear())(frame())
TEST = (gaussian(0.3) | linear())(NEW, frame())


def as_frames(stack):
    return {
        str(name): stack.sel(kernel=name, drop=True).to_pandas() for name in stack["kernel"].values
    }


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.isel(basis=SHUFFLED),
        lambda s: s[::-1],
        lambda s: s[::-1].isel(basis=SHUFFLED).transpose("basis", "kernel", "obs"),
        as_frames,
        lambda s: as_frames(s[::-1].isel(basis=SHUFFLED)),
        lambda s: dict(reversed(as_frames(s).items())),
        lambda s: {
            "gaussian(0.3)": as_frames(s)["gaussian(0.3)"].iloc[::-1].iloc[::-1, SHUFFLED],
            "linear": as_frames(s)["linear"].iloc[::-1],
        },
        lambda s: {k: xr.DataArray(f, dims=("obs", "basis")).T for k, f in as_frames(s).items()},
        lambda s: [f.iloc[:, SHUFFLED] for f in as_frames(s).values()],
    ],
)
def test_kernels_of_new_objects_go_by_names_and_labels(change):
    given = change(TEST)
    if isinstance(given, list):
        given = dict(zip(TRAIN["kernel"].values, given, strict=True))
    found = as_stack(given, like=TRAIN)
    for dim in ("kernel", "basis"):
        assert found[dim].values.tolist() == TRAIN[dim].values.tolist()
    np.testing.assert_array_equal(found.sel(obs=NEW.index), TEST)


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.isel(basis=SHUFFLED),
        lambda s: as_frames(s.isel(basis=SHUFFLED)),
        lambda s: {
            "gaussian(0.3)": as_frames(s)["gaussian(0.3)"],
            "linear": as_frames(s)["linear"].iloc[SHUFFLED, ::-1],
        },
    ],
)
def test_training_kernels_have_columns_in_the_order_of_rows(change):
    """Or a Gram matrix would pass for a basis expansion, unchecked."""
    xr.testing.assert_allclose(as_stack(change(TRAIN)), TRAIN)


def test_one_frame_as_a_kernel():
    turned = GRAM.iloc[:, SHUFFLED]
    np.testing.assert_allclose(as_stack(turned)[0], GRAM)
    np.testing.assert_allclose(as_stack(CROSS.iloc[:, SHUFFLED], like=as_stack(GRAM))[0], CROSS)


masked_gram = np.ma.masked_array(GRAM.to_numpy(), np.eye(N))
REFUSED_KERNELS = {
    "rows and columns overlap": (
        GRAM.rename(columns={"p0": "q"}),
        None,
        "labelled alike in rows and columns. Got the unknown 'q'; none for 'p0'",
    ),
    "repeated rows and columns": (
        GRAM.rename(index={"p0": "p1"}, columns={"p0": "p1"}).iloc[::-1],
        None,
        "distinct ids. Got 'p1' more than once",
    ),
    "repeated in a stack": (
        TRAIN.assign_coords(obs=["p1", *IDS[1:]]),
        None,
        "or equal wherever an id repeats. Got different rows for 'p1'",
    ),
    "new: column twice": (
        TEST.assign_coords(basis=["p1", *IDS[1:]]),
        TRAIN,
        "distinct ids. Got 'p1' more than once",
    ),
    "row without id": (
        TRAIN.assign_coords(obs=[None, *IDS[1:]]),
        None,
        "without gaps. Got 1 missing",
    ),
    "other objects in one kernel": (
        {"a": GRAM, "b": GRAM.rename(index={"p0": "q"}, columns={"p0": "q"})},
        None,
        r"""'kernels\["b"\]' .* as the first kernel is. Got the unknown 'q'; none for 'p0'""",
    ),
    "counted beside ids": (
        {"a": GRAM, "b": GRAM.set_axis(range(N), axis=0).set_axis(range(N), axis=1)},
        None,
        r"""'kernels\["b"\]' .* the unknown 0, 1, .* none for 'p0'""",
    ),
    "new: unknown column": (
        as_frames(TEST.assign_coords(basis=["q", *IDS[1:]])),
        TRAIN,
        r"""'kernels\["gaussian\(0.3\)"\]' .* training objects.* Got the unknown 'q'; none for""",
    ),
    "new: unknown column in a stack": (
        TEST.assign_coords(basis=["q", *IDS[1:]]),
        TRAIN,
        r"against the training objects.* Got the unknown 'q'; none for 'p0'",
    ),
    "new: column too few": (as_frames(TEST.isel(basis=slice(1, None))), TRAIN, "none for 'p0'"),
    "new: other kernels": (
        TEST.assign_coords(kernel=["linear", "gauss"]),
        TRAIN,
        r"the kernels \['gaussian\(0.3\)', 'linear'\]. Got \['linear', 'gauss'\]",
    ),
    "masked": (masked_gram, None, r"'kernels' .* without masked .* 8 masked"),
    "masked in a dict": (
        {"a": np.eye(N), "b": masked_gram},
        None,
        r"""\["b"\]' .* without masked""",
    ),
    "masked stack": (np.ma.stack([masked_gram] * 2), None, "without masked"),
    "masked, new": ({"gaussian(0.3)": masked_gram, "linear": masked_gram}, TRAIN, "without masked"),
}


@pytest.mark.parametrize("case", REFUSED_KERNELS)
def test_kernels_are_refused_by_name(case):
    kernels, like, message = REFUSED_KERNELS[case]
    with pytest.raises(ValueError, match=message):
        as_stack(kernels, like=like)


def test_completion_models_take_frames_in_any_order():
    definite = GRAM + np.eye(N)
    turned = definite.iloc[::-1, SHUFFLED]
    observed = definite.iloc[:3, :3]
    expected = WishartCompletion(definite, observed)
    given = WishartCompletion(turned.loc[IDS], observed[["p2", "p0", "p1"]])
    assert tuple(given.coords["object"]) == tuple(expected.coords["object"])
    np.testing.assert_allclose(given.theta, expected.theta)
    np.testing.assert_allclose(given.K11_values, expected.K11_values)
    sliced = definite.set_axis(range(10, 10 + N)).set_axis(range(10, 10 + N), axis=1)
    later = PartitionedStack.of(sliced, sliced.iloc[4:6, 4:6], "Model")
    assert later.labels[:2].tolist() == [14, 15]


@pytest.mark.parametrize("form", [dict, lambda k: list(k.values())])
def test_mutual_completion_takes_frames_in_any_order(form):
    gap = GRAM + np.eye(N)
    gap.loc["p1"] = np.nan
    gap["p1"] = np.nan
    kernels = {"K0": GRAM + np.eye(N), "K1": gap}
    mixed = {"K0": kernels["K0"].iloc[:, SHUFFLED], "K1": gap.iloc[::-1, SHUFFLED]}
    expected, given = MutualKernelCompletion(kernels), MutualKernelCompletion(form(mixed))
    assert tuple(given.coords["hidden_K1"]) == ("p1",)
    for name in ("Qvv_K0_values", "Qvv_K1_values"):
        np.testing.assert_allclose(given[name].get_value(), expected[name].get_value())


def test_completion_models_name_ids_that_repeat():
    twice = GRAM.rename(index={"p0": "p1"}, columns={"p0": "p1"}) + np.eye(N)
    for make in (
        lambda: MutualKernelCompletion({"a": twice, "b": twice}),
        lambda: WishartCompletion(twice, (GRAM + np.eye(N)).iloc[2:4, 2:4]),
    ):
        with pytest.raises(ValueError, match=r"by distinct ids.*Got .*'p1'"):
            make()


MASKED_PAIR = np.ma.masked_array([0.5, 0.5], [True, False])


@pytest.mark.parametrize(
    "make",
    [
        lambda: FixedWeights(MASKED_PAIR),
        lambda: FixedProduct(MASKED_PAIR),
        lambda: Binary(MASKED_PAIR),
        lambda: WishartCompletion([np.eye(3)] * 2, np.eye(2), weights=MASKED_PAIR),
        lambda: WishartCompletion(np.eye(3), np.ma.masked_array(np.eye(2), np.eye(2))),
        lambda: MutualKernelCompletion([np.eye(3)] * 2, nu=10 * MASKED_PAIR),
        lambda: MutualKernelCompletion([np.eye(3)] * 2, np.ma.masked_array(np.ones((3, 2)), 1)),
        lambda: basis_expansion(lambda X: np.ma.masked_array(X, X > 0))(FEATURES),
    ],
)
def test_masks_are_refused(make):
    with pytest.raises(ValueError, match="without masked entries"):
        make()


OTHER = FEATURES[::-1] + 1


@pytest.mark.parametrize("other", [pd.DataFrame(OTHER), xr.DataArray(pd.DataFrame(OTHER))])
def test_as_many_new_objects_that_count_their_rows_are_not_the_training_objects(other):
    """Or a cross matrix would be taken for a Gram matrix, and refused as not symmetric."""
    train, kernels = pd.DataFrame(FEATURES), gaussian(0.3) | linear()
    found = kernels(other, train)
    xr.testing.assert_allclose(found, kernels(OTHER, FEATURES))
    assert found["obs"].attrs == NUMBERS
    assert found["obs"].values.tolist() == list(range(N, 2 * N))
    np.testing.assert_array_equal(as_stack(found, like=kernels(train)), found)
    later = kernels(other.iloc[:3] if isinstance(other, pd.DataFrame) else other[:3], train)
    assert later["obs"].values.tolist() == [0, 1, 2]


def test_as_many_new_rows_of_kernels_that_count_are_not_the_training_objects():
    kernels = gaussian(0.3) | linear()
    train, cross = kernels(FEATURES), kernels(OTHER, FEATURES)
    unlabelled = cross.drop_vars(["obs", "basis"])
    frames = {
        name: pd.DataFrame(values)
        for name, values in zip(cross["kernel"].values, cross.values, strict=True)
    }
    for given in (cross.values, frames):
        xr.testing.assert_equal(as_stack(given, like=train), cross.drop_vars("variance"))
    xr.testing.assert_equal(as_stack(unlabelled, like=train), cross)


# --- the rule itself -------------------------------------------------------------------------


def test_counting():
    assert counts_rows(pd.RangeIndex(3))
    assert counts_rows(np.arange(3))
    for ids in ([1, 2, 3], [0, 2, 1], [False, True], ["0", "1"]):
        assert not counts_rows(ids)


def test_order():
    assert order_of(list("cab"), list("abc"), "x", "f", "so") == [1, 2, 0]
    assert order_of(list("ab"), list("ab"), "x", "f", "so") is None
    assert order_of([0, 1], list("ab"), "x", "f", "so") is None
    pairs = pd.MultiIndex.from_tuples([("a", 1), ("a", 0)])
    assert aligned(pd.Series([1, 2], pairs), pairs[::-1], "x", "f").tolist() == [2, 1]
    with pytest.raises(ValueError, match=r"must be so. Got the unknown 0, 1; none for 'a', 'b'"):
        order_of([0, 1], list("ab"), "x", "f", "so", by_position=False)
