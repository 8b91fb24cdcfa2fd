"""The steps that make up the Gibbs sampler of the simplified completion model."""

import arviz as az
import numpy as np
import pytest
from scipy.special import psi

from family import assert_z
from kernelzoo.custom_steps.kernel_completion.diagonal_tanner_wong import (
    DiagonalTannerWongImputation,
    DiagonalTannerWongPosterior,
)
from kernelzoo.inference.engine.engine import Run
from kernelzoo.inference.engine.fit import fit
from kernelzoo.inference.kernel_completion.diagonal import (
    LogLambda,
    sample_diagonal_completion,
)
from kernelzoo.inference.kernel_completion.gibbs import diagonal_completion_steps
from kernelzoo.inference.paper_engines import Gibbs
from kernelzoo.models.diagonal_wishart_completion import DiagonalWishartCompletion

# (variant, whether W22_1 is declared diagonal)
FORMS = [("TW1", False), ("TW2", False), (None, True)]
OPTIONS = {
    "draws": 1_000,
    "tune": 100,
    "chains": 2,
    "cores": 1,
    "random_seed": 1,
    "progressbar": False,
    "log_likelihood": False,
    "var_names": ["lambda", "delta", "K21", "K22"],
}


def test_steps_own_every_variable_once():
    model = DiagonalWishartCompletion.example()
    steps = diagonal_completion_steps(model, Run())
    assert [type(s) for s in steps] == [DiagonalTannerWongImputation, DiagonalTannerWongPosterior]
    owned = [value for step in steps for value in step.vars]
    assert sorted(owned, key=str) == sorted(model.value_vars, key=str)


def test_settings_are_checked():
    model = DiagonalWishartCompletion.example()
    with pytest.raises(ValueError, match=r"'variant' argument .* Got 'TW3'"):
        diagonal_completion_steps(model, Run(), variant="TW3")


@pytest.mark.parametrize("longer", [{}, pytest.param({"draws": 4_000}, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("variant", "diagonal"), FORMS)
def test_fit_finds_the_exact_moments(variant, diagonal, longer):
    """TW1 and TW2 have the same exact posterior of lambda, delta and K21, and the same mean K22."""
    # Large eta and r: light tails, so that errors of means can be trusted.
    model = DiagonalWishartCompletion.example(diagonal_W22_1=diagonal, eta=8.0)
    posterior = fit(model, Gibbs(variant=variant), **OPTIONS | longer)["posterior"]
    exact = sample_diagonal_completion(model, Run()).moments
    x, p = LogLambda(model).nodes
    train = p @ np.log(np.exp(x)[:, None] + model.w / 2) - psi(model.eta + model.r / 2)
    test = np.full(model.n_test, x @ p - psi(model.eta))
    for draws, mean in (
        (np.log(posterior["lambda"]), x @ p),
        (np.log(posterior["delta"]), np.concatenate([train, test])),
        (posterior["K21"], exact["K21"][0]),
        (posterior["K22"], exact["K22"][0]),
    ):
        error = az.mcse(draws.to_dataset(name="x"), method="mean")["x"]
        assert_z((draws.mean(("chain", "draw")).values - mean) / error.values)
