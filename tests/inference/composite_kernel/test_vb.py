"""VB on a composite kernel: its bound against the declaration, and the paper's equations."""

import numpy as np
import pytest
from scipy.special import digamma, expit, gammaln

import kernelzoo as kz
from family import assert_mean, assert_z, controlled, z_bound
from kernelzoo.inference.composite_kernel import vb as vb
from kernelzoo.inference.engine.engine import Run
from kernelzoo.inference.engine.groups import compile_densities
from kernelzoo.models.combinations.sums import Binary, DirichletWeights, FixedWeights
from kernelzoo.models.composite_kernel import (
    CompositeKernelClassification,
    CompositeKernelRegression,
)

RUN = Run(progressbar=False, random_seed=1)
MODELS = (CompositeKernelRegression, CompositeKernelClassification)


def problem(seed, n_kernels, n_obs, gram=True):
    """Points seen through Gaussian kernels, or through random basis functions; a response."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_obs, 2))
    if gram:
        distances = ((x[:, None] - x[None]) ** 2).sum(-1)
        kernels = np.stack([np.exp(-distances / 4.0**k) for k in range(n_kernels)])
    else:
        kernels = np.tanh(x @ rng.normal(size=(n_kernels, 2, n_obs // 2)))
    return kernels, np.sin(2 * x[:, 0]) + 0.3 * rng.normal(size=n_obs)


def model_of(cls, seed, n_kernels, n_obs, *, gram=True, outputs=None, **settings):
    kernels, response = problem(seed, n_kernels, n_obs, gram)
    if outputs is not None:
        noise = np.random.default_rng(seed).normal(size=(n_obs, outputs))
        response = response[:, None] * np.linspace(1, -0.5, outputs) + 0.3 * noise
    classified = cls is CompositeKernelClassification
    return cls(kz.kernels.as_stack(kernels), response > 0 if classified else response, **settings)


def known_means(sample, q):
    """Functions (draw, k) of the draws whose means under q are zero."""
    draws = len(sample["alpha"])
    alpha = (sample["alpha"] - q["alpha_mean"].values) / q["alpha_sd"].values
    square = q["alpha_mean"].values ** 2 + q["alpha_sd"].values ** 2
    controls = [alpha, alpha**2 - 1]
    for name in ("phi", "gamma"):
        if name in sample:
            shape, rate = q[f"{name}_shape"].values.flat[0], q[f"{name}_rate"].values
            scaled = sample[name] * rate / shape
            log_mean = digamma(shape) - np.log(shape)
            controls += [scaled - 1, np.log(scaled) - log_mean]
            if name == "phi":
                # Outputs may share phi.
                of_alpha = scaled[:, None] if scaled.ndim < alpha.ndim else scaled
                controls.append(of_alpha * sample["alpha"] ** 2 / square - 1)
    if "beta" in sample:
        controls.append(sample["beta"] - q["beta_mean"].values)
    if "beta_mean_log" in q:
        controls.append(np.log(sample["beta"]) - q["beta_mean_log"].values)
    if "varphi" in sample:
        controls.append(sample["varphi"] - q["varphi_mean"].values)
    return np.concatenate([control.reshape(draws, -1) for control in controls], axis=1)


def jaakkola(f, labels, xi):
    """Bound of log p(t | f) (draw,), as section 4.4 prints it for t = -1, 1."""
    sign = 2 * labels - 1
    weight = np.tanh(xi / 2) / (4 * xi)
    return np.sum(np.log(expit(xi)) + 0.5 * sign * f - weight * (f**2 - xi**2) - 0.5 * xi, axis=1)


CASES = {
    "regression": (CompositeKernelRegression, 2, 12, {}),
    "regression, basis": (
        CompositeKernelRegression,
        3,
        14,
        {
            "gram": False,
            "combination": DirichletWeights(2.0, 3.0),
            "sigma": 0.5,
            "varsigma": 2.0,
            "rho": 3.0,
            "varrho": 0.4,
        },
    ),
    "regression, known concentrations": (
        CompositeKernelRegression,
        4,
        12,
        {"combination": DirichletWeights(varphi=0.7), "bias": False},
    ),
    "regression, fixed": (
        CompositeKernelRegression,
        2,
        11,
        {"combination": FixedWeights([0.5, 2.0])},
    ),
    "classification": (CompositeKernelClassification, 3, 14, {"sigma": 2.0}),
    "classification, known concentrations": (
        CompositeKernelClassification,
        2,
        12,
        {"combination": DirichletWeights(varphi=2.5), "bias": False, "gram": False},
    ),
    "regression, selection": (
        CompositeKernelRegression,
        3,
        12,
        {"combination": Binary([0.3, 0.6, 0.5]), "gram": False, "rho": 3.0},
    ),
    "regression, empty selection": (
        CompositeKernelRegression,
        2,
        9,
        {"combination": Binary(empty=True), "gram": False, "bias": False},
    ),
    "classification, selection": (
        CompositeKernelClassification,
        2,
        12,
        {"combination": Binary(0.4), "gram": False, "sigma": 2.0},
    ),
    "three outputs": (CompositeKernelRegression, 2, 12, {"outputs": 3, "rho": 3.0}),
    "three outputs, one noise": (
        CompositeKernelRegression,
        3,
        12,
        {
            "outputs": 3,
            "shared": "all",
            "gram": False,
            "sigma": 0.5,
            "rho": 3.0,
            "varrho": 0.4,
        },
    ),
    "outputs, selection": (
        CompositeKernelRegression,
        2,
        12,
        {"outputs": 2, "combination": Binary(0.4), "gram": False, "rho": 3.0},
    ),
    "classification, one kernel": (CompositeKernelClassification, 1, 12, {"varsigma": 0.3}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore:VB did not converge")
def test_bound_is_what_the_declaration_says(case):
    cls, n_kernels, n_obs, settings = CASES[case]
    model = model_of(cls, 0, n_kernels, n_obs, **settings)
    densities = compile_densities(model)
    for max_iterations in (2, 100):
        answer = vb.fit_composite_kernel(model, RUN, max_iterations=max_iterations, starts=1)
        bound, q = answer.elbo[0][-1], answer.parameters
        sample, log_q = answer.sample(6000, np.random.default_rng(7))
        plain = densities(sample)[0] - log_q
        given_away = 0.0
        if "xi" in q:
            beta = model.matrix_weights(sample.get("beta", np.ones((6000, 1))))
            f = np.einsum("dk,knm,dm->dn", beta, model.design, sample["alpha"])
            labels = model.label_codes
            log_likelihood = -np.logaddexp(0, -(2 * labels - 1) * f).sum(axis=1)
            given_away = log_likelihood - jaakkola(f, labels, q["xi"].values)
        mean, error = controlled(plain - given_away, known_means(sample, q))
        # With fixed weights the controls explain everything: what is left is rounding.
        assert_z((mean - bound) / np.hypot(error, 1e-6))
        assert error < 0.04
        assert np.all(given_away >= 0.0)
        assert bound <= plain.mean() + z_bound() * plain.std() / np.sqrt(len(plain))


@pytest.mark.filterwarnings("ignore:.*makes weights of kernels smaller")
@pytest.mark.parametrize("seed", [1, 2])
def test_small_concentrations_keep_the_digits_of_the_bound(seed):
    """E[log beta] is -1e17 there, and cancels."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(2, 12, 4))
    kernels, t = root @ root.transpose(0, 2, 1), rng.normal(size=12)
    model = CompositeKernelRegression(kernels, t, combination=DirichletWeights(0.01))
    answer = vb.fit_composite_kernel(model, RUN)
    assert answer.converged
    assert answer.parameters["beta_mean_log"].min() < -1e12
    for bounds in answer.elbo:
        assert np.diff(bounds).min() > -1e-8 * abs(bounds[-1])


