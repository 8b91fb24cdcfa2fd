"""Tables of zhang_mixture: the recipe against an independent one, eta to the digit, small runs."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from kernelzoo.datasets import load
from kernelzoo.inference.kernel_completion.classifiers import KernelNearestNeighbour
from kernelzoo.inference.mutual_completion.scores import ideal_kernel
from studies import zhang_mixture
from studies.__main__ import STUDIES
from studies.data import absence
from studies.study import printed, run_study

ETA = {cell: each.mean for cell, each in printed("zhang-mixture-table2").items()}
FIRST = {"jitter": 0.01, "jitter_first": True}
AFTER = {"jitter": 0.05, "jitter_first": False}
#: Results behind the notes that no table holds: per cent by the nearest neighbour,
NEIGHBOUR = 94.5
#: least and largest number of test objects with no entry of K21 above NEAR, points to the paper's,
STRANGERS = {"zhang-mixture-table1": (22, 31), "zhang-mixture-table3": (9, 38)}
NEAR, POINTS = 0.01, 2
#: and the variance of Table 1's Gaussian kernel on soybean.
WIDER = 17.5


def division_of(column, seed=3):
    return zhang_mixture.divide(column, seed, **zhang_mixture.DATA_1[column], test_size=0.4)


def only(study, *columns):
    return replace(study, tasks=tuple(t for t in study.tasks if t.column in columns))


# --- an independent recipe, in the paper's own variables -------------------------------------


def three_kernels(x):
    squared = cdist(x, x, "sqeuclidean")
    return np.array([np.exp(-squared / (2 * 0.75)), (1 + x @ x.T) ** 2, x @ x.T])


def match(kernels):
    """Eqs (10) and (13) for weights 1/K and eta_k = n + 1."""
    n, share = len(kernels[0]), 1 / len(kernels)
    mean = share * (n + 1) * sum(kernels)
    covariance = sum(
        share**2 * (n + 1) * (np.trace(kernel) ** 2 + np.trace(kernel @ kernel))
        for kernel in kernels
    )
    eta = (np.trace(mean) ** 2 + np.trace(mean @ mean)) / covariance
    return eta, mean / eta


def complete(theta, K11, eta, iterations=100):
    """Eqs (5)-(6), from C = eta Theta^-1 with rho = n + 1."""
    n, n1 = len(theta), len(K11)
    rho = n + 1
    C = eta * np.linalg.inv(theta)
    block22 = np.linalg.inv(C[n1:, n1:])
    slope = -block22 @ C[n1:, :n1]
    inverse = np.linalg.inv(K11 + theta[:n1, :n1])
    for iteration in range(iterations + 1):
        K22_1, K21 = (rho - n1) * block22, slope @ K11
        if iteration == iterations:
            return K21, K22_1 + K21 @ np.linalg.solve(K11, K21.T)
        both = K21 + theta[n1:, :n1]
        block22 = (
            rho / (rho - n1) * K22_1
            + theta[n1:, n1:]
            + K21 @ np.linalg.solve(K11, K21.T)
            - both @ inverse @ both.T
        ) / (rho + eta - n - 1)
        slope = both @ inverse


def alignment(K, y):
    ideal = y[:, None] == y
    return 100 * (K * ideal).sum() / np.sqrt((K**2).sum() * ideal.sum())


def accuracy(predicted, y):
    return 100 * np.mean(predicted == y)


def nearest_mean(K11, K21, k22, y):
    """Eq (15) as it is printed."""
    distances = [
        k22 + K11[np.ix_(y == c, y == c)].mean() - 2 * K21[:, y == c].mean(axis=1)
        for c in np.unique(y)
    ]
    return np.unique(y)[np.argmin(distances, axis=0)]


@pytest.mark.parametrize("column", ["iris_uci", "sonar"])
def test_cells_are_those_of_an_independent_recipe(column):
    """The two sets take the jitter at different places."""
    data = zhang_mixture.DATA_1[column]
    ours = zhang_mixture.kernel_learning(
        column,
        7,
        data={**data, "test_size": 0.4},
        kernels=zhang_mixture.TYPES,
        iterations=100,
    )
    X = load(column).X
    if data["standardize"]:
        X = (X - X.mean()) / X.std(ddof=1)
    split = replace(load(column), X=X).split(0.4, seed=7, standardize=False)
    y, y_test = split.y_train, split.y_test
    n1 = len(y)
    kernels = three_kernels(np.concatenate([split.X_train, split.X_test]))
    eye = data["jitter"] * np.eye(kernels.shape[-1])
    K11 = (y[:, None] == y) + eye[:n1, :n1]
    parts = {"Gaussian": kernels[:1], "polynomial": kernels[1:2], "linear": kernels[2:]}
    for name, part in (parts | {"mixture": kernels}).items():
        eta, theta = match(part + eye if data["jitter_first"] else part)
        theta = theta if data["jitter_first"] else theta + eye
        K21, K22 = complete(theta, K11, eta)
        means = nearest_mean(theta[:n1, :n1], theta[n1:, :n1], np.diag(theta)[n1:], y)
        expected = {
            "target alignment": alignment(K22, y_test),
            "target accuracy": accuracy(y[K21.argmax(axis=1)], y_test),
            "input alignment": alignment(theta[n1:, n1:], y_test),
            "input accuracy": accuracy(means, y_test),
        }
        for measure, value in expected.items():
            assert ours[f"{name}: {measure}"] == pytest.approx(value, rel=1e-6), (name, measure)


# --- recipe ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "column", "printed"),
    [(*cell, eta) for cell, eta in ETA.items()],
)
def test_matched_degrees_are_the_printed_ones(row, column, printed):
    """To the paper's last digit: Table 2, and the five widths of section 6.2."""
    task = {(t.rows, t.column): t for t in zhang_mixture.table_2().tasks}[(row,), column]
    if task.skip:
        pytest.skip(task.skip)
    value = task.function(column, 0, **task.settings)[row]
    assert round(value, 1) == printed


