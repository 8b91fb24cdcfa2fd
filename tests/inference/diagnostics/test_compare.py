"""Comparison tables against numbers known by construction."""

import json
import re

import arviz as az
import numpy as np
import pytest
import xarray as xr
from scipy import stats
from xarray import DataTree

import kernelzoo as kz
from family import assert_z
from kernelzoo.inference.diagnostics.scores import held_out
from kernelzoo.inference.engine.paper import identified


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
    tree.attrs.update(kind=kind, engine="Toy", model=model, family=model, seconds=seconds)
    if kind in ("exact", "vb"):
        tree.attrs["independent"] = 1
    return tree


def test_moments_are_in_standard_deviations_of_the_reference():
    comparison = kz.compare_engines(
        {
            "truth": result(0, 2.0),
            "off": result([1.0, 0.0, -3.0], 1.0, seed=1, kind="vb", n=1000),
        },
        reference="truth",
    )
    off = comparison.elements.xs("off", level="engine")
    error = off["mcse_of_difference"].to_numpy()
    assert_z((off["difference"].to_numpy() - [0.5, 0.0, -1.5]) / (1.2 * error))
    np.testing.assert_allclose(error, np.hypot(0.5 / 1000**0.5, 1 / 4000**0.5), rtol=0.1)
    row = comparison.variables.loc[("x", "off")]
    assert row["difference"] == off["difference"].abs().max()
    np.testing.assert_allclose(row[["least_sd_ratio", "largest_sd_ratio"]], 0.5, rtol=0.1)
    reference = comparison.variables.loc[("x", "truth")]
    assert reference["difference"] == 0
    assert reference["wasserstein"] == 0
    assert list(off.index.get_level_values("element")) == ["a", "b", "c"]


def test_spread_of_few_draws_is_that_of_a_sample():
    few = result(0, 2.0, n=6)
    elements = kz.compare_engines({"few": few, "other": result(0, 2.0)}).elements
    sd = few["posterior"]["x"].std(("chain", "draw"), ddof=1)
    np.testing.assert_allclose(elements.xs("few", level="engine")["sd"], sd)


def test_wasserstein_of_a_shift_is_the_shift():
    shifted = result(0, 2.0)
    shifted["posterior"]["x"] = shifted["posterior"]["x"] + 3.0
    comparison = kz.compare_engines({"a": result(0, 2.0), "b": shifted}, reference="a")
    # The same thousand of the draws are taken from both.
    np.testing.assert_allclose(comparison.variables.loc[("x", "b"), "wasserstein"], 1.5, rtol=0.05)


def test_wasserstein_averages_over_the_elements_that_have_a_spread():
    one, other = result(0, 2.0), result(3.0, 2.0)
    for still, expected in (["c"], 1.5), (["a", "b", "c"], np.nan):
        for tree in (one, other):
            x = tree["posterior"]["x"]
            tree["posterior"]["x"] = x.where(~x["site"].isin(still), 7.0)
        row = kz.compare_engines({"a": one, "b": other}, reference="a").variables.loc[("x", "b")]
        np.testing.assert_allclose(row["wasserstein"], expected, rtol=0.05)


def test_known_elements_do_not_differ_by_their_rounding():
    """Bug: visible entries of completed kernels, with sds of 1e-16, seemed to be 1 sd apart."""
    known = {"one": result([0.0, 1.0, 3.0], [1.0, 1e-16, 1e-15])}
    known["other"] = result([0.0, 1.0 + 2e-16, 3.0], [1.0, 1e-15, 1e-16], seed=1)
    comparison = kz.compare_engines(known, reference="one")
    row = comparison.variables.loc[("x", "other")]
    assert row["difference"] < 0.2
    assert row["wasserstein"] < 0.2
    assert 0.9 < row["least_sd_ratio"] <= row["largest_sd_ratio"] < 1.1


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


