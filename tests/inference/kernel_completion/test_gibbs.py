"""The steps that make up the Gibbs sampler of the completion model."""

import arviz as az
import pytest

from family import assert_z
from kernelzoo.custom_steps.kernel_completion.tanner_wong import (
    TannerWongImputation,
    TannerWongPosterior,
)
from kernelzoo.inference.engine.engine import Run
from kernelzoo.inference.engine.fit import fit
from kernelzoo.inference.kernel_completion.gibbs import completion_steps
from kernelzoo.inference.kernel_completion.wishart import sample_completion
from kernelzoo.models.wishart_completion import WishartCompletion


def test_steps_own_every_variable_once():
    model = WishartCompletion.example()
    steps = completion_steps(model, Run())
    assert [type(step) for step in steps] == [TannerWongImputation, TannerWongPosterior]
    owned = [value for step in steps for value in step.vars]
    assert sorted(owned, key=str) == sorted(model.value_vars, key=str)


def test_settings_are_checked():
    with pytest.raises(ValueError, match="'p_step' argument"):
        completion_steps(WishartCompletion.example(), Run(), p_step="marginals")


def test_fit_finds_the_exact_moments():
    model = WishartCompletion.example()
    kept = ["K21", "K22", "trace_K22"]
    options = {"cores": 1, "random_seed": 1, "progressbar": False, "var_names": kept}
    result = fit(model, "gibbs", draws=1_000, tune=100, chains=2, **options)
    exact = sample_completion(model, Run()).moments
    for name in ("K21", "K22"):
        mean, sd = exact[name]
        streamed = result["moments"][f"{name}_mean"].mean("chain").values
        ess = az.ess(result, var_names=[name])[name].values
        assert_z((streamed - mean) / (sd / ess**0.5))