@pytest.mark.parametrize(
    ("column", "settings", "near"),
    [
        ("iris_uci", {"standardize": True, **AFTER, "jitter_first": True}, 193.6),
        ("wine", {"standardize": True, **AFTER, "jitter_first": True}, 200.3),
        ("ionosphere", {"standardize": False, **FIRST, "jitter_first": False}, 392.7),
        ("sonar", {"standardize": True, **FIRST}, 213.8),
        ("iris", {"standardize": True, **AFTER}, 193.0),
    ],
)
def test_matched_degrees_tell_recipes_apart(column, settings, near):
    """The digit that each recipe but the one in use would miss."""
    value = zhang_mixture.matched_degrees(
        column, 0, row="eta", kernels=zhang_mixture.TYPES, **settings
    )["eta"]
    in_print = ETA.get(("three types", column), ETA["three types", "iris_uci"])
    assert round(value, 1) == near != in_print


def test_divisions_are_stratified_with_training_objects_first():
    division = division_of("wine")
    assert (len(division.y_train), len(division.y_test)) == (106, 72)
    for label, count in zip(*np.unique(load("wine").y, return_counts=True), strict=True):
        assert abs((division.y_test == label).sum() - 0.4 * count) < 1
    labels = load("wine").y
    np.testing.assert_array_equal(labels[division.X.index[:106]], division.y_train)
    np.testing.assert_array_equal(labels[division.X.index[106:]], division.y_test)
    np.testing.assert_allclose(division.X.mean(), 0, atol=1e-12)
    np.testing.assert_allclose(division.X.std(ddof=1), 1)
    assert (division_of("sonar").X.sort_index() == load("sonar").X).all(axis=None)


def test_target_kernel_of_the_training_objects():
    division = division_of("iris_uci")
    n1 = len(division.y_train)
    np.testing.assert_allclose(
        division.K11, ideal_kernel(division.y_train) + 0.05 * np.eye(n1), rtol=1e-12
    )


def test_nearest_neighbour_in_the_target_kernel_is_the_largest_entry():
    """Figure 4, by hand: K11 has a constant diagonal, so that the distances are minus 2 K21."""
    y = np.array(["b", "a", "a", "c"])
    K21 = np.array([[0.2, 0.1, 0.3, 0.0], [-0.1, -0.3, -0.2, -0.4], [0.5, 0.6, 0.1, 0.7]])
    classifier = KernelNearestNeighbour().fit(ideal_kernel(y) + 0.05 * np.eye(4), y)
    assert classifier.predict(K21).tolist() == ["a", "b", "c"]