def test_scores_of_probabilities_by_hand():
    predictions = xr.Dataset(
        {
            "probability": (("obs", "class"), [[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.5, 0.4, 0.1]]),
            "label": ("obs", ["x", "z", "x"]),
        },
        coords={"class": ["x", "y", "z"]},
    )
    found = held_out(predictions, ["x", "y", "x"])
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["log_score"] == pytest.approx(np.log([0.7, 0.3, 0.5]).mean())
    assert found["brier"] == pytest.approx((0.14 + 0.86 + 0.42) / 3)
    labels_only = held_out(predictions.drop_vars("probability"), ["x", "y", "x"])
    assert labels_only == {"accuracy": pytest.approx(2 / 3)}
    assert held_out(predictions.drop_vars("label"), ["x", "y", "x"]) == found
    with pytest.raises(ValueError, match=r"'predictions'.*Got the variables .*class"):
        held_out(predictions[["class"]], ["x", "y", "x"])


@pytest.mark.parametrize(
    ("row", "got"),
    [
        ([0.8, 0.3], "a sum of 1.1 and a smallest entry of 0.3 at object 'q1' "),
        ([0.5, 0.4999], "a sum of 0.9999 "),
        ([1.2, -0.2], "a smallest entry of -0.2 at object 'q1' "),
    ],
)
@pytest.mark.parametrize("read", [held_out, kz.plots.plot_reliability])
def test_probabilities_that_are_none_are_refused_by_object(read, row, got):
    p = xr.DataArray(
        [[0.5, 0.5], row, [2.0, 3.0]],
        coords={"obs": ["q0", "q1", "q2"], "class": ["x", "y"]},
        dims=("obs", "class"),
    )
    message = rf"'predictions' argument of \w+ must be probabilities .*{re.escape(got)}"
    with pytest.raises(ValueError, match=message):
        read(xr.Dataset({"probability": p}), ["x", "y", "x"])
    with pytest.raises(ValueError, match=r"at object 1 \(2 of 3 objects"):
        read(xr.Dataset({"probability": p.drop_vars("obs")}), ["x", "y", "x"])


def test_probabilities_in_single_precision_are_scored():
    p = np.random.default_rng(1).dirichlet(np.ones(50), size=100).astype(np.float32)
    assert (p.sum(1) != 1).any()
    predictions = xr.Dataset({"probability": (("obs", "class"), p)}, {"class": np.arange(50)})
    assert held_out(predictions, np.arange(100) % 50)["log_score"] < 0


def test_scores_of_values_by_hand():
    predictions = xr.Dataset({"mean": ("obs", [1.0, 2.0]), "target_sd": ("obs", [1.0, 2.0])})
    found = held_out(predictions, [2.0, 0.0])
    assert found["rmse"] == pytest.approx(np.sqrt(5 / 2))
    expected = (-1 - np.log(2) - np.log(2 * np.pi)) / 2
    assert found["log_score"] == pytest.approx(expected)
    with pytest.raises(ValueError, match="labels_new"):
        held_out(predictions, [1.0])
    for sd in (0.0, -1.0):
        wrong = predictions.assign(target_sd=("obs", [1.0, sd]))
        with pytest.raises(ValueError, match=rf"a target_sd above 0\. Got a target_sd of {sd:g}"):
            held_out(wrong, [2.0, 0.0])


def test_z_of_equal_laws_stays_below_its_bound_and_sees_a_shift():
    """A rule for the largest of many elements: 2 would be exceeded almost always."""
    exceeded = above_two = 0
    for seed in range(20):
        pair = {"a": wide(0.0, 2 * seed), "b": wide(0.0, 2 * seed + 1)}
        row = kz.compare_engines(pair, reference="a").variables.loc[("x", "b")]
        exceeded += row["z"] > row["z_bound"]
        above_two += row["z"] > 2
    assert exceeded <= 4  # binomial(20, .01) exceeds 4 with a chance of 1e-6
    assert above_two > 15
    # The largest of a hundred is beyond it, on either side, with a chance of 1 %.
    assert 1 - (1 - 2 * stats.norm.sf(row["z_bound"])) ** 100 == pytest.approx(0.01)
    shifted = kz.compare_engines({"a": wide(0.0, 0), "b": wide(0.2, 1)}, reference="a")
    row = shifted.variables.loc[("x", "b")]
    assert row["z"] > row["z_bound"]
    assert np.isnan(shifted.variables.loc[("x", "a"), "z"])


