"""Tables 4 to 7 of damoulas2009: the trials' objects, their scaling, what stands in which row."""

import numpy as np
import pytest

from kernelzoo import datasets
from kernelzoo.experiments import damoulas2009_mfeat
from kernelzoo.experiments.damoulas2009 import RECIPE
from kernelzoo.experiments.data import absence

needs_digits = pytest.mark.skipif(absence("mfeat") is not None, reason="mfeat is not at hand")


def test_trials_are_the_papers():
    study = damoulas2009_mfeat.table_7()
    assert study.splits == study.published_splits == 50
    assert {task.settings["size"] for task in study.tasks} == {20}
    published = study.published
    assert published["WSum, highest bound", "digits"].mean == 6.1
    assert published["FR", "digits"].spread == 3.3
    assert published["Maj", "digits"] == published["Maj, equal votes to the first class", "digits"]
    gibbs = damoulas2009_mfeat.table_6()
    assert gibbs.published["WSum", "digits"].mean == 5.8
    assert {task.settings["recipe"]["engine"] for task in gibbs.tasks} == {"Gibbs"}
    assert {task.settings["recipe"]["engine"] for task in study.tasks} == {"VB"}


@needs_digits
def test_twenty_objects_of_each_class_are_trained_on_and_twenty_others_tested():
    split = damoulas2009_mfeat.divide(4, 20)
    for labels in (split.y_train, split.y_test):
        np.testing.assert_array_equal(np.unique(labels, return_counts=True)[1], 20)
    sizes = {name: table.shape for name, table in split.X_train.items()}
    assert sizes == {"FR": (200, 76), "KL": (200, 64), "PX": (200, 240), "ZM": (200, 47)}
    assert not set(split.X_train["FR"].index) & set(split.X_test["FR"].index)
    assert set(split.X_train["FR"].index) == set(split.X_train["ZM"].index)


@needs_digits
def test_features_are_scaled_on_the_training_objects_alone():
    raw = datasets.load("mfeat").X
    split = damoulas2009_mfeat.divide(4, 20)
    for name, view in damoulas2009_mfeat.SPACES.items():
        train = raw[view].loc[split.X_train[name].index]
        expected = raw[view].loc[split.X_test[name].index] - train.mean()
        expected /= train.std(ddof=0).where(train.nunique() > 1, 1.0)
        np.testing.assert_allclose(split.X_test[name], expected, atol=1e-9)
        # Were the test objects in the constants, their mean would be that of the training part.
        assert split.X_test[name].mean().abs().max() > 0.05


@needs_digits
def test_small_trials():
    recipe = RECIPE | {"sampling": {"draws": 20}}
    study = damoulas2009_mfeat.table_7()
    settings = {"size": 5, "recipe": recipe}
    values = damoulas2009_mfeat.classifiers("digits", 1, **settings)
    assert tuple(values) == study.tasks[0].rows
    # Two good spaces of four, and what combines them.
    assert values["PX"] < 30 < 95 > max(values.values())
    row = "WSum, from equal weights"
    values = damoulas2009_mfeat.combined_spaces("digits", 1, rule="WSum", row=row, **settings)
    (task,) = (task for task in study.tasks if row in task.rows)
    assert tuple(values) == task.rows
    assert sum(list(values.values())[1:]) == pytest.approx(100)
