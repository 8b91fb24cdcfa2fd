"""VB for every rule of combination and for kernel parameters: bounds against the declaration."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

import kernelzoo as kz
from family import assert_mean, assert_z
from kernelzoo.inference.engine.groups import log_density
from kernelzoo.inference.multinomial_probit import vb as updates
from kernelzoo.inference.multinomial_probit import vb as vb
from kernelzoo.inference.multinomial_probit import vb_kernels as kp
from kernelzoo.inference.variational.factors import binary_factor
from kernelzoo.models.combinations.products import FixedProduct, Product
from kernelzoo.models.combinations.sums import Binary, DirichletWeights, FixedWeights, Mean
from kernelzoo.models.kernels import Theta, gaussian
from kernelzoo.models.multinomial_probit import MultinomialProbit
from kernelzoo.numerics.kernel_products import KernelProducts
from probit_moments import log_probability
from probit_vb_fixture import RUN, cone_draws

RULES = {
    "mean": Mean(2.0, 1.0),
    "fixed": FixedWeights([0.4, 0.8]),
    "binary": Binary([0.4, 0.7]),
    "product": Product(1.5, 0.7),
    "fixed product": FixedProduct([0.5, 1.2]),
}


def objects(n_obs=15):
    rng = np.random.default_rng(3)
    labels = np.arange(n_obs) % 3
    return 1.3 * rng.normal(size=(3, 2))[labels] + 0.8 * rng.normal(size=(n_obs, 2)), labels


def model_of(rule, parametric, **settings):
    X, labels = objects()
    first = Theta(3.0, 4.0) if parametric else 0.5
    stack = (gaussian(first) | gaussian(0.05))(X)
    settings = {"tau": 2.0} | settings
    return MultinomialProbit(stack, labels, combination=RULES[rule], **settings)


def composites(model, sample, draws):
    """Composite kernels (draw, N, M) of draws from q."""
    family = updates.KernelFamily(model.composition)
    known = np.tile(family.composition.known, (draws, 1))
    values = {"beta": sample.get("beta", known)}
    values |= {"theta": sample["theta"]} if "theta" in sample else {}
    return np.array(
        [
            family.composition.composite({name: value[d] for name, value in values.items()})
            for d in range(draws)
        ]
    )


CASES = [
    *((rule, False) for rule in ("binary", "product", "fixed product")),
    *((rule, True) for rule in RULES),
]


@pytest.mark.filterwarnings("ignore:VB did not converge")
@pytest.mark.parametrize(("rule", "parametric"), CASES)
def test_bound_is_the_monte_carlo_bound(rule, parametric):
    """log p - log q of the declaration, utilities included, at draws from q; and it never fell."""
    model = model_of(rule, parametric)
    answer = vb.fit_multinomial_probit(model, RUN, max_iterations=60, starts=1)
    (history,) = answer.elbo
    assert np.diff(history).min() > -1e-9 * abs(history[-1])
    draws, rng = 3000, np.random.default_rng(7)
    sample, log_q = answer.sample(draws, rng)
    assert set(sample) == {rv.name for rv in model.free_RVs}
    labels = model.label_codes
    K = composites(model, sample, draws)
    f = np.einsum("dnm,dcm->dnc", K, sample["W"])
    # The mean of q(f): W is independent of what makes the kernel.
    _, state = answer.sample.args
    expected = np.tensordot(state.weights.mean, state.kernels.design, axes=1)
    f_mean = expected @ answer.parameters["W_mean"].values.T
    each = log_probability(f.reshape(-1, f.shape[2]), np.tile(labels, len(f)))
    likelihood = each.reshape(len(f), -1).sum(axis=1)
    y = cone_draws(f_mean, labels, draws, rng)
    log_q_y = norm.logpdf(y - f_mean).sum((1, 2)) - log_probability(f_mean, labels).sum()
    joint = log_density(model, sample)
    values = joint - likelihood + norm.logpdf(y - f).sum((1, 2)) - log_q - log_q_y
    assert_mean(values, history[-1])
    # With the utilities integrated out the bound is higher.
    assert np.mean(joint - log_q) > history[-1]


@pytest.mark.filterwarnings("ignore:VB did not converge")
@pytest.mark.parametrize(("rule", "parametric"), [("product", False), ("mean", True)])
def test_factors_against_quadrature(rule, parametric):
    """Q(psi) given the other factors: samples of the prior find it, the normal's bound is below.

    Two exponents, or one parameter: the trapezoid rule is as good as exact.
    """
    model = model_of(rule, parametric)
    answer = vb.fit_multinomial_probit(model, RUN, max_iterations=40, starts=1)
    data, state = answer.sample.args
    moment = state.W_mean.T @ state.W_mean + np.diag(state.W_var.sum(axis=0))
    log_likelihood = data.family.log_likelihood(
        state.utilities.mean @ state.W_mean, state.weights.mean, state.weights.second, moment
    )
    n = len(state.psi.mean)
    axes = np.meshgrid(*[np.linspace(-8, 8, 101)] * n)
    psi = np.stack([axis.ravel() for axis in axes], axis=1)
    log_p = norm.logpdf(psi).sum(axis=1) + [log_likelihood(each) for each in psi]
    exact = np.logaddexp.reduce(log_p) + n * np.log(0.16)
    normal = state.psi
    for _ in range(20):
        normal = normal.updated(log_likelihood)
    # Nodes see a bounded part of Q: the error of their sums is far below the distance.
    assert normal._height(log_likelihood) < exact


def test_selection_moments_are_enumerated():
    rng = np.random.default_rng(1)
    root = rng.normal(size=(3, 3))
    prior, linear, quadratic = np.array([0.2, 0.5, 0.9]), rng.normal(size=3), root @ root.T
    factor = binary_factor(prior, linear, quadratic)
    states = np.array([[s >> k & 1 for k in range(3)] for s in range(8)])
    log_prior = np.log(np.where(states, prior, 1 - prior)).sum(1)
    log_p = log_prior + [b @ linear - 0.5 * b @ quadratic @ b for b in states]
    p = np.exp(log_p) / np.exp(log_p).sum()
    np.testing.assert_allclose(factor.mean, p @ states)
    np.testing.assert_allclose(factor.second_moment, np.einsum("p,pi,pj->ij", p, states, states))
    np.testing.assert_allclose(factor.gain, p @ (log_prior - np.log(p)))
    np.testing.assert_allclose(factor.log_density(states), np.log(p))
    assert_mean(factor.sample(5000, rng), p @ states)
    nonempty = binary_factor(prior, linear, quadratic, empty=False)
    np.testing.assert_allclose(nonempty.probability[1:], p[1:] / p[1:].sum())
    assert nonempty.probability[0] == 0
    log_prior -= np.log(1 - np.exp(log_prior[0]))
    q = nonempty.probability[1:]
    np.testing.assert_allclose(nonempty.gain, q @ (log_prior[1:] - np.log(q)))


def test_a_rule_without_a_factor_is_refused():
    """A rule of another model stands for a new one, whose weights would silently never move."""
    model = MultinomialProbit(
        MultinomialProbit.example().design, np.arange(12) % 3, combination=DirichletWeights()
    )
    reason = kz.VB().why_not(model)
    assert "with a method variational_factor, not DirichletWeights" in reason


def test_too_many_kernels_to_enumerate():
    K = np.broadcast_to(np.eye(6), (17, 6, 6))
    model = MultinomialProbit(K, np.arange(6) % 2, combination="binary")
    assert "16 kernels at most, not of 17" in vb.unsupported(model)


@pytest.mark.parametrize("dimension", [1, 2, 4, 6, 9])
def test_nodes_have_the_moments_of_a_normal(dimension):
    z, weights, fit = kp._nodes(dimension)
    np.testing.assert_allclose(weights.sum(), 1)
    np.testing.assert_allclose(weights @ z, 0, atol=1e-12)
    np.testing.assert_allclose((z * weights[:, None]).T @ z, np.eye(dimension), atol=1e-12)
    quadratic = 1.5 + z @ np.arange(dimension) + 0.7 * (z**2).sum(1)
    found = fit @ quadratic
    np.testing.assert_allclose(found[1 : dimension + 1], np.arange(dimension), atol=1e-9)
    np.testing.assert_allclose(found[dimension + 1 : 2 * dimension + 1], 1.4, atol=1e-9)


def test_normal_factor_finds_a_normal_posterior():
    """A quadratic log likelihood: the posterior is normal, and the bound its normaliser."""
    rng = np.random.default_rng(2)
    root = rng.normal(size=(3, 3))
    precision, linear = root @ root.T, rng.normal(size=3)

    def log_likelihood(psi):
        return float(linear @ psi - 0.5 * psi @ precision @ psi)

    factor = kp.Normal(np.zeros(3), 0.3 * np.eye(3))
    for _ in range(40):
        factor = factor.updated(log_likelihood)
    covariance = np.linalg.inv(precision + np.eye(3))
    np.testing.assert_allclose(factor.mean, covariance @ linear, atol=1e-6)
    np.testing.assert_allclose(factor.factor @ factor.factor.T, covariance, atol=1e-6)
    points, weights = factor.expectation
    bound = weights @ [log_likelihood(psi) for psi in points] + factor.gain
    exact = 0.5 * (linear @ covariance @ linear + np.linalg.slogdet(covariance)[1])
    np.testing.assert_allclose(bound, exact, atol=1e-6)
    psi, log_q = factor.sample(4000, rng)
    assert_mean(psi, covariance @ linear)
    np.testing.assert_allclose(
        log_q, multivariate_normal.logpdf(psi, factor.mean, factor.factor @ factor.factor.T)
    )


def test_expected_products_are_those_of_draws():
    """E[K'K] under the factor is not K'K at the mean: the first order misses the spread."""
    model = model_of("product", True)
    family = updates.KernelFamily(model.composition)
    factor = kp.Normal(np.array([0.2, -0.3, 0.1]), 0.3 * np.eye(3))
    exact = family.expected(factor)
    psi, _ = factor.sample(4000, np.random.default_rng(1))
    stacks = np.array([family.stack(p) for p in psi])
    # The diagonal of a product of Gaussian kernels is one.
    apart = ~np.eye(stacks.shape[2], dtype=bool)
    assert_mean(stacks[:, 0, apart], exact.design[0][apart])
    products = np.einsum("dnm,dnk->dmk", stacks[:, 0], stacks[:, 0])
    assert_mean(products, exact.products.gram(np.ones((1, 1))))
    first = KernelProducts.of(family.stack(factor.mean))
    error = products.std(0) / np.sqrt(len(products))
    with pytest.raises(AssertionError):
        assert_z((first.gram(np.ones((1, 1))) - products.mean(0)) / error)