def test_single_kernel_does_not_care_where_the_jitter_stands():
    """Matching leaves one kernel as it is (Theorem 4's degenerate case); a mixture is scaled."""
    places = [replace(division_of("iris_uci"), jitter_first=first) for first in (True, False)]
    one = {"linear": zhang_mixture.TYPES["linear"]}
    for kernels, same in ((one, True), (zhang_mixture.TYPES, False)):
        first, after = (division.matched(division.stack(kernels)) for division in places)
        assert (first[0] == pytest.approx(after[0], rel=1e-12)) == same
        assert np.allclose(first[1], after[1], rtol=1e-12) == same


def test_test_labels_are_used_for_the_score_alone(monkeypatch):
    """Wrong labels in the test part turn every right answer wrong, and change no answer."""
    settings = {
        "data": {**zhang_mixture.DATA_1["sonar"], "test_size": 0.4},
        "kernels": zhang_mixture.TYPES,
        "iterations": 5,
    }
    honest = zhang_mixture.kernel_learning("sonar", 4, **settings)
    divide = zhang_mixture.divide

    def swapped(*args, **kwargs):
        division = divide(*args, **kwargs)
        return replace(division, y_test=np.where(division.y_test == "R", "M", "R"))

    monkeypatch.setattr(zhang_mixture, "divide", swapped)
    wrong = zhang_mixture.kernel_learning("sonar", 4, **settings)
    for row, value in honest.items():
        expected = 100 - value if row.endswith("accuracy") else value
        assert wrong[row] == pytest.approx(expected)


# --- studies ---------------------------------------------------------------------------------


def test_small_tables(tmp_path):
    study = only(zhang_mixture.table_1(), "iris_uci")
    table = run_study(study, tmp_path, splits=2, progressbar=False).table.set_index("row")
    assert (table["splits"] == 2).all()
    assert table.loc["Gaussian: target accuracy", "paper"] == 94.61
    assert table.loc["mixture: target alignment", "paper"] == 92
    # Far above the third of a guess.
    assert table.loc["polynomial: target accuracy", "ours"] > 85
    again = run_study(study, tmp_path, splits=3, progressbar=False).table.set_index("row")
    assert len([*(tmp_path / "zhang-mixture-table1").glob("*.json")]) == 3
    assert (again["splits"] == 3).all()
    sonar = only(zhang_mixture.table_3(), "sonar")
    widths = run_study(sonar, tmp_path, splits=1, progressbar=False).table.set_index("row")
    assert (widths["failed"] == 0).all()
    alone = widths.loc[[f"variance {v:.2f}: target alignment" for v in (0.5, 1.0, 1.5)], "ours"]
    # A wider kernel aligns better, and the mixture, whose eta is five times larger, by far best.
    assert alone.is_monotonic_increasing
    assert widths.loc["mixture: target alignment", "ours"] > alone.max() + 10


def test_table_2_is_of_no_split(tmp_path):
    study = zhang_mixture.table_2()
    report = run_study(only(study, "wine", "sonar"), tmp_path, progressbar=False)
    assert report.table["row"].tolist() == ["three types", "three types", "five widths"]
    assert report.table["splits"].tolist() == [1, 1, 1]
    assert report.table["verdict"].tolist() == ["agrees"] * 3


def test_every_cell_of_the_paper_has_its_task():
    tables = zhang_mixture.table_1(), zhang_mixture.table_2(), zhang_mixture.table_3()
    for study, size in zip(tables, (96, 9, 72), strict=True):
        cells = {(row, task.column) for task in study.tasks for row in task.rows}
        assert set(study.published) == cells
        assert len(cells) == size
        assert set(study.irreproducible) <= cells
        assert STUDIES[study.name]().name == study.name
    assert len({task.recipe for study in tables for task in study.tasks}) == 18