def wide(mean, seed):
    """Independent draws of 100 elements."""
    draws = np.random.default_rng(seed).normal(mean, 1, size=(1, 2000, 100))
    tree = DataTree.from_dict({"posterior": xr.Dataset({"x": (("chain", "draw", "i"), draws)})})
    tree.attrs.update(kind="vb", independent=1, family="Toy")
    return tree


def test_draws_that_are_neither_chains_nor_independent_claim_nothing():
    particles = result(0, 1)
    particles.attrs["independent"] = 0
    comparison = kz.compare_engines({"smc": particles, "vb": result(0, 1, kind="vb")})
    assert comparison.elements.xs("smc", level="engine")["ess"].isna().all()
    assert comparison.variables["z"].isna().all()
    assert np.isnan(comparison.engines.loc["smc", "ess_per_second"])
    chain = result(0, 1, n=400)
    assert kz.compare_engines({"smc": particles, "chain": chain}).reference == "chain"


def test_a_point_as_reference_measures_nothing():
    point = result(3.0, 1.0, n=2)
    point["posterior"] = point["posterior"].to_dataset().isel(chain=[0], draw=[0])
    point.attrs.update(kind="point")
    comparison = kz.compare_engines({"map": point, "other": result(0, 1)}, reference="map")
    other = comparison.variables.loc[("x", "other")]
    assert other[["difference", "wasserstein", "z"]].isna().all()
    there = kz.compare_engines({"map": point, "other": result(0, 1)}, reference="other")
    row = there.variables.loc[("x", "map")]
    assert row["difference"] > 2
    assert row[["wasserstein", "z"]].isna().all()


def test_results_on_other_data_or_objects_are_refused():
    one, two = result(0, 1), result(0, 1, seed=1)
    for tree, y in ((one, [1.0, 2.0]), (two, [1.0, 2.1])):
        tree["observed_data"] = DataTree(xr.Dataset({"y": ("obs", y)}))
    with pytest.raises(ValueError, match=r"results on the same data.*others of \['y'\]"):
        kz.compare_engines({"one": one, "two": two})
    two["observed_data"] = DataTree(xr.Dataset({"y": ("obs", [1.0, 2.0 + 1e-9])}))
    assert list(kz.compare_engines({"one": one, "two": two}).engines.index) == ["one", "two"]
    three = result(0, 1, seed=2)
    three["posterior"] = three["posterior"].to_dataset().assign_coords(site=list("bcd"))
    with pytest.raises(ValueError, match="same elements of x"):
        kz.compare_engines({"one": one, "three": three})
    four = result(0, 1, seed=3)
    four["posterior"] = four["posterior"].to_dataset().rename(site="place")
    with pytest.raises(ValueError, match="same elements of x"):
        kz.compare_engines({"one": one, "four": four})


def test_results_on_other_priors_are_refused_but_variables_may_be_integrated_out():
    one, two, three = result(0, 1), result(0, 1, seed=1), result(0, 1, seed=2)
    for tree in (one, two, three):
        tree.attrs["versions"] = "1"
    one.attrs["declared"] = json.dumps({"x": "a", "y": "b", "": "c"})
    two.attrs["declared"] = json.dumps({"x": "a", "": "d"})
    assert list(kz.compare_engines({"one": one, "two": two}).engines.index) == ["one", "two"]
    three.attrs["declared"] = json.dumps({"x": "e", "": "d"})
    with pytest.raises(ValueError, match=r"same priors and likelihood.*differ in the prior of x"):
        kz.compare_engines({"one": one, "three": three})
    three.attrs["declared"] = json.dumps({"x": "a", "": "e"})
    with pytest.raises(ValueError, match="differ in the likelihood"):
        kz.compare_engines({"two": two, "three": three})
    three.attrs["versions"] = "2"
    assert list(kz.compare_engines({"two": two, "three": three}).engines.index) == ["two", "three"]


