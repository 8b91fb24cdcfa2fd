"""Products of kernels: entries of zero, and negative ones."""

import numpy as np
import pytest

import kernelzoo as kz
from kernelzoo.inference.engine.engine import Run
from kernelzoo.inference.engine.independent import lean_tree
from kernelzoo.models.combinations.products import FixedProduct, Product
from kernelzoo.models.combinations.sums import LEAST_LOG_ARGUMENT
from kernelzoo.models.kernels import as_stack, gaussian
from kernelzoo.models.multinomial_probit import MultinomialProbit

RNG = np.random.default_rng(2)
LABELS = np.arange(8) % 2
RUN = Run(random_seed=1, progressbar=False, draws=200)


@pytest.mark.parametrize("rule", [Product(), FixedProduct()])
def test_negative_entries_are_refused(rule):
    K = RNG.uniform(0.1, 1.0, size=(2, 8, 7))
    K[1, 2, 5] = -0.2
    with pytest.raises(ValueError, match=r'kernels\["far"\].*nowhere negative.*-0.2 at \(2, 5\)'):
        MultinomialProbit(as_stack({"near": K[0], "far": K[1]}), LABELS, combination=rule)


def by_vb(model, **settings):
    answer = kz.VB(**settings).implement(model, RUN)
    draws, _ = answer.sample(RUN.draws, RUN.rng(1))
    return lean_tree(model, RUN, draws, {})


@pytest.mark.parametrize("rule", [Product(), FixedProduct()])
def test_kernels_may_underflow(rule):
    """Two groups so far apart that their Gaussian kernel is 0; new objects farther still."""
    X = RNG.normal(size=(8, 2)) + 60.0 * LABELS[:, None]
    kernels = gaussian(0.5) | gaussian(0.01)
    K = kernels(X)
    assert (K.values[0] == 0).any()
    np.testing.assert_allclose(rule.terms(K.values)[0].min(), np.log(LEAST_LOG_ARGUMENT))
    model = MultinomialProbit(K, LABELS, combination=rule)
    result = by_vb(model)
    near = kz.predict(model, result, kernels(X + 0.1, X))
    np.testing.assert_array_equal(near["label"], LABELS)
    far = kz.predict(model, result, kernels(X + 1e4, X))["probability"]
    np.testing.assert_allclose(far, 0.5, atol=0.05)
