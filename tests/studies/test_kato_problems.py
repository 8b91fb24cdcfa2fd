"""Masks, training parts, and the data sets of the completion studies."""

from itertools import pairwise

import numpy as np
import pytest

from studies.data import absence
from studies.kato import nested_mask, problem, training_part


def test_masks_are_nested_and_leave_each_object_a_kernel():
    hidden = [
        ~nested_mask(np.random.default_rng(3), 40, 5, ratio) for ratio in (0.1, 0.3, 0.5, 0.8)
    ]
    assert [mask.sum() for mask in hidden] == [20, 60, 100, 160]
    for fewer, more in pairwise(hidden):
        assert (fewer <= more).all()
    assert (hidden[-1].sum(axis=1) == 4).all()
    assert nested_mask(np.random.default_rng(3), 40, 5, 0.0).all()


def test_every_kernel_is_as_likely_to_be_kept():
    kept = np.mean([nested_mask(np.random.default_rng(s), 50, 4, 0.75) for s in range(40)], axis=0)
    # 2,000 objects of which a quarter is kept: the standard error of a share is 0.01.
    assert np.abs(kept.mean(axis=0) - 0.25).max() < 0.05


def test_training_parts_are_nested_and_hold_every_class():
    labels = np.repeat(list("abc"), [20, 7, 2])
    small, large = (training_part(np.random.default_rng(1), labels, s) for s in (0.2, 0.6))
    assert (small <= large).all()
    for label, few, many in (("a", 4, 12), ("b", 1, 4), ("c", 1, 1)):
        assert (small[labels == label].sum(), large[labels == label].sum()) == (few, many)


@pytest.mark.skipif(absence("mfeat") is not None, reason="mfeat is not at hand")
def test_digits_are_drawn_by_the_seed_alone():
    one, more, other = (problem("mfeat", seed, r) for seed, r in ((1, 0.2), (1, 0.6), (2, 0.2)))
    assert one.kernels.shape == (6, 200, 200)
    np.testing.assert_array_equal(one.kernels, more.kernels)
    assert not np.array_equal(one.kernels, other.kernels)
    assert (more.visible <= one.visible).all()
    assert np.bincount(one.labels).tolist() == [20] * 10
    np.testing.assert_allclose(np.diagonal(one.kernels, axis1=1, axis2=2), 1)
    assert one.known == tuple(one.kernels["kernel"].values)


@pytest.mark.skipif(absence("protein_fold") is not None, reason="protein_fold is not at hand")
def test_proteins_are_those_of_the_training_part():
    given = problem("protein fold", 1, 0.5)
    assert given.kernels.shape == (12, 311, 311)
    assert len(np.unique(given.labels)) == 27
    np.testing.assert_allclose(np.diagonal(given.kernels, axis1=1, axis2=2), 1)
    assert np.linalg.eigvalsh(given.kernels.sel(kernel="SWpam50"))[0] > 0


@pytest.mark.skipif(absence("kernels_embryo") is not None, reason="kernels_embryo is not at hand")
@pytest.mark.parametrize("number", range(1, 6))
def test_embryo_kernels_are_known_where_they_are_scored(number):
    few, many = (problem(f"embryo {number}", 0, ratio) for ratio in (0.1, 0.3))
    (name,) = few.known
    k = few.kernels["kernel"].values.tolist().index(name)
    assert (np.diagonal(few.kernels[k]) > 0).all()
    others = [i for i in range(len(few.kernels)) if i != k]
    for i in others:
        # What the data lack is hidden at every ratio, and nothing else.
        np.testing.assert_array_equal(few.visible[:, i], np.diagonal(few.kernels[i]) > 0)
        np.testing.assert_array_equal(few.visible[:, i], many.visible[:, i])
    assert (~few.visible[:, k]).mean() == pytest.approx(0.1, abs=0.02)
    assert (~many.visible[:, k]).mean() == pytest.approx(0.3, abs=0.02)
    assert many.visible.any(axis=1).all()
