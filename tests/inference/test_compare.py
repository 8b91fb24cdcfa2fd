"""Comparison tables against numbers known by construction."""

import numpy as np
import pytest
import xarray as xr
from xarray import DataTree

import kernelzoo as kz
from family import assert_z
from kernelzoo.inference.compare import scores


def result(mean, sd, *, kind="mcmc", n=4000, seed=0, model="Toy", seconds=2.0):
    """Independent normal draws of x (3,) as two chains."""
    draws = np.random.default_rng(seed).normal(mean, sd, size=(2, n // 2, 3))
    tree = DataTree.from_dict(
        {
            "posterior": xr.Dataset(
                {"x": (("chain", "draw", "site"), draws)}, coords={"site": list("abc")}
            )
        }
    )
    tree.attrs.update(kind=kind, engine="Toy", model=model, seconds=seconds)
    return tree


def test_moments_are_in_standard_deviations_of_the_reference():
    comparison = kz.compare_engines(
        {"truth": result(0, 2.0), "off": result([1.0, 0.0, -3.0], 1.0, seed=1, kind="vb")},
        reference="truth",
    )
    off = comparison.elements.xs("off", level="engine")
    error = off["mcse_of_difference"].to_numpy()
    assert_z((off["difference"].to_numpy() - [0.5, 0.0, -1.5]) / (1.2 * error))
    np.testing.assert_allclose(error, np.hypot(0.5, 1) / np.sqrt(4000), rtol=0.2)
    row = comparison.variables.loc[("x", "off")]
    assert row["difference"] == off["difference"].abs().max()
    np.testing.assert_allclose(row[["least_sd_ratio", "largest_sd_ratio"]], 0.5, rtol=0.1)
    reference = comparison.variables.loc[("x", "truth")]
    assert reference["difference"] == 0
    assert reference["wasserstein"] == 0
    assert list(off.index.get_level_values("element")) == ["a", "b", "c"]


def test_wasserstein_of_a_shift_is_the_shift():
    shifted = result(0, 2.0)
    shifted["posterior"]["x"] = shifted["posterior"]["x"] + 3.0
    comparison = kz.compare_engines({"a": result(0, 2.0), "b": shifted}, reference="a")
    # The same thousand of the draws are taken from both.
    np.testing.assert_allclose(comparison.variables.loc[("x", "b"), "wasserstein"], 1.5, rtol=0.05)


def test_effective_draws_count_in_full_only_when_independent():
    rng = np.random.default_rng(0)
    walk = np.repeat(rng.normal(size=(2, 100, 3)), 10, axis=1)
    sticky, claimed = result(0, 1, n=2000), result(0, 1, n=2000, kind="exact")
    for tree in (sticky, claimed):
        tree["posterior"]["x"] = xr.DataArray(walk, dims=("chain", "draw", "site"))
    comparison = kz.compare_engines({"sticky": sticky, "claimed": claimed})
    assert comparison.reference == "claimed"
    ess = comparison.elements["ess"].groupby("engine").max()
    assert ess["claimed"] == 2000
    assert ess["sticky"] < 500
    per_second = comparison.engines["ess_per_second"]
    assert per_second["sticky"] == comparison.elements.xs("sticky", level="engine")["ess"].min() / 2
    assert np.isnan(per_second["claimed"])


def test_reference_is_exact_then_the_longest_chain():
    trees = {
        "short": result(0, 1, n=200),
        "long": result(0, 1, n=4000),
        "vb": result(0, 1, n=9000, kind="vb"),
    }
    assert kz.compare_engines(trees).reference == "long"
    trees["exact"] = result(0, 1, n=100, kind="exact")
    assert kz.compare_engines(trees).reference == "exact"
    assert kz.compare_engines({"vb": trees["vb"]}).reference == "vb"


def test_scores_by_hand():
    p = xr.DataArray(
        [[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.5, 0.4, 0.1]],
        dims=("obs", "class"),
        coords={"class": ["x", "y", "z"]},
    )
    found = scores(p, ["x", "y", "x"])
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["log_score"] == pytest.approx(np.log([0.7, 0.3, 0.5]).mean())
    assert found["brier"] == pytest.approx((0.14 + 0.86 + 0.42) / 3)


def test_prints_as_text_and_html():
    comparison = kz.compare_engines({"one": result(0, 1), "two": result(1, 1, seed=2)})
    for text in (repr(comparison), comparison._repr_html_()):
        assert "one" in text
        assert "wasserstein" in text


@pytest.mark.parametrize(
    ("results", "options", "message"),
    [
        ({}, {}, "at least one result"),
        ({"a": result(0, 1), "b": result(0, 1, model="Other")}, {}, "results of one model"),
        ({"a": result(0, 1)}, {"reference": "b"}, "'reference'.*one of 'a'"),
        ({"a": result(0, 1)}, {"var_names": ["y"]}, "'var_names'.*one of 'x'"),
        ({"a": result(0, 1)}, {"labels_new": [1]}, "given together"),
    ],
)
def test_bad_comparisons_are_refused(results, options, message):
    with pytest.raises(ValueError, match=message):
        kz.compare_engines(results, **options)
