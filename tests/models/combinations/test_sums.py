"""The rules that combine kernels: densities as the paper writes them, numbers beside tensors."""

import re

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from scipy import stats
from scipy.integrate import quad

from family import assert_mean
from kernelzoo.inference.engine.groups import log_density
from kernelzoo.models.combinations.products import FixedProduct, Product
from kernelzoo.models.combinations.sums import Binary, DirichletWeights, FixedWeights, Mean
from kernelzoo.models.composite_kernel import CompositeKernelRegression
from kernelzoo.models.kernels import as_stack
from kernelzoo.models.multinomial_probit import MultinomialProbit
from probit_moments import log_probability

pytestmark = pytest.mark.usefixtures("quick_compilation")

RULES = {
    "mean": Mean(2.0, 0.7),
    "fixed": FixedWeights([0.3, 0.5]),
    "binary": Binary([0.3, 0.8]),
    "binary, empty": Binary([0.3, 0.8], empty=True),
    "product": Product(0.7, 1.3),
    "fixed product": FixedProduct([0.3, 1.5]),
}


def problem(n_obs=9, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_obs, 2))
    distances = ((x[:, None] - x[None]) ** 2).sum(-1)
    return np.exp([-distances, -distances / 9]), np.arange(n_obs) % 3


def composite(name, beta, K):
    """The paper's formulas of section 2, entry by entry."""
    if "product" in name:
        return np.prod([k**b for k, b in zip(K, beta, strict=True)], axis=0)
    return sum(b * k for k, b in zip(K, beta, strict=True))


def log_prior(name, rule, values):
    """Density of the weights and their hyperparameters by scipy's distributions."""
    if name == "mean":
        return stats.gamma.logpdf(
            values["rho"], rule.mu, scale=1 / rule.lam
        ).sum() + stats.dirichlet.logpdf(values["beta"], values["rho"])
    if "binary" in name:
        nonempty = 1.0 if rule.empty else 1 - np.prod(1 - np.array(rule.probability))
        return stats.bernoulli.logpmf(values["beta"], rule.probability).sum() - np.log(nonempty)
    if name == "product":
        return (
            stats.expon.logpdf(values["pi"], scale=1 / rule.pi_rate).sum()
            + stats.expon.logpdf(values["chi"], scale=1 / rule.chi_rate).sum()
            + stats.gamma.logpdf(values["beta"], values["pi"], scale=1 / values["chi"]).sum()
        )
    return 0.0


@pytest.mark.parametrize("name", RULES)
def test_density_is_the_papers(name):
    rule = RULES[name]
    K, labels = problem()
    model = MultinomialProbit(K, labels, combination=rule, tau=1.5, upsilon=0.4)
    names = [rv.name for rv in model.free_RVs]
    prior = pm.sample_prior_predictive(6, model=model, random_seed=1)["prior"]
    draws = {each: prior[each].values[0] for each in names}
    # Shapes near zero give weights that scipy's density cannot tell from zero.
    if name == "product":
        draws["beta"] = np.maximum(draws["beta"], 1e-6)
    expected = []
    for i in range(6):
        values = {each: draws[each][i] for each in names}
        beta = values.get("beta", getattr(rule, "weights", getattr(rule, "exponents", None)))
        f = composite(name, beta, K) @ values["W"].T
        expected.append(
            log_prior(name, rule, values)
            + stats.invgamma.logpdf(values["zeta"], model.tau, scale=model.upsilon).sum()
            + stats.norm.logpdf(values["W"], 0, np.sqrt(values["zeta"])).sum()
            + log_probability(f, labels).sum()
        )
    np.testing.assert_allclose(log_density(model, draws), expected, atol=5e-7)


@pytest.mark.parametrize("name", RULES)
def test_numbers_are_the_tensors(name):
    K, _ = problem()
    rule, beta = RULES[name], np.array([0.4, 1.7])
    terms = rule.terms(K)
    before = K.copy()
    found = rule.from_terms(np.tensordot(beta, terms, axes=1))
    np.testing.assert_allclose(found, composite(name, beta, K))
    np.testing.assert_allclose(rule.combine(pm.math.constant(K), beta).eval(), found)
    np.testing.assert_array_equal(K, before)


