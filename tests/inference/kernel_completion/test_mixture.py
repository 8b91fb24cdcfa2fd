"""Engines of the mixture: delegation to the matched completion, and the exact mixture itself."""

import arviz as az
import numpy as np
import pytest
from scipy import stats

import kernelzoo as kz
from family import assert_z
from kernelzoo.custom_steps.kernel_completion.tanner_wong import TannerWongPosterior
from kernelzoo.inference.engine.evaluation import python_mode

# Of each kernel another number, so that the mixture's weights are not alpha alone.
ETAS = [9.5, 14.0]


@pytest.fixture(scope="module")
def pair():
    """A mixture, and the completion with its matched parameters."""
    mixture = kz.WishartKernelMixture.example(alpha=[0.3, 0.7], eta=ETAS)
    eta, theta = kz.completion.match_wishart(mixture.theta, mixture.etas, [0.3, 0.7])
    single = kz.WishartCompletion(theta, mixture.K11_values, r=mixture.rho, eta=eta)
    return mixture, single


@pytest.mark.filterwarnings("ignore:After")
@pytest.mark.parametrize("iterations", [1, 7, None])
def test_em_is_that_of_the_matched_completion(pair, iterations):
    ours, theirs = (
        kz.fit(m, kz.EM(max_iterations=iterations), progressbar=False)["point"].to_dataset()
        for m in pair
    )
    for name in ("K21", "K22", "Sigma11"):
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-10)


def test_matched_eta_leaves_em_a_limit():
    """At the paper's eta_k = rho = n + 1 the single model has none, the mixture has one."""
    mixture = kz.WishartKernelMixture.example(rho=None, eta=None)
    single = kz.WishartCompletion(mixture.theta[1], mixture.K11_values)
    runs = [kz.fit(m, kz.EM(max_iterations=100), progressbar=False) for m in (mixture, single)]
    assert [run.attrs["converged"] for run in runs] == ["yes", "no fixed point"]


@pytest.mark.parametrize("engine", [kz.Exact(), kz.VB()], ids=["Exact", "VB"])
def test_moments_and_draws_are_those_of_the_matched_completion(pair, engine):
    ours, theirs = (kz.fit(m, engine, draws=20, random_seed=1, progressbar=False) for m in pair)
    for name in ("K21_mean", "K21_sd", "K22_mean"):
        np.testing.assert_allclose(ours["moments"][name], theirs["moments"][name], rtol=1e-9)
    trace = "trace_K22"
    np.testing.assert_allclose(ours["posterior"][trace], theirs["posterior"][trace], rtol=1e-8)
    mixture, single = pair
    np.testing.assert_allclose(kz.log_evidence(mixture), kz.log_evidence(single), rtol=1e-12)


def test_gibbs_finds_the_closed_form_moments(pair):
    mixture, _ = pair
    run = kz.fit(mixture, "gibbs", chains=2, cores=1, draws=2000, tune=100, random_seed=1,
                 var_names=["K21"], progressbar=False)  # fmt: skip
    exact = kz.fit(mixture, "exact", draws=1, progressbar=False)["moments"]
    draws = run["posterior"]["K21"]
    mcse = az.mcse(run["posterior"].to_dataset())["K21"]
    assert_z(((draws.mean(("chain", "draw")) - exact["K21_mean"]) / mcse).values)


@pytest.mark.parametrize("options", [{"concentration": 1.0}, {"prior": "wishart"}])
def test_steps_refuse_what_is_not_conjugate(options):
    model = kz.WishartKernelMixture.example(**options)
    with pytest.raises(ValueError, match="no matched parameters"), model:
        TannerWongPosterior()


def by_importance_sampling(model, draws, seed):
    """Weighted prior draws of alpha, log Sigma11 and K21 for one training and one test object."""
    rng = np.random.default_rng(seed)
    alpha = rng.dirichlet([1.0, 1.0], size=draws)
    M = np.stack(
        [
            stats.wishart(df, kernel).rvs(draws, random_state=rng)
            for df, kernel in zip(model.etas, model.theta, strict=True)
        ],
        axis=1,
    )
    Sigma = np.einsum("dk,dkij->dij", alpha, M)
    k, S11 = model.K11_values[0, 0], Sigma[:, 0, 0]
    weights = stats.gamma(model.rho / 2, scale=2 * S11).pdf(k)
    b = Sigma[:, 1, 0] / S11
    schur = Sigma[:, 1, 1] - b * Sigma[:, 1, 0]
    K21 = b * k + np.sqrt(schur * k) * rng.standard_normal(draws)
    return {"alpha": alpha[:, 0], "Sigma11": np.log(S11), "K21": K21}, weights


