"""`Nested` on the multinomial probit: exact answers, and what it refuses."""

import numpy as np
import pytest
from scipy import stats

import kernelzoo as kz
from family import assert_z

QUIET = {"progressbar": False, "log_likelihood": False}
ENGINE = kz.Nested(particles=120, nodes=12)
DRAWS = {"draws": 240} | QUIET


def two_classes(n_kernels):
    """Six objects and one function: the likelihood depends on the difference of two regressors."""
    stack = np.random.default_rng(n_kernels).normal(size=(n_kernels, 6, 1))
    labels = (stack[0, :, 0] > 0).astype(int)
    rule = kz.combinations.Mean(3.0, 1.5)
    model = kz.MultinomialProbit(stack, labels, combination=rule, tau=2.0, upsilon=4.0)
    return model, stack[:, :, 0], np.where(labels == 1, 1.0, -1.0)


def weights_by_quadrature(stack, sign, rng):
    """Prior draws of the weights, and the integral of the likelihood over the difference."""
    rho = rng.gamma(3.0, 1 / 1.5, size=(5_000, len(stack)))
    g = rng.gamma(rho)
    beta = g / g.sum(axis=1, keepdims=True)
    # The difference of two Student's t variables, by a sum over one of them.
    xi = np.linspace(-7, 7, 141)
    w, width = np.sinh(xi), np.cosh(xi) * (xi[1] - xi[0])
    t = stats.t(4.0, scale=np.sqrt(2.0))
    density = (t.pdf(w + w[:, None]) * t.pdf(w)) @ width
    scores = beta @ stack * sign
    log_likelihood = sum(stats.norm.logcdf(np.outer(w, f) / np.sqrt(2)) for f in scores.T)
    return beta, (density * width) @ np.exp(log_likelihood)


@pytest.mark.parametrize("n_kernels", [2, 3])
def test_weights_and_evidence_agree_with_quadrature(n_kernels):
    model, stack, sign = two_classes(n_kernels)
    result = kz.fit(model, ENGINE, random_seed=1, **DRAWS)
    beta, weight = weights_by_quadrature(stack, sign, np.random.default_rng(1))
    draws = result["posterior"]["beta"].values[0]
    ess = weight.sum() ** 2 / (weight @ weight)
    for power in (1, 2):
        mean = weight @ beta**power / weight.sum()
        error = (draws**power).std(axis=0) * np.sqrt(1 / 80 + 1 / ess)
        assert_z(((draws**power).mean(axis=0) - mean) / error)
    assert result.attrs["log_evidence"] == pytest.approx(np.log(weight.mean()), abs=0.7)
    assert result.attrs["converged"] == "yes"


@pytest.mark.slow
def test_three_classes_agree_with_gibbs():
    model = kz.MultinomialProbit.example()
    nested = kz.fit(model, kz.Nested(particles=400), random_seed=1, **QUIET)
    gibbs = kz.fit(model, "gibbs", draws=3000, chains=4, random_seed=1, **QUIET)
    draws, chains = nested["posterior"]["beta"].values[0], gibbs["posterior"]["beta"].values
    chains = chains.reshape(-1, chains.shape[-1])
    error = chains.std(axis=0) * np.sqrt(1 / 400 + 1 / 2000)
    assert_z((draws.mean(axis=0) - chains.mean(axis=0)) / error)
    assert draws.std(axis=0) == pytest.approx(chains.std(axis=0), rel=0.15)
    contrast = [
        (values["W"][..., 0, :] - values["W"][..., 1, :]).stack(s=("chain", "draw")).T.values
        for values in (nested["posterior"], gibbs["posterior"])
    ]
    one, other = (np.tanh(values) for values in contrast)
    error = other.std(axis=0) * np.sqrt(1 / 400 + 1 / 2000)
    assert_z((one.mean(axis=0) - other.mean(axis=0)) / error)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"combination": "fixed"}, "not FixedWeights: take Gibbs or VB"),
        ({"combination": "binary"}, "not Binary: take Gibbs or VB"),
        ({"combination": "product"}, "not Product: take Gibbs or VB"),
    ],
)
def test_other_rules_are_refused(options, reason):
    x = np.random.default_rng(1).normal(size=(9, 2))
    K = np.exp(-((x[:, None] - x) ** 2).sum(-1))
    model = kz.MultinomialProbit({"a": K, "b": K**2}, np.arange(9) % 3, **options)
    with pytest.raises(ValueError, match=rf"Nested does not apply: .*{reason}"):
        kz.fit(model, "nested", **QUIET)


def test_one_kernel_and_too_many_are_refused():
    x = np.random.default_rng(1).normal(size=(9, 2))
    K = np.exp(-((x[:, None] - x) ** 2).sum(-1))
    for count, reason in ((1, "learned weights of several"), (9, "8 kernels at most, not 9")):
        model = kz.MultinomialProbit(np.tile(K, (count, 1, 1)), np.arange(9) % 3)
        with pytest.raises(ValueError, match=rf"Nested does not apply: .*{reason}"):
            kz.fit(model, "nested", **QUIET)


def test_kernels_with_parameters_are_refused():
    X = np.random.default_rng(1).normal(size=(9, 2))
    kernels = kz.gaussian(kz.kernels.Theta(1, 1)) | kz.linear()
    model = kz.MultinomialProbit(kernels(X), np.arange(9) % 3)
    with pytest.raises(ValueError, match=r"Nested does not apply: .*without parameters"):
        kz.fit(model, "nested", **QUIET)
