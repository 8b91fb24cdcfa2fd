"""What the sampling engines say about themselves: convergence, evidence."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy.stats import multivariate_normal
from xarray import DataTree

import kernelzoo as kz
from kernelzoo.inference.engine import convergence
from kernelzoo.inference.engine.chains import check_initvals
from kernelzoo.inference.engine.convergence import (
    convergence_of_ascent,
    convergence_of_chains,
    convergence_of_noisy_ascent,
    convergence_of_particles,
    rhat_of_moments,
)
from kernelzoo.inference.engine.result import moments_of_draws


@pytest.fixture(scope="module")
def pair():
    with pm.Model() as model:
        pm.Normal("x")
        pm.Normal("z")
    return model


def chains(x, z):
    return az.from_dict({"posterior": {"x": x, "z": z}})


def test_divergences_and_few_effective_draws_are_not_convergence(pair):
    rng = np.random.default_rng(0)
    good = rng.normal(size=(4, 500))
    for number, expected in ((2, "yes"), (3, "no")):
        tree = chains(good, good)
        diverging = np.arange(2000).reshape(4, 500) < number
        tree["sample_stats"] = DataTree(xr.Dataset({"diverging": (("chain", "draw"), diverging)}))
        assert convergence_of_chains(tree, pair, 500) == expected
    assert "diverged" in tree.attrs["note"]
    # Each draw is repeated, and both halves of all chains are the same.
    few = chains(*2 * [np.tile(np.repeat(rng.normal(size=6), 42)[:250], (4, 2))])
    assert convergence_of_chains(few, pair, 500) == "no"
    assert "effective number" in few.attrs["note"]


def test_chains_at_one_selection_are_not_convergence():
    with pm.Model() as model:
        pm.Bernoulli("beta", 0.5, shape=2)
        pm.Normal("x")
    x = np.random.default_rng(0).normal(size=(4, 500))
    beta = np.ones((4, 500, 2), dtype=int)
    for last, expected in ((1, "no"), (0, "yes")):
        beta[:, ::2, 0] = last
        tree = az.from_dict({"posterior": {"beta": beta, "x": x}})
        assert convergence_of_chains(tree, model, 500) == expected


def test_chains_that_never_move_a_variable_are_not_convergence(pair):
    """Gibbs(moves=0) with a rule from outside: R-hat of a constant is NaN, below no bound."""
    z = np.random.default_rng(0).normal(size=(4, 500))
    assert convergence_of_chains(chains(z[::-1], z), pair, 500) == "yes"
    still = chains(np.full((4, 500), 0.3), z)
    assert convergence_of_chains(still, pair, 500) == "no"
    assert "No draw of x differs" in still.attrs["note"]


@pytest.mark.parametrize(
    ("particles", "acceptance", "expected"),
    [(500, 0.3, "yes"), (500, 0.05, "no"), (99, 0.3, "no"), (500, np.nan, "no")],
)
def test_few_or_still_particles_are_not_convergence(pair, particles, acceptance, expected):
    x = np.random.default_rng(0).normal(size=(4, particles))
    tree = chains(x, x)
    assert convergence_of_particles(tree, pair, particles, acceptance) == expected


@pytest.mark.parametrize(("iterations", "expected"), [(20, "no"), (50, "no"), (5000, "yes")])
def test_a_noisy_bound_is_at_rest_only_if_its_mean_is_known(iterations, expected):
    elbo = -20 + 5 * np.random.default_rng(1).normal(size=iterations)
    assert convergence_of_noisy_ascent(elbo) == expected
    assert convergence_of_noisy_ascent(elbo + np.linspace(0, 5, iterations)) == "no"


def test_an_ascent_that_is_sure_of_a_selection_has_not_converged():
    with pm.Model() as model:
        pm.Bernoulli("beta", 0.5, shape=2)
    draws = np.ones((1, 50, 2), dtype=int)
    for first, k_hat, expected in ((1, 1.8, "no"), (1, 0.3, "yes"), (0, 1.8, "yes")):
        draws[0, 0, 0] = first
        tree = az.from_dict({"posterior": {"beta": draws}})
        assert convergence_of_ascent(tree, model, k_hat, True, np.zeros(2)) == expected
    assert convergence_of_ascent(tree, model, 0.0, False, np.zeros(2)) == "no"


@pytest.mark.filterwarnings("error:invalid value")
def test_one_quantity_that_disagrees_is_enough(pair):
    rng = np.random.default_rng(0)
    good = rng.normal(size=(4, 500))
    apart = good + np.arange(4)[:, None]
    for x, z, expected in [(good, good[::-1], "yes"), (good, apart, "no")]:
        tree = chains(x, z)
        assert convergence_of_chains(tree, pair, 500) == expected
        # Chains that are apart have few effective draws, too: the reason counts.
        assert ("R-hat" in tree.attrs.get("note", "")) == (expected == "no")
    assert convergence_of_chains(chains(good, good), pair, 501) == "no"
    alone = chains(good[:1], good[:1])
    assert convergence_of_chains(alone, pair, 500) == "unknown"
    assert "run fit again with chains=2" in alone.attrs["note"]


def test_the_advice_goes_by_how_far_apart_chains_are_and_names_what_has_converged(pair):
    good = np.random.default_rng(0).normal(size=(4, 500))
    for shift, advice in (
        (0.15, "more draws are needed. Run fit again with draws=2000"),
        (2, "draws=2000; chains that stay apart are in other modes"),
    ):
        tree = chains(good, good[::-1] + shift * np.arange(4)[:, None])
        assert convergence_of_chains(tree, pair, 500) == "no"
        note = tree.attrs["note"]
        of_x, of_z = (az.rhat(tree["posterior"].to_dataset())[name].item() for name in "xz")
        assert advice in note
        assert note.startswith(f"R-hat is {of_z:.4g} at z: ")
        assert f"identified(result): x {of_x:.4g}, z" in note


def test_constants_of_a_model_are_no_chains_that_stand_still():
    with pm.Model() as model:
        pm.Deterministic("x", 0.0 * pm.Normal("free") + 1)
        pm.Deterministic("z", model["x"] + 1)
    good, still = np.random.default_rng(0).normal(size=(4, 500)), np.ones((4, 500))
    assert convergence_of_chains(chains(good, still), model, 500) == "yes"
    assert convergence_of_chains(chains(still, still), model, 500) == "unknown"


def test_entries_without_draws_are_judged_by_their_moments(pair):
    rng = np.random.default_rng(0)
    good = rng.normal(size=(4, 500))
    entries = rng.normal(size=(4, 500, 6))
    for shift, expected in ((0.0, "yes"), (0.4, "no")):
        # One entry of six differs between the chains.
        K = entries + shift * np.arange(4)[:, None, None] * (np.arange(6) == 2)
        tree = chains(good, good)
        draws = az.from_dict({"posterior": {"K": K}})["posterior"].to_dataset()
        tree["moments"] = DataTree(moments_of_draws(draws))
        assert convergence_of_chains(tree, pair, 500) == expected
    assert "at K[2]" in tree.attrs["note"]
    # Kept draws are judged by themselves.
    kept = tree["posterior"].to_dataset().assign(K=(("chain", "draw", "K_dim_0"), entries))
    tree["posterior"] = DataTree(kept)
    assert convergence_of_chains(tree, pair, 500) == "yes"


def test_rhat_of_moments_is_that_of_draws():
    """ArviZ's "identity" is Gelman and Rubin's, without ranks or splits."""
    rng = np.random.default_rng(1)
    draws = rng.normal(size=(4, 300, 5)) + 0.2 * rng.normal(size=(4, 1, 5))
    draws[..., 4] = 1.0
    posterior = az.from_dict({"posterior": {"K": draws}})["posterior"].to_dataset()
    found = rhat_of_moments(moments_of_draws(posterior))["K"].values
    expected = az.rhat(posterior, method="identity")["K"].values
    np.testing.assert_allclose(found[:4], expected[:4], rtol=1e-12)
    assert np.isnan(found[4])


def test_rhat_of_moments_sees_chains_that_stand_still_or_lack_moments():
    means = np.array([[1.0, 1.0, 1.0, 0.0], [1.0 + 1e-16, 2.0, 1.0, 0.0]])
    sds = np.array([[0.0, 0.0, np.nan, np.nan], [1e-17, 0.0, 1.0, np.nan]])
    dims = ("chain", "entry")
    moments = xr.Dataset(
        {"K_mean": (dims, means), "K_sd": (dims, sds)}, {"draws": ("chain", [100, 100])}
    )
    found = rhat_of_moments(moments)["K"].values
    np.testing.assert_array_equal(found, [np.nan, np.inf, np.inf, np.nan])


def test_rhat_of_moments_has_the_draws_of_the_shortest_chain():
    moments = xr.Dataset(
        {"K_mean": ("chain", [0.0, 0.3]), "K_sd": ("chain", [1.0, 1.0])},
        {"draws": ("chain", [1000, 10])},
    )
    assert float(rhat_of_moments(moments)["K"]) == pytest.approx(np.sqrt(0.9 + 0.045))


@pytest.mark.parametrize("identified_converges", [True, False])
def test_the_log_says_what_has_not_converged(pair, identified_converges, monkeypatch, caplog):
    """R-hat of what is identified decides, and neither more nor less is said."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 500)) + (0 if identified_converges else np.arange(4)[:, None])
    quantities = chains(x, x)["posterior"].to_dataset()
    monkeypatch.setattr(convergence, "identified", lambda tree, model: quantities)
    with caplog.at_level("INFO", logger="pymc"):
        tree = kz.fit(pair, "nuts", tune=5, draws=100, chains=2, random_seed=1, progressbar=False)
    said = [line for line in caplog.messages if "r-hat" in line.lower() or "rhat" in line]
    assert said == ([] if identified_converges else [tree.attrs["note"]])
    assert tree.attrs["converged"] == ("yes" if identified_converges else "no")


