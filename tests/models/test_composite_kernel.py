"""The declarations: their densities, their dims, and what they refuse."""

import cloudpickle
import numpy as np
import pandas as pd
import pymc as pm
import pytest
from scipy import stats

import kernelzoo as kz
from family import assert_mean
from kernelzoo import CompositeKernelClassification, CompositeKernelRegression
from kernelzoo.inference.engine.groups import log_density
from kernelzoo.models.combinations import Binary, DirichletWeights, FixedWeights, Mean

pytestmark = pytest.mark.usefixtures("quick_compilation")

MODELS = (CompositeKernelRegression, CompositeKernelClassification)
HYPERPARAMETERS = {"sigma": 1.7, "varsigma": 0.6, "combination": DirichletWeights(2.0, 0.7)}


def regression(**options):
    return CompositeKernelRegression.example(**{"rho": 1.3, "varrho": 0.4} | options)


def prior_draws(model, draws=3):
    prior = pm.sample_prior_predictive(draws, model=model, random_seed=1)["prior"]
    return {rv.name: prior[rv.name].values[0] for rv in model.free_RVs}


def reference_prior(model, point):
    """log p(varphi, beta, phi) as the paper writes it, from scipy's distributions."""
    rule = model.combination
    return (
        stats.gamma.logpdf(point["varphi"], rule.tau, scale=1 / rule.nu).sum()
        + stats.dirichlet.logpdf(point["beta"], point["varphi"])
        + stats.gamma.logpdf(point["phi"], model.sigma, scale=1 / model.varsigma).sum()
    )


def response(model, point):
    return np.einsum("k,knm,m->n", point["beta"], model.design, point["alpha"])


def at(draws, i):
    return {name: values[i] for name, values in draws.items()}


def assert_density(model, draws, reference):
    expected = [reference(at(draws, i)) for i in range(len(draws["beta"]))]
    # PyMC's log(2 pi) in single precision adds some 1e-9 for each normal variable.
    np.testing.assert_allclose(log_density(model, draws), expected, atol=5e-7)


@pytest.mark.parametrize("bias", [True, False])
def test_density_of_the_regression_is_the_papers(bias):
    model = regression(bias=bias, **HYPERPARAMETERS)

    def reference(point):
        y, gamma = response(model, point), point["gamma"]
        return (
            reference_prior(model, point)
            + stats.norm.logpdf(point["alpha"], 0, point["phi"] ** -0.5).sum()
            + stats.gamma.logpdf(gamma, model.rho, scale=1 / model.varrho)
            + stats.norm.logpdf(model.target_values, y, gamma**-0.5).sum()
        )

    assert_density(model, prior_draws(model), reference)


@pytest.mark.parametrize("bias", [True, False])
def test_density_of_a_selection(bias):
    """The bias has weight 1 whatever is selected."""
    p = np.array([0.3, 0.6])
    model = regression(bias=bias, combination=Binary(p), sigma=1.7, varsigma=0.6)
    stack = model["K"].get_value()

    def reference(point):
        beta, alpha, gamma = point["beta"], point["alpha"], point["gamma"]
        y = np.tensordot(beta, stack, axes=1) @ alpha[-8:] + (alpha[0] if bias else 0.0)
        np.testing.assert_allclose(
            np.tensordot(model.matrix_weights(beta), model.design, axes=1) @ alpha, y
        )
        return (
            stats.bernoulli.logpmf(beta, p).sum()
            - np.log1p(-np.prod(1 - p))
            + stats.gamma.logpdf(point["phi"], 1.7, scale=1 / 0.6).sum()
            + stats.norm.logpdf(alpha, 0, point["phi"] ** -0.5).sum()
            + stats.gamma.logpdf(gamma, model.rho, scale=1 / model.varrho)
            + stats.norm.logpdf(model.target_values, y, gamma**-0.5).sum()
        )

    assert_density(model, prior_draws(model, 6), reference)


@pytest.mark.parametrize("bias", [True, False])
def test_density_of_the_classification_is_the_papers(bias):
    model = CompositeKernelClassification.example(bias=bias, **HYPERPARAMETERS)
    sign = 2 * model.label_codes - 1

    def reference(point):
        return (
            reference_prior(model, point)
            + stats.norm.logpdf(point["alpha"], 0, point["phi"] ** -0.5).sum()
            + stats.logistic.logcdf(sign * response(model, point)).sum()
        )

    assert_density(model, prior_draws(model), reference)