def test_all_rows_of_a_set_see_the_same_divisions_in_both_tables():
    one, three = zhang_mixture.table_1(), zhang_mixture.table_3()
    assert one.seed_of("sonar", 4) == three.seed_of("sonar", 4)


def test_absent_data_are_a_reason_in_the_table(tmp_path, monkeypatch):
    def not_here(name):
        raise FileNotFoundError(f"The data set {name!r} needs the file {name}.csv.gz (SHA-256 0).")

    monkeypatch.setattr("studies.data.load", not_here)
    soybean = only(zhang_mixture.table_1(), "soybean_small")
    verdicts = run_study(soybean, tmp_path, progressbar=False).table["verdict"]
    reason = "The data set 'soybean_small' needs the file soybean_small.csv.gz"
    assert set(verdicts) == {f"skipped: {reason}"}


def divisions(name, column):
    study = STUDIES[name]()
    (task,) = only(study, column).tasks
    for split in range(study.splits):
        seed = study.seed_of(column, split)
        yield zhang_mixture.divide(column, seed, **task.settings["data"])


def test_nearest_neighbour_with_an_input_kernel_is_not_the_papers():
    accuracies = []
    for division in divisions("zhang-mixture-table1", "breast_cancer"):
        _, theta = division.matched(division.stack({"Gaussian": ["gaussian", 0.75]}))
        n1 = len(division.y_train)
        nearest = KernelNearestNeighbour().fit(theta[:n1, :n1], division.y_train)
        accuracies.append(division._accuracy(nearest.predict(theta[n1:, :n1])))
    assert np.mean(accuracies) == pytest.approx(NEIGHBOUR, abs=0.1)


@pytest.mark.parametrize(
    ("name", "kernels"),
    [
        ("zhang-mixture-table1", {"Gaussian": ["gaussian", 0.75]}),
        ("zhang-mixture-table3", zhang_mixture.WIDTHS),
    ],
)
def test_test_objects_far_from_all_training_objects_are_of_class_b(name, kernels):
    parts = [{kernel: form} for kernel, form in kernels.items()]
    rows = [*kernels] + (["mixture"] if len(kernels) > 1 else [])
    parts += [kernels] if len(kernels) > 1 else []
    numbers, taken_for_g = [], 0
    accuracies = {row: [] for row in rows}
    for division in divisions(name, "ionosphere"):
        for row, part in zip(rows, parts, strict=True):
            _, theta = division.matched(division.stack(part))
            n1 = len(division.y_train)
            K21 = np.linalg.solve(theta[:n1, :n1], theta[:n1, n1:]).T @ division.K11
            nearest = KernelNearestNeighbour().fit(division.K11, division.y_train).predict(K21)
            far = (K21 <= NEAR).all(axis=1)
            assert set(division.y_test[far]) == {"b"}
            numbers.append(far.sum())
            taken_for_g += (nearest[far] == "g").mean() / len(rows) / 30
            accuracies[row].append(division._accuracy(np.where(far, "b", nearest)))
    assert (min(numbers), max(numbers)) == STRANGERS[name]
    assert 0.2 < taken_for_g < 0.4
    for row, values in accuracies.items():
        paper = printed(name)[f"{row}: target accuracy", "ionosphere"].mean
        assert abs(np.mean(values) - paper) <= POINTS


@pytest.mark.skipif(absence("soybean_small") is not None, reason="soybean_small is not at hand")
def test_gaussian_kernel_of_soybean_is_wider_in_print(tmp_path):
    column = "soybean_small"
    (task,) = only(STUDIES["zhang-mixture-table1"](), column).tasks
    rows = tuple(f"Gaussian: {measure}" for measure in zhang_mixture.MEASURES)
    rows += tuple(f"mixture: {measure}" for measure in zhang_mixture.MEASURES)
    settings = {**task.settings, "kernels": {"Gaussian": ["gaussian", WIDER]}}
    wider = replace(task, rows=rows, settings=settings)
    shown = frozenset(rows[: len(zhang_mixture.MEASURES)])
    study = replace(STUDIES["zhang-mixture-table1"](), tasks=(wider,), shown=shown)
    table = run_study(study, tmp_path, progressbar=False).table
    assert set(table["verdict"]) == {"agrees"}
