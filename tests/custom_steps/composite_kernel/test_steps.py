import logging

import arviz as az
import numpy as np
import pymc as pm
import pytest

from family import assert_z
from kernelzoo.custom_steps.composite_kernel.steps import CompositeKernelGibbs
from kernelzoo.models.combinations.sums import DirichletWeights, FixedWeights
from kernelzoo.models.composite_kernel import (
    CompositeKernelClassification,
    CompositeKernelRegression,
)
from kernelzoo.models.kernels import as_stack

QUIET = {"progressbar": False, "compute_convergence_checks": False}
MODELS = [CompositeKernelRegression, CompositeKernelClassification]


@pytest.fixture(scope="module", autouse=True)
def _quiet():
    logging.getLogger("pymc").setLevel(logging.ERROR)


@pytest.fixture(scope="module", params=MODELS, ids=lambda declared: declared.__name__)
def model(request):
    return request.param.example()


@pytest.fixture(scope="module")
def regression():
    return CompositeKernelRegression.example()


def test_collapsed_moves_have_nothing_to_tune(model):
    step = CompositeKernelGibbs(model=model)
    assert step.tuning == (None, None)


def test_alpha_integrated_out_leaves_the_other_draws_as_they_are(regression):
    """The sweep draws an alpha of its own: from one seed both declarations give the same chain."""
    collapsed = CompositeKernelRegression.example(collapsed=True)
    ends = []
    for declared in (regression, collapsed):
        step = CompositeKernelGibbs(model=declared, rng=1)
        point = declared.initial_point()
        for _ in range(5):
            point, _ = step.step(point)
        ends.append(point)
    assert "alpha" not in ends[1]
    for name, value in ends[1].items():
        np.testing.assert_allclose(value, ends[0][name], rtol=1e-10)


@pytest.mark.parametrize("declared", MODELS)
@pytest.mark.parametrize("bias", [True, False])
def test_weights_that_are_not_learned(declared, bias):
    for rule in ("fixed", FixedWeights([0.3, 0.7]), DirichletWeights(varphi=2.0)):
        model = declared.example(combination=rule, bias=bias)
        point, stats = CompositeKernelGibbs(model=model, rng=1).step(model.initial_point())
        assert "varphi_log__" not in point
        assert ("beta_simplex__" in point) == (stats[0]["evaluations"] > 0)
        assert len(point["alpha"]) == 8 + bias


def test_single_kernel():
    example = CompositeKernelRegression.example(bias=False)
    model = CompositeKernelRegression(as_stack(example.design[:1]), example.target_values)
    point, _ = CompositeKernelGibbs(model=model, rng=1).step(model.initial_point())
    assert sorted(point) == ["alpha", "gamma_log__", "phi_log__"]


def test_wrong_requests(regression):
    with pytest.raises(ValueError, match=r"'vars' argument .* must be .*alpha"):
        CompositeKernelGibbs([regression["beta"]], model=regression)
    with pytest.raises(ValueError, match="'moves' argument of CompositeKernelGibbs"):
        CompositeKernelGibbs(model=regression, moves=0)
    with pytest.raises(
        ValueError, match=r"'scheme' argument of Comp.* must be one of 'marginal', 'paper'"
    ):
        CompositeKernelGibbs(model=regression, scheme="no")
    collapsed = CompositeKernelRegression.example(collapsed=True)
    with pytest.raises(ValueError, match=r"'scheme' argument .* alpha integrated out"):
        CompositeKernelGibbs(model=collapsed, scheme="paper")


def functionals(tree):
    posterior = tree["posterior"]
    names = ("beta", "varphi", "phi", "gamma")
    kept = [np.log(posterior[name].values.clip(1e-9)) for name in names if name in posterior]
    kept = [values.reshape(*values.shape[:2], -1) for values in kept]
    return np.concatenate([np.arcsinh(posterior["alpha"].values), *kept], axis=-1)


def assert_agree(a, b):
    a, b = functionals(a), functionals(b)
    z = []
    for i in range(a.shape[-1]):
        error = np.hypot(float(az.mcse(a[..., i])), float(az.mcse(b[..., i])))
        z.append((a[..., i].mean() - b[..., i].mean()) / error)
    assert_z(z)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["marginal", "paper"])
def test_gibbs_agrees_with_nuts(model, scheme):
    with model:
        options = {"chains": 2, "cores": 1, "random_seed": 6, **QUIET}
        step = CompositeKernelGibbs(scheme=scheme)
        gibbs = pm.sample(10_000, tune=1_000, step=[step], **options)
        nuts = pm.sample(2_000, tune=1_000, nuts_sampler="pymc", target_accept=0.95, **options)
    assert_agree(gibbs, nuts)
