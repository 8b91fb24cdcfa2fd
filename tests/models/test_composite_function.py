"""A function on kernels as a part of a user's own model."""

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from scipy import stats

import kernelzoo as kz
from kernelzoo.inference.engine.groups import log_density

rng = np.random.default_rng(3)
IDS = [f"P{i}" for i in range(12)]
X = pd.DataFrame(rng.normal(size=(12, 2)), IDS, ["lead", "zinc"])
KERNELS = (kz.gaussian(0.5) | kz.linear()).normalize("trace")
AGE = rng.normal(size=12)
VISITS = rng.poisson(2.0, size=12)


def poisson(kernels, **options):
    with pm.Model(coords={"obs": IDS}) as model:
        age = pm.Data("age", AGE, dims="obs")
        slope = pm.Normal("slope", 0, 1)
        h = kz.composite_function("h", kernels, scale=pm.HalfNormal("s", 1), **options)
        counts = pm.Data("counts", VISITS, dims="obs")
        pm.Poisson("visits", pm.math.exp(slope * age + h), observed=counts, dims="obs")
    return model


def by_hand(K, slope, s, beta, alpha, prior):
    h = s * np.tensordot(beta, K, axes=1) @ alpha
    density = stats.norm.logpdf(slope) + stats.halfnorm.logpdf(s) + prior(beta, alpha)
    return density + stats.poisson.logpmf(VISITS, np.exp(slope * AGE + h)).sum()


def test_density_is_that_of_scipy():
    model, K = poisson(KERNELS(X)), KERNELS(X).to_numpy()
    slope, s, beta, alpha = 0.3, 0.7, np.array([0.2, 0.8]), rng.normal(size=12)
    point = {"slope": slope, "s": s, "h_beta": beta, "h_alpha": alpha}

    def prior(beta, alpha):
        return stats.dirichlet.logpdf(beta, np.ones(2)) + stats.t(2).logpdf(alpha).sum()

    found = log_density(model, {name: np.asarray(value)[None] for name, value in point.items()})
    np.testing.assert_allclose(found, by_hand(K, slope, s, beta, alpha, prior), rtol=1e-8)


def test_priors_are_pymc_distributions_variables_or_numbers():
    given = poisson(KERNELS(X), weights=[0.5, 0.5], coefficients=pm.Normal.dist(0, 2, shape=12))
    assert {rv.name for rv in given.free_RVs} == {"slope", "s", "h_alpha"}
    slope, s, alpha = 0.3, 0.7, rng.normal(size=12)
    found = log_density(
        given, {"slope": np.array([slope]), "s": np.array([s]), "h_alpha": alpha[None]}
    )

    def prior(beta, alpha):
        return stats.norm(0, 2).logpdf(alpha).sum()

    K = KERNELS(X).to_numpy()
    expected = by_hand(K, slope, s, np.array([0.5, 0.5]), alpha, prior)
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    with pm.Model() as model:
        beta = pm.Dirichlet("own", [3.0, 1.0])
        kz.composite_function("f", KERNELS(X), weights=beta)
        kz.composite_function("g", KERNELS(X), weights=beta / 2)
        kz.composite_function("h", KERNELS(X), weights=beta, scale=pm.HalfNormal.dist(3))
    names = {"own", "f_alpha", "g_alpha", "h_alpha", "h_scale"}
    assert {rv.name for rv in model.free_RVs} == names
    scales = pm.draw(model["h_scale"], 2000, random_seed=1)
    np.testing.assert_allclose(scales.mean(), 3 * np.sqrt(2 / np.pi), rtol=0.1)


def test_labelled_kernels_are_aligned_and_others_refused():
    reversed_columns = KERNELS(X).to_numpy()[:, :, ::-1]
    model = poisson(KERNELS(X.iloc[::-1]))
    np.testing.assert_allclose(model["h_K"].get_value(), reversed_columns, rtol=1e-12)
    assert poisson(KERNELS(X).to_numpy())["h_K"].get_value().shape == (2, 12, 12)
    with pytest.raises(ValueError, match=r"objects of the model\. Got 11 rows for 12 objects"):
        poisson(KERNELS(X.iloc[:11]))
    with pytest.raises(ValueError, match=r"by their ids\. Got the unknown 'Q'; none for 'P0'"):
        poisson(KERNELS(X.rename({"P0": "Q"})))
    with pytest.raises(ValueError, match=r"without parameters to learn\. Got ParametricStack"):
        poisson(kz.gaussian(kz.kernels.Theta())(X))