def test_a_subclass_stands_beside_its_parent_and_results_without_family_go_by_model():
    parent, child = result(0, 1), result(0, 1, seed=1)
    child.attrs["model"] = "Child"
    assert list(kz.compare_engines({"a": parent, "b": child}).engines.index) == ["a", "b"]
    for tree in (parent, child):
        del tree.attrs["family"]
    with pytest.raises(ValueError, match=r"results on the same model.*Child, Toy"):
        kz.compare_engines({"a": parent, "b": child})


def test_what_not_every_result_has_is_left_out_and_named():
    one, two = result(0, 1), result(0, 1, seed=1)
    one["posterior"]["y"] = one["posterior"]["x"] + 1
    comparison = kz.compare_engines({"one": one, "two": two})
    assert comparison.left_out == ("y",)
    assert "not compared: y" in repr(comparison)
    two["posterior"] = two["posterior"].to_dataset().rename(x="z")
    with pytest.raises(ValueError, match="a quantity in common"):
        kz.compare_engines({"one": one, "two": two})


def test_accumulated_moments_stand_for_draws():
    full, lean = result(1.0, 2.0), result(1.0, 2.0, seed=1)
    draws = lean["posterior"]["x"]
    lean["moments"] = DataTree(
        xr.Dataset({"x_mean": draws.mean("draw"), "x_sd": draws.std("draw")})
    )
    lean["posterior"] = xr.Dataset({"y": draws.isel(site=0)})
    comparison = kz.compare_engines({"full": full, "lean": lean}, reference="full")
    assert comparison.left_out == ("y",)
    row = comparison.elements.xs("lean", level="engine")
    np.testing.assert_allclose(row["mean"], draws.mean(("chain", "draw")))
    np.testing.assert_allclose(row["sd"], draws.std(("chain", "draw")), rtol=1e-12)
    assert np.isnan(comparison.variables.loc[("x", "lean"), "wasserstein"])


def test_evidence_has_a_column_where_it_is_known():
    exact = result(0, 1, kind="exact")
    exact.attrs["log_evidence"] = -3.5
    table = kz.compare_engines({"exact": exact, "chain": result(0, 1)}).engines
    assert table.loc["exact", "log_evidence"] == -3.5
    assert np.isnan(table.loc["chain", "log_evidence"])


def test_prints_as_text_and_html():
    comparison = kz.compare_engines({"one": result(0, 1), "two": result(1, 1, seed=2)})
    for text in (repr(comparison), comparison._repr_html_()):
        assert "one" in text
        assert "wasserstein" in text


def test_engines_that_are_not_to_be_believed_are_marked_where_they_are_printed():
    trees = {name: result(0, 1, kind="vb", seed=i) for i, name in enumerate(("far", "near", "?"))}
    trees["far"].attrs["pareto_k"], trees["near"].attrs["pareto_k"] = 4.1, 0.7
    comparison = kz.compare_engines({**trees, "chain": result(0, 1, seed=9)})
    for text in (repr(comparison), comparison._repr_html_()):
        # As columns of the first table and as rows of the second.
        assert text.count("far \N{DAGGER}") == 2
        assert text.count("\N{DAGGER}") == 3
        assert "\N{DAGGER} k-hat above 0.7" in text
        assert "Do not read" in text
    # Tables to compute with keep the names.
    assert list(comparison.engines.index) == [*trees, "chain"]
    assert comparison.engines["pareto_k"].to_list()[:2] == [4.1, 0.7]
    assert "far" in comparison.variables.index.get_level_values("engine")