def test_pymc_checks_when_it_is_asked_to(pair, caplog):
    options = {"tune": 5, "draws": 100, "chains": 2, "random_seed": 1, "progressbar": False}
    with caplog.at_level("INFO", logger="pymc"):
        kz.fit(pair, "nuts", compute_convergence_checks=True, **options)
        assert "at least 4 chains" in caplog.text
        caplog.clear()
        kz.fit(pair, "nuts", **options)
        assert "at least 4 chains" not in caplog.text


@pytest.mark.filterwarnings("ignore")
def test_smc_estimates_the_evidence():
    y = np.array([0.3, -1.2, 2.0])
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Normal("y", x, 1, observed=y)
    tree = kz.fit(model, "smc", draws=2000, chains=4, random_seed=1, progressbar=False)
    exact = multivariate_normal.logpdf(y, cov=np.eye(3) + 1)
    last = tree["sample_stats"]["log_marginal_likelihood"].values
    of_chains = np.array([row[np.isfinite(row)][-1] for row in last])
    error = np.exp(of_chains - exact).std(ddof=1) / np.sqrt(len(of_chains))
    # Student t with 3 degrees of freedom at the rate of tests/family.py would be wider still.
    assert abs(np.expm1(tree.attrs["log_evidence"] - exact)) < 10 * error + 0.02
    assert tree.attrs["log_evidence"] >= of_chains.mean()
    assert tree.attrs["independent"] == 0
    single = kz.fit(model, "smc", draws=500, chains=1, random_seed=2, progressbar=False)
    stats = single["sample_stats"]["log_marginal_likelihood"]
    assert stats.dims == ("chain", "stage")
    assert stats.sizes == {"chain": 1, "stage": single["sample_stats"].sizes["stage"]}
    assert single.attrs["log_evidence"] == stats.values[0, -1]
    assert abs(single.attrs["log_evidence"] - exact) < 0.5


