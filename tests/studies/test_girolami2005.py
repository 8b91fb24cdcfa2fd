"""Tables 1 and 2 and Figure 3 of girolami2005: recipe, what stands in which row, small runs."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from studies import girolami2005
from studies.__main__ import STUDIES
from studies.data import absence
from studies.girolami2005 import TypeTwo
from studies.study import run_study

RECIPE = {
    "precisions": {"sigma": 0.01, "varsigma": 0.02},
    "concentrations": {"tau": 1.0, "nu": 2.0},
    "algorithm": {"max_iterations": 8, "type_two_from": 5},
    "draws": 40,
}
SETTINGS = {
    "data": {"standardize": False, "test_size": 0.9, "n": 400},
    "width": 5.0,
    "recipe": RECIPE,
}


def test_studies_are_found_by_name():
    for name in ("table1", "table2", "figure3"):
        assert STUDIES[f"girolami2005-{name}"]().name == f"girolami2005-{name}"


def test_every_published_number_has_its_cell():
    for study in (girolami2005.table_1(), girolami2005.table_2()):
        cells = {(row, task.column) for task in study.tasks for row in task.rows}
        assert set(study.published) <= cells
        assert study.spread == "se"
        assert study.splits == study.published_splits == 30
    accuracies = girolami2005.table_1().published
    assert len(accuracies) == 3 * 5 + 1  # the combined cells stand beside both kinds of start
    assert accuracies["all three, highest bound", "sonar"].mean == 80.59
    assert accuracies["all three, from equal weights", "sonar"].mean == 80.59
    assert accuracies["linear", "sonar"].mean == 54.89
    cell = girolami2005.table_2().published["from equal weights: linear", "ionosphere"]
    assert (cell.mean, cell.spread) == (16.5, 0.7)
    weights = girolami2005.table_2().published
    for column in girolami2005.DATA:
        rows = girolami2005._rows(girolami2005.EQUAL)
        assert abs(sum(weights[row, column].mean for row in rows) - 100) < 1


def test_kernels_are_the_papers():
    X = np.random.default_rng(0).normal(size=(7, 3))
    kernels = girolami2005.specification(4.0)(X)
    assert tuple(kernels["kernel"].values) == girolami2005.KERNELS
    squared = cdist(X, X, "sqeuclidean")
    for kernel, expected in zip(
        kernels.values, (np.exp(-squared / 32), X @ X.T, (1 + X @ X.T) ** 2), strict=True
    ):
        np.testing.assert_allclose(kernel, 7 * expected / np.trace(expected))


def test_two_norm_is_one_sample_divided_anew():
    settings = girolami2005.table_1().tasks[3].settings["data"]
    assert settings == {"standardize": False, "test_size": 0.3, "n": 400}
    one, other = (girolami2005.divide("2-norm", seed, **settings) for seed in (1, 2))
    assert (len(one.y_train), len(one.y_test)) == (280, 120)
    assert set(one.X_train.index) != set(other.X_train.index)
    everything = [np.sort(np.concatenate([s.X_train, s.X_test])[:, 0]) for s in (one, other)]
    np.testing.assert_array_equal(*everything)


@pytest.mark.skipif(absence("heart") is not None, reason="heart is not at hand")
def test_heart_alone_is_standardised_on_its_training_part():
    settings = {task.column: task.settings["data"] for task in girolami2005.table_1().tasks}
    assert {column for column, data in settings.items() if data["standardize"]} == {"heart"}
    split = girolami2005.divide("heart", 1, **settings["heart"])
    np.testing.assert_allclose(split.X_train.mean(), 0, atol=1e-12)
    np.testing.assert_allclose(split.X_train.std(ddof=0), 1)
    assert split.X_test.mean().abs().max() > 0.01


def test_hyperparameters_and_iterations_are_the_recipes(monkeypatch):
    recipe = girolami2005.table_1().tasks[0].settings["recipe"]
    calls = []

    def fitted(model, beginnings, **settings):
        calls.append((model, settings))
        assert len(beginnings) == 1
        raise InterruptedError

    monkeypatch.setattr(girolami2005, "fit_type_two", fitted)
    with pytest.raises(InterruptedError):
        girolami2005.accuracies("2-norm", 1, **SETTINGS | {"recipe": recipe})
    ((model, settings),) = calls
    assert (model.sigma, model.varsigma) == (0.01, 0.01)
    # Of one kernel alone the weight is known.
    assert not model.learned
    assert settings == {"type_two_from": 5, "max_iterations": 100, "draws": 1000, "seed": 1}


def test_accuracies_are_those_of_each_kernel_and_of_all():
    values = girolami2005.accuracies("2-norm", 3, **SETTINGS)
    assert tuple(values) == girolami2005.table_1().tasks[0].rows
    # Two normal classes, from 40 objects of 20 features: squares and products only mislead.
    polynomial = values.pop("polynomial")
    assert 50 < polynomial < 90 < min(values.values())


def test_optima_are_told_apart_by_their_start(monkeypatch):
    ends = np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [0.0, 0.9, 0.1], [0.1, 0.1, 0.8]])
    bounds = np.array([-5.0, -7.0, -4.0, -6.0])
    models = []

    def fitted(model, beginnings, **settings):
        models.append(model)
        np.testing.assert_array_equal(beginnings, [np.full(3, 1 / 3), *np.eye(3)])
        return TypeTwo(None, bounds, ends)

    monkeypatch.setattr(girolami2005, "fit_type_two", fitted)
    values = girolami2005.optima("2-norm", 1, **SETTINGS)
    assert set(values) == set(girolami2005.table_2().tasks[0].rows)
    assert values["from equal weights: polynomial"] == 50
    assert values["from the linear alone: linear"] == 90
    assert values["highest bound: linear"] == 90
    assert values["highest bound: polynomial"] == 10
    assert values["from the linear alone: bound"] == 0
    assert values["from the Gaussian alone: bound"] == 3
    rule = models[0].combination
    assert (rule.tau, rule.nu, rule.varphi) == (1.0, 2.0, None)


def test_figure_3_runs(tmp_path):
    study = girolami2005.figure_3()
    settings = {**study.tasks[0].settings, "points": {"size": 8, "gap": 1.5, "spread": 0.2}}
    task = replace(study.tasks[0], settings=settings)
    report = run_study(replace(study, tasks=(task,)), tmp_path, splits=3, progressbar=False)
    ours = report.table.set_index("row")["ours"]
    assert ours["alignment after"] > ours["alignment before"] + 20
    assert ours["largest weight"] > 90 > 2 * ours["largest eigenvalue"]


def test_clusters_lie_where_their_class_is():
    X, y = girolami2005.clusters(np.random.default_rng(0), size=50, gap=3.0, spread=0.1)
    assert X.shape == (200, 2)
    np.testing.assert_array_equal(X[:, 0] > 0, y == 1)
    for label in (0, 1):
        assert abs(X[y == label, 1].mean()) < 0.1
        np.testing.assert_allclose(np.abs(X[y == label, 1]).mean(), 1, atol=0.1)


def test_rank_one_kernels_make_up_the_kernel():
    X = np.random.default_rng(0).normal(size=(12, 5))
    kernels, shares = girolami2005.eigenvector_kernels(X @ X.T)
    assert kernels.shape == (5, 12, 12)
    np.testing.assert_allclose(np.trace(kernels, axis1=1, axis2=2), 1)
    np.testing.assert_allclose(kernels @ kernels, kernels, atol=1e-12)
    assert (np.diff(shares) < 0).all()
    again = np.tensordot(shares, kernels, axes=1)
    np.testing.assert_allclose(again, X @ X.T / np.sum(X**2), atol=1e-14)
