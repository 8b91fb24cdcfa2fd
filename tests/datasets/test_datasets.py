"""The catalogue as a user sees it: names, contents, splits, errors."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import kernelzoo
from family import assert_mean
from kernelzoo import datasets

SHARED = Path(kernelzoo.__file__).parents[1] / "shared" / "data"
PACKAGED = datasets.table().query("where == 'package'").index.tolist()
CACHED = [name for name in datasets.names() if name not in PACKAGED]


@pytest.fixture
def shared(monkeypatch):
    """The folder of real data beside the project, as the cache folder."""
    if not SHARED.is_dir():
        pytest.skip(f"needs the data files, which are not at {SHARED}")
    monkeypatch.setenv("KERNELZOO_DATA", str(SHARED))
    return SHARED


def raw(shared, name):
    frame = pd.read_csv(next(shared.glob(f"*/{name}.csv.gz")))
    return frame.drop(columns="label").to_numpy(float), frame["label"].to_numpy()


#: Objects of each letter, as UCI's documentation has them.
LETTERS = [
    *(789, 766, 736, 805, 768, 775, 773, 734, 755, 747, 739, 761, 792),
    *(783, 753, 803, 783, 758, 748, 796, 813, 764, 752, 787, 786, 734),
]

# --- contents ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shape", "counts"),
    [
        ("iris", (150, 4), [50, 50, 50]),
        ("iris_uci", (150, 4), [50, 50, 50]),
        ("wine", (178, 13), [59, 71, 48]),
        ("breast_cancer", (569, 30), [357, 212]),
        ("balance_scale", (625, 4), [49, 288, 288]),
        ("crabs", (200, 5), [50, 50, 50, 50]),
        ("ionosphere", (351, 34), [126, 225]),
        ("sonar", (208, 60), [111, 97]),
        ("glass", (214, 9), [70, 76, 17, 13, 9, 29]),
        ("letter", (20000, 16), LETTERS),
    ],
)
def test_packaged(name, shape, counts):
    data = datasets.load(name)
    assert data.X.shape == shape
    assert np.unique(data.y, return_counts=True)[1].tolist() == counts


@pytest.mark.parametrize("name", PACKAGED)
def test_every_packaged_set_is_complete(name):
    data = datasets.load(name)
    row = datasets.table().loc[name]
    sizes = {view: str(X.shape[1]) for view, X in data.views.items()}
    alone = len(sizes) == 1
    assert row.features == (
        sizes[name] if alone else ", ".join(f"{view} {size}" for view, size in sizes.items())
    )
    assert len(np.unique(data.y)) == row.classes
    for X in data.views.values():
        assert len(X) == int(row.objects)
        assert set(X.dtypes.astype(str)) == {"float64"}
        assert np.isfinite(X.to_numpy()).all()
        assert X.index.tolist() == list(range(len(data.y)))
    assert data.card.description
    assert data.card.source == row.source
    assert data.card.licence == row.licence
    assert name in repr(data)


def test_jupyter_shows_how_many_objects_each_class_has():
    def cells(shown):
        return re.findall(r"<td>(.*?)</td>", shown._repr_html_())

    data = datasets.load("iris")
    assert cells(data) == ["50"] * 3
    split = data.split(test_size=0.2, seed=1)
    assert repr(split) == "Split(120 training objects, 30 test objects)"
    assert cells(split) == ["40"] * 3 + ["10"] * 3
    kernels = kernelzoo.gaussian(0.5).on("rna").named("genes") | kernelzoo.linear()
    first, second = cells(kernels)[:3], cells(kernels)[3:]
    assert first == ["genes", "rna", "gaussian(gamma=0.5).on('rna').named('genes')"]
    assert second[0] == second[2].removesuffix("()") == "linear"


@pytest.mark.parametrize("name", ["crabs", "ionosphere", "sonar", "glass"])
def test_bundled_files_are_those_of_the_registry(name, shared):
    X, y = raw(shared, name)
    data = datasets.load(name)
    np.testing.assert_array_equal(data.X, X)
    assert data.y.tolist() == y.tolist()


@pytest.mark.parametrize(
    ("name", "file"), [("wine", "wine"), ("breast_cancer", "breast_cancer_wdbc"), ("iris", "iris")]
)
def test_scikit_learn_carries_the_same_values(name, file, shared):
    np.testing.assert_array_equal(datasets.load(name).X, raw(shared, file)[0])


def test_balance_scale_follows_the_torque_rule_of_the_uci_file(shared):
    X, y = raw(shared, "balance_scale")
    data = datasets.load("balance_scale")
    order = np.lexsort(X.T[::-1])
    np.testing.assert_array_equal(data.X, X[order])
    assert data.y.tolist() == y[order].tolist()


def test_iris_uci_differs_from_fisher_in_two_rows():
    fisher, uci = datasets.load("iris"), datasets.load("iris_uci")
    differ = np.flatnonzero((fisher.X != uci.X).any(axis=1)) + 1
    assert differ.tolist() == [35, 38]
    assert fisher.X.iloc[34].tolist() == [4.9, 3.1, 1.5, 0.2]
    assert fisher.X.iloc[37].tolist() == [4.9, 3.6, 1.4, 0.1]
    assert uci.X.iloc[34].tolist() == uci.X.iloc[37].tolist() == [4.9, 3.1, 1.5, 0.1]
    assert (fisher.y == uci.y).all()


@pytest.mark.parametrize("name", CACHED)
def test_cached_sets_read(name, shared):
    data = datasets.load(name)
    row = datasets.table().loc[name]
    assert row["where"].startswith(str(shared))
    assert all(np.isfinite(view.to_numpy()).all() for view in data.views.values())
    assert {str(dtype) for view in data.views.values() for dtype in view.dtypes} == {"float64"}
    assert (0 if data.y is None else len(np.unique(data.y))) == row.classes
    if data.y is not None:
        n = sum(int(part) for part in row.objects.split(" + "))
        assert {len(view) for view in data.views.values()} == {n} == {len(data.y)}
        assert data.n_published_train in (None, int(row.objects.split(" + ")[0]))


def test_heart_classes(shared):
    y = datasets.load("heart").y
    assert dict(zip(*np.unique(y, return_counts=True), strict=True)) == {
        "absent": 150,
        "present": 120,
    }


# --- generators -------------------------------------------------------------------------------


def test_generators_repeat_themselves_by_seed():
    for make in (datasets.twonorm, datasets.neal_three_class):
        first, again, other = make(50, 3), make(50, 3), make(50, 4)
        pd.testing.assert_frame_equal(first.X, again.X)
        np.testing.assert_array_equal(first.y, again.y)
        assert not first.X.equals(other.X)


def test_twonorm_has_the_moments_and_the_best_error_of_its_law():
    data = datasets.twonorm(40_000, seed=1)
    signs = 1 - 2 * data.y
    assert_mean(signs[:, None] * data.X.to_numpy(), 2 / np.sqrt(20))
    assert_mean((data.X.to_numpy() - signs[:, None] * 2 / np.sqrt(20)) ** 2, 1.0)
    assert_mean(data.y, 0.5)
    assert_mean(np.where(data.X.sum(axis=1) > 0, 0, 1) != data.y, stats.norm.cdf(-2))


def test_neal_has_the_class_probabilities_and_noise_of_its_law():
    """Class areas in closed form: a disc inside the square; a triangle, where the disc is not."""
    data = datasets.neal_three_class(1_000_000, seed=1)
    # The disc reaches to x1 = 0.05 and 0.75, x2 = 0.15 and 0.85: wholly inside the unit square.
    assert_mean(data.y == 0, np.pi * 0.35**2)
    # Under 0.8 x1 + 1.8 x2 = 0.6: a triangle of legs 0.75 and 1/3 less a segment of the disc.
    distance = (0.8 * 0.4 + 1.8 * 0.5 - 0.6) / np.hypot(0.8, 1.8)
    angle = np.arccos(distance / 0.35)
    segment = 0.35**2 * (angle - np.sin(angle) * np.cos(angle))
    assert_mean(data.y == 1, 0.75 / 3 / 2 - segment)
    X = data.X.to_numpy()
    assert_mean(X, 0.5)
    assert_mean((X - 0.5) ** 2, 1 / 12 + 0.1**2)


def test_cohort_repeats_itself_by_seed():
    first, again, other = (datasets.cohort(20, seed) for seed in (3, 3, 4))
    for block, table in first.X.items():
        pd.testing.assert_frame_equal(table, again.X[block])
        assert not table.equals(other.X[block])
    np.testing.assert_array_equal(first.y, again.y)


def test_cohort_has_the_truth_that_it_states():
    """Extra probabilities are calibrated, and the blocks tell what they are said to tell."""
    n = 20_000
    data = datasets.cohort(n, seed=1, separation=1.2)
    p, truth = data.extras["probability"], np.eye(3)[data.y]
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert_mean(truth - p, 0.0)
    # Bug: the score of one factor alone, or of squares that do not cancel, is not calibrated.
    for c in range(3):
        for low in (0.0, 0.2, 0.4, 0.6, 0.8):
            there = (p[:, c] >= low) & (p[:, c] < low + 0.2)
            assert_mean((truth - p)[there, c], 0.0)
    X = {block: table.to_numpy() for block, table in data.X.items()}
    assert {block: x.shape[1] for block, x in X.items()} == {
        "clinical": 12,
        "expression": 200,
        "methylation": 80,
        "technical": 50,
    }
    spread = {
        block: np.array([x[data.y == c].mean(axis=0) for c in range(3)]).std(axis=0)
        for block, x in X.items()
    }
    noise = 4 / np.sqrt(n / 3)
    assert spread["clinical"].max() > 5 * noise
    assert spread["expression"][:40].max() > 5 * noise
    assert spread["expression"][40:].max() < noise
    assert spread["technical"].max() < noise
    # Given expression, methylation is noise of standard deviation 1/4, of no use for the class.
    design = np.column_stack([np.ones(n), X["expression"][:, :40]])
    residual = X["methylation"] - design @ np.linalg.lstsq(design, X["methylation"], rcond=None)[0]
    np.testing.assert_allclose(residual.std(axis=0), 0.25, rtol=0.05)
    told = np.array([residual[data.y == c].mean(axis=0) for c in range(3)]).std(axis=0)
    assert told.max() < noise / 4


# --- splits -----------------------------------------------------------------------------------


def test_split_is_stratified_and_repeats_by_seed():
    data = datasets.load("wine")
    split = data.split(0.3, seed=5)
    assert len(split.y_train) == len(split.X_train) == 124
    assert len(split.y_test) == len(split.X_test) == 54
    for name, count in zip(*np.unique(data.y, return_counts=True), strict=True):
        assert abs(np.sum(split.y_test == name) - 0.3 * count) <= 1
    both = np.concatenate([split.X_train.index, split.X_test.index])
    assert sorted(both) == list(range(178))
    assert (data.y[split.X_train.index] == split.y_train).all()
    assert (data.y[split.X_test.index] == split.y_test).all()
    pd.testing.assert_frame_equal(split.X_test, data.split(0.3, seed=5).X_test)
    assert not split.X_test.index.equals(data.split(0.3, seed=6).X_test.index)


def test_standardised_on_the_training_part():
    data = datasets.load("wine")
    split, plain = data.split(seed=1), data.split(seed=1, standardize=False)
    np.testing.assert_allclose(split.X_train.mean(), 0, atol=1e-12)
    np.testing.assert_allclose(split.X_train.std(ddof=0), 1)
    pd.testing.assert_frame_equal(plain.X_test, data.X.loc[plain.X_test.index])
    expected = (plain.X_test - plain.X_train.mean()) / plain.X_train.std(ddof=0)
    pd.testing.assert_frame_equal(split.X_test, expected)


def test_constant_features_are_shifted_only():
    split = datasets.load("ionosphere").split(seed=0)
    assert (split.X_train["imag1"] == 0).all()
    data = datasets.Dataset("x", pd.DataFrame({"a": [0.1] * 9}), np.arange(9) % 2, CARD)
    np.testing.assert_allclose(data.split(seed=0).X_train, 0, atol=1e-15)


def test_several_views_and_published_division(shared):
    data = datasets.load("protein_fold")
    split = data.published_split()
    assert split.X_train["Composition"].shape == (311, 20)
    assert split.X_test["Composition"].shape == (383, 20)
    np.testing.assert_allclose(split.X_train["Composition"].std(ddof=0), 1)
    # Scores are similarities: not standardised, so the training block is a Gram matrix.
    scores = split.X_train["SWblosum62"].to_numpy()
    np.testing.assert_array_equal(scores, scores.T)
    assert split.X_test["SWblosum62"].shape == (383, 311)
    assert data.split(seed=0).X_test["SWpam50"].shape[1] == 311
    assert data.X["L1"].columns[:2].tolist() == ["L11", "L12"]


def test_gram_matrices_are_divided_by_rows_and_columns(shared):
    data = datasets.load("kernels_digits200")
    split = data.split(seed=0)
    train, test = split.X_train["K0"], split.X_test["K0"]
    assert train.shape == (140, 140)
    assert test.shape == (60, 140)
    assert train.index.equals(train.columns)
    assert test.columns.equals(train.index)
    np.testing.assert_array_equal(train, data.X["K0"].to_numpy()[np.ix_(train.index, train.index)])
    assert set(data.extras) == {f"MID{percent}" for percent in range(10, 70, 10)}


# --- errors -----------------------------------------------------------------------------------

CARD = datasets.Card("made up", "nowhere", "none")


def test_unknown_name_gets_the_nearest_suggestion():
    with pytest.raises(ValueError, match=r"'name' argument of load .* Got 'wien' \(the nearest is"):
        datasets.load("wien")
    with pytest.raises(ValueError, match=r"Got 'qqq'\.$"):
        datasets.load("qqq")


@pytest.mark.parametrize("test_size", [0, 1, 1.5, -0.1])
def test_test_size_out_of_range(test_size):
    with pytest.raises(ValueError, match=r"'test_size' argument of split must be between 0 and 1"):
        datasets.load("iris").split(test_size, seed=0)


@pytest.mark.parametrize(
    ("y", "test_size", "message"),
    [
        (["a"] * 9 + ["b"], 0.3, "least populated class"),
        (["a", "b", "c"] * 3, 0.2, "number of classes = 3"),
        (["a"] * 40 + ["b"] * 2, 0.9, r"0.9, which leaves class 'b' out of the training part"),
    ],
)
def test_class_with_too_few_members(y, test_size, message):
    data = datasets.Dataset("x", pd.DataFrame({"a": np.arange(len(y))}), np.array(y), CARD)
    with pytest.raises(ValueError, match=message):
        data.split(test_size, seed=0)


def test_no_published_division():
    with pytest.raises(ValueError, match=r"'wine' has no published split. Use split"):
        datasets.load("wine").published_split()


def test_no_labels():
    data = datasets.Dataset("x", pd.DataFrame({"a": [1.0]}), None, CARD)
    with pytest.raises(ValueError, match=r"'x' has no labels; split needs them"):
        data.split(seed=0)


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        ("neal_three_class", {"noise": -1.0}),
        ("neal_three_class", {"n": 0}),
        ("cohort", {"separation": np.nan}),
        ("cohort", {"n": 2.5}),
    ],
)
def test_arguments_of_generators_that_make_no_data_are_refused(make, arguments):
    with pytest.raises(ValueError, match=f"argument of {make} must be"):
        getattr(datasets, make)(**arguments)
