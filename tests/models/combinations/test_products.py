"""Products of kernels: entries of zero, and negative ones."""

import numpy as np
import pymc as pm
import pytest

import kernelzoo as kz
from kernelzoo.custom_steps.multinomial_probit.sweep import (
    Moves,
    adapt,
    initial_tuning,
    sweep,
)
from kernelzoo.inference.engine.density import log_density
from kernelzoo.inference.engine.engine import Run
from kernelzoo.inference.engine.independent import lean_tree
from kernelzoo.models.combinations.products import FixedProduct, Product
from kernelzoo.models.combinations.sums import SMALLEST
from kernelzoo.models.kernels import Theta, covariance, gaussian, kernel_stack
from kernelzoo.models.multinomial_probit import MultinomialProbit

RNG = np.random.default_rng(2)
LABELS = np.arange(8) % 2
RUN = Run(random_seed=1, progressbar=False, draws=200)


@pytest.mark.parametrize("rule", [Product(), FixedProduct()])
def test_negative_entries_are_refused(rule):
    K = RNG.uniform(0.1, 1.0, size=(2, 8, 7))
    K[1, 2, 5] = -0.2
    with pytest.raises(ValueError, match=r'kernels\["far"\].*nowhere negative.*-0.2 at \(2, 5\)'):
        MultinomialProbit(kernel_stack({"near": K[0], "far": K[1]}), LABELS, combination=rule)


def by_vb(model, **settings):
    answer = kz.VB(**settings).implement(model, RUN)
    draws, _ = answer.sample(RUN.draws, RUN.rng(1))
    return lean_tree(model, RUN, draws, {})


def by_gibbs(model, sweeps):
    """Draws of theta by the sweep itself."""
    composition = model.composition
    values = {rv.name: np.ones(rv.shape.eval()) for rv in model.free_RVs}
    values["theta"] = np.array([6.0])
    tuning, rng, draws = initial_tuning(composition), np.random.default_rng(1), []
    for number in range(sweeps):
        values, info = sweep(
            *(values, model.label_codes, composition, model.tau, model.upsilon, rng),
            tuning=tuning,
            moves=Moves(),
        )
        if number < sweeps // 3:
            tuning = adapt(tuning, values, info, composition)
        draws.append(values["theta"])
    return np.array(draws)


@pytest.mark.parametrize("rule", [Product(), FixedProduct()])
def test_kernels_may_underflow(rule):
    """Two groups so far apart that their Gaussian kernel is 0; new objects farther still."""
    X = RNG.normal(size=(8, 2)) + 60.0 * LABELS[:, None]
    kernels = gaussian(0.5) | gaussian(0.01)
    K = kernels(X)
    assert (K.values[0] == 0).any()
    np.testing.assert_allclose(rule.terms(K.values)[0].min(), np.log(SMALLEST))
    model = MultinomialProbit(K, LABELS, combination=rule)
    result = by_vb(model)
    near = kz.predict(model, result, kernels(X + 0.1, X))
    np.testing.assert_array_equal(near["label"], LABELS)
    far = kz.predict(model, result, kernels(X + 1e4, X))["probability"]
    np.testing.assert_allclose(far, 0.5, atol=0.05)


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.filterwarnings("ignore:VB did not converge")
def test_parameters_that_make_a_product_negative_are_impossible():
    """cos(2 pi d / theta) of objects up to one apart is positive where theta > 4."""
    x = np.linspace(0, 1, 8)[:, None]
    kernels = covariance(lambda theta: pm.gp.cov.Cosine(1, ls=theta), Theta(5.0, 1.0)) | gaussian()
    model = MultinomialProbit(kernels(x, x[:4]), LABELS, combination=Product())
    parametric = model.kernel_source

    def negative(theta):
        return np.array([(parametric.evaluate(t) < 0).any() for t in theta.reshape(-1, 1)])

    prior = pm.sample_prior_predictive(100, model=model, random_seed=1)["prior"]
    draws = {rv.name: prior[rv.name].values[0] for rv in model.free_RVs}
    found = negative(draws["theta"])
    assert 0.1 < found.mean() < 0.9
    np.testing.assert_array_equal(log_density(model, draws) == -np.inf, found)
    assert not negative(by_gibbs(model, 300)).any()
    # Draws of the normal factor may leave the support.
    result = by_vb(model, max_iterations=5, starts=1)
    result["posterior"]["theta"].values[0, 0] = 3.0
    with pytest.raises(ValueError, match="'kernels_new' argument of predict must be non-negative"):
        kz.predict(model, result, kernels(x, x[:4]))