@pytest.mark.parametrize("bias", [True, False])
def test_collapsed_density_is_the_integral_of_the_explicit_one(bias):
    """p(t | rest) = p(t, alpha | rest) / p(alpha | t, rest) at any alpha."""
    explicit = regression(bias=bias, **HYPERPARAMETERS)
    collapsed = regression(bias=bias, collapsed=True, **HYPERPARAMETERS)
    draws = prior_draws(explicit)
    conditional = []
    for i in range(3):
        point = at(draws, i)
        K = np.tensordot(point["beta"], explicit.design, axes=1)
        covariance = np.linalg.inv(point["gamma"] * K.T @ K + np.diag(point["phi"]))
        mean = point["gamma"] * covariance @ K.T @ explicit.target_values
        conditional.append(stats.multivariate_normal(mean, covariance).logpdf(point["alpha"]))
    kept = {name: values for name, values in draws.items() if name != "alpha"}
    np.testing.assert_allclose(
        log_density(collapsed, kept), log_density(explicit, draws) - conditional, atol=5e-7
    )


def test_dims_and_coords_name_everything():
    kernels, ids = {"near": np.eye(3), "far": np.ones((3, 3))}, [7, 8, 9]
    stack = kz.kernels.as_stack({s: pd.DataFrame(K, ids, ids) for s, K in kernels.items()})
    model = CompositeKernelClassification(stack, ["dog", "cat", "dog"])
    assert model.named_vars_to_dims == {
        "K": ("kernel", "obs", "basis"),
        "labels": ("obs",),
        "varphi": ("kernel",),
        "beta": ("kernel",),
        "phi": ("function",),
        "alpha": ("function",),
        "t": ("obs",),
    }
    assert list(model.coords["function"]) == ["bias", "7", "8", "9"]
    assert list(model.coords["class"]) == ["cat", "dog"]
    assert model.label_codes.tolist() == [1, 0, 1]
    assert model.design.shape == (2, 3, 4)
    np.testing.assert_array_equal(model.design[:, :, 0], 1.0)


def test_prior_draws_follow_the_prior():
    model = regression(**HYPERPARAMETERS)
    draws = prior_draws(model, 4000)
    assert_mean(draws["varphi"], 2.0 / 0.7)
    assert_mean(draws["beta"], 0.5)
    assert_mean(draws["gamma"], 1.3 / 0.4)
    standardised = draws["alpha"] * np.sqrt(draws["phi"])
    assert_mean(standardised, 0.0)
    assert_mean(standardised**2, 1.0)


@pytest.mark.parametrize("model_type", MODELS)
def test_rules_without_learned_weights_or_concentrations(model_type):
    names = {rv.name for rv in model_type.example().free_RVs}
    fixed = model_type.example(combination=FixedWeights([0.25, 0.5]))
    assert {rv.name for rv in fixed.free_RVs} == names - {"varphi", "beta"}
    # A bias stays one, whatever the weights add up to.
    np.testing.assert_array_equal(fixed.design[:, :, 0], 1.0)
    stack = fixed["K"].get_value()
    np.testing.assert_allclose(fixed.design[0, :, 1:], 0.25 * stack[0] + 0.5 * stack[1])
    uniform = model_type.example(combination=DirichletWeights(varphi=1.0))
    assert {rv.name for rv in uniform.free_RVs} == names - {"varphi"}
    response_or_labels = uniform[{"gamma": "targets"}.get(uniform.free_RVs[0].name, "labels")]
    single = model_type(stack[0], response_or_labels.get_value())
    assert {rv.name for rv in single.free_RVs} == names - {"varphi", "beta"}


def test_known_concentrations_are_those_of_the_prior():
    fixed, learned = (
        regression(combination=rule) for rule in (DirichletWeights(varphi=2.5), DirichletWeights())
    )
    draws = prior_draws(fixed)
    concentration = np.full((3, 2), 2.5)
    expected = log_density(learned, draws | {"varphi": concentration})
    expected -= stats.gamma.logpdf(concentration, 1.0).sum(1)
    np.testing.assert_allclose(log_density(fixed, draws), expected, atol=1e-9)