def test_a_coordinate_of_another_name_has_the_objects():
    shuffled = X.sample(frac=1, random_state=1)
    with pm.Model(coords={"clinic": ["a", "b"], "patient": IDS}) as model:
        h = kz.composite_function("h", KERNELS(shuffled))
        pm.Normal("y", h, 1.0, observed=np.zeros(12), dims="patient")
    assert model.named_vars_to_dims["h"] == ("patient",)
    assert "obs" not in model.coords
    # The columns keep the order of the table; the coordinate tells which.
    columns = list(model.coords["h_basis"])
    assert columns == list(shuffled.index) != IDS
    by_label = KERNELS(X).sel(basis=columns)
    np.testing.assert_allclose(model["h_K"].get_value(), by_label, rtol=1e-12)
    # Numbers of rows are no ids, and neither are those of outputs or of several visits.
    visits, repeated = X.iloc[[0, *range(12)]], X.iloc[[0, *range(11)]]
    for coords, kernels, options in (
        ({"patient": IDS}, KERNELS(X).to_numpy(), {}),
        ({"month": range(12)}, KERNELS(X).to_numpy(), {}),
        ({"patient": IDS}, KERNELS(visits, X), {}),
        ({"patient": IDS}, KERNELS(repeated, X.iloc[:6]), {}),
        ({"patient": IDS, "list": [[0], [1]]}, KERNELS(X), {"outputs": "patient"}),
    ):
        with pm.Model(coords=coords) as model:
            kz.composite_function("h", kernels, **options)
        assert model.named_vars_to_dims["h"] == ("obs", *options.values())
        assert model["h_K"].shape.eval()[1] == len(model.coords["obs"])
    with pm.Model(coords={"patient": IDS}), pytest.raises(ValueError, match="unknown 'Q'; none fo"):
        kz.composite_function("h", KERNELS(X.rename({"P0": "Q"})))
    # A coordinate "obs" goes before another.
    with pm.Model(coords={"patient": IDS, "obs": IDS[::-1]}) as model:
        kz.composite_function("h", KERNELS(X))
    assert model.named_vars_to_dims["h"] == ("obs",)
    np.testing.assert_allclose(model["h_K"].get_value(), KERNELS(X).to_numpy()[:, ::-1])


def test_outputs_have_coefficients_each():
    with pm.Model(coords={"class": ["a", "b", "c"]}) as model:
        f = kz.composite_function("f", KERNELS(X), outputs="class")
        kz.distributions.CategoricalProbit("t", f, observed=np.arange(12) % 3, dims="obs")
    draws = pm.draw([model["f"], model["f_beta"], model["f_alpha"]], random_seed=1)
    np.testing.assert_allclose(
        draws[0], np.tensordot(draws[1], KERNELS(X).to_numpy(), axes=1) @ draws[2].T, rtol=1e-10
    )
    assert model.named_vars_to_dims["f"] == ("obs", "class")


def test_engines_of_papers_refuse_it_and_new_objects_are_predicted():
    model = poisson(KERNELS(X))
    applies = kz.engines(model).frame["applies"]
    assert applies["VB"] == applies["Gibbs"] == "no" != applies["NUTS"]
    result = kz.fit(model, "laplace", draws=50, random_seed=1, progressbar=False)
    new = X.iloc[:3].set_axis(list("abc")) + 0.1
    with model:
        data = {"h_K": KERNELS(new, X).values, "age": np.zeros(3), "counts": np.zeros(3, int)}
        pm.set_data(data, coords={"obs": list("abc")})
        found = pm.sample_posterior_predictive(
            result, var_names=["h"], progressbar=False, random_seed=1
        )["posterior_predictive"]["h"]
    draws = result["posterior"].to_dataset()
    composite = xr.dot(draws["h_beta"], KERNELS(new, X).rename(kernel="h_kernel", basis="h_basis"))
    expected = draws["s"] * xr.dot(composite, draws["h_alpha"], dim="h_basis")
    np.testing.assert_allclose(
        found.transpose("chain", "draw", "obs"),
        expected.transpose("chain", "draw", "obs"),
        rtol=1e-8,
    )


