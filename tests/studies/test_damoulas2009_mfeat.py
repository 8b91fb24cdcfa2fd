"""Tables 4 to 7 of damoulas2009: the trials' objects, their scaling, what stands in which row."""

import numpy as np
import pytest
import xarray as xr

from kernelzoo import datasets
from studies import damoulas2009
from studies.damoulas2009 import RECIPE, mixing
from studies.data import absence

needs_digits = pytest.mark.skipif(absence("mfeat") is not None, reason="mfeat is not at hand")


def test_trials_are_the_papers():
    study = damoulas2009.table_7()
    assert study.splits == study.published_splits == 50
    assert {task.settings["size"] for task in study.tasks} == {20}
    published = study.published
    assert published["WSum, highest bound", "digits"].mean == 6.1
    assert published["FR", "digits"].spread == 3.3
    assert published["Maj", "digits"] == published["Maj, equal votes to the first class", "digits"]
    gibbs = damoulas2009.table_6()
    assert gibbs.published["WSum", "digits"].mean == 5.8
    assert {task.settings["recipe"]["engine"] for task in gibbs.tasks} == {"Gibbs"}
    # Two chains, and cells that say how they mix.
    assert {task.settings["recipe"]["sampling"]["chains"] for task in gibbs.tasks} == {2}
    for row in ("FR", "WSum", "Bin"):
        (task,) = (task for task in gibbs.tasks if row in task.rows)
        assert {f"{row}: R-hat of the log score"} < set(task.rows)
    assert not any("R-hat" in row for task in study.tasks for row in task.rows)
    assert {task.settings["recipe"]["engine"] for task in study.tasks} == {"VB"}


@needs_digits
def test_twenty_objects_of_each_class_are_trained_on_and_twenty_others_tested():
    split = damoulas2009.digits(4, 20)
    for labels in (split.y_train, split.y_test):
        np.testing.assert_array_equal(np.unique(labels, return_counts=True)[1], 20)
    sizes = {name: table.shape for name, table in split.X_train.items()}
    assert sizes == {"FR": (200, 76), "KL": (200, 64), "PX": (200, 240), "ZM": (200, 47)}
    assert not set(split.X_train["FR"].index) & set(split.X_test["FR"].index)
    assert set(split.X_train["FR"].index) == set(split.X_train["ZM"].index)


@needs_digits
def test_features_are_scaled_on_the_training_objects_alone():
    raw = datasets.load("mfeat").X
    split = damoulas2009.digits(4, 20)
    for name, view in damoulas2009.DIGIT_SPACES.items():
        train = raw[view].loc[split.X_train[name].index]
        expected = raw[view].loc[split.X_test[name].index] - train.mean()
        expected /= train.std(ddof=0).where(train.nunique() > 1, 1.0)
        np.testing.assert_allclose(split.X_test[name], expected, atol=1e-9)
        # Were the test objects in the constants, their mean would be that of the training part.
        assert split.X_test[name].mean().abs().max() > 0.05


@needs_digits
def test_small_trials():
    recipe = RECIPE | {"sampling": {"draws": 20}}
    study = damoulas2009.table_7()
    settings = {"size": 5, "recipe": recipe}
    values = damoulas2009.classifiers("digits", 1, **settings)
    assert tuple(values) == study.tasks[0].rows
    # Two good spaces of four, and what combines them.
    assert values["PX"] < 30 < 95 > max(values.values())
    row = "WSum, from equal weights"
    values = damoulas2009.combined_spaces("digits", 1, rule="WSum", row=row, **settings)
    (task,) = (task for task in study.tasks if row in task.rows)
    assert tuple(values) == task.rows
    assert sum(list(values.values())[1:]) == pytest.approx(100)


def test_mixing_is_that_of_the_log_score():
    """Chains apart, chains together: R-hat and effective draws of what is averaged."""
    rng = np.random.default_rng(0)
    labels = np.array(["b", "a", "b"])

    def found(gap):
        draws = 0.3 + 0.01 * rng.normal(size=(2, 400, 3, 2))
        # Columns of the own classes, in which alone the chains are apart.
        draws[..., range(3), [1, 0, 1]] += gap * np.array([-1, 1])[:, None, None]
        predictions = xr.Dataset(
            {"probability_draws": (("chain", "draw", "obs", "class"), draws)},
            coords={"class": ["a", "b"]},
        )
        return tuple(mixing(predictions, labels))

    (together, draws), (apart, few) = found(0.0), found(0.1)
    assert together < 1.01 < 1.5 < apart
    assert few < 10 < 500 < draws
