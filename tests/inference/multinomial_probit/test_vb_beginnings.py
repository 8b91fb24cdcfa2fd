"""Where the ascents of the multinomial probit begin."""

import numpy as np
import pytest

import kernelzoo as kz
from kernelzoo.inference.engine.engine import Run
from kernelzoo.inference.multinomial_probit.vb import fit_multinomial_probit
from kernelzoo.models import MultinomialProbit
from kernelzoo.models.combinations.sums import FixedWeights, Mean

pytestmark = pytest.mark.filterwarnings("ignore:VB did not converge")


def problem(combination):
    rng = np.random.default_rng(3)
    labels = np.arange(15) % 3
    X = rng.normal(size=(15, 2)) + 1.5 * np.eye(3)[labels, :2]
    distances = ((X[:, None] - X[None]) ** 2).sum(-1)
    K = {"near": np.exp(-distances), "far": np.exp(-distances / 9)}
    return MultinomialProbit(K, labels, combination=combination)


def bounds(model, seed, iterations, **settings):
    run = Run(random_seed=seed, progressbar=False)
    return fit_multinomial_probit(model, run, max_iterations=iterations, **settings).elbo


@pytest.mark.parametrize("combination", [Mean(), FixedWeights()])
def test_random_beginnings_differ_by_seed_and_by_start_and_meet(combination):
    model = problem(combination)
    zero = [bounds(model, seed, 3)[0] for seed in (1, 2)]
    np.testing.assert_array_equal(zero[0], zero[1])
    random = [bounds(model, seed, 3, begin="random")[0] for seed in (1, 1, 2)]
    np.testing.assert_array_equal(random[0], random[1])
    assert abs(random[0][0] - random[2][0]) > 1e-3
    assert abs(random[0][0] - zero[0][0]) > 1e-3
    ends = [
        bounds(model, seed, 2000, begin=begin, starts=1, tolerance=1e-9, remaining=1e-4)[0][-1]
        for seed, begin in ((1, "zero"), (1, "random"), (2, "random"))
    ]
    np.testing.assert_allclose(ends, ends[0], atol=1e-3)


def test_an_unknown_beginning_is_refused():
    with pytest.raises(ValueError, match="'begin'"):
        kz.VB(begin="one")