def test_numbers_by_name_are_aligned():
    K = KERNELS(X).to_numpy()
    with pm.Model():
        f = kz.composite_function(
            "f",
            {"a": K[0], "b": K[1]},
            weights=pd.Series({"b": 0.9, "a": 0.1}),
            coefficients=pt.ones(12),
        )
    np.testing.assert_allclose(pm.draw(f), (0.1 * K[0] + 0.9 * K[1]).sum(axis=1), rtol=1e-10)


def test_models_within_models_and_dims_without_coordinates():
    with pm.Model() as model:
        counts = pm.Data("counts", VISITS, dims="obs")
        s = pm.HalfNormal("s")
        with pm.Model(name="a"):
            h = kz.composite_function("h", KERNELS(X), scale=s)
        with pm.Model(name="b"):
            walk = pm.GaussianRandomWalk.dist(init_dist=pm.Normal.dist(), steps=11)
            g = kz.composite_function("h", kz.linear()(X), coefficients=walk)
        pm.Poisson("visits", pm.math.exp(h + g), observed=counts, dims="obs")
    # The weight of a single kernel is 1.
    names = {"s", "a::h_beta", "a::h_alpha", "b::h_alpha"}
    assert {rv.name for rv in model.free_RVs} == names
    assert np.isfinite(model.compile_logp()(model.initial_point()))
    alpha = np.arange(12.0)
    np.testing.assert_allclose(
        g.eval({model["b::h_alpha"]: alpha}), kz.linear()(X).values[0] @ alpha
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": [0.5]}, "'weights'"),
        ({"weights": pm.Dirichlet.dist(np.ones(3))}, r"of shape \(2,\). Got shape \(3,\)"),
        ({"coefficients": pm.Normal.dist(0, 1)}, r"of shape \(12,\). Got shape \(\)"),
        ({"coefficients": np.ones(12)}, "a PyMC distribution or variable"),
        ({"scale": -1.0}, "'scale'"),
        ({"scale": None}, "'scale'"),
        ({"scale": pm.HalfNormal.dist(1, shape=3)}, r"of shape \(\)"),
        ({"outputs": "class"}, "'outputs'"),
        ({"outputs": "obs"}, "another dimension than that of the objects. Got 'obs'"),
        *[({"name": name}, r"'name' .* string that is not empty") for name in (3, None, "", b"h")],
    ],
)
def test_what_is_refused_leaves_the_model_as_it_was(options, message):
    with pm.Model(coords={"obs": IDS}) as model:
        with pytest.raises(ValueError, match=message):
            kz.composite_function(**{"name": "h", "kernels": KERNELS(X)} | options)
        kz.composite_function("h", KERNELS(X))
    assert [rv.name for rv in model.free_RVs] == ["h_beta", "h_alpha"]


@pytest.mark.parametrize("taken", ["h", "h_K", "h_beta", "h_kernel"])
def test_a_taken_name_leaves_the_model_as_it_was(taken):
    with pm.Model() as model:
        if taken == "h_kernel":
            model.add_coord(taken, [1, 2, 3])
        else:
            pm.Normal(taken)
        before = [*model.named_vars], {**model.coords}
        with pytest.raises(ValueError, match=f"'h', and '?{taken}'? in the model"):
            kz.composite_function("h", KERNELS(X))
        assert ([*model.named_vars], {**model.coords}) == before


def test_a_function_outside_a_model_is_refused():
    with pytest.raises(TypeError, match=r"must be called in a model: with pm\.Model"):
        kz.composite_function("h", KERNELS(X))
