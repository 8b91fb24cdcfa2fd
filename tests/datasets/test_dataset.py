"""Cross-validation of a data set; Neal's data without noise."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from kernelzoo import datasets

GLASS = datasets.load("glass")


def test_every_object_is_tested_once_and_classes_are_spread():
    folds = list(GLASS.folds(10, seed=1))
    tested = np.concatenate([fold.X_test.index for fold in folds])
    assert sorted(tested) == sorted(GLASS.X.index)
    assert {len(fold.y_test) for fold in folds} == {21, 22}
    for fold in folds:
        assert not set(fold.X_train.index) & set(fold.X_test.index)
    of_two = [np.sum(fold.y_test == 2) for fold in folds]
    assert set(of_two) == {7, 8}  # 76 members


def test_folds_repeat_by_seed():
    first, again, other = (next(GLASS.folds(5, seed=seed)) for seed in (1, 1, 2))
    assert first.X_test.index.equals(again.X_test.index)
    assert not first.X_test.index.equals(other.X_test.index)


def test_similarities_of_test_objects_are_those_to_training_objects():
    X = pd.DataFrame(np.arange(100.0).reshape(10, 10))
    card = datasets.Card("made up", "nowhere", "none")
    data = datasets.Dataset("gram", X, np.arange(10) % 2, card, similarities=frozenset({"gram"}))
    split = data.split(0.4, seed=1)
    assert split.X_test.columns.equals(split.X_train.index)
    assert split.X_train.columns.equals(split.X_train.index)
    assert split.X_test.iloc[0, 0] == 10 * split.X_test.index[0] + split.X_train.index[0]


def test_folds_are_standardised_on_their_training_part():
    for fold in GLASS.folds(3, seed=1):
        np.testing.assert_allclose(fold.X_train.std(ddof=0), 1)
        assert fold.X_test.mean().abs().max() > 1e-3
    raw = next(GLASS.folds(3, seed=1, standardize=False))
    np.testing.assert_array_equal(raw.X_test, GLASS.X.loc[raw.X_test.index])


@pytest.mark.parametrize(
    ("data", "n", "message"),
    [
        (GLASS, 1, "'n' argument of folds must be between 2 and 214"),
        (GLASS, 215, "Got 215"),
        (replace(GLASS, y=None), 10, "has no labels; folds needs them"),
        (replace(GLASS, y=np.arange(214) // 213), 10, "has one object of class 1"),
    ],
)
def test_what_cannot_be_divided_into_folds(data, n, message):
    with pytest.raises(ValueError, match=message):
        next(data.folds(n, seed=1))


def test_neal_without_noise_follows_the_rule():
    data = datasets.neal_three_class(300, seed=2, noise=0.0)
    X = data.X.to_numpy()
    assert ((X >= 0) & (X <= 1)).all()
    near = np.hypot(X[:, 0] - 0.4, X[:, 1] - 0.5) < 0.35
    np.testing.assert_array_equal(data.y == 0, near)
    noisy = datasets.neal_three_class(300, seed=2)
    np.testing.assert_array_equal(noisy.y, data.y)


@pytest.mark.parametrize(
    ("argument", "value", "requirement"),
    [
        ("standardize", "no", "True or False"),
    ],
)
@pytest.mark.parametrize(
    "divide",
    [
        lambda **options: GLASS.split(seed=1, **options),
        lambda **options: next(GLASS.folds(3, seed=1, **options)),
        lambda **options: datasets.load("letter").published_split(**options),
    ],
)
def test_settings_of_a_division_are_checked(divide, argument, value, requirement):
    with pytest.raises(ValueError, match=f"'{argument}' argument of .* must be {requirement}"):
        divide(**{argument: value})


@pytest.mark.parametrize("n", [-1, 2.5, "3", True])
def test_numbers_of_divisions_are_checked(n):
    with pytest.raises(ValueError, match="'n' argument of folds must be an integer of 1 or more"):
        next(GLASS.folds(n, seed=1))


@pytest.mark.parametrize("test_size", ["a", None, True])
def test_a_share_is_a_number(test_size):
    with pytest.raises(ValueError, match="'test_size' argument of split must be between 0 and 1"):
        GLASS.split(test_size, seed=1)
