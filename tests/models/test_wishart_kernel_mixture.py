"""The declaration's three priors against scipy, its collapsed form, its input."""

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import kernelzoo as kz
from family import assert_ks, assert_mean
from kernelzoo.models.wishart_kernel_mixture import WishartKernelMixture

pytestmark = pytest.mark.usefixtures("quick_compilation")

MODE = "FAST_COMPILE"
PRIORS = ("inverse-wishart", "wishart", "mixture")
#: Of the two kernels: equal ones would hide that they are exchanged.
ETAS = [9.5, 12.0]


def packed(matrices):
    factors = np.linalg.cholesky(matrices)
    n = factors.shape[-1]
    i = np.arange(n)
    factors[..., i, i] = np.log(factors[..., i, i])
    return factors[(..., *np.tril_indices(n))]


def density(model):
    """Log density of the declaration as a function of its free variables."""
    value = model.compile_logp(jacobian=False, mode=MODE)
    names = {rv.name: model.rvs_to_values[rv].name for rv in model.free_RVs}
    matrices = {name for name, value in names.items() if value.endswith("cholesky__")}

    def log_density(**given):
        point = {names[k]: packed(x) if k in matrices else np.asarray(x) for k, x in given.items()}
        return float(value(point))

    return log_density


def kernel_terms(model, sigma, rng):
    """Blocks K21 and K22.1, and log W(K; rho, Sigma) of the whole K."""
    n1, n2 = model.n_train, model.n_test
    K21, C = rng.normal(size=(n2, n1)), rng.normal(size=(n2, n2))
    K22_1 = C @ C.T + np.eye(n2)
    K11 = model.K11_values
    K = np.block([[K11, K21.T], [K21, K22_1 + K21 @ np.linalg.solve(K11, K21.T)]])
    return {"K21": K21, "K22_1": K22_1}, stats.wishart(model.rho, sigma).logpdf(K)


def test_mixture_is_the_sum_of_its_components():
    alpha = [0.3, 1.7]
    model = WishartKernelMixture.example(prior="mixture", alpha=alpha, eta=ETAS)
    rng = np.random.default_rng(1)
    for _ in range(3):
        components = [stats.wishart(df, k) for df, k in zip(model.etas, model.theta, strict=True)]
        M = np.stack([law.rvs(random_state=rng) for law in components])
        missing, kernel = kernel_terms(model, np.tensordot(alpha, M, axes=1), rng)
        exact = kernel + sum(law.logpdf(m) for law, m in zip(components, M, strict=True))
        np.testing.assert_allclose(density(model)(M=M, **missing), exact, rtol=1e-10)


def test_matched_wishart_prior():
    model = WishartKernelMixture.example(prior="wishart", alpha=[0.3, 1.7], eta=ETAS)
    rng = np.random.default_rng(2)
    eta, theta = kz.completion.match_wishart(model.theta, model.etas, [0.3, 1.7])
    law = stats.wishart(eta, theta)
    Sigma = law.rvs(random_state=rng)
    missing, kernel = kernel_terms(model, Sigma, rng)
    exact = kernel + law.logpdf(Sigma)
    np.testing.assert_allclose(density(model)(Sigma=Sigma, **missing), exact, rtol=1e-10)


def test_inverse_wishart_prior_is_a_completion_with_the_matched_parameters():
    model = WishartKernelMixture.example(alpha=[0.3, 1.7], eta=ETAS)
    eta, theta = kz.completion.match_wishart(model.theta, model.etas, [0.3, 1.7])
    single = kz.WishartCompletion(theta, model.K11_values, r=model.rho, eta=eta)
    point = single.initial_point(random_seed=1)
    ours, theirs = (m.compile_logp(mode=MODE)(point) for m in (model, single))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    given = model.parameters
    np.testing.assert_allclose(given.theta, theta, rtol=1e-12)
    np.testing.assert_allclose((given.eta, given.r), (eta, model.rho), rtol=1e-12)