def probit(seed=0, *, objects=4, **attributes):
    """Result of the layout of a probit of three classes on two kernels: two chains of 500."""
    rng = np.random.default_rng(seed)
    dims = ("chain", "draw")
    posterior = xr.Dataset(
        {
            "beta": ((*dims, "kernel"), rng.dirichlet([2.0, 1.0], (2, 500))),
            "W": ((*dims, "class", "basis"), rng.normal(size=(2, 500, 3, objects))),
        },
        {"kernel": ["a", "b"], "class": list("xyz"), "chain": [0, 1], "draw": np.arange(500)},
    )
    # The same kernel twice: functions do not depend on the weights.
    stack = np.broadcast_to(np.eye(objects), (2, objects, objects))
    tree = DataTree.from_dict({"/posterior": posterior})
    tree["constant_data"] = DataTree(xr.Dataset({"K": (("kernel", "obs", "basis"), stack)}))
    tree["constant_data"] = DataTree(
        tree["constant_data"].to_dataset().assign_coords(obs=range(objects), basis=range(objects))
    )
    tree.attrs |= {"kind": "mcmc", "family": "MultinomialProbit", "variant": "Mean", "engine": "G"}
    tree.attrs |= attributes
    return tree


def readable(tree):
    row = kz.compare_engines({"one": tree}).engines.loc["one"]
    return row["read for weights"], row["read for predictions"]


def test_results_are_judged_for_weights_and_for_predictions():
    """Bug: NUTS was "no" for one contrast, and approximations "yes" whatever their weights."""
    assert readable(probit(converged="no")) == ("yes", "yes")
    weights = probit()
    weights["posterior"]["beta"][0] = weights["posterior"]["beta"][0].values[:, ::-1]
    assert readable(weights) == ("no", "yes")
    predictions = probit()
    predictions["posterior"]["W"][0, :, 0] += 1.0
    assert readable(predictions) == ("yes", "no")


def test_predictions_are_judged_by_class_probabilities():
    """Contrasts of classes far below the first one differ, and no probability that counts does."""
    tree = probit()
    far = tree["posterior"]["W"][..., :3]
    far[:, :, 0] += 40.0
    far[0, :, 1:] += 5.0 * np.array([1.0, -1.0])[:, None]
    assert az.rhat(identified(tree))["contrast"].max() > 1.1
    assert readable(tree) == ("yes", "yes")


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"kind": "vb", "pareto_k": 0.7, "converged": "yes"}, ("yes", "yes")),
        ({"kind": "vb", "pareto_k": 0.71, "converged": "yes"}, ("no", "unknown")),
        ({"kind": "vb", "pareto_k": 0.5, "converged": "no"}, ("no", "no")),
        ({"kind": "vb"}, ("unknown", "unknown")),
        ({"kind": "exact"}, ("yes", "yes")),
        ({"kind": "point", "converged": "yes"}, ("unknown", "unknown")),
        ({"kind": "point", "converged": "no fixed point"}, ("no", "no")),
    ],
)
def test_results_without_chains_are_judged_by_what_they_say(attributes, expected):
    assert readable(probit(**attributes)) == expected


def test_chains_of_completions_are_judged_within_each():
    tree = probit()
    posterior = tree["posterior"].to_dataset()
    other = posterior.assign_coords(chain=[2, 3])
    other["beta"] = 1 - other["beta"]
    both = xr.concat([posterior, other], "chain").assign_coords(completion=("chain", [0, 0, 1, 1]))
    tree["posterior"] = DataTree(both)
    assert readable(tree) == ("yes", "yes")
    tree["posterior"] = DataTree(both.assign_coords(completion=("chain", [0, 1, 1, 0])))
    assert readable(tree)[0] == "no"


def test_results_without_weights_are_judged_for_predictions_alone():
    table = kz.compare_engines({"one": result(0, 1), "two": result([0, 0, 1], 1, seed=1)}).engines
    assert "read for weights" not in table
    assert table["read for predictions"].to_list() == ["yes", "yes"]


