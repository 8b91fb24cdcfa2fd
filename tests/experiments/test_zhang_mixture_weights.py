"""Study of learned weights: its recipe, the honest use of labels, a small run."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from kernelzoo.datasets import load
from kernelzoo.experiments import zhang_mixture_weights as weights
from kernelzoo.experiments.study import run_study
from kernelzoo.inference.weight_objectives import OBJECTIVES
from kernelzoo.models.moment_matching import match_wishart


def settings(column, kernels="kinds"):
    return {"kernels": kernels, "test_size": 0.4, **weights.DATA[column]}


def test_kernels_are_those_of_the_recipe():
    division = weights.divide("wine", 3, **settings("wine"))
    n1 = len(division.K11)
    assert (n1, len(division.y_test)) == (106, 72)
    table = load("wine").X.to_numpy()
    table = (table - table.mean(axis=0)) / table.std(axis=0, ddof=1)
    split = replace(load("wine"), X=load("wine").X * 0 + table).split(
        0.4, seed=3, standardize=False
    )
    x = np.concatenate([split.X_train, split.X_test])
    expected = [np.exp(-cdist(x, x, "sqeuclidean") / 1.5), (1 + x @ x.T) ** 2, x @ x.T]
    np.testing.assert_allclose(division.theta, expected + 0.05 * np.eye(178), atol=1e-9)
    ideal = split.y_train[:, None] == split.y_train
    np.testing.assert_allclose(division.K11, ideal + 0.05 * np.eye(n1))


@pytest.mark.parametrize(
    ("column", "published"),
    [("ionosphere", 392.8), ("sonar", 247.8), ("breast_cancer", 582.6)],
)
def test_matched_degrees_are_those_of_table_2(column, published):
    """They depend on scaling, widths and jitter; the paper prints one decimal."""
    theta = weights.divide(column, 1, **settings(column)).theta
    assert match_wishart(theta)[0] == pytest.approx(published, abs=0.1)


def test_scaled_kernels_have_trace_n_before_the_jitter():
    theta = weights.divide("sonar", 1, **settings("sonar", "scaled")).theta
    np.testing.assert_allclose(np.trace(theta, axis1=1, axis2=2), 208 * 1.01)


def test_test_labels_are_used_for_the_score_alone(monkeypatch):
    """Wrong labels in the test part turn every right answer wrong, and change no answer."""
    honest = weights.accuracies("sonar", 4, data=settings("sonar"))
    divide = weights.divide

    def swapped(*args, **kwargs):
        division = divide(*args, **kwargs)
        return replace(division, y_test=np.where(division.y_test == "R", "M", "R"))

    monkeypatch.setattr(weights, "divide", swapped)
    for row, accuracy in weights.accuracies("sonar", 4, data=settings("sonar")).items():
        assert accuracy == pytest.approx(100 - honest[row])


def test_single_kernel_is_chosen_by_leaving_one_out():
    division = weights.divide("sonar", 4, **settings("sonar"))
    n1 = len(division.K11)
    right = np.zeros(3)
    for i in range(n1):
        kept = np.delete(np.arange(n1), i)
        for k, kernel in enumerate(division.theta):
            row = np.linalg.solve(kernel[np.ix_(kept, kept)], kernel[kept, i])
            nearest = kept[(row @ division.K11[np.ix_(kept, kept)]).argmax()]
            right[k] += division.y_train[nearest] == division.y_train[i]
    assert right[division.best_single()] == right.max()
    assert right.max() > right.min()


def test_small_table(tmp_path):
    study = weights.learned_weights()
    wine = replace(study, tasks=tuple(t for t in study.tasks if t.column == "wine"))
    table = run_study(wine, tmp_path, splits=2, progressbar=False).table.set_index("row")
    assert (table["splits"] == 2).all()
    assert set(OBJECTIVES) < set(table.index)
    assert (table["ours"] > 75).all()
    # The largest kernel rules the plain sum; every objective sees past it.
    assert (table.loc[list(OBJECTIVES), "ours"] > table.loc["equal weights", "ours"]).all()


def test_studies_differ_in_name_and_recipe():
    studies = [weights.learned_weights(kernels) for kernels in weights.KERNELS]
    assert len({study.name for study in studies}) == 3
    assert len({task.recipe for study in studies for task in study.tasks}) == 15
    assert studies[2].tasks[0].rows[1:6] == tuple(
        f"variance {v}" for v in (0.5, 0.75, 1.0, 1.25, 1.5)
    )
    with pytest.raises(ValueError, match="nearest is 'scaled'"):
        weights.learned_weights("scales")