@pytest.mark.parametrize(
    ("name", "kind", "variables"),
    [
        ("binary", Binary, ["beta", "zeta", "W"]),
        ("product", Product, ["pi", "chi", "beta", "zeta", "W"]),
        ("fixed product", FixedProduct, ["zeta", "W"]),
    ],
)
def test_rules_by_name(name, kind, variables):
    K, labels = problem()
    model = MultinomialProbit(K, labels, combination=name)
    assert model.combination == kind()
    assert [rv.name for rv in model.free_RVs] == variables
    assert model.variant == kind.__name__
    for variable in set(variables) - {"zeta", "W"}:
        assert model.named_vars_to_dims[variable] == ("kernel",)
    single = MultinomialProbit(K[:1], labels, combination=name)
    assert single.combination == kind()


def test_the_empty_selection_says_nothing():
    K, labels = problem()
    model = MultinomialProbit(K, labels, combination=Binary(empty=True))
    rng = np.random.default_rng(0)
    point = {"beta": np.zeros((1, 2), int), "zeta": np.ones((1, 3, 9))}
    W = rng.normal(size=(1, 3, 9))
    found = log_density(model, point | {"W": W})
    prior = stats.invgamma.logpdf(1.0, 1.0) * 27 + stats.norm.logpdf(W).sum() + 2 * np.log(0.5)
    np.testing.assert_allclose(found, prior + 9 * np.log(1 / 3), atol=5e-7)


def test_a_selection_is_drawn_from_its_density():
    """All states, their frequencies, and nothing for the empty one or what is no selection."""
    p = np.array([0.2, 0.5, 0.7])
    with pm.Model(coords={"kernel": ["a", "b", "c"]}) as model:
        beta = Binary(p).declare()
    states = np.array([[s >> k & 1 for k in range(3)] for s in range(8)])
    log_p = log_density(model, {"beta": states})
    assert log_p[0] == -np.inf
    np.testing.assert_allclose(np.exp(log_p).sum(), 1)
    assert log_density(model, {"beta": [[2, 0, 0]]})[0] == -np.inf
    draws = pm.draw(beta, draws=20_000, random_seed=1) @ [1, 2, 4]
    assert_mean((draws[:, None] == np.arange(1, 8)).astype(float), np.exp(log_p[1:]))
    assert not (draws == 0).any()
    assert model.initial_point()["beta"].tolist() == [1, 1, 1]


def test_selections_of_small_probability_are_drawn():
    """As good as one kernel at a time, each as often as its share of the odds."""
    p = np.array([1e-9, 3e-9])
    with pm.Model(coords={"kernel": ["a", "b"]}) as model:
        beta = Binary(p).declare()
    draws = pm.draw(beta, draws=20_000, random_seed=1)
    assert (draws.sum(axis=1) == 1).all()
    assert_mean(draws[:, 0].astype(float), 0.25)
    log_p = log_density(model, {"beta": [[1, 0], [0, 1]]})
    np.testing.assert_allclose(np.exp(log_p), [0.25, 0.75], rtol=1e-6)