def grid_moments(log_density, values):
    """Expectations of functions (n, ...) under a density at n points of equal weight."""
    p = np.exp(log_density - log_density.max())
    p /= p.sum()
    return [np.tensordot(p, value, axes=1) for value in values]


def slow_beta(varphi, b, A):
    """Mean, second moment and mean log of Q(beta) for two kernels, on a fine grid of the logit."""
    logit = np.linspace(-60, 60, 200_001)
    beta = np.stack([expit(logit), expit(-logit)], axis=1)
    log_beta = -np.stack([np.logaddexp(0, -logit), np.logaddexp(0, logit)], axis=1)
    # beta_1 beta_2 is the Jacobian.
    log_q = beta @ b - 0.5 * np.einsum("ni,ij,nj->n", beta, A, beta) + log_beta @ varphi
    return grid_moments(log_q, [beta, beta[:, :, None] * beta[:, None], log_beta])


def slow_varphi(tau, nu, mean_log):
    """Mean of Q(varphi) for two kernels, on a grid of the logarithms."""
    one, other = np.meshgrid(*[np.linspace(-14, 5, 1501)] * 2, indexing="ij")
    varphi = np.exp(np.stack([one.ravel(), other.ravel()], axis=1))
    log_q = gammaln(varphi.sum(1)) + np.sum(
        -gammaln(varphi) + tau * np.log(varphi) - nu * varphi + (varphi - 1) * mean_log, axis=1
    )
    return grid_moments(log_q, [varphi])[0]


