"""Table 2 of damoulas2009: recipe, what stands in which row, small runs."""

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist

from kernelzoo import datasets
from studies import damoulas2009
from studies.__main__ import STUDIES

TINY = damoulas2009.RECIPE | {
    "algorithm": {"weights": "plug-in", "starts": 1, "max_iterations": 4, "tolerance": 1e-3},
    "sampling": {"draws": 20},
}
NAMES = ("table2", "mfeat", "mfeat-gibbs", "synthetic", "protein", "protein-raw", "protein-unit")


@pytest.mark.parametrize("name", [f"damoulas2009-{name}" for name in NAMES])
def test_studies_are_found_by_name_and_every_published_number_has_its_cell(name):
    study = STUDIES[name]()
    assert study.name == name
    cells = [(row, task.column) for task in study.tasks for row in task.rows]
    assert len(set(cells)) == len(cells)
    assert set(study.published) <= set(cells)
    assert set(study.irreproducible) <= set(study.published)


def test_published_numbers_stand_in_their_cells():
    published = damoulas2009.table_2().published
    assert len(published) == 28
    assert (published["linear", "vehicle"].mean, published["linear", "vehicle"].spread) == (
        29.6,
        3.3,
    )
    assert published["polynomial", "wine"].mean == 1.1
    assert published["polynomial of diagonal 1", "wine"] == published["polynomial", "wine"]


def test_kernels_are_the_papers():
    X = np.random.default_rng(0).normal(size=(6, 3))
    expected = {
        "Gaussian": np.exp(-cdist(X, X, "sqeuclidean") / 3),
        "linear": X @ X.T,
        "polynomial": (1 + X @ X.T) ** 2,
    }
    root = np.sqrt(np.diag(expected["polynomial"]))
    expected["polynomial of diagonal 1"] = expected["polynomial"] / np.outer(root, root)
    assert tuple(damoulas2009.KERNELS) == tuple(expected)
    for name, kernel in damoulas2009.KERNELS.items():
        np.testing.assert_allclose(kernel(X).values[0], expected[name])


def test_algorithm_is_the_recipes(monkeypatch):
    made = []

    def refused(model, run, algorithm):
        made.append((model, algorithm))
        raise InterruptedError

    monkeypatch.setattr(damoulas2009, "ascend", refused)
    with pytest.raises(InterruptedError):
        damoulas2009.fitted(0.5 + 0.5 * np.eye(4), [0, 0, 1, 1], 1, damoulas2009.RECIPE)
    ((model, settings),) = made
    assert (model.tau, model.upsilon) == (1.0, 1.0)
    assert settings == {
        "weights": "plug-in",
        "starts": 1,
        "max_iterations": 50,
        "tolerance": 1e-3,
    }


def scaled_on_all(X):
    return (X - X.mean()) / X.std(ddof=0)


def leak(fold, whole):
    """How far the parts are from constants of the training part, and from those of all objects."""
    own = (whole.loc[fold.X_test.index] - whole.loc[fold.X_train.index].mean()) / whole.loc[
        fold.X_train.index
    ].std(ddof=0)
    everyones = scaled_on_all(whole).loc[fold.X_test.index]
    return tuple(float((fold.X_test - other).abs().max(axis=None)) for other in (own, everyones))


def test_features_are_scaled_on_the_training_part_of_each_fold():
    data = datasets.load("iris_uci")
    whole = data.X
    assert isinstance(whole, pd.DataFrame)
    for fold in data.folds(10, seed=3):
        own, everyones = leak(fold, whole)
        assert own < 1e-12 < 1e-3 < everyones
        np.testing.assert_allclose(fold.X_train.mean(), 0, atol=1e-12)
    # A planted leak is found.
    leaking = damoulas2009.Split(
        fold.X_train, scaled_on_all(whole).loc[fold.X_test.index], fold.y_train, fold.y_test
    )
    own, everyones = leak(leaking, whole)
    assert everyones < 1e-12 < 1e-3 < own


def test_cross_validation_of_iris():
    settings = {"kernel": "Gaussian", "folds": 3, "recipe": TINY}
    values = damoulas2009.cross_validated("iris", 1, **settings)
    assert tuple(values) == damoulas2009.table_2().tasks[4].rows
    assert 0 < values["Gaussian"] < 15
    assert values == damoulas2009.cross_validated("iris", 1, **settings)


def test_errors_of_folds_have_the_spread_of_a_sample(monkeypatch):
    errors = iter([1.0, 2.0, 6.0])
    monkeypatch.setattr(damoulas2009, "fitted", lambda *given: (None, None))
    monkeypatch.setattr(damoulas2009, "predict", lambda *given: {"label": pd.Series([0])})
    monkeypatch.setattr(damoulas2009, "error", lambda *given: next(errors))
    values = damoulas2009.cross_validated("iris", 1, kernel="Gaussian", folds=3, recipe={})
    np.testing.assert_allclose(list(values.values()), [3.0, np.sqrt(7.0)])


def test_equal_votes_are_decided_in_two_ways(monkeypatch):
    # Three spaces of two objects a class: each space knows one class only.
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 8)
    spaces = {
        str(c): pd.DataFrame(6.0 * (y == c)[:, None] + rng.normal(size=(24, 1))) for c in range(3)
    }
    split = damoulas2009.Split(spaces, spaces, y, y)
    monkeypatch.setattr(damoulas2009, "divide", lambda seed, size: split)
    values = damoulas2009.classifiers("digits", 1, recipe=TINY)
    assert tuple(values) == (
        "0",
        "1",
        "2",
        "Prod",
        "Sum",
        "Max",
        "Maj",
        damoulas2009.FIRST_OF_EQUALS,
    )
    assert values["Prod"] <= min(values[space] for space in spaces)
    assert values["Maj"] <= values[damoulas2009.FIRST_OF_EQUALS]


@pytest.mark.parametrize("rule", damoulas2009.COMBINATIONS)
def test_combinations_return_their_rows(rule, monkeypatch):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 6)
    spaces = {name: pd.DataFrame(2.0 * y[:, None] + rng.normal(size=(12, 2))) for name in "ab"}
    split = damoulas2009.Split(spaces, spaces, y, y)
    monkeypatch.setattr(damoulas2009, "divide", lambda seed, size: split)
    values = damoulas2009.combined_spaces("digits", 1, rule=rule, row="row", recipe=TINY)
    learned = rule in ("Bin", "WSum", "WProd")
    assert tuple(values) == ("row", *(("row: weight of a", "row: weight of b") if learned else ()))
    assert values["row"] < 50
    if rule == "WSum":
        assert values["row: weight of a"] + values["row: weight of b"] == pytest.approx(100)