def test_prior_of_an_exponent_in_closed_form():
    """The density in the docstring of Product is that of its draws."""
    a, b = 0.7, 1.3

    def density(beta):
        return a * b / (beta * (b + beta) * (a + np.log1p(b / beta)) ** 2)

    with pm.Model(coords={"kernel": ["K"]}):
        beta = Product(a, b).declare()
    draws = pm.draw(beta, draws=20_000, random_seed=1)[:, 0]
    for threshold in (1e-3, 0.1, 1.0, 5.0):
        above = quad(lambda y: density(np.exp(y)) * np.exp(y), np.log(threshold), 50)[0]
        assert_mean((draws > threshold).astype(float), above)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Product(0.0), "'pi_rate' argument of Product"),
        (lambda: Product(1.0, -1.0), "'chi_rate' argument of Product"),
        (lambda: FixedProduct([-1.0, 1.0]), "'exponents' argument of FixedProduct"),
        (lambda: Binary(1.0), "'probability' argument of Binary"),
        (lambda: FixedWeights("mean"), "'weights' argument of FixedWeights must be real numbers"),
        (lambda: Binary([0.5, 0.0]), "'probability' argument of Binary"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("rule", [Binary([0.5] * 3), FixedProduct([1.0] * 3)])
def test_wrong_numbers_of_weights_are_refused(rule):
    K, labels = problem()
    with pytest.raises(ValueError, match="vector of 2 numbers"):
        MultinomialProbit(K, labels, combination=rule)


@pytest.mark.parametrize(
    ("rule", "probability"),
    [
        (DirichletWeights(0.1, 1.0), 0.52),
        (DirichletWeights(0.3, 2.0), 0.17),
        (Mean(0.5, 1.0), 0.038),
        (DirichletWeights(varphi=1e-3), 0.5),
    ],
)
def test_weights_too_small_for_doubles_are_warned_of(rule, probability):
    """The probability against draws of the log of a weight, which does not underflow."""
    stack = as_stack({"a": np.eye(3), "b": np.eye(3)})
    with pytest.warns(UserWarning, match="makes weights of kernels smaller") as caught:
        rule.check(stack)
    told = float(re.search(r"probability of about ([0-9.]+)", str(caught[0].message))[1])
    assert told == pytest.approx(probability, rel=0.05)
    rng = np.random.default_rng(1)
    if isinstance(rule, Mean):
        shapes = rng.gamma(rule.mu, 1 / rule.lam, (100_000, 2))
    elif rule.varphi is None:
        shapes = rng.gamma(rule.tau, 1 / rule.nu, (100_000, 2))
    else:
        shapes = np.full((100_000, 2), rule.varphi)
    with np.errstate(divide="ignore"):
        log_g = np.log(rng.gamma(shapes + 1)) - rng.exponential(size=shapes.shape) / shapes
    least = log_g.min(axis=1) - np.logaddexp(*log_g.T)
    # One weight given that the others do not vanish, against the least of two.
    assert told / 1.2 < np.mean(least < np.log(1e-300)) < 2.1 * told


def test_ordinary_concentrations_are_not_warned_of(recwarn):
    stack = as_stack({"a": np.eye(3), "b": np.eye(3)})
    for rule in (
        Mean(),
        DirichletWeights(),
        DirichletWeights(1.0, 1.0),
        DirichletWeights(varphi=1),
    ):
        rule.check(stack)
    DirichletWeights(0.1, 1.0).check(stack[:1])
    assert not recwarn.list


NAMED = {"far": 0.2, "near": 0.7}
BY_NAME = {
    "Series": pd.Series(NAMED),
    "DataArray": xr.DataArray(pd.Series(NAMED).rename_axis("kernel")),
    "dict": NAMED,
}


@pytest.mark.parametrize("numbers", BY_NAME.values(), ids=BY_NAME)
@pytest.mark.parametrize("rule", [FixedWeights, FixedProduct, Binary])
def test_numbers_with_names_go_by_the_kernels(rule, numbers):
    """By position each kernel had the other's."""
    stack, labels = problem()
    kernels = dict(zip(["near", "far"], stack, strict=True))
    model = MultinomialProbit(kernels, labels, combination=rule(numbers))
    assert model.combination == rule([0.7, 0.2])
    with pm.Model(coords={"kernel": ["near", "far"]}) as other:
        beta = rule(numbers).declare()
    found = beta.owner.inputs[-1].eval() if rule is Binary else beta.get_value()
    np.testing.assert_allclose(found, [0.7, 0.2])
    assert other.named_vars_to_dims["beta"] == ("kernel",)


@pytest.mark.parametrize("rule", [FixedWeights, FixedProduct, Binary])
def test_numbers_of_other_kernels_are_refused(rule):
    stack, labels = problem()
    kernels = dict(zip(["near", "far"], stack, strict=True))
    for names, message in [
        (["near", "wide"], r"kernels, \['near', 'far'\].* Got the names \['near', 'wi"),
        (["near"], r"Got the names \['near'\]"),
        (["near", "near"], "names of different kernels. Got 'near' more than once"),
    ]:
        with pytest.raises(ValueError, match=rf"argument of {rule.__name__} must .*{message}"):
            MultinomialProbit(kernels, labels, combination=rule(pd.Series(0.5, index=names)))


@pytest.mark.parametrize("rule", [FixedWeights, FixedProduct, Binary])
def test_a_series_that_only_counts_goes_by_position(rule):
    stack, labels = problem()
    model = MultinomialProbit(stack, labels, combination=rule(pd.Series([0.7, 0.2])))
    assert model.combination == rule([0.7, 0.2])


def test_weights_by_name_of_a_composite_kernel():
    stack, _ = problem()
    kernels = dict(zip(["near", "far"], stack, strict=True))
    model = CompositeKernelRegression(kernels, np.arange(9.0), combination=FixedWeights(NAMED))
    np.testing.assert_allclose(model["beta"].get_value(), [0.7, 0.2])
