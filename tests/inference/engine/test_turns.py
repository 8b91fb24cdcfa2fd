"""Chains that are joined, and what is kept of chains of different lengths."""

import numpy as np
import xarray as xr

import kernelzoo as kz
from kernelzoo.inference.engine import chains as chains_module
from kernelzoo.inference.engine.result import draws_to_keep


def chain(number, draws):
    """A chain whose draws say which chain and draw they are."""
    values = 100.0 * number + np.arange(draws)[None]
    data = xr.Dataset(
        {"x": (("chain", "draw"), values)}, coords={"chain": [0], "draw": np.arange(draws)}
    )
    tuned = xr.Dataset({"x": (("chain", "draw"), np.zeros((1, 4)))})
    groups = {"posterior": data, "sample_stats": data, "warmup_posterior": tuned}
    return xr.DataTree.from_dict(groups | {"observed_data": xr.Dataset({"y": ("n", [1.0])})})


def test_the_draws_that_are_kept():
    assert draws_to_keep([10, 10, 25]) == 10
    assert draws_to_keep([10, 10, 35]) == 35
    assert draws_to_keep([0, 0]) == 0


def test_groups_are_joined():
    tree = chains_module._joined({0: chain(0, 6), 1: chain(1, 9), 4: chain(4, 1)})
    assert tree["posterior"]["x"].shape == tree["sample_stats"]["x"].shape == (2, 6)
    np.testing.assert_array_equal(tree["posterior"]["chain"], [0, 1])
    np.testing.assert_array_equal(tree["posterior"]["x"][:, -1], [5, 105])
    assert tree["warmup_posterior"]["x"].shape == (2, 4)
    assert tree["observed_data"].sizes == {"n": 1}


def test_enough_time_for_all_turns_changes_nothing():
    options = {"draws": 10, "tune": 3, "chains": 3, "cores": 2, "random_seed": 1}
    options |= {"progressbar": False, "log_likelihood": False}
    model = kz.DiagonalWishartCompletion.example()
    plain, bounded = (kz.fit(model, "gibbs", max_seconds=s, **options) for s in (None, 1e6))
    assert bounded["posterior"].equals(plain["posterior"])
    assert bounded["moments"].equals(plain["moments"])
    assert "ended_by" not in bounded.attrs