@pytest.mark.parametrize("j", [0, 1])
def test_one_component_is_the_single_model(j):
    model = WishartKernelMixture.example(alpha=np.eye(2)[j], eta=ETAS)
    single = kz.WishartCompletion(model.theta[j], model.K11_values, r=model.rho, eta=model.etas[j])
    point = single.initial_point(random_seed=1)
    ours, theirs = (m.compile_logp(mode=MODE)(point) for m in (model, single))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_mean_of_sigma_by_prior():
    """Mixture and matched Wishart prior keep the sum's mean; the inverse Wishart does not."""
    options = {"rho": 10.5, "eta": 9.5}
    means = {}
    for prior in PRIORS:
        model = WishartKernelMixture.example(prior=prior, **options)
        draws = pm.draw(model["Sigma11"], 1_000, random_seed=1, mode=MODE)
        expected = np.tensordot(model.etas / 2, model.theta, axes=1)[:3, :3]
        if prior == "inverse-wishart":
            given = model.parameters
            expected = given.theta[:3, :3] / (given.eta - 5 - 1)
        assert_mean(draws, expected)
        means[prior] = draws.mean(0)
    assert np.trace(means["inverse-wishart"]) < 0.5 * np.trace(means["wishart"])


def collapsed(**options):
    return WishartKernelMixture.example(concentration=1.5, collapsed=True, **options)


def test_collapsed_density_is_prior_times_evidence():
    model = collapsed()
    log_density = model.compile_logp(jacobian=False, mode=MODE)
    transform = model.rvs_to_transforms[model["alpha"]]
    for alpha in ([0.5, 0.5], [0.9, 0.1], [0.01, 0.99]):
        fixed = WishartKernelMixture.example(alpha=alpha)
        exact = stats.dirichlet([1.5, 1.5]).logpdf(alpha) + kz.log_evidence(fixed)
        point = {"alpha_simplex__": transform.forward(pt.as_tensor(alpha)).eval(mode=MODE)}
        np.testing.assert_allclose(log_density(point), exact, rtol=1e-10)


def test_evidence_is_the_likelihood_averaged_over_the_prior():
    model = WishartKernelMixture.example(alpha=[0.4, 0.6])
    given = model.parameters
    law = stats.invwishart(given.eta - given.n_test, given.theta[:3, :3])
    Sigma11 = law.rvs(100_000, random_state=1)
    K11 = model.K11_values
    r = model.rho
    log_density = (
        stats.wishart(r, np.eye(3)).logpdf(K11)
        + 0.5 * np.trace(K11)
        - 0.5 * r * np.linalg.slogdet(Sigma11)[1]
        - 0.5 * np.trace(np.linalg.solve(Sigma11, K11), axis1=1, axis2=2)
    )
    assert_mean(
        np.exp(log_density - log_density.max()), np.exp(kz.log_evidence(model) - log_density.max())
    )


def test_gradient_of_the_collapsed_density():
    model = collapsed()
    value = model.compile_logp(mode=MODE)
    gradient = model.compile_dlogp(mode=MODE)
    for x in (-1.5, 0.2, 2.0):
        h = 1e-5
        above, below = (value({"alpha_simplex__": np.array([x + d])}) for d in (h, -h))
        ours = gradient({"alpha_simplex__": np.array([x])})
        np.testing.assert_allclose(ours, (above - below) / (2 * h), rtol=1e-6)


def test_engines_say_why_they_do_not_apply():
    reasons = kz.engines(WishartKernelMixture.example(concentration=1.0)).frame["reason"]
    for engine in ("Exact", "EM", "VB", "Gibbs"):
        assert reasons[engine] == "its weights are learned"
    reasons = kz.engines(WishartKernelMixture.example(prior="mixture")).frame["reason"]
    assert "'mixture' is not conjugate" in reasons["EM"]
    with pytest.raises(ValueError, match="no matched parameters: its weights"):
        _ = WishartKernelMixture.example(concentration=1.0).parameters


def test_labels_say_who_is_observed():
    labels = list("vwxyz")
    stack = kz.kernels.as_stack(dict(zip("ab", WishartKernelMixture.example().theta, strict=True)))
    stack = stack.assign_coords(obs=labels, basis=labels)
    K11 = np.diag([1.0, 2.0])
    frame = pd.DataFrame(K11, index=["z", "v"], columns=["z", "v"])
    model = WishartKernelMixture(stack, frame)
    assert list(model.coords["object"]) == ["z", "v", "w", "x", "y"]
    assert list(model.coords["kernel"]) == ["a", "b"]
    np.testing.assert_allclose(model.theta[:, 0, 1], stack.values[:, 4, 0])