@pytest.mark.parametrize("collapsed", [False, True])
def test_new_data_may_be_of_fewer_objects(collapsed):
    model = regression(collapsed=collapsed)
    K, targets = model["K"].get_value()[:, :5], model.target_values[:5]
    stack = kz.kernels.as_stack(K)
    anew = CompositeKernelRegression(stack, targets, rho=1.3, varrho=0.4, collapsed=collapsed)
    with model:
        pm.set_data({"K": K, "targets": targets}, coords={"obs": np.arange(5)})
    point = anew.initial_point()
    np.testing.assert_allclose(model.compile_logp()(point), anew.compile_logp()(point), rtol=1e-12)


@pytest.mark.parametrize("model_type", MODELS)
def test_a_copy_by_pickle_has_the_same_density(model_type):
    model = model_type.example()
    copy = cloudpickle.loads(cloudpickle.dumps(model))
    point = model.initial_point()
    assert copy.compile_logp()(point) == model.compile_logp()(point)


def test_new_data_change_the_density():
    model = regression()
    before = model.compile_logp()(model.initial_point())
    with model:
        pm.set_data({"targets": model.target_values + 1.0})
    assert model.compile_logp()(model.initial_point()) != before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"targets": [1.0, 2.0]}, "'targets' argument of CompositeKernelRegression .* 3 numbers"),
        ({"targets": [1.0, np.nan, 2.0]}, "'targets' argument .* finite"),
        ({"targets": ["a", "b", "c"]}, "'targets' argument .* must be real numbers"),
        ({"targets": np.ma.array([1.0, 2.0, 4.0], mask=[0, 0, 1])}, "1 masked, the first at .*2"),
        (
            {"targets": [1.0, 2.0, 1e200]},
            "'targets' argument .* at most 1e60 .* Got one of 1e\\+200",
        ),
        ({"sigma": 0.0}, "'sigma' argument"),
        ({"varsigma": -1.0}, "'varsigma' argument"),
        ({"rho": np.inf}, "'rho' argument"),
        ({"varrho": "x"}, "'varrho' argument"),
        ({"combination": "maen"}, "nearest is 'mean'"),
        ({"combination": Mean()}, r"FixedWeights or Binary .* Got Mean"),
        ({"combination": FixedWeights([1.0])}, "'weights' argument of FixedWeights"),
        ({"kernels": -np.eye(3)}, "'kernels.*' argument of CompositeKernelRegression .* semi"),
    ],
)
def test_bad_arguments_of_the_regression(arguments, message):
    good = {"kernels": {"a": np.eye(3), "b": np.ones((3, 3))}, "targets": [1.0, 2.0, 4.0]}
    with pytest.raises(ValueError, match=message):
        CompositeKernelRegression(**good | arguments)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, 2], "of two classes .MultinomialProbit takes more.. Got 3 classes"),
        ([1, 1, 1], "at least two classes"),
        ([0, 1], "of length 3"),
    ],
)
def test_bad_labels(labels, message):
    with pytest.raises(ValueError, match=message):
        CompositeKernelClassification(np.eye(3), labels)


@pytest.mark.parametrize("arguments", [{"tau": 0.0}, {"nu": -1.0}, {"varphi": 0.0}])
def test_bad_arguments_of_the_rule(arguments):
    (name,) = arguments
    with pytest.raises(ValueError, match=f"'{name}' argument of DirichletWeights"):
        DirichletWeights(**arguments)


@pytest.mark.parametrize("scale", [1e-300, 0.05, 20.0])
def test_targets_far_from_unit_scale_are_warned_of(scale):
    ages = np.arange(20.0)
    kernel = kz.gaussian("median")(ages[:, None])
    with pytest.warns(UserWarning, match=f"have a standard deviation of {scale:g}; its") as told:
        CompositeKernelRegression(kernel, scale * stats.zscore(ages))
    assert {warning.filename for warning in told} == {__file__}
    # Rounding gives them a deviation of 3e-17.
    CompositeKernelRegression(kernel, np.full(20, 0.1))
