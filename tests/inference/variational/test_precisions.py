"""Iterations in single precision end at the answer of those in double precision."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.stats import ortho_group

import kernelzoo as kz
from kernelzoo.inference.composite_kernel import vb as composite_kernel
from kernelzoo.inference.multinomial_probit import vb as multinomial_probit
from kernelzoo.inference.variational import ascent
from kernelzoo.inference.variational.factors import precision_factor

N_OBJECTS = 60


def problem(kind, condition, scale=1.0):
    """Two kernels whose eigenvalues differ by a factor; a class depends on the first."""
    rng = np.random.default_rng(3)
    sizes = scale * N_OBJECTS ** np.linspace(0, -np.log(condition) / np.log(N_OBJECTS), N_OBJECTS)
    axes = ortho_group.rvs(N_OBJECTS, size=2, random_state=rng)
    kernels = np.sqrt(N_OBJECTS) * np.einsum("kij,j,klj->kil", axes, sizes, axes)
    f = kernels[0] @ rng.normal(size=N_OBJECTS) / scale
    if kind == "probit":
        classes = np.digitize(f, np.quantile(f, [0.3, 0.7]))
        return kz.MultinomialProbit(kernels, classes, upsilon=10.0)
    return kz.CompositeKernelClassification(kernels, f > np.median(f))


def bound(model, monkeypatch, single):
    monkeypatch.setattr(ascent, "SINGLE_FROM", N_OBJECTS if single else N_OBJECTS + 1)
    engine = kz.VB(remaining=1e-5)
    fit = kz.fit(model, engine, random_seed=1, draws=25, progressbar=False)
    elbo = fit["trajectory"]["elbo"].values
    return np.nanmax([history[np.isfinite(history)][-1] for history in elbo])


@pytest.mark.filterwarnings("ignore:.*nearly the identity")
@pytest.mark.parametrize("kind", ["classification", "probit"])
@pytest.mark.parametrize(
    ("condition", "scale"), [(1e2, 1.0), (1e6, 1.0), (1e10, 1.0), (1e14, 1.0), (1e6, 1e4)]
)
def test_bound_is_that_of_double_precision(kind, condition, scale, monkeypatch):
    model = problem(kind, condition, scale)
    double = bound(model, monkeypatch, single=False)
    assert bound(model, monkeypatch, single=True) == pytest.approx(double, abs=1e-3)


def test_large_problems_begin_in_single_precision():
    for n_basis, kinds in [(199, [np.float64]), (200, [np.float32, np.float64])]:
        assert ascent.precisions(n_basis) == kinds


@pytest.mark.parametrize("kind", ["classification", "probit"])
def test_one_iteration_in_single_precision_is_nearly_that_in_double(kind):
    """The means of W are exact: with rounding errors ascents take twice the iterations."""
    model = problem(kind, 1e3)
    if kind == "probit":
        data, module = multinomial_probit.Data.of(model), multinomial_probit
        rough = replace(data, dtype=np.float32)
        begin = partial(module.start, data)
    else:
        data, module = composite_kernel._inputs(model), composite_kernel
        rough = replace(data, likelihood=replace(data.likelihood, dtype=np.float32))
        begin = partial(module.start, data, len(model.coords["function"]))
    state = begin(np.array([0.6, 0.4]))
    for _ in range(5):
        state = module.update(data, state)
    double, single = module.update(data, state), module.update(rough, state)
    assert single.objective == pytest.approx(double.objective, abs=1e-3)
    assert single.objective != double.objective
    means = {"probit": "W_mean", "classification": "noise"}[kind]
    near = 1e-8 if kind == "probit" else 1e-5
    np.testing.assert_allclose(getattr(single, means), getattr(double, means), rtol=near)


def test_a_pivot_that_is_rounding_in_single_precision_is_refused():
    gram, precision = np.full((3, 3), 1e3), np.full(3, 1e-2)
    precision_factor(gram, precision)
    with pytest.raises(np.linalg.LinAlgError, match="numerically singular"):
        precision_factor(gram.astype(np.float32), precision)