def example_arguments():
    model = WishartKernelMixture.example()
    return {"theta": model.theta, "K11": model.K11_values}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prior": "inverse-wishert"}, "'prior' argument .* nearest is 'inverse-wishart'"),
        ({"rho": 4.0}, "'rho' argument .* above n - 1 = 4"),
        ({"eta": [9.0, 3.0]}, "'eta' argument .* above n - 1 = 4"),
        ({"eta": [9.0] * 3}, "'eta' argument .* one number or one per kernel"),
        ({"alpha": [-0.1, 1.1]}, "'alpha' argument .* non-negative"),
        ({"alpha": [0.5, 0.5], "concentration": 1.0}, "'alpha' argument .* left out"),
        ({"concentration": [1.0, 0.0]}, "'concentration' argument .* above 0"),
        ({"concentration": [1.0] * 3}, "'concentration' argument .* one number or one per kernel"),
        ({"collapsed": True}, "'collapsed' argument .* log_evidence"),
        (
            {"collapsed": True, "concentration": 1.0, "prior": "mixture"},
            "'collapsed' argument .* False for this prior",
        ),
        (
            {"theta": [np.ones((5, 5)), np.eye(5)], "prior": "mixture"},
            "'theta' argument .* positive definite",
        ),
        ({"theta": [np.ones((5, 5))] * 2}, "'theta' argument .* positive definite"),
        ({"K11": np.ones((3, 3))}, "'K11' argument .* positive definite"),
        ({"K11": np.eye(5)}, "'K11' argument .* something to complete"),
        ({"K11": np.full((2, 2), np.nan)}, "'K11' argument .* finite"),
        ({"theta": np.ones((2, 5, 4))}, "'theta' argument .* square"),
        ({"theta": kz.gaussian(1.0)}, "'theta' argument .* computed from data"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        WishartKernelMixture(**(example_arguments() | arguments))


def test_a_semidefinite_component_is_enough_for_the_matched_priors():
    theta = [np.ones((5, 5)), np.eye(5)]
    model = WishartKernelMixture(theta, np.eye(3))
    assert np.isfinite(kz.log_evidence(model))


def test_prior_predictive_of_the_collapsed_model():
    model = collapsed()
    draws = pm.sample_prior_predictive(
        500, model=model, random_seed=1, compile_kwargs={"mode": MODE}
    )
    K11 = draws["prior_predictive"]["K11"].values[0]
    explicit = WishartKernelMixture.example(concentration=1.5)
    theirs = pm.draw(explicit["K11"], 500, random_seed=2, mode=MODE)
    for statistic in (lambda k: np.linalg.slogdet(k)[1], lambda k: np.trace(k, axis1=1, axis2=2)):
        assert_ks(statistic(K11), statistic(theirs))


def test_mean_of_K21_given_the_weights():
    model, fixed = collapsed(), WishartKernelMixture.example(alpha=[0.5, 0.5]).parameters
    graph = model.replace_rvs_by_values([model["K21_mean_given_alpha"]])
    (found,) = model.compile_fn(graph, mode=MODE, on_unused_input="ignore")(
        {"alpha_simplex__": np.zeros(1)}
    )
    n1 = model.n_train
    expected = fixed.theta[n1:, :n1] @ np.linalg.solve(fixed.theta[:n1, :n1], fixed.K11)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_weights_with_names_go_by_them():
    example = WishartKernelMixture.example()
    stack = dict(zip("ab", example.theta, strict=True))
    model = WishartKernelMixture(stack, example.K11_values, alpha={"b": 0.9, "a": 0.1})
    np.testing.assert_allclose(model["alpha"].get_value(), [0.1, 0.9])


def test_concentrations_with_names_go_by_the_kernels():
    kernels = {"a": np.eye(4), "b": 2 * np.eye(4) + 1}
    K11 = np.eye(2)
    named = pd.Series({"b": 3.0, "a": 1.5})
    model = WishartKernelMixture(kernels, K11, concentration=named, collapsed=True)
    np.testing.assert_allclose(model["alpha"].owner.inputs[-1].eval(), [1.5, 3.0])
    with pytest.raises(ValueError, match=r"'concentration' .* Got the names \['b', 'c'\]"):
        WishartKernelMixture(kernels, K11, concentration=named.rename({"a": "c"}), collapsed=True)
