"""The step as PyMC runs it: its conditionals, NUTS on the rest, what it refuses."""

import logging

import numpy as np
import pymc as pm
import pytest

import kernelzoo as kz
from kernelzoo.custom_steps import AlbertChib
from kernelzoo.custom_steps.multinomial_probit import albert_chib
from kernelzoo.models.combinations import sums as combination
from kernelzoo.models.multinomial_probit import MultinomialProbit
from probit_fixture import assert_samplers_agree, expansion

QUIET = {"progressbar": False, "compute_convergence_checks": False}
TAU, UPSILON = 1.0, 0.6
# No two sizes are equal, and classes differ in size: exchanged indices show.
N_CLASSES, N_OBJECTS, N_BASIS = 3, 5, 4
X = np.random.default_rng(0).normal(size=(N_OBJECTS, 2))
LABELS = np.array([0, 0, 1, 2, 0])


@pytest.fixture(scope="module", autouse=True)
def _quiet():
    logging.getLogger("pymc").setLevel(logging.ERROR)


@pytest.fixture(scope="module")
def model():
    return MultinomialProbit.example()


def declaration(rule):
    """Five objects, four basis functions, two kernels of which one has a parameter."""
    other = kz.gaussian(3.0) if rule == "product" else kz.linear()
    kernels = (kz.gaussian(kz.kernels.Theta(2.0, 3.0)) | other)(X, X[:N_BASIS])
    return MultinomialProbit(kernels, LABELS, combination=rule, tau=TAU, upsilon=UPSILON)


def test_fixed_weights_and_a_single_kernel():
    for kernels, rule in ((slice(None), combination.FixedWeights([0.3, 0.7])), (slice(1), "mean")):
        example = MultinomialProbit.example()
        model = MultinomialProbit(example.design[kernels], example.label_codes, combination=rule)
        point, _ = AlbertChib(model=model, rng=1).step(model.initial_point())
        assert list(point) == ["zeta_log__", "W"]


def test_wrong_requests(model):
    for names in (["zeta"], ["W", "beta"]):
        with pytest.raises(ValueError, match="'vars' argument of AlbertChib must be W, or W and"):
            AlbertChib([model[name] for name in names], model=model)


class Means:
    """Generator whose draws are their means."""

    def standard_normal(self, shape):
        return np.zeros(shape)

    def standard_exponential(self, shape=()):
        return np.ones(shape)

    def standard_gamma(self, shape, size=()):
        return np.broadcast_to(shape, size or np.shape(shape))


@pytest.mark.parametrize("rule", ["mean", "product"])
def test_a_sweep_has_the_conditionals_of_each_kernel_and_class(rule, monkeypatch):
    """Given utilities, with kernels and classes that all differ; exchanged ones show at once."""
    rng, seen = np.random.default_rng(3), []
    y = rng.normal(size=(N_OBJECTS, N_CLASSES))

    def given_utilities(scores, labels, rng):
        seen.append((scores, labels))
        return y

    step = AlbertChib(model=declaration(rule))
    beta, theta = np.array([0.2, 0.8]), 0.7
    values = {
        "W": rng.normal(size=(N_CLASSES, N_BASIS)),
        "zeta": np.array([[0.3], [1.0], [4.0]]) * rng.uniform(0.5, 2.0, (N_CLASSES, N_BASIS)),
        "beta": beta,
        "theta": np.array([theta]),
    }
    monkeypatch.setattr(albert_chib, "sample_cone", given_utilities)
    new, _ = step.sweep(values, Means())

    squared = ((X[:, None] - X[:N_BASIS]) ** 2).sum(-1)
    if rule == "mean":
        K = beta[0] * np.exp(-theta * squared) + beta[1] * X @ X[:N_BASIS].T
    else:
        K = np.exp(-theta * squared) ** beta[0] * np.exp(-3.0 * squared) ** beta[1]
    ((scores, labels),) = seen
    np.testing.assert_allclose(scores, K @ values["W"].T)
    np.testing.assert_array_equal(labels, LABELS)
    zeta, q = values["zeta"], 0.0
    for c in range(N_CLASSES):
        q += y[:, c] @ np.linalg.solve(np.eye(N_OBJECTS) + (K * zeta[c]) @ K.T, y[:, c])
    W = np.array(
        [np.linalg.solve(K.T @ K + np.diag(1 / zeta[c]), K.T @ y[:, c]) for c in range(N_CLASSES)]
    )
    W *= np.sqrt(y.size / q)
    W -= (W / zeta).sum(axis=0) / (1 / zeta).sum(axis=0)
    np.testing.assert_allclose(new["W"], W)
    np.testing.assert_allclose(new["zeta"], (UPSILON + W**2 / 2) / (TAU + 0.5))


def test_what_it_reads_is_left_to_other_steps(model):
    step = AlbertChib(model=model, rng=1)
    point = model.initial_point()
    new, _ = step.step(point)
    kept = [name for name in point if np.array_equal(new[name], point[name])]
    assert kept == ["rho_log__", "beta_simplex__"]


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["mean", combination.FixedWeights([0.3, 0.7])])
def test_gibbs_agrees_with_nuts(rule):
    """W and zeta by Gibbs, with NUTS on weights that are random, against NUTS on all."""
    model = expansion(combination=rule)
    draws = 20_000 if rule != "mean" else 3_000
    with model:
        options = {"chains": 2, "cores": 1, "random_seed": 6, **QUIET}
        gibbs = pm.sample(draws, tune=1_000, step=[AlbertChib()], **options)
        nuts = pm.sample(3_000, tune=1_000, nuts_sampler="pymc", target_accept=0.9, **options)
    assert_samplers_agree(gibbs, nuts)


def labelled(n=9, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 2)), np.arange(n) % 3


@pytest.mark.parametrize("name", ["X", "K"])
def test_changed_features_are_refused(name):
    """The step and VB read kernels with parameters as declared; NUTS reads the model's data."""
    X, labels = labelled()
    model = kz.MultinomialProbit((kz.gaussian(kz.kernels.Theta()) | kz.linear())(X), labels)
    AlbertChib(model=model)
    with model:
        pm.set_data({name: 1 + model[name].get_value()})
    message = f"pm.set_data has changed {name}"
    with pytest.raises(ValueError, match=message):
        AlbertChib(model=model)
    with pytest.raises(ValueError, match=message):
        kz.fit(model, kz.VB(), progressbar=False)


@pytest.mark.parametrize("codes", [[0, 1, 3], [0, -1, 2]])
def test_codes_of_no_class_are_refused(codes):
    """They would index beyond the coordinates, in compiled code without a word."""
    X, labels = labelled()
    model = kz.MultinomialProbit(kz.linear()(X), labels)
    with model:
        pm.set_data({"labels": np.resize(codes, len(X))})
    with pytest.raises(ValueError, match="codes of its 3 classes, 0 to 2"):
        kz.fit(model, "gibbs", progressbar=False)
