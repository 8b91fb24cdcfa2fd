"""Ascents that begin in single precision end at the answer of those in double precision."""

from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.stats import ortho_group

import kernelzoo as kz
from kernelzoo.inference.composite_kernel import vb as composite_kernel
from kernelzoo.inference.multinomial_probit import vb as multinomial_probit
from kernelzoo.inference.variational.factors import precision_factor

N_OBJECTS = 60
MODULES = {"probit": multinomial_probit, "classification": composite_kernel}


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


def fitted(kind, model, monkeypatch, *, single):
    """The last bound, whether it has converged, and the iterations by precision."""
    module, counts = MODULES[kind], Counter()
    monkeypatch.setattr(module, "SINGLE_FROM", N_OBJECTS if single else N_OBJECTS + 2)
    update = module.update

    def counted(data, state):
        rounded = data if kind == "probit" else data.likelihood
        counts[rounded.dtype] += 1
        return update(data, state)

    monkeypatch.setattr(module, "update", counted)
    engine = kz.VB(remaining=1e-5)
    fit = kz.fit(model, engine, random_seed=1, draws=25, progressbar=False)
    monkeypatch.undo()
    elbo = fit["trajectory"]["elbo"].values
    bound = np.nanmax([history[np.isfinite(history)][-1] for history in elbo])
    return bound, fit.attrs["converged"], counts


@pytest.mark.filterwarnings("ignore:.*nearly the identity")
@pytest.mark.parametrize(
    ("kind", "condition", "scale"),
    [
        *(("classification", condition, 1) for condition in (1e2, 1e8, 1e14)),
        *(("probit", condition, 1) for condition in (1e2, 1e8, 1e14)),
        # A ridge, on which ascents that begin anew end too early.
        ("classification", 1e6, 100),
        ("probit", 1e6, 100),
    ],
)
def test_bound_is_that_of_double_precision(kind, condition, scale, monkeypatch):
    model = problem(kind, condition, scale)
    double, of_double, counts = fitted(kind, model, monkeypatch, single=False)
    single, of_single, mixed = fitted(kind, model, monkeypatch, single=True)
    assert single == pytest.approx(double, abs=1e-3)
    assert of_single == of_double == "yes"
    assert not counts[np.float32]
    assert mixed[np.float32] > (mixed[np.float64] if scale == 1 else 0)


@pytest.mark.parametrize("kind", ["classification", "probit"])
def test_an_iteration_in_single_precision_is_nearly_that_in_double(kind):
    """The means of W are exact: with rounding errors ascents take twice the iterations."""
    model, module = problem(kind, 1e3), MODULES[kind]
    if kind == "probit":
        data, sizes, means, near = module.Data.of(model), (), "W_mean", 1e-8
        rough = replace(data, dtype=np.float32)
    else:
        data, sizes = module._inputs(model), (len(model.coords["function"]),)
        rough = replace(data, likelihood=replace(data.likelihood, dtype=np.float32))
        means, near = "noise", 1e-5
    state = partial(module.start, data, *sizes)(np.array([0.6, 0.4]))
    for _ in range(5):
        state = module.update(data, state)
    double, single = module.update(data, state), module.update(rough, state)
    assert single.objective == pytest.approx(double.objective, abs=1e-3)
    assert single.objective != double.objective
    np.testing.assert_allclose(getattr(single, means), getattr(double, means), rtol=near)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_sum_over_blocks_keeps_its_precision(dtype):
    """By it the factorisation knows which pivots are rounding errors."""
    likelihood = composite_kernel._inputs(problem("classification", 1e3)).likelihood
    likelihood = replace(likelihood, dtype=dtype)
    phi = np.ones(likelihood.projections.shape[1])
    ((factor, _),) = likelihood.precisions(np.ones(N_OBJECTS), phi, np.eye(2))
    assert factor.dtype == dtype


def test_a_pivot_that_is_rounding_in_single_precision_is_refused():
    gram, precision = np.full((3, 3), 1e3), np.full(3, 1e-2)
    precision_factor(gram, precision)
    with pytest.raises(np.linalg.LinAlgError, match="numerically singular"):
        precision_factor(gram.astype(np.float32), precision)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_infinite_precision_is_refused(dtype):
    with pytest.raises(np.linalg.LinAlgError, match="numerically singular"):
        precision_factor(np.eye(2, dtype=dtype), np.array([1.0, np.inf]))
