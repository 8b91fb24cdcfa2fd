"""Study of learned weights: its recipe, the honest use of labels, its cells by hand."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from kernelzoo.datasets import load
from kernelzoo.inference.kernel_completion.weights import OBJECTIVES, learn_weights
from kernelzoo.models.completion.moment_matching import match_wishart
from studies import zhang_mixture as weights
from studies.study import run_study
from studies.zhang_mixture import TYPES, divide

COLUMNS = ("breast_cancer", "ionosphere", "soybean_small", "wine", "sonar", "iris_uci")


def settings(column, kernels="types"):
    return {"data": {"test_size": 0.4, **weights.WEIGHTED[column]}, **weights.SETS[kernels]}


def divided(column, seed, kernels="types"):
    """A division and its stack of kernels, as the study makes them."""
    recipe = settings(column, kernels)
    division = divide(column, seed, **recipe["data"])
    return division, division.stack(recipe["kernels"], recipe["normalize"])


# --- an independent recipe -------------------------------------------------------------------


def by_hand(column, seed, jitter, standardize):
    """Kernels with eps, K11, labels of the training and of the test objects."""
    data = load(column)
    if standardize:
        X = data.X.to_numpy()
        data = replace(data, X=data.X * 0 + (X - X.mean(axis=0)) / X.std(axis=0, ddof=1))
    split = data.split(0.4, seed=seed, standardize=False)
    x = np.concatenate([split.X_train, split.X_test])
    kernels = np.array([np.exp(-cdist(x, x, "sqeuclidean") / 1.5), (1 + x @ x.T) ** 2, x @ x.T])
    y = split.y_train
    K11 = (y[:, None] == y) + jitter * np.eye(len(y))
    return kernels + jitter * np.eye(len(x)), K11, y, split.y_test


def by_hand_accuracy(theta, K11, y, y_test):
    """Of the label of the largest entry: K11 has a constant diagonal."""
    n1 = len(y)
    K21 = theta[n1:, :n1] @ np.linalg.inv(theta[:n1, :n1]) @ K11
    return 100 * np.mean(y[K21.argmax(axis=1)] == y_test)


def by_hand_leave_one_out(theta, K11, y):
    """How many training objects are named right from the others; minus the rows' squared error."""
    right, error = 0, 0.0
    for i in range(len(y)):
        kept = np.delete(np.arange(len(y)), i)
        solution = np.linalg.solve(theta[np.ix_(kept, kept)], theta[kept, i])
        row = solution @ K11[np.ix_(kept, kept)]
        right += y[kept[row.argmax()]] == y[i]
        error += ((row - K11[i, kept]) ** 2).sum()
    return right, -error


def test_kernels_are_those_of_the_recipe():
    division, stack = divided("wine", 3)
    theta, K11, y, y_test = by_hand("wine", 3, 0.05, standardize=True)
    assert (len(y), len(y_test)) == (106, 72)
    assert stack["kernel"].values.tolist() == ["Gaussian", "polynomial", "linear"]
    np.testing.assert_allclose(stack, theta, atol=1e-9)
    np.testing.assert_allclose(division.K11, K11)


@pytest.mark.parametrize(
    ("column", "published"),
    [("ionosphere", 392.8), ("sonar", 247.8), ("breast_cancer", 582.6)],
)
def test_matched_degrees_are_those_of_table_2(column, published):
    """They depend on scaling, widths and jitter; the paper prints one decimal."""
    _, stack = divided(column, 1)
    assert match_wishart(stack)[0] == pytest.approx(published, abs=0.1)


def test_scaled_kernels_have_trace_n_before_the_jitter():
    _, stack = divided("sonar", 1, "scaled")
    np.testing.assert_allclose(np.trace(stack, axis1=1, axis2=2), 208 * 1.01)


def test_test_labels_are_used_for_the_score_alone(monkeypatch):
    """Wrong labels in the test part turn every right answer wrong, and change no answer."""
    honest = weights.accuracies("sonar", 4, **settings("sonar"))

    def swapped(*args, **kwargs):
        division = divide(*args, **kwargs)
        return replace(division, y_test=np.where(division.y_test == "R", "M", "R"))

    monkeypatch.setattr(weights, "divide", swapped)
    for row, accuracy in weights.accuracies("sonar", 4, **settings("sonar")).items():
        assert accuracy == pytest.approx(100 - honest[row])


def test_cells_are_those_of_an_independent_recipe(tmp_path):
    """Every cell of two splits of a set on which the kernels and the splits differ."""
    study = weights.learned_weights("types")
    sonar = replace(study, tasks=tuple(t for t in study.tasks if t.column == "sonar"))
    cells = run_study(sonar, tmp_path, splits=2, progressbar=False).table.to_dict("records")
    ours = {cell["row"]: tuple(cell["values"]) for cell in cells}
    assert len({ours[row] for row in ("equal weights", *TYPES)}) == 4
    by_split = list(zip(*ours.values(), strict=True))
    assert by_split[0] != by_split[1]
    for split, values in enumerate(by_split):
        seed = study.seed_of("sonar", split)
        theta, K11, y, y_test = by_hand("sonar", seed, 0.01, standardize=False)
        scores = [by_hand_leave_one_out(kernel, K11, y) for kernel in theta]
        alphas = {
            "equal weights": np.full(3, 1 / 3),
            **dict(zip(TYPES, np.eye(3), strict=True)),
            "best single kernel": np.eye(3)[scores.index(max(scores))],
        }
        for objective in OBJECTIVES:
            alphas[objective] = learn_weights(theta, K11, objective, labels=y).values
        expected = {
            row: by_hand_accuracy(np.tensordot(alpha, theta, axes=1), K11, y, y_test)
            for row, alpha in alphas.items()
        }
        assert dict(zip(ours, values, strict=True)) == pytest.approx(expected)


def test_recipe_says_what_the_kernels_are():
    """A stored unit is told by its settings, from which its numbers can be made again."""
    task = next(t for t in weights.learned_weights("scaled").tasks if t.column == "sonar")
    assert json.loads(json.dumps(task.settings)) == {
        "data": {"standardize": False, "jitter": 0.01, "jitter_first": True, "test_size": 0.4},
        "kernels": {
            "Gaussian": ["gaussian", 0.75],
            "polynomial": ["polynomial", 2],
            "linear": ["linear"],
        },
        "normalize": ["trace"],
    }


def test_studies_differ_in_name_and_recipe():
    studies = [weights.learned_weights(kernels) for kernels in weights.SETS]
    assert [tuple(t.column for t in study.tasks) for study in studies[:2]] == [COLUMNS] * 2
    assert len({study.name for study in studies}) == 3
    assert len({task.recipe for study in studies for task in study.tasks}) == 15
    assert studies[2].tasks[0].rows[1:6] == tuple(
        f"variance {v:.2f}" for v in (0.5, 0.75, 1.0, 1.25, 1.5)
    )
