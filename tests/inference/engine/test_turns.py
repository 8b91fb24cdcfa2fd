"""Chains in groups, and what is kept of chains of different lengths."""

import numpy as np
import pytest
import xarray as xr

import kernelzoo as kz
from kernelzoo.inference.engine.result import draws_to_keep, joined_turns


def chains(numbers, draws):
    """A result whose draws say which chain and draw they are."""
    values = np.add.outer(100.0 * np.array(numbers), np.arange(draws))
    data = xr.Dataset(
        {"x": (("chain", "draw"), values)},
        coords={"chain": np.arange(len(numbers)), "draw": np.arange(draws)},
    )
    tuned = xr.Dataset({"x": (("chain", "draw"), np.zeros((len(numbers), 4)))})
    groups = {"posterior": data, "sample_stats": data, "warmup_posterior": tuned}
    return xr.DataTree.from_dict(groups | {"observed_data": xr.Dataset({"y": ("n", [1.0])})})


def test_the_draws_that_are_kept():
    assert draws_to_keep([10, 10, 25]) == 10
    assert draws_to_keep([10, 10, 35]) == 35
    assert draws_to_keep([10, 10, 35], least=0.5) == 10
    assert draws_to_keep([1, 10, 35], least=0.5) == 10
    assert draws_to_keep([0, 0]) == 0


def test_groups_are_joined():
    tree = joined_turns([chains([0, 1], 6), chains([2], 9)])
    assert tree["posterior"]["x"].shape == tree["sample_stats"]["x"].shape == (3, 6)
    np.testing.assert_array_equal(tree["posterior"]["chain"], [0, 1, 2])
    np.testing.assert_array_equal(tree["posterior"]["x"][:, -1], [5, 105, 205])
    assert tree["warmup_posterior"]["x"].shape == (3, 4)
    assert tree["observed_data"].sizes == {"n": 1}


def test_a_group_that_has_hardly_a_draw_is_left_out():
    tree = joined_turns([chains([0, 1], 60), chains([2], 1)])
    assert tree["posterior"]["x"].shape == (2, 60)


def test_nothing_to_join():
    with pytest.raises(ValueError, match="None of the chains has a draw"):
        joined_turns([])


def test_enough_time_for_all_turns_changes_nothing():
    options = {"draws": 10, "tune": 3, "chains": 3, "cores": 2, "random_seed": 1}
    options |= {"progressbar": False, "log_likelihood": False}
    model = kz.DiagonalWishartCompletion.example()
    plain, bounded = (kz.fit(model, "gibbs", max_seconds=s, **options) for s in (None, 1e6))
    assert bounded["posterior"].equals(plain["posterior"])
    assert bounded["moments"].equals(plain["moments"])
    assert "ended_by" not in bounded.attrs
