"""Data sets as the studies take them: standardised as a whole, cut down to classes."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from kernelzoo.datasets import load
from studies import data
from studies.data import absence, objects

WINE = load("wine")
CLASSES = np.unique(WINE.y).astype(str).tolist()


@pytest.fixture
def nothing_read():
    """No data set in memory, before and after."""
    objects.cache_clear()
    yield
    objects.cache_clear()


def test_all_objects_as_they_come():
    raw = objects("wine", False)
    pd.testing.assert_frame_equal(raw.X, WINE.X)
    np.testing.assert_array_equal(raw.y, WINE.y)


def test_standardized_over_all_objects_with_divisor_n_minus_1():
    X = objects("wine", True).X
    expected = (WINE.X - WINE.X.mean()) / np.sqrt(WINE.X.var(ddof=0) * 178 / 177)
    pd.testing.assert_frame_equal(X, expected, rtol=1e-12)


def test_constant_features_become_zero():
    constant = load("ionosphere").X.nunique() == 1
    assert constant.any()
    X = objects("ionosphere", True).X
    assert (X.loc[:, constant] == 0).all(axis=None)
    np.testing.assert_allclose(X.loc[:, ~constant].std(ddof=1), 1.0)


@pytest.mark.parametrize("kept", [(CLASSES[0], CLASSES[2]), (CLASSES[2], CLASSES[0])])
def test_some_classes_in_any_order(kept):
    some = objects("wine", False, kept)
    where = np.isin(WINE.y.astype(str), kept)
    assert 0 < where.sum() < len(where)
    pd.testing.assert_frame_equal(some.X, WINE.X[where])
    np.testing.assert_array_equal(some.y, WINE.y[where])


def test_standardized_over_the_classes_that_are_kept():
    X = objects("wine", True, tuple(CLASSES[:2])).X
    np.testing.assert_allclose(X.mean(), 0.0, atol=1e-12)
    np.testing.assert_allclose(X.std(ddof=1), 1.0)


@pytest.mark.parametrize("classes", [("absent",), (CLASSES[0], "absent")])
def test_unknown_classes_are_refused_with_what_exists(classes):
    listed = ", ".join(map(repr, CLASSES))
    with pytest.raises(ValueError, match=rf"'classes' .* one of {listed}\. Got 'absent'"):
        objects("wine", False, classes)


@pytest.mark.usefixtures("nothing_read")
def test_division_of_the_source_is_dropped(monkeypatch):
    """The studies divide all objects at random; the first so many are nobody's training part."""
    monkeypatch.setattr(data, "load", lambda name: replace(WINE, n_published_train=100))
    assert objects("wine", True).n_published_train is None


@pytest.mark.usefixtures("nothing_read")
def test_what_was_read_once_is_not_read_again(monkeypatch):
    read = []
    monkeypatch.setattr(data, "load", lambda name: read.append(name) or load(name))
    first = objects("wine", True, tuple(CLASSES[:2]))
    assert objects("wine", True, tuple(CLASSES[:2])) is first
    assert objects("wine", False, tuple(CLASSES[:2])) is not first
    assert objects("wine", True) is not first
    assert read == ["wine"] * 3


def test_absence_says_what_is_missing_but_not_where_to_put_it(monkeypatch):
    def not_here(name):
        raise FileNotFoundError(f"The data set {name!r} needs the file x.npz (SHA-256 0). Put it")

    assert absence("wine") is None
    monkeypatch.setattr(data, "load", not_here)
    assert absence("usps") == "The data set 'usps' needs the file x.npz"