@pytest.mark.parametrize("cls", MODELS)
def test_fixed_point_satisfies_the_paper_s_equations(cls):
    """Each factor from all others, by loops over objects and kernels and plain inverses."""
    tau, nu, sigma, varsigma, rho, varrho = 2.0, 1.5, 1.2, 0.7, 1.4, 0.6
    regression = cls is CompositeKernelRegression
    noise = {"rho": rho, "varrho": varrho} if regression else {}
    rule = DirichletWeights(tau, nu)
    model = model_of(cls, 1, 2, 6, combination=rule, sigma=sigma, varsigma=varsigma, **noise)
    answer = vb.fit_composite_kernel(model, RUN, tolerance=1e-15, max_iterations=5000, starts=1)
    assert answer.converged
    q = {name: value.values for name, value in answer.parameters.items()}
    mean, variance = q["beta_mean"], q["beta_sd"][0] ** 2
    B = np.outer(mean, mean) + variance * np.array([[1, -1], [-1, 1]])
    k = model.design
    if regression:
        gamma = q["gamma_shape"] / q["gamma_rate"]
        w, linear = np.full(6, gamma), gamma * model.target_values
    else:
        xi = q["xi"]
        w, linear = np.tanh(xi / 2) / (2 * xi), model.label_codes - 0.5
    precision = np.diag(q["phi_shape"] / q["phi_rate"])
    vector = np.zeros(7)
    for n in range(6):
        for i in range(2):
            vector += linear[n] * mean[i] * k[i, n]
            for j in range(2):
                precision += w[n] * B[i, j] * np.outer(k[i, n], k[j, n])
    Sigma = np.linalg.inv(precision)
    close = {"rtol": 1e-6, "atol": 1e-8}
    np.testing.assert_allclose(q["alpha_mean"], Sigma @ vector, **close)
    np.testing.assert_allclose(q["alpha_sd"], np.sqrt(np.diag(Sigma)), **close)
    second = Sigma + np.outer(q["alpha_mean"], q["alpha_mean"])
    np.testing.assert_allclose(q["phi_shape"], sigma + 0.5)
    np.testing.assert_allclose(q["phi_rate"], varsigma + 0.5 * np.diag(second), **close)
    b, Omega, squares = np.zeros(2), np.zeros((2, 2)), np.zeros(6)
    for n in range(6):
        for i in range(2):
            b[i] += linear[n] * k[i, n] @ q["alpha_mean"]
            for j in range(2):
                moment = k[i, n] @ second @ k[j, n]
                Omega[i, j] += w[n] * moment
                squares[n] += B[i, j] * moment
    beta, beta_second, log_beta = slow_beta(q["varphi_mean"], b, Omega)
    np.testing.assert_allclose(mean, beta, **close)
    np.testing.assert_allclose(B, beta_second, **close)
    np.testing.assert_allclose(q["beta_mean_log"], log_beta, **close)
    np.testing.assert_allclose(q["varphi_mean"], slow_varphi(tau, nu, log_beta), **close)
    if regression:
        t = model.target_values
        fitted = np.einsum("i,inm,m->n", mean, k, q["alpha_mean"])
        np.testing.assert_allclose(q["gamma_shape"], rho + 3)
        error = np.sum(t**2 - 2 * t * fitted + squares)
        np.testing.assert_allclose(q["gamma_rate"], varrho + 0.5 * error, **close)
    else:
        np.testing.assert_allclose(q["xi"] ** 2, squares, **close)


@pytest.mark.parametrize("cls", MODELS)
def test_draws_have_the_reported_moments(cls):
    model = cls.example()
    answer = vb.fit_composite_kernel(model, RUN, starts=1)
    draws, log_q = answer.sample(20_000, np.random.default_rng(0))
    assert sorted(draws) == sorted(rv.name for rv in model.free_RVs)
    assert {name: value.shape[1:] for name, value in draws.items()} == {
        rv.name: tuple(model.eval_rv_shapes()[rv.name]) for rv in model.free_RVs
    }
    q = answer.parameters
    assert_mean(draws["alpha"], q["alpha_mean"].values)
    assert_mean((draws["alpha"] - q["alpha_mean"].values) ** 2, q["alpha_sd"].values ** 2)
    assert_mean(draws["phi"], float(q["phi_shape"]) / q["phi_rate"].values)
    assert_mean(draws["beta"], q["beta_mean"].values)
    assert_mean(np.log(draws["beta"]), q["beta_mean_log"].values)
    assert_mean(draws["varphi"], q["varphi_mean"].values)
    if "gamma" in draws:
        assert_mean(draws["gamma"], float(q["gamma_shape"] / q["gamma_rate"]))
    assert np.isfinite(log_q).all()
    assert q["alpha_sd"].dims == ("function",)
    assert list(q.coords["kernel"].values) == ["gaussian", "linear"]


