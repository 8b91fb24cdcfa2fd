import logging

import numpy as np
import pymc as pm
import pytest

from kernelzoo.custom_steps import AlbertChib
from kernelzoo.models.combinations import sums as combination
from kernelzoo.models.multinomial_probit import MultinomialProbit
from probit_fixture import assert_samplers_agree, expansion

QUIET = {"progressbar": False, "compute_convergence_checks": False}


@pytest.fixture(scope="module", autouse=True)
def _quiet():
    logging.getLogger("pymc").setLevel(logging.ERROR)


@pytest.fixture(scope="module")
def model():
    return MultinomialProbit.example()


def test_fixed_weights_and_a_single_kernel():
    for kernels, rule in ((slice(None), combination.FixedWeights([0.3, 0.7])), (slice(1), "mean")):
        example = MultinomialProbit.example()
        model = MultinomialProbit(example.design[kernels], example.label_codes, combination=rule)
        point, stats = AlbertChib(model=model, rng=1).step(model.initial_point())
        assert list(point) == ["zeta_log__", "W"]
        assert np.isnan(list(stats[0].values())).all()


def test_wrong_requests(model):
    with pytest.raises(ValueError, match=r"'vars' argument of AlbertChib must be .*W"):
        AlbertChib([model["zeta"], model["W"]], model=model)
    with pytest.raises(ValueError, match="'moves' argument of AlbertChib"):
        AlbertChib(model=model, moves=-1)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["mean", combination.FixedWeights([0.3, 0.7])])
def test_gibbs_agrees_with_nuts(rule):
    model = expansion(combination=rule)
    with model:
        options = {"chains": 2, "cores": 1, "random_seed": 6, **QUIET}
        gibbs = pm.sample(20_000, tune=1_000, step=[AlbertChib()], **options)
        nuts = pm.sample(3_000, tune=1_000, nuts_sampler="pymc", target_accept=0.9, **options)
    assert_samplers_agree(gibbs, nuts)