@pytest.mark.parametrize(("backend", "extra"), [("nutpie", "nutpie"), ("numpyro", "jax")])
def test_an_absent_backend_names_the_extra_that_brings_it(monkeypatch, backend, extra):
    monkeypatch.setattr("kernelzoo.inference.generic.find_spec", lambda name: None)
    reason = kz.NUTS(backend=backend).why_not(kz.WishartCompletion.example())
    assert reason == f"the package {backend} is not installed (pip install kernelzoo[{extra}])"


def on(platform):
    jax = pytest.importorskip("jax")
    try:
        return jax.devices(platform)[0]
    except RuntimeError:
        pytest.skip(f"no {platform} here")


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_numpyro_runs_on_the_device(platform):
    pytest.importorskip("numpyro")
    jax, device = pytest.importorskip("jax"), on(platform)
    options = {"draws": 20, "tune": 20, "chains": 2, "random_seed": 1, "progressbar": False}
    model = kz.CompositeKernelRegression.example()
    with jax.default_device(device):
        result = kz.fit(model, kz.NUTS(backend="numpyro"), **options)
    assert np.isfinite(result["posterior"]["beta"]).all()


@pytest.mark.parametrize(
    ("initvals", "message"),
    [
        ({"gamma": -1.0}, r"inside the support of gamma\. Got -1\.0"),
        ([None, {"gamma": 0}], r"inside the support of gamma\. Got 0"),
        ({"beta": [2.0, -1.0]}, r"inside the support of beta\. Got \[2\.0, -1\.0\]"),
        ({"beta": [0.2, 0.3, 0.5]}, r"numbers of the kind and shape of beta\. Got \[0\.2"),
        ({"gama": 1.0}, r"the nearest is 'gamma'"),
        ("gamma", r"a dict of values by variable"),
    ],
)
def test_starts_outside_the_support_are_refused_by_name(initvals, message):
    """Bug: 38 to 87 lines of PyMC, or an error that names other variables."""
    model = kz.CompositeKernelRegression.example()
    with pytest.raises(ValueError, match=rf"'initvals' argument of fit must be .*{message}"):
        kz.fit(model, "gibbs", initvals=initvals, progressbar=False)


def test_starts_of_selections_are_zeros_and_ones():
    """Bug: selections of 3 were drawn, and said nothing."""
    model = kz.MultinomialProbit.example().redeclared(combination="binary")
    with pytest.raises(ValueError, match=r"inside the support of beta\. Got \[3, 1\]"):
        kz.fit(model, "gibbs", initvals={"beta": [3, 1]}, progressbar=False)


def test_starts_may_depend_on_each_other():
    with pm.Model() as model:
        upper = pm.HalfNormal("upper")
        pm.Uniform("x", 0, upper)
    check_initvals(model, {"x": 5.0, "upper": 6.0})
    check_initvals(model, [{"x": 0.1, "upper": "prior"}, None])
    with pytest.raises(ValueError, match="inside the support of x"):
        check_initvals(model, {"x": 5.0, "upper": 4.0})