@pytest.mark.parametrize("cls", MODELS)
def test_fit_reports_a_finite_pareto_k(cls):
    result = kz.fit(cls.example(), "vb", draws=200, random_seed=1, progressbar=False)
    assert np.isfinite(result.attrs["pareto_k"])
    assert result.attrs["converged"] == "yes"
    assert result["variational"]["beta_ess"] > 20


@pytest.mark.parametrize("cls", MODELS)
def test_weights_that_are_not_learned_have_no_factor(cls):
    one = model_of(cls, 2, 1, 10, bias=False)
    fixed = model_of(cls, 2, 2, 10, combination=FixedWeights([1.0, 0.0]), bias=False)
    answers = [vb.fit_composite_kernel(model, RUN, starts=4) for model in (one, fixed)]
    for answer in answers:
        assert len(answer.elbo) == 1
        assert "beta_mean" not in answer.parameters
        assert "beta" not in answer.sample(2, np.random.default_rng(0))[0]
    np.testing.assert_allclose(answers[0].elbo[0], answers[1].elbo[0])
    known = model_of(cls, 2, 2, 10, combination=DirichletWeights(varphi=1.0))
    draws, _ = vb.fit_composite_kernel(known, RUN).sample(3, np.random.default_rng(0))
    assert "varphi" not in draws
    assert draws["beta"].shape == (3, 2)


def test_best_start_wins_and_seeds_repeat():
    model = model_of(CompositeKernelClassification, 5, 3, 12)
    answer, again = (
        vb.fit_composite_kernel(model, RUN, starts=6, tolerance=1e-4) for _ in range(2)
    )
    finals = [history[-1] for history in answer.elbo]
    assert len(finals) == 6
    assert answer.best == int(np.argmax(finals))
    np.testing.assert_array_equal(again.elbo[5], answer.elbo[5])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"starts": 0}, "'starts' argument"),
        ({"max_iterations": 0}, "'max_iterations' argument"),
        ({"tolerance": 0.0}, "'tolerance' argument"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        kz.fit(CompositeKernelRegression.example(), kz.VB(**settings), progressbar=False)


@pytest.mark.filterwarnings("ignore:.*makes weights of kernels smaller")
def test_priors_beyond_the_integrals_are_refused():
    model = model_of(CompositeKernelRegression, 1, 2, 8, combination=DirichletWeights(1e-4, 1.0))
    with pytest.raises(ValueError, match="a DirichletWeights with tau and nu from 0"):
        vb.fit_composite_kernel(model, RUN)


def test_models_it_is_not_written_for_are_named():
    engine = kz.VB()
    assert "collapsed=False" in engine.why_not(CompositeKernelRegression.example(collapsed=True))
    for cls in MODELS:
        assert engine.why_not(cls.example()) is None


@pytest.mark.parametrize("cls", MODELS)
def test_interrupted_fit_returns_the_answer_so_far(cls, monkeypatch):
    update, calls = vb.update, []

    def interrupted(data, state):
        calls.append(None)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return update(data, state)

    monkeypatch.setattr(vb, "update", interrupted)
    with pytest.warns(UserWarning, match="interrupted"):
        answer = vb.fit_composite_kernel(cls.example(), RUN, tolerance=1e-12)
    assert not answer.converged
    assert len(answer.elbo[0]) == 3
    assert np.isfinite(answer.sample(2, np.random.default_rng(0))[1]).all()


@pytest.mark.parametrize("cls", MODELS)
def test_singular_kernels_say_what_to_do(cls):
    x = 1e10 * np.random.default_rng(0).normal(size=(12, 2))
    model = cls(x @ x.T, np.arange(12) % 2)
    with pytest.raises(np.linalg.LinAlgError, match="rescale the kernels"):
        vb.fit_composite_kernel(model, RUN)


@pytest.mark.parametrize("cls", MODELS)
def test_where_every_start_ended_is_reported(cls):
    model = model_of(cls, 4, 3, 12)
    answer = vb.fit_composite_kernel(model, RUN)
    ends = answer.parameters["beta_mean_of_start"]
    assert ends.dims == ("start", "kernel")
    assert ends.shape == (4, 3)
    np.testing.assert_array_equal(ends[answer.best], answer.parameters["beta_mean"])
    first = vb.fit_composite_kernel(model, RUN, starts=1).parameters["beta_mean"]
    np.testing.assert_array_equal(ends[0], first)
