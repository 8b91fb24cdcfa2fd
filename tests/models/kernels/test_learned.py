"""Kernels with parameters: their tensors, their numbers, and the models that take them."""

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

from kernelzoo.inference.engine.groups import log_density
from kernelzoo.models.kernels import Theta, gaussian, linear, polynomial
from kernelzoo.models.kernels.source import ParametricStack
from kernelzoo.models.multinomial_probit import MultinomialProbit
from kernelzoo.models.wishart_kernel_mixture import WishartKernelMixture
from probit_moments import log_probability

pytestmark = pytest.mark.usefixtures("quick_compilation")

D = 3
RNG = np.random.default_rng(0)
X, X_NEW = RNG.normal(size=(8, D)), RNG.normal(size=(4, D))
LABELS = np.arange(8) % 3


KERNELS = (
    gaussian(Theta(2.0, 4.0))
    | linear()
    | gaussian(Theta(3.0, 2.0, ard=True)).named("relevance").normalize("unit", "trace")
    | gaussian(Theta(2.0, 1.0)).named("unit").normalize("unit")
)
VALUES = np.array([0.3, 0.2, 0.9, 1.4, 0.7])


def test_parameters_are_named_with_their_priors():
    stack = KERNELS(X)
    assert isinstance(stack, ParametricStack)
    assert stack.parameters == ["gaussian", *(f"relevance {d}" for d in range(D)), "unit"]
    omega, phi = stack.omega, stack.phi
    np.testing.assert_array_equal(omega, [2, 3, 3, 3, 2])
    np.testing.assert_array_equal(phi, [4, 2, 2, 2, 1])
    assert stack.start["kernel"].values.tolist() == ["gaussian", "linear", "relevance", "unit"]
    assert stack.fixed["kernel"].values.tolist() == ["linear"]
    np.testing.assert_allclose(stack.start[0], gaussian(2.0 / 4.0)(X)[0], atol=1e-12)


@pytest.mark.parametrize("objects", [(X,), (X_NEW, X)])
def test_numbers_are_those_of_fixed_kernels(objects):
    """The Gaussian against the same kernel with its number, normalised or not."""
    found = KERNELS(*objects).evaluate(VALUES)
    fixed = (gaussian(0.3) | linear())(*objects)
    np.testing.assert_allclose(found[:2], fixed, atol=1e-12)
    scaled = [x * np.sqrt(VALUES[1:4]) for x in objects]
    relevance = gaussian(1.0)(*scaled)
    np.testing.assert_allclose(found[2], relevance[0], atol=1e-12)
    other = gaussian(VALUES[4]).normalize("unit")(*objects)
    np.testing.assert_allclose(found[3], other[0], atol=1e-9)
    np.testing.assert_array_equal(KERNELS(*objects).evaluate(VALUES, slice(1, 3)), found[:, 1:3])


@pytest.mark.parametrize("objects", [(X,), (X_NEW, X)])
def test_tensors_are_the_numbers(objects):
    stack = KERNELS(*objects)
    theta = pt.vector("theta")
    tensor = stack.tensor(theta, stack.features, stack.fixed.to_numpy())
    np.testing.assert_allclose(tensor.eval({theta: VALUES}), stack.evaluate(VALUES), atol=1e-9)


def test_density_is_the_papers():
    kernels = gaussian(Theta(2.0, 4.0)) | polynomial(2) | gaussian(Theta(3.0, 2.0, ard=True))
    stack = kernels(X)
    model = MultinomialProbit(stack, LABELS, combination="product")
    assert [rv.name for rv in model.free_RVs] == ["theta", "pi", "chi", "beta", "zeta", "W"]
    assert model.named_vars_to_dims["theta"] == ("parameter",)
    prior = pm.sample_prior_predictive(3, model=model, random_seed=1)["prior"]
    draws = {rv.name: prior[rv.name].values[0] for rv in model.free_RVs}
    draws["beta"] = np.maximum(draws["beta"], 1e-6)
    expected = []
    for i in range(3):
        theta, pi, chi, beta, zeta, W = (draws[rv.name][i] for rv in model.free_RVs)
        squares = (X[:, None] - X[None]) ** 2
        K = np.exp(-beta[0] * theta[0] * squares.sum(-1) - beta[2] * squares @ theta[1:])
        f = (K * ((X @ X.T + 1) ** 2) ** beta[1]) @ W.T
        expected.append(
            stats.gamma.logpdf(theta, [2, 3, 3, 3], scale=1 / np.array([4, 2, 2, 2])).sum()
            + stats.expon.logpdf(pi).sum()
            + stats.expon.logpdf(chi).sum()
            + stats.gamma.logpdf(beta, pi, scale=1 / chi).sum()
            + stats.invgamma.logpdf(zeta, 1.0).sum()
            + stats.norm.logpdf(W, 0, np.sqrt(zeta)).sum()
            + log_probability(f, LABELS).sum()
        )
    np.testing.assert_allclose(log_density(model, draws), expected, atol=5e-7)
    copy = cloudpickle.loads(cloudpickle.dumps(model))
    np.testing.assert_allclose(
        copy.kernel_source.evaluate(VALUES[:4]), stack.evaluate(VALUES[:4]), atol=1e-12
    )


def test_new_objects_by_set_data():
    """Features and fixed kernels are data: new ones give the kernels of new objects."""
    model = MultinomialProbit(KERNELS(X), LABELS)
    new = KERNELS(X_NEW, X)
    with model:
        pm.set_data(
            {"X": X_NEW, "K": new.fixed, "labels": LABELS[:4]}, coords={"obs": np.arange(4)}
        )
    assert model["t"].eval(mode="FAST_COMPILE").shape == (4,)
    with pytest.raises(ValueError, match=r"kernel_source\.evaluate"):
        _ = model.design


def test_feature_spaces_have_features_and_parameters_of_their_own():
    spaces = {"shape": X, "colour": X[:, :2]}
    stack = gaussian(Theta(ard=True))(spaces)
    assert stack.parameters == [
        *(f"gaussian[shape] {d}" for d in range(3)),
        *(f"gaussian[colour] {d}" for d in range(2)),
    ]
    model = MultinomialProbit(stack, LABELS)
    assert {"X_shape", "X_colour"} <= set(model.named_vars)
    assert "K" not in model.named_vars


def test_bad_requests():
    with pytest.raises(ValueError, match="'omega' argument of Theta"):
        Theta(0.0)
    with pytest.raises(ValueError, match="'phi' argument of Theta"):
        Theta(1.0, np.inf)
    with pytest.raises(ValueError, match="'theta' argument of WishartKernelMixture"):
        WishartKernelMixture(KERNELS(X), np.eye(6))
    with pytest.raises(ValueError, match=r'kernels\["linear"\].*Product'):
        MultinomialProbit(KERNELS(X), LABELS, combination="product")