def test_nothing_is_marked_without_reason():
    trees = {"vb": result(0, 1, kind="vb"), "chain": result(0, 1, seed=9)}
    comparison = kz.compare_engines(trees)
    for text in (repr(comparison), comparison._repr_html_()):
        assert "\N{DAGGER}" not in text
        assert "k-hat above" not in text


@pytest.mark.parametrize(
    ("results", "options", "message"),
    [
        ({}, {}, "at least one result"),
        ({"a": result(0, 1), "b": result(0, 1, model="Other")}, {}, "results on the same model"),
        ({"a": result(0, 1)}, {"reference": "b"}, "'reference'.*one of 'a'"),
        ({"a": result(0, 1)}, {"var_names": ["y"]}, "'var_names'"),
        ({"a": result(0, 1)}, {"labels_new": [1]}, "'model' with 'labels_new'"),
        ({"a": result(0, 1)}, {"kernels_new": [1]}, "'labels_new' with 'kernels_new'"),
    ],
)
def test_bad_comparisons_are_refused(results, options, message):
    with pytest.raises(ValueError, match=message):
        kz.compare_engines(results, **options)


def test_a_likelihood_with_a_variable_of_its_own_is_another_model():
    """Bug: the variables differ, so it was taken for a model with a variable integrated out."""
    one, two = result(0, 1), result(0, 1, seed=1)
    for tree in (one, two):
        tree.attrs |= {"versions": "1", "terms": '["t"]'}
    one.attrs["declared"] = json.dumps({"x": "a", "sigma": "b", "": "c"})
    two.attrs["declared"] = json.dumps({"x": "a", "": "d"})
    assert list(kz.compare_engines({"one": one, "two": two}).engines.index) == ["one", "two"]
    one.attrs["terms"] = '["alcohol", "t"]'
    with pytest.raises(ValueError, match="differ in the term 'alcohol'"):
        kz.compare_engines({"one": one, "two": two})


def test_results_of_pymc_s_sampler_are_compared_on_what_is_identified():
    """Bug: a result that does not name its model had contrasts of its own variables only."""
    model = kz.MultinomialProbit.example()
    gibbs = kz.fit(model, "gibbs", draws=60, tune=20, chains=2, random_seed=1, progressbar=False)
    groups = {
        name: gibbs[name].to_dataset() for name in ("posterior", "observed_data", "constant_data")
    }
    sampled = xr.DataTree.from_dict(groups)
    apart = groups["posterior"].assign(W=groups["posterior"]["W"] + 9 * groups["posterior"].chain)
    apart["W"][..., 0] *= -1
    results = {
        "fit": gibbs,
        "pm.sample": sampled,
        "apart": xr.DataTree.from_dict({**groups, "posterior": apart}),
    }
    alone = kz.compare_engines(results)
    assert "contrast" in alone.left_out
    comparison = kz.compare_engines(results, model=model, reference="fit")
    assert not comparison.left_out
    assert comparison.variables.loc[("contrast", "pm.sample"), "difference"] == 0
    assert comparison.engines["converged"].to_list()[1:] == [gibbs.attrs["converged"], "no"]
    assert "family" not in sampled.attrs
    other = kz.MultinomialProbit(model["K"].get_value() * 2, model.label_codes)
    with pytest.raises(ValueError, match="'result' argument of compare_engines"):
        kz.compare_engines({"fit": gibbs, "pm.sample": sampled}, model=other)


def test_results_come_by_name():
    result = kz.fit(kz.WishartCompletion.example(), "exact", draws=5, progressbar=False)
    for results in ([result], {1: result}, result):
        with pytest.raises(ValueError, match=r"'results' argument of compare_engines must be a m"):
            kz.compare_engines(results)
    with pytest.raises(ValueError, match=r"'var_names' argument of compare_engines.*'K21' twice"):
        kz.compare_engines({"Exact": result}, var_names=["K21", "K21"])