@pytest.mark.slow
def test_nuts_on_the_exact_mixture_against_importance_sampling():
    theta = np.array([[[2.0, 1.2], [1.2, 1.0]], [[0.3, -0.1], [-0.1, 0.6]]])
    model = kz.WishartKernelMixture(
        theta, [[6.0]], prior="mixture", concentration=1.0, eta=[4.0, 6.0], rho=5.0
    )
    run = kz.fit(model, kz.NUTS(), chains=2, cores=1, draws=2500, tune=1000, random_seed=1,
                 var_names=["alpha", "Sigma11", "K21"], progressbar=False)  # fmt: skip
    posterior = run["posterior"].to_dataset()
    ours = posterior[["alpha"]].isel(kernel=0).drop_vars("kernel")
    ours["Sigma11"] = np.log(posterior["Sigma11"].isel(train=0, train_=0, drop=True))
    ours["K21"] = posterior["K21"].isel(test=0, train=0, drop=True)
    exact, weights = by_importance_sampling(model, 400_000, 2)
    z = []
    for name, values in exact.items():
        for power in (1, 2):
            target = np.average(values**power, weights=weights)
            spread = weights * (values**power - target)
            error = np.sqrt((spread**2).sum()) / weights.sum()
            moment = ours[[name]] ** power
            mcse = float(az.mcse(moment)[name])
            z.append((float(moment[name].mean()) - target) / np.hypot(error, mcse))
    assert_z(z)


def test_learned_weights_complete_and_predict():
    """The collapsed model's mean of K21 is that of the explicit model with the same weights."""
    model = kz.WishartKernelMixture.example(concentration=1.0, collapsed=True, eta=ETAS)
    name = "K21_mean_given_alpha"
    run = kz.fit(model, kz.NUTS(), chains=1, cores=1, draws=100, tune=100, random_seed=1,
                 var_names=["alpha", name], progressbar=False,
                 compile_kwargs={"mode": python_mode()})  # fmt: skip
    posterior = run["posterior"].to_dataset().isel(chain=0)
    for alpha, mean in zip(posterior["alpha"].values[:5], posterior[name].values, strict=False):
        fixed = kz.WishartKernelMixture.example(alpha=alpha, eta=ETAS)
        exact = kz.fit(fixed, "exact", draws=1, progressbar=False)["moments"]["K21_mean"]
        np.testing.assert_allclose(mean, exact, rtol=1e-7)
    streamed = run["moments"][f"{name}_mean"].values[0]
    np.testing.assert_allclose(streamed, posterior[name].mean("draw"), rtol=1e-7)
    # K11 has a constant diagonal: the nearest neighbour is the largest entry of K21's mean.
    nearest = np.array(["a", "b", "b"])[streamed.argmax(axis=1)]
    assert nearest.tolist() == ["b", "a"]
    predictions = kz.predict(model, run, labels=["a", "b", "b"], rule="nearest neighbour")
    assert predictions["label"].to_series().to_dict() == dict(zip([3, 4], nearest, strict=True))
    # Draws of the mean given alpha are none of K21, whose labels have frequencies.
    assert "probability" not in predictions


@pytest.mark.filterwarnings("ignore:After")
def test_rounding_does_not_decide_whether_em_has_a_limit():
    """At eta_k = n + 1 a single kernel has none, whatever eq (13) rounds to."""
    rng = np.random.default_rng(0)
    for n in range(4, 24):
        x = rng.normal(size=(n, 3))
        theta = x @ x.T + np.eye(n)
        model = kz.WishartKernelMixture([theta, 2 * np.eye(n)], np.eye(n - 2), alpha=[0.7, 0.0])
        assert model.parameters.eta == n + 1
        run = kz.fit(model, kz.EM(max_iterations=5), progressbar=False)
        assert run.attrs["converged"] == "no fixed point"
        with pytest.raises(ValueError, match="no fixed point"):
            kz.fit(model, kz.EM(max_iterations="limit"), progressbar=False)
