"""What the sampling engines say about themselves: convergence, evidence."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy.signal import lfilter
from scipy.special import expit
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
    effective_draws,
    judge,
    last_acceptance,
    rhat_of_moments,
    units_of,
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


def slow_selections(draws, seed, *, amplitude=0.3, time=100):
    """Two chains of a selection whose log odds change slowly: a normal AR(1)."""
    rng = np.random.default_rng(seed)
    keep = np.exp(-1 / time)
    steps = np.sqrt(1 - keep**2) * rng.normal(size=(2, draws + 10 * time))
    z = lfilter([1.0], [1.0, -keep], steps, axis=1)[:, -draws:]
    return (rng.random(z.shape) < expit(amplitude * z)).astype(np.int64)


@pytest.mark.parametrize(("draws", "expected"), [(3000, "no"), (12_000, "yes")])
def test_selections_that_change_slowly_have_not_converged(draws, expected):
    """Bug: ESS of 3,200, converged, and probabilities of .51 and .47 in runs of other seeds."""
    with pm.Model() as model:
        pm.Bernoulli("beta", 0.5)
    tree = az.from_dict({"posterior": {"beta": slow_selections(draws, 1)}})
    assert az.ess(tree["posterior"].to_dataset())["beta"] > 2000
    assert convergence_of_chains(tree, model, draws) == expected
    assert ("runs of 30 draws of beta" in tree.attrs.get("note", "")) == (expected == "no")


def test_independent_selections_have_converged():
    """Also of a number of draws that is no multiple of the runs, and of fewer draws than runs."""
    with pm.Model() as model:
        pm.Bernoulli("beta", 0.5)
    for draws in (90, 1999):
        beta = np.random.default_rng(1).integers(0, 2, size=(4, draws))
        tree = az.from_dict({"posterior": {"beta": beta}})
        units = units_of(tree["posterior"].to_dataset()["beta"])
        assert 90 <= units.sizes["draw"] < 200
        np.testing.assert_allclose(units[:, -1], beta[:, -(draws // 100 or 1) :].mean(axis=1))
        assert convergence_of_chains(tree, model, draws) == "yes"


def test_effective_draws_of_a_selection_are_those_of_its_mean():
    """The spread of means over fifty runs; draws alone claim three times as many."""
    means, claimed, found = [], [], []
    for seed in range(50):
        beta = slow_selections(3000, seed)
        means.append(beta.mean())
        if seed < 10:
            draws = xr.DataArray(beta, dims=("chain", "draw"))
            found.append(float(effective_draws(draws)))
            claimed.append(float(az.ess(beta)))
    true = 0.25 / np.var(means, ddof=1)
    assert 0.6 < np.median(found) / true < 1.6
    assert np.median(claimed) / true > 2
    # Other quantities are as ArviZ has them.
    x = xr.DataArray(np.random.default_rng(0).normal(size=(2, 500)), dims=("chain", "draw"))
    assert float(effective_draws(x)) == float(az.ess(x.to_numpy()))


def test_the_quantity_with_the_fewest_effective_draws_decides(pair):
    """Bug: that with the most."""
    rng = np.random.default_rng(0)
    good = rng.normal(size=(4, 500))
    few = np.tile(np.repeat(rng.normal(size=6), 42)[:250], (4, 2))
    for x, z, name in ((good, few, "z"), (few, good, "x")):
        tree = chains(x, z)
        assert convergence_of_chains(tree, pair, 500) == "no"
        assert f"effective number of draws of {name} is" in tree.attrs["note"]
    elements = az.from_dict({"posterior": {"x": np.stack([good, few, good], axis=-1)}})
    assert convergence_of_chains(elements, pair, 500) == "no"
    assert "effective number of draws of x[1] is" in elements.attrs["note"]


@pytest.mark.parametrize(("least", "expected"), [(100, "yes"), (99.9, "no")])
def test_edge_of_the_effective_draws(pair, monkeypatch, least, expected):
    good = np.random.default_rng(0).normal(size=(4, 500))
    values = {"x": xr.DataArray(1000.0), "z": xr.DataArray(least)}
    monkeypatch.setattr(convergence.az, "ess", lambda data, **_: data.map(lambda v: values[v.name]))
    assert convergence_of_chains(chains(good, good[::-1]), pair, 500) == expected


@pytest.mark.parametrize(("largest", "expected"), [(1.01, "yes"), (1.0101, "no")])
def test_edge_of_rhat(pair, monkeypatch, largest, expected):
    good = np.random.default_rng(0).normal(size=(4, 500))
    rhat = xr.Dataset({"x": 1.0, "z": largest})
    monkeypatch.setattr(convergence.az, "rhat", lambda data: rhat)
    assert convergence_of_chains(chains(good, good), pair, 500) == expected


@pytest.mark.parametrize(("number", "expected"), [(2, "yes"), (3, "no")])
def test_edge_of_divergences_for_what_is_read(number, expected):
    good = np.random.default_rng(0).normal(size=(4, 500))
    tree = az.from_dict({"posterior": {"x": good}})
    diverging = np.arange(2000).reshape(4, 500) < number
    tree["sample_stats"] = DataTree(xr.Dataset({"diverging": (("chain", "draw"), diverging)}))
    assert judge(tree, tree["posterior"].to_dataset()).state == expected


def test_the_chain_of_particles_with_the_lowest_acceptance_decides():
    """Bug: SMC was judged by its best chain, or by a stage before the last."""
    rates = np.array([[0.02, 0.3, np.nan], [0.9, 0.5, 0.08]])
    for name in ("mean_accept_rate", "accept_rate"):
        assert last_acceptance(xr.Dataset({name: (("chain", "stage"), rates)})) == 0.08
    assert np.isnan(last_acceptance(xr.Dataset()))
    tree = az.from_dict({"posterior": {"x": np.random.default_rng(0).normal(size=(2, 200))}})
    tree.attrs["independent"] = 0
    for acceptance, expected in ((0.08, "no"), (0.1, "yes")):
        rates[1, 2] = acceptance
        stats = xr.Dataset({"mean_accept_rate": (("chain", "stage"), rates)})
        tree["sample_stats"] = DataTree(stats)
        assert judge(tree, tree["posterior"].to_dataset()).state == expected


@pytest.mark.parametrize(
    ("particles", "acceptance", "expected"),
    [
        (500, 0.3, "yes"),
        (500, 0.1, "yes"),
        (500, 0.0999, "no"),
        (100, 0.3, "yes"),
        (99, 0.3, "no"),
        (500, np.nan, "no"),
    ],
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


def test_a_noisy_bound_is_judged_by_its_second_half():
    """Bug: by the first half, which has risen, or which rests where the second rises."""
    noise = np.random.default_rng(1).normal(size=4000)
    rises = np.linspace(-500, 0, 2000)
    late = np.concatenate([rises, np.zeros(2000)]) + noise
    early = np.concatenate([np.full(2000, -500.0), rises]) + noise
    assert convergence_of_noisy_ascent(late) == "yes"
    assert convergence_of_noisy_ascent(early) == "no"


@pytest.mark.parametrize(("times", "expected"), [(2.99, "yes"), (3.01, "no")])
def test_edge_of_the_rise_of_a_noisy_bound(times, expected):
    """Two quarters with standard errors of 0.1 each: their difference has 0.1 sqrt(2)."""
    quarter = np.tile([1.0, -1.0], 50)
    rise = times * 0.1 * np.sqrt(2)
    elbo = np.concatenate([np.zeros(200), quarter, quarter + rise])
    assert convergence_of_noisy_ascent(elbo) == expected


@pytest.mark.parametrize(("sd", "expected"), [(2.35, "yes"), (2.36, "no")])
def test_edge_of_the_noise_of_a_bound(sd, expected):
    """Three standard errors, 3 sd sqrt(2 / 100), within one nat: sd up to 2.357."""
    elbo = sd * np.tile([1.0, -1.0], 200)
    assert convergence_of_noisy_ascent(elbo) == expected


@pytest.mark.parametrize(("fall", "expected"), [(0.9e-6, "yes"), (1.1e-6, "no")])
def test_edge_of_the_fall_of_a_bound(pair, fall, expected):
    bound = np.array([-20.0, -10.0, -10.0 - 11 * fall])
    tree = chains(np.zeros((1, 2)), np.ones((1, 2)))
    assert convergence_of_ascent(tree, pair, 0.1, True, bound) == expected


@pytest.mark.parametrize(("k_hat", "expected"), [(0.7, "yes"), (0.701, "no")])
def test_edge_of_k_hat(k_hat, expected):
    tree = az.from_dict({"posterior": {"beta": np.random.default_rng(0).random((1, 50))}})
    tree.attrs |= {"kind": "vb", "pareto_k": k_hat, "converged": "yes"}
    assert judge(tree, tree["posterior"].to_dataset()).state == expected


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
        assert ("R-hat is" in tree.attrs.get("note", "")) == (expected == "no")
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
        ({"beta": [0.7, 0.8]}, r"inside the support of beta\. Got \[0\.7, 0\.8\]"),
        ({"beta_simplex__": [np.nan]}, r"inside the support of beta_simplex__\. Got \[nan\]"),
        ({"beta_simplex__": [1.0, 2.0]}, r"numbers of the kind and shape of beta_simplex__\."),
        ({"gamma_log__": 800.0}, r"inside the support of gamma_log__\. Got 800"),
        ({"gamma_log__": -np.inf}, r"inside the support of gamma_log__\. Got -inf"),
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
    check_initvals(model, {"x": 5.0, "upper_log__": np.log(6.0)})
    check_initvals(model, {"x_interval__": 2.0, "upper": 1e6})
    check_initvals(model, [{"x": 0.1, "upper": "prior"}, None])
    with pytest.raises(ValueError, match="inside the support of x"):
        check_initvals(model, {"x": 5.0, "upper": 4.0})
    with pytest.raises(ValueError, match="inside the support of x"):
        check_initvals(model, {"x": 5.0, "upper_log__": np.log(4.0)})
    check_initvals(kz.MultinomialProbit.example(), {"beta": [0.33, 0.66]})
